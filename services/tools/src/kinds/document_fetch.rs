//! `document-fetch`: the text of one loaded document, a bounded part at a time.

use super::{Call, PATIENT, ToolKind, library_answers, optional};
use crate::{Error, ToolResult};
use agentfleet_library::Library;
use agentfleet_schema::arguments;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::Source;
use async_trait::async_trait;
use std::time::Duration;

/// Most characters of one answer: some 5,000 words.
const MOST: usize = 32_000;
/// Documents named when the one asked for is not there.
const NEAREST: usize = 3;

pub(crate) struct DocumentFetch(pub(crate) Library);

impl DocumentFetch {
    /// Says that a document is not there, and which ones have words of its name.
    async fn unknown(&self, call: &Call, uri: &str) -> Result<ToolResult, Error> {
        let name = uri.rsplit(':').next().unwrap_or(uri);
        let mut nearest: Vec<String> = Vec::new();
        let hits = self.0.search(&call.collection, name, NEAREST * 3);
        for hit in hits.await? {
            let named = format!("`{}`", hit.uri);
            if !nearest.contains(&named) && nearest.len() < NEAREST {
                nearest.push(named);
            }
        }
        let hint = if nearest.is_empty() {
            "search for it first".to_owned()
        } else {
            format!("nearest: {}", nearest.join(", "))
        };
        Ok(ToolResult::error(format!(
            "no document `{uri}` in collection `{}` ({hint})",
            call.collection
        )))
    }
}

#[async_trait]
impl ToolKind for DocumentFetch {
    fn arguments(&self, _tool: &ToolItem) -> Vec<ToolArgument> {
        let from = "characters to leave out at the beginning, for the rest of a long document";
        vec![
            arguments::text("uri", "the document's URI, as a search gave it"),
            optional("from", "integer", from),
        ]
    }

    fn patience(&self, usual: Duration) -> Duration {
        usual.max(PATIENT)
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        library_answers(&self.0).await
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        // Models copy the brackets of a listing along with the URI.
        let uri = call
            .arguments
            .text("uri")
            .trim()
            .trim_matches(['(', ')', '<', '>', '`', '"']);
        let from = call.arguments.count("from").unwrap_or(0);
        let found = self.0.fetch(&call.collection, uri, from, MOST).await?;
        let Some(found) = found else {
            return self.unknown(&call, uri).await;
        };
        let mut content = format!("{} ({uri})\n\n{}", found.document.title, found.text);
        if found.after > 0 {
            let next = found.before + found.text.chars().count();
            content += &format!(
                "\n\n[{} more characters were cut; call again with `from` {next} for the rest]",
                found.after
            );
        }
        let sources = vec![Source {
            uri: uri.to_owned(),
            title: found.document.title,
        }];
        Ok(ToolResult {
            content,
            sources,
            ..ToolResult::default()
        })
    }
}
