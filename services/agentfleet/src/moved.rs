//! What was moved out of a data directory, and where to: that part of it must not be worked here any
//! more, or runs would go on twice.

use crate::error::{Exit, Failure};
use crate::settings::{Place, Settings};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Addresses of the parts that were moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
}

fn path(settings: &Settings) -> PathBuf {
    settings.data.join("moved.json")
}

impl Moved {
    pub(crate) fn read(settings: &Settings) -> Result<Self, Failure> {
        let path = path(settings);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(unusable(&path, &error)),
        };
        serde_json::from_slice(&text).map_err(|error| unusable(&path, &error))
    }

    pub(crate) fn write(&self, settings: &Settings) -> Result<(), Failure> {
        let path = path(settings);
        let text = serde_json::to_vec_pretty(self).map_err(|error| unusable(&path, &error))?;
        fs::write(&path, text).map_err(|error| unusable(&path, &error))
    }

    /// Refuses settings that would work a part here which was moved.
    pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
        let moved = Self::read(settings)?;
        let parts = [
            ("broker", &settings.broker, &moved.broker),
            ("documents", &settings.documents, &moved.documents),
            ("graph", &settings.graph, &moved.graph),
        ];
        for (name, place, moved) in parts {
            if let (Place::Embedded, Some(address)) = (place, moved) {
                return Err(Failure::new(
                    Exit::Usage,
                    format!(
                        "the {name} of `{}` was moved to {address}",
                        settings.data.display()
                    ),
                )
                .hint(format!(
                    "set `{name} = \"{address}\"`, or name another data directory; whoever wants the old state back deletes `moved.json` in it"
                )));
            }
        }
        Ok(())
    }
}

fn unusable(path: &std::path::Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Unavailable,
        format!("cannot use `{}`: {error}", path.display()),
    )
}
