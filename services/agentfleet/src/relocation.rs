//! What was moved out of a data directory, and where to: that part of it must not be worked here any
//! more, or runs would go on twice.

use crate::error::{Exit, Failure};
use crate::settings::{Place, Settings};
use agentfleet_documents::Documents;
use agentfleet_schema::redacted;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Addresses of the parts that were moved, without credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Relocation {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Where a move goes that has not come to its end: what is there is a part of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Box<Relocation>>,
}

/// Written to the documents store that a fleet is moved to before anything else is, and removed when all is
/// there: whoever starts on it meanwhile, on whatever machine, would work a part of the fleet.
const MARK: &str = "fleet/moving";

/// Refuses to move a fleet to where another one is, or is moved: nothing may be noted there. `begun` says that
/// this very move was cut off before.
pub(crate) async fn check_empty(documents: &dyn Documents, begun: bool) -> Result<(), Failure> {
    let Some(first) = documents.entries("", "", 1).await?.into_iter().next() else {
        return Ok(());
    };
    let says = match documents.get(MARK).await? {
        Some(_) if begun => return Ok(()),
        Some(_) => "another fleet is being moved to the database".to_owned(),
        None => format!("the database holds a fleet already (`{}`)", first.key),
    };
    Err(
        Failure::new(Exit::Unavailable, format!("{says}: nothing was moved"))
            .hint("move to an empty schema (`?schema=NAME`)"),
    )
}

/// Says to all machines that a move to this store has begun.
pub(crate) async fn begin(documents: &dyn Documents) -> Result<(), Failure> {
    documents.create(MARK, b"{}".to_vec()).await?;
    Ok(())
}

/// Says to all machines that the move is over.
pub(crate) async fn end(documents: &dyn Documents) -> Result<(), Failure> {
    Ok(documents.delete(&[MARK.to_owned()]).await?)
}

/// Refuses to start on a store that a move did not fill.
pub(crate) async fn check_filled(documents: &dyn Documents) -> Result<(), Failure> {
    match documents.get(MARK).await? {
        None => Ok(()),
        Some(_) => Err(half("the database holds", "")),
    }
}

fn half(what: &str, to: &str) -> Failure {
    let says = format!("{what} a part of a fleet: its move{to} did not come to its end");
    Failure::new(Exit::Unavailable, says).hint(
        "wait for it, or finish it: `agentfleet migrate` with the data directory it came from, and these \
         settings",
    )
}

fn path(settings: &Settings) -> PathBuf {
    settings.data.join("moved.json")
}

impl Relocation {
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

    /// Refuses settings that would work a part here which was moved, or one there which is not whole.
    pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
        let moved = Self::read(settings)?;
        moved.check_parts(settings)?;
        let Some(unfinished) = &moved.unfinished else {
            return Ok(());
        };
        for (_, place, to) in unfinished.parts(settings) {
            if let (Place::At(address), Some(to)) = (place, to)
                && redacted(address) == redacted(to)
            {
                let to = redacted(to);
                return Err(half("the servers hold", &format!(" to {to}")));
            }
        }
        Ok(())
    }

    fn parts<'a>(
        &'a self,
        settings: &'a Settings,
    ) -> [(&'static str, &'a Place, &'a Option<String>); 3] {
        [
            ("broker", &settings.broker, &self.broker),
            ("records", &settings.records, &self.records),
            ("graph", &settings.graph, &self.graph),
        ]
    }

    /// Refuses to move on what was moved elsewhere: it is not here any more.
    pub(crate) fn check_target(&self, settings: &Settings) -> Result<(), Failure> {
        for (name, place, moved) in self.parts(settings) {
            if let (Place::At(address), Some(moved)) = (place, moved)
                && redacted(address) != redacted(moved)
            {
                let (moved, data) = (redacted(moved), settings.data.display());
                let says = format!(
                    "part `{name}` of `{data}` was moved to {moved}, and is not here any more"
                );
                return Err(Failure::new(Exit::Usage, says)
                    .hint("PostgreSQL's own tools move it on: see `Backup and restore` in docs/operations.md"));
            }
        }
        Ok(())
    }

    /// Refuses settings that would work a part here which was moved.
    pub(crate) fn check_parts(&self, settings: &Settings) -> Result<(), Failure> {
        for (name, place, moved) in self.parts(settings) {
            if let (Place::Embedded, Some(address)) = (place, moved) {
                let address = redacted(address);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_storage::Database;

    #[test]
    fn a_move_that_was_cut_off_is_told_by_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let target = "http://graph.example:3030/ds";
        let settings = |graph: Place| {
            let flags = crate::settings::Flags {
                data: Some(folder.path().display().to_string()),
                ..Default::default()
            };
            let settings = Settings::load(&flags).unwrap();
            Settings { graph, ..settings }
        };
        let there = settings(Place::At(target.to_owned()));
        let to = Relocation {
            graph: Some(target.to_owned()),
            ..Relocation::default()
        };
        let begun = Relocation {
            unfinished: Some(Box::new(to.clone())),
            ..Relocation::default()
        };
        begun.write(&there).unwrap();
        let says = Relocation::check(&there).unwrap_err();
        assert!(says.message.contains("did not come to its end"), "{says}");
        assert!(says.message.contains(target), "{says}");
        // The old state is the one that counts, and another place is another fleet.
        assert!(Relocation::check(&settings(Place::Embedded)).is_ok());
        assert!(Relocation::check(&settings(Place::At("http://other:1/ds".to_owned()))).is_ok());
        to.write(&there).unwrap();
        assert!(Relocation::check(&there).is_ok());
        assert!(Relocation::check(&settings(Place::Embedded)).is_err());
    }

    #[tokio::test]
    async fn a_store_that_is_being_filled_says_so_to_every_machine() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        assert!(check_filled(&documents).await.is_ok());
        begin(&documents).await.unwrap();
        // A move that was cut off is begun again.
        begin(&documents).await.unwrap();
        let says = check_filled(&documents).await.unwrap_err();
        assert!(says.message.contains("a part of a fleet"), "{says}");
        // Only the move that was cut off goes on there.
        check_empty(&documents, true).await.unwrap();
        let says = check_empty(&documents, false).await.unwrap_err();
        assert!(says.message.contains("is being moved"), "{says}");
        end(&documents).await.unwrap();
        assert!(check_filled(&documents).await.is_ok());
        check_empty(&documents, false).await.unwrap();
        documents.create("config/1", b"{}".to_vec()).await.unwrap();
        for begun in [true, false] {
            let says = check_empty(&documents, begun).await.unwrap_err();
            assert!(says.message.contains("holds a fleet already"), "{says}");
        }
        assert!(check_filled(&documents).await.is_ok());
    }
}
