//! The configuration the product comes with, and how it gets into a store.
//!
//! A seed directory has one folder for each item type and one file for each item, named after its
//! key: `tool/document-search.json`. A prompt may be `prompt/KEY.md`, which is easier to edit:
//!
//! ```text
//! ---
//! response-type: json
//! ---
//! <system>
//! Template of the system message; may be left out.
//! </system>
//! Template of the user message.
//! ```
//!
//! A query may be `query/KEY.rq`: SPARQL with its description and parameters as comments ahead
//! ([`crate::queries`]).
//!
//! The same files are in the binary ([`embedded`]).
//!
//! Versions of the product run beside each other while it is upgraded, and each of them seeds. So
//! what is seeded is signed with the [`Release`] that did it, and an older one leaves it alone. What a
//! person seeds from a directory is signed as that: no release touches it, and the next directory updates it.

use crate::error::Problem;
use crate::{ConfigStore, Error, Item, ItemVersion, queries, sets};
use agentfleet_schema::config::{Snapshot, item_type};
use semver::Version;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The author of what seeding writes, before the version.
const AUTHOR: &str = "seed";
/// The author of what a person seeds from a directory, before the name.
const FROM_DIRECTORY: &str = "seeded by ";

/// A version of the product that seeds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(Version);

impl Release {
    /// That of this program.
    pub fn this() -> Self {
        let built = Version::parse(env!("CARGO_PKG_VERSION"));
        Self(built.unwrap_or(Version::new(0, 0, 0)))
    }

    /// `None` if it is not written as `MAJOR.MINOR.PATCH`, perhaps with a `-PRERELEASE`.
    pub fn parse(text: &str) -> Option<Self> {
        Version::parse(text).ok().map(Self)
    }

    /// The author of what it seeds.
    pub fn author(&self) -> String {
        format!("{AUTHOR} {}", self.0)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who seeds: the product, or a person from a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seeder {
    Product(Release),
    /// By name.
    Person(String),
}

impl Seeder {
    /// The author of what is seeded.
    pub fn author(&self) -> String {
        match self {
            Self::Product(release) => release.author(),
            Self::Person(name) => format!("{FROM_DIRECTORY}{name}"),
        }
    }
}

/// Who wrote a version of an item.
#[derive(Debug, PartialEq, Eq)]
enum Writer {
    Product(Release),
    /// A person, who seeded a directory.
    Directory,
    Person,
}

impl Writer {
    fn of(author: &str) -> Self {
        if author.starts_with(FROM_DIRECTORY) {
            return Self::Directory;
        }
        let signed = author.strip_prefix(AUTHOR);
        let signed = signed.and_then(|rest| rest.strip_prefix(' '));
        match signed.and_then(Release::parse) {
            Some(release) => Self::Product(release),
            None => Self::Person,
        }
    }
}

/// Whether an author is the product, in any version.
pub fn is_product(author: &str) -> bool {
    matches!(Writer::of(author), Writer::Product(_))
}

/// Type, file name and text of every seed file.
const FILES: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/seeds.rs"));

/// The items in the binary.
pub fn embedded() -> Result<Vec<Item>, Error> {
    of_files(FILES.iter().copied())
}

/// The items of files that are elsewhere in a program: type, file name and text of each.
pub fn of_files<'f>(
    files: impl IntoIterator<Item = (&'f str, &'f str, &'f str)>,
) -> Result<Vec<Item>, Error> {
    let files = files.into_iter();
    files
        .map(|(item_type, name, text)| item(item_type, name, text))
        .collect()
}

/// The items in the binary as a set, for what must work with an empty store. Its version is 0.
pub fn embedded_snapshot() -> Result<Arc<Snapshot>, Error> {
    Ok(Arc::new(sets::of(&embedded()?)))
}

/// The items of a seed directory.
pub fn directory(root: &Path) -> Result<Vec<Item>, Error> {
    let broken = |path: &Path, reason: String| Error::SeedFile {
        path: path.display().to_string(),
        reason,
    };
    let mut items = Vec::new();
    let mut found = false;
    for item_type in item_type::ALL {
        let folder = root.join(item_type);
        if !folder.is_dir() {
            continue;
        }
        found = true;
        let entries = std::fs::read_dir(&folder).map_err(|e| broken(&folder, e.to_string()))?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(|e| broken(&folder, e.to_string()))?.path());
        }
        paths.sort();
        for path in paths {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.starts_with('.') || !path.is_file() {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|e| broken(&path, e.to_string()))?;
            items.push(item(item_type, &name, &text)?);
        }
    }
    if !found {
        let folders = item_type::ALL.join("`, `");
        return Err(broken(
            root,
            format!("holds no seeds (there should be folders `{folders}`)"),
        ));
    }
    Ok(items)
}

