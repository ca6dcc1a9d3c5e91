//! Golden fixtures: what a release put on the wire and in stores stays readable for ever, and what is written
//! stays as it is, byte for byte.
//!
//! An exact fixture is both read and written; any other is only read, because a peer or a
//! worker of another release wrote it. `schema/fixtures/README.md` says how to add one.

mod config;
mod messages;
mod records;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// One committed file and what it must mean.
struct Fixture {
    /// Below `schema/fixtures/`, without `.json`.
    path: &'static str,
    /// `Err` says what is wrong with these bytes.
    check: Box<dyn Fn(&str) -> Result<(), String>>,
    /// The encoding of the value, for fixtures that are written too.
    encoding: Option<String>,
}

/// A fixture that is read as this value.
fn reads<T: DeserializeOwned + PartialEq + Debug + 'static>(
    path: &'static str,
    value: T,
) -> Fixture {
    let check = move |text: &str| match serde_json::from_str::<T>(text) {
        Ok(read) if read == value => Ok(()),
        Ok(read) => Err(format!("is read as\n{read:#?}\ninstead of\n{value:#?}")),
        Err(error) => Err(format!("is not read: {error}")),
    };
    Fixture {
        path,
        check: Box::new(check),
        encoding: None,
    }
}

/// A fixture that is read as this value, and that this value is written as.
fn exact<T: Serialize + DeserializeOwned + PartialEq + Debug + 'static>(
    path: &'static str,
    value: T,
) -> Fixture {
    let encoding = serde_json::to_string(&value).unwrap() + "\n";
    Fixture {
        encoding: Some(encoding),
        ..reads(path, value)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Checks fixtures against their files. `AGENTFLEET_NEW_FIXTURES=1` creates files that are not
/// there yet; what is there is never overwritten.
fn check_all(fixtures: Vec<Fixture>) {
    let create = std::env::var("AGENTFLEET_NEW_FIXTURES").is_ok_and(|flag| flag == "1");
    let mut wrong = Vec::new();
    for Fixture {
        path,
        check,
        encoding,
    } in fixtures
    {
        let file = folder().join(format!("{path}.json"));
        if let (true, false, Some(encoding)) = (create, file.exists(), &encoding) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, encoding).unwrap();
        }
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                wrong.push(format!("{path}: {error}"));
                continue;
            }
        };
        if let Err(why) = check(&text) {
            wrong.push(format!("{path} {why}"));
        }
        if let Some(encoding) = encoding.filter(|encoding| *encoding != text) {
            wrong.push(format!(
                "{path}: the encoding changed. If that is meant, keep this file under another \
                 name as a fixture that is only read, and create the new one with \
                 AGENTFLEET_NEW_FIXTURES=1.\nwritten:   {encoding}committed: {text}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn messages_are_read_and_written_as_committed() {
    check_all(messages::fixtures());
}

#[test]
fn records_are_read_and_written_as_committed() {
    check_all(records::fixtures());
}

#[test]
fn config_items_are_read_and_written_as_committed() {
    check_all(config::fixtures());
}

#[test]
fn no_committed_fixture_is_left_untested() {
    let mut tested: BTreeSet<PathBuf> = BTreeSet::new();
    for fixture in [
        messages::fixtures(),
        records::fixtures(),
        config::fixtures(),
    ]
    .into_iter()
    .flatten()
    {
        let path = folder().join(format!("{}.json", fixture.path));
        assert!(tested.insert(path), "{} is listed twice", fixture.path);
    }
    let mut committed = BTreeSet::new();
    for kind in ["messages", "records", "config"] {
        for folder in std::fs::read_dir(folder().join(kind)).unwrap() {
            for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
                committed.insert(file.unwrap().path());
            }
        }
    }
    assert_eq!(committed, tested, "left: committed, right: tested");
}

/// A full fixture that leaves a field at its default could not show that the field is read.
#[test]
fn full_fixtures_set_every_field_of_their_type() {
    use agentfleet_schema::json_schema::{ALIASES, DECODERS, config_items, messages};
    let kinds = [("messages", messages()), ("config", config_items())];
    for (kind, schemas) in kinds {
        for (name, schema) in schemas {
            let path = folder().join(format!("{kind}/{name}/full.json"));
            let text = std::fs::read_to_string(path).unwrap();
            let full: Value = serde_json::from_str(&text).unwrap();
            let title = schema["title"].as_str().unwrap();
            let decoder = DECODERS.iter().find(|d| (d.name)() == title).unwrap();
            let default = (decoder.default)();
            for property in schema["properties"].as_object().unwrap().keys() {
                if ALIASES
                    .iter()
                    .any(|(owner, alias, _)| (*owner, *alias) == (title, property))
                {
                    continue;
                }
                let set = full.get(property);
                assert!(
                    set.is_some() && set != default.get(property),
                    "{kind}/{name}/full.json leaves `{property}` at its default"
                );
            }
        }
    }
}
