//! `document-search`: the passages of loaded documents that match a query best.
//!
//! Each is written as `[n] Title > Heading (uri)`, a line break and its text; blank lines stand
//! between passages and nowhere else.

use super::{Call, PATIENT, ToolKind, library_answers, nothing};
use crate::{Error, ToolResult};
use agentfleet_library::Library;
use agentfleet_schema::arguments;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::Source;
use async_trait::async_trait;
use std::time::Duration;

const LIMIT: usize = 5;

pub(crate) struct DocumentSearch(pub(crate) Library);

#[async_trait]
impl ToolKind for DocumentSearch {
    fn arguments(&self, _tool: &ToolItem) -> Vec<ToolArgument> {
        vec![arguments::text(
            "query",
            "words to look for in the loaded documents",
        )]
    }

    fn patience(&self, usual: Duration) -> Duration {
        usual.max(PATIENT)
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        library_answers(&self.0).await
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let query = call.arguments.text("query");
        let hits = self.0.search(&call.collection, query, call.limit(LIMIT));
        let hits = hits.await?;
        if hits.is_empty() {
            return nothing(&self.0, &call.collection, "passages", query).await;
        }
        let mut passages = Vec::with_capacity(hits.len());
        let mut sources: Vec<Source> = Vec::new();
        for (at, hit) in hits.into_iter().enumerate() {
            let place = match hit.heading.as_str() {
                "" => hit.title.clone(),
                heading => format!("{} > {heading}", hit.title),
            };
            passages.push(format!("[{}] {place} ({})\n{}", at + 1, hit.uri, hit.text));
            if !sources.iter().any(|source| source.uri == hit.uri) {
                sources.push(Source {
                    uri: hit.uri,
                    title: hit.title,
                });
            }
        }
        Ok(ToolResult {
            content: passages.join("\n\n"),
            sources,
            ..ToolResult::default()
        })
    }
}