/// Seeds a store as this program: see [`ConfigStore::seed`].
pub async fn seed(store: &dyn ConfigStore, items: Vec<Item>) -> Result<SeedReport, Error> {
    store.seed(items, &Seeder::Product(Release::this())).await
}

/// What seeding did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SeedReport {
    /// The store's version afterwards.
    pub version: u64,
    /// Items that never were there.
    pub added: usize,
    /// Items that only seeding ever wrote, and that have changed.
    pub updated: usize,
    pub unchanged: usize,
    /// Items that a newer version of the product wrote, left alone.
    pub newer: usize,
    /// The newest version that wrote one of them.
    pub newest: Option<String>,
    /// Items a person edited, left alone.
    pub edited: usize,
    /// Items a person deleted, left alone.
    pub deleted: usize,
    /// Items left out because they refer to what a person took away.
    pub left_out: Vec<Problem>,
}

impl SeedReport {
    pub fn changed(&self) -> bool {
        self.added + self.updated > 0
    }
}

impl fmt::Display for SeedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}: {} added", self.version, self.added)?;
        write!(
            f,
            ", {} updated, {} unchanged",
            self.updated, self.unchanged
        )?;
        if let Some(newest) = &self.newest {
            write!(f, ", {} left as version {newest} wrote them", self.newer)?;
        }
        for (count, what) in [(self.edited, "edited"), (self.deleted, "deleted")] {
            if count > 0 {
                write!(f, ", {count} left as {what} by people")?;
            }
        }
        for problem in &self.left_out {
            write!(f, "\nleft out: {problem}")?;
        }
        Ok(())
    }
}

/// An item that seeding is to write.
pub(crate) struct Wanted {
    pub(crate) item: Item,
    /// Whether it never was there.
    is_new: bool,
}

impl SeedReport {
    /// Sorts an item that is seeded by its newest version; `None` if it is to be left as it is.
    pub(crate) fn sort(
        &mut self,
        newest: Option<&ItemVersion>,
        item: Item,
        by: &Seeder,
    ) -> Option<Wanted> {
        let (count, is_new) = match newest {
            None => (&mut self.added, Some(true)),
            // What a directory brought and was taken out in its name, as by `example unload`, may come again.
            Some(newest) if newest.deleted && is_of_directory(newest, by) => {
                (&mut self.added, Some(true))
            }
            Some(newest) if newest.deleted => (&mut self.deleted, None),
            Some(newest) if newest.item.value == item.value => (&mut self.unchanged, None),
            Some(newest) => match (Writer::of(&newest.author), by) {
                (Writer::Product(writer), Seeder::Product(by)) if writer > *by => {
                    self.saw(&writer);
                    (&mut self.newer, None)
                }
                (Writer::Product(_), _) | (Writer::Directory, Seeder::Person(_)) => {
                    (&mut self.updated, Some(false))
                }
                (Writer::Directory, Seeder::Product(_)) | (Writer::Person, _) => {
                    (&mut self.edited, None)
                }
            },
        };
        *count += 1;
        is_new.map(|is_new| Wanted { item, is_new })
    }

    fn saw(&mut self, release: &Release) {
        let known = self.newest.as_deref().and_then(Release::parse);
        if known.is_none_or(|known| known < *release) {
            self.newest = Some(release.to_string());
        }
    }

    /// Takes an item back if one of these problems is with it; `false` if it stays.
    pub(crate) fn leave_out(&mut self, problems: &[Problem], wanted: &Wanted) -> bool {
        let Item { item_type, key, .. } = &wanted.item;
        let found = problems
            .iter()
            .find(|p| p.item_type == *item_type && p.key == *key);
        let Some(problem) = found else { return false };
        *(if wanted.is_new {
            &mut self.added
        } else {
            &mut self.updated
        }) -= 1;
        self.left_out.push(problem.clone());
        true
    }
}

