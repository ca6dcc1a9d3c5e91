//! The settings file: where it lies, and what it says.

use super::{NAMES, Settings, unknown};
use crate::error::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name of the settings file.
const FILE: &str = "agentfleet.toml";

/// The settings file, flattened to text.
#[derive(Debug, Default)]
pub(super) struct File {
    pub path: Option<PathBuf>,
    pub values: BTreeMap<String, String>,
}

/// A settings file of the working directory that is not read. Whoever wrote what lies there, as in a
/// folder that was unpacked, must not say where keys are sent.
pub(crate) fn left_alone(settings: &Settings) -> Option<&'static str> {
    let here = Path::new(FILE);
    let same = |file: &PathBuf| {
        let whole = |path: &Path| path.canonicalize().ok();
        whole(file) == whole(here)
    };
    let is_read = settings.file.as_ref().is_some_and(same);
    (here.is_file() && !is_read).then_some(FILE)
}

pub(super) fn default_files(data: &Path) -> Vec<PathBuf> {
    let mut files = vec![data.join(FILE)];
    if let Some(config) = user_dir("XDG_CONFIG_HOME", ".config") {
        files.push(config.join("agentfleet").join(FILE));
    }
    files
}

pub(super) fn default_data() -> PathBuf {
    user_dir("XDG_DATA_HOME", ".local/share").map_or_else(
        || PathBuf::from(".agentfleet"),
        |data| data.join("agentfleet"),
    )
}

fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set(variable)
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(below_home)))
}

pub(super) fn read_file(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!(
            "cannot read the settings file `{}`: {error}",
            path.display()
        ))
    })?;
    let file = parse_file(&text)
        .map_err(|error| error.within(&format!("settings file `{}`", path.display())))?;
    Ok(File {
        path: Some(path.to_owned()),
        ..file
    })
}

pub(super) fn parse_file(text: &str) -> Result<File, Failure> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error
            .span()
            .map_or("", |at| &text[..at.start.min(text.len())]);
        let line = before.matches('\n').count() + 1;
        Failure::usage(format!("line {line}: {}", error.message()))
    })?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        // Keys may be written as the flags are.
        let name = key.replace('-', "_");
        if !NAMES.contains(&name.as_str()) {
            let all: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
            return Err(unknown("key", &key, &all));
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            other => {
                return Err(Failure::usage(format!(
                    "key `{key}` is {}, expected text or a number",
                    other.type_str()
                )));
            }
        };
        values.insert(name, text);
    }
    Ok(File { path: None, values })
}