/// Whether a directory is seeded, and one wrote this version.
fn is_of_directory(version: &ItemVersion, by: &Seeder) -> bool {
    matches!(by, Seeder::Person(_)) && Writer::of(&version.author) == Writer::Directory
}

/// The value in the text of a file: JSON, or for a prompt also Markdown, or for a query also SPARQL.
pub fn value(item_type: &str, text: &str) -> Result<Value, String> {
    let text = text.trim_start_matches('\u{feff}');
    // A template may begin with `{{ variable }}` or `{% if .. %}`, which no JSON object does.
    let rest = text.trim_start().strip_prefix('{').map(str::trim_start);
    let is_object = rest.is_some_and(|rest| rest.starts_with(['"', '}']));
    match item_type {
        item_type::PROMPT if !is_object => return prompt(text),
        item_type::QUERY if !is_object => return queries::read(text),
        _ => {}
    }
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

/// The item of one file.
fn item(item_type: &str, name: &str, text: &str) -> Result<Item, Error> {
    let broken = |reason: String| Error::SeedFile {
        path: format!("{item_type}/{name}"),
        reason,
    };
    let (key, value) = match name.rsplit_once('.') {
        Some((key, "json")) => (
            key,
            serde_json::from_str(text).map_err(|error| broken(error.to_string()))?,
        ),
        Some((key, "md")) if item_type == item_type::PROMPT => (key, prompt(text).map_err(broken)?),
        Some((key, "rq")) if item_type == item_type::QUERY => {
            (key, queries::read(text).map_err(broken)?)
        }
        _ if item_type == item_type::PROMPT => {
            return Err(broken("must end in `.md` or `.json`".to_owned()));
        }
        _ if item_type == item_type::QUERY => {
            return Err(broken("must end in `.rq` or `.json`".to_owned()));
        }
        _ => return Err(broken("must end in `.json`".to_owned())),
    };
    Ok(Item {
        item_type: item_type.to_owned(),
        key: key.to_owned(),
        value,
    })
}

/// The prompt item of a Markdown file.
fn prompt(text: &str) -> Result<Value, String> {
    let text = text.replace("\r\n", "\n");
    let mut rest = text.as_str();
    let mut value = json!({});
    if let Some(after) = rest.strip_prefix("---\n") {
        let (front, body) = after
            .split_once("\n---\n")
            .ok_or("the front matter has no second `---` line")?;
        for line in front.lines().filter(|line| !line.trim().is_empty()) {
            match line.split_once(':') {
                Some(("response-type", kind)) => value["response-type"] = json!(kind.trim()),
                _ => {
                    return Err(format!(
                        "unknown front matter `{line}` (known: `response-type: json`)"
                    ));
                }
            }
        }
        rest = body;
    }
    if let Some(after) = rest.trim_start().strip_prefix("<system>") {
        let (system, body) = after
            .split_once("</system>")
            .ok_or("`<system>` is not closed")?;
        value["system"] = json!(system.trim());
        rest = body;
    }
    value["prompt"] = json!(rest.trim());
    Ok(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::config::ModelProfile;
    use std::fs;

    #[test]
    fn releases_are_ordered_and_known_by_what_they_sign() {
        let table = [
            ("0.1.0", "0.1.1"),
            ("0.9.0", "0.10.0"),
            ("1.0.0-rc.2", "1.0.0-rc.10"),
            ("1.0.0-rc.10", "1.0.0"),
        ];
        for (older, newer) in table {
            let [older, newer] = [older, newer].map(|text| Release::parse(text).unwrap());
            assert!(older < newer, "{older} {newer}");
            assert_eq!(Writer::of(&older.author()), Writer::Product(older));
        }
        assert_eq!(Release::this().to_string(), env!("CARGO_PKG_VERSION"));
        for person in ["", "ann", "seed", "seed of doubt", "seeder", "seed 1"] {
            assert_eq!(Writer::of(person), Writer::Person, "{person}");
        }
    }

    #[test]
    fn a_prompt_file_has_front_matter_system_and_user_text() {
        let table = [
            ("Just {{ text }}.\n", json!({"prompt": "Just {{ text }}."})),
            (
                "---\nresponse-type: json\n---\n<system>\nBe brief.\n</system>\n\nAsk.\n",
                json!({"response-type": "json", "system": "Be brief.", "prompt": "Ask."}),
            ),
            (
                "---\r\nresponse-type: text\r\n---\r\nA\r\n---\r\nB",
                json!({"response-type": "text", "prompt": "A\n---\nB"}),
            ),
        ];
        for (text, value) in table {
            assert_eq!(item("prompt", "p.md", text).unwrap().value, value);
        }
        for text in [
            "---\nno end",
            "---\ncolour: red\n---\nx",
            "<system>\nno end",
        ] {
            assert!(item("prompt", "p.md", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_prompt_may_begin_with_a_template_tag_and_is_no_json() {
        for text in [
            "{{ question }}\n",
            "{% if x %}a{% endif %}",
            "{# why #}a",
            "Ask.",
            "{x}",
        ] {
            let found = value("prompt", text).unwrap();
            assert_eq!(found, json!({"prompt": text.trim()}), "{text}");
        }
        let json = "\u{feff}{ \"prompt\": \"Ask.\" }";
        assert_eq!(value("prompt", json).unwrap(), json!({"prompt": "Ask."}));
        assert!(value("prompt", "{\"prompt\": ").is_err());
        assert!(value("tool", "{{ x }}").is_err());
    }

    #[test]
    fn the_items_in_the_binary_are_those_of_the_source_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../seed-config");
        let mut here = directory(&root).unwrap();
        let mut there = embedded().unwrap();
        for items in [&mut here, &mut there] {
            items.sort_by(|a, b| (&a.item_type, &a.key).cmp(&(&b.item_type, &b.key)));
        }
        assert_eq!(here, there);
        // Examples lie beside them, and are not seeded with them.
        assert!(root.join("examples/business/tool").is_dir());
        assert!(there.iter().all(|item| item.key != "blog.list_posts"));
        assert_eq!(crate::validate::items(&there), []);
        assert_eq!(crate::validate::together(&embedded_snapshot().unwrap()), []);
    }

    #[test]
    fn the_profile_in_use_is_there_to_be_edited_and_changes_nothing_as_it_comes() {
        let mut set = (*embedded_snapshot().unwrap()).clone();
        let keys: Vec<_> = set.profiles.keys().collect();
        assert_eq!(keys, ["default"]);
        assert_eq!(set.profile(&["agent-react"]), ModelProfile::default());
        let named = |model: &str| ModelProfile {
            model: model.into(),
            ..ModelProfile::default()
        };
        set.profiles.insert("default".into(), named("small"));
        set.profiles.insert("agent-react".into(), named("large"));
        for (keys, expected) in [
            (vec!["agent-react"], "large"),
            (vec!["question"], "small"),
            (vec!["own", "agent-react"], "large"),
        ] {
            assert_eq!(set.profile(&keys).model, expected, "{keys:?}");
        }
    }

    #[test]
    fn a_directory_gives_the_items_of_its_files_and_names_what_is_wrong() {
        let root = tempfile::tempdir().unwrap();
        let error = directory(root.path()).unwrap_err().to_string();
        assert!(error.contains("`agent-pattern`"), "{error}");
        for (path, text) in [
            ("agent-pattern/react.json", "{\"name\": \"react\"}"),
            ("prompt/a.md", "A"),
            ("prompt/.hidden", ""),
            ("dossier/ignored.txt", ""),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let keys: Vec<_> = directory(root.path())
            .unwrap()
            .into_iter()
            .map(|item| item.key)
            .collect();
        assert_eq!(keys, ["react", "a"]);
        fs::write(root.path().join("agent-pattern/broken.json"), "{").unwrap();
        let error = directory(root.path()).unwrap_err().to_string();
        assert!(error.contains("agent-pattern/broken.json"), "{error}");
        fs::remove_file(root.path().join("agent-pattern/broken.json")).unwrap();
        fs::write(root.path().join("agent-pattern/notes.txt"), "").unwrap();
        let error = directory(root.path()).unwrap_err().to_string();
        assert!(error.contains("notes.txt"), "{error}");
    }
}
