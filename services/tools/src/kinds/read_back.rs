//! `read-back`: a text of the run itself, a bounded part at a time: what the history holds only in
//! part, or no longer.
//!
//! It reads the librarian's texts of the call's own tree, and of the session that a fork went on
//! from. Nothing else: a URI of another run is refused, whoever made it up.

use super::{Call, ToolKind, documents_answer, optional};
use crate::{Error, ToolResult};
use agentfleet_documents::Documents;
use agentfleet_schema::arguments;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::{Source, StepRecord};
use agentfleet_schema::{SessionId, keys, uris};
use async_trait::async_trait;
use std::sync::Arc;

/// Characters of an answer where the call does not say, and at most.
const USUAL: usize = 6_000;
const MOST: usize = 12_000;
/// Characters shown on each side of a word that was looked for.
const AROUND: usize = 200;

pub(crate) struct ReadBack(pub(crate) Arc<dyn Documents>);

impl ReadBack {
    /// The URI that is meant, or what is wrong with it.
    async fn place(&self, call: &Call) -> Result<Result<String, String>, Error> {
        let which = call
            .arguments
            .text("which")
            .trim()
            .trim_matches(['(', ')', '<', '>', '[', ']', '`', '"', ',']);
        let number = which.strip_prefix("step ").unwrap_or(which);
        if let Ok(n) = number.parse::<u32>() {
            return Ok(numbered(call, n));
        }
        let is_odd = |segment: &str| matches!(segment, "" | "." | "..");
        let Some(session) = uris::session_of(which).filter(|_| !which.split('/').any(is_odd))
        else {
            return Ok(Err(format!(
                "`which` must be the number of a step, or a URI as the history gives it \
                 (`urn:trustgraph:agent:...`), not `{which}`"
            )));
        };
        if !self.is_of_tree(call, &session).await? {
            return Ok(Err(format!(
                "`{which}` is of session `{session}`, which is no part of this run: only texts of \
                 this run can be read back"
            )));
        }
        Ok(Ok(match which.strip_suffix("/document") {
            Some(_) => which.to_owned(),
            None => uris::document_of(which),
        }))
    }

    async fn is_of_tree(&self, call: &Call, session: &SessionId) -> Result<bool, Error> {
        let context = &call.context;
        let mut roots = vec![context.root.clone()];
        let before = context.lineage.iter().map(|lineage| &lineage.session);
        for before in before.filter(|session| !session.is_empty()) {
            roots.push(before.to_string());
            roots.extend(self.root(before).await?);
        }
        if session.as_str() == context.session || roots.iter().any(|root| root == session.as_str())
        {
            return Ok(true);
        }
        let root = self.root(session).await?;
        Ok(root.is_some_and(|root| roots.contains(&root)))
    }

    /// The root of the tree that a session belongs to, as its first record says.
    async fn root(&self, session: &SessionId) -> Result<Option<String>, Error> {
        let body = self.0.get(&keys::outcome(session, 0)).await?;
        let record = body.and_then(|body| serde_json::from_slice::<StepRecord>(&body).ok());
        Ok(record.map(|record| record.root.to_string()))
    }
}

/// Where the observation of an iteration lies.
fn numbered(call: &Call, n: u32) -> Result<String, String> {
    let context = &call.context;
    let own = SessionId::new(context.session.clone());
    let before = context.lineage.iter().find(|before| n <= before.iterations);
    let session = before.map_or(&own, |before| &before.session);
    if session.is_empty() {
        return Err(format!(
            "step {n} was brought along by the caller: read it by the URI that the history gives"
        ));
    }
    Ok(uris::document_of(&uris::observation(session, n)))
}

/// A part of a text, and how to read on.
fn part(text: &[char], from: usize, limit: usize) -> String {
    let total = text.len();
    let end = total.min(from.saturating_add(limit));
    let shown: String = text[from..end].iter().collect();
    let mut told = format!("characters {from} to {end} of {total}:\n\n{shown}");
    if end < total {
        told += &format!(
            "\n\n[{} more characters; call again with `from` {end}]",
            total - end
        );
    }
    told
}

/// The places where words stand, those with the most of them first, in the order of the text.
fn around(text: &[char], words: &[Vec<char>], from: usize, limit: usize) -> Option<String> {
    let plain: Vec<char> = text.iter().map(|c| lowered(*c)).collect();
    let mut spans: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for at in from..plain.len() {
        let found = words.iter().position(|word| plain[at..].starts_with(word));
        let Some(word) = found else { continue };
        let (start, end) = (
            at.saturating_sub(AROUND),
            (at + words[word].len() + AROUND).min(plain.len()),
        );
        match spans.last_mut() {
            Some(last) if start <= last.1 && end - last.0 <= 6 * AROUND => {
                last.1 = end;
                if !last.2.contains(&word) {
                    last.2.push(word);
                }
            }
            _ => spans.push((start, end, vec![word])),
        }
    }
    if spans.is_empty() {
        return None;
    }
    let all = spans.len();
    let mut best: Vec<usize> = (0..all).collect();
    best.sort_by_key(|at| std::cmp::Reverse(spans[*at].2.len()));
    let mut left = limit;
    best.retain(|at| {
        let length = spans[*at].1 - spans[*at].0;
        let fits = length <= left;
        left = left.saturating_sub(if fits { length } else { 0 });
        fits
    });
    best.sort_unstable();
    let mut told = format!(
        "{} of {all} places, of {} characters in all:",
        best.len(),
        text.len()
    );
    for at in best {
        let (start, end, _) = &spans[at];
        let shown: String = text[*start..*end].iter().collect();
        told += &format!("\n\n[from {start}] ...{}...", shown.trim());
    }
    Some(told + "\n\n[call again with `from` and without `words` to read on at a place]")
}

fn lowered(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

#[async_trait]
impl ToolKind for ReadBack {
    fn arguments(&self, _tool: &ToolItem) -> Vec<ToolArgument> {
        vec![
            arguments::text(
                "which",
                "number of the step, or the URI that stands in its place",
            ),
            optional(
                "from",
                "integer",
                "characters to leave out at the beginning",
            ),
            optional("limit", "integer", "most characters to return, up to 12000"),
            optional(
                "words",
                "string",
                "words to look for: only what is around them is returned",
            ),
        ]
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        documents_answer(&*self.0).await
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let uri = match self.place(&call).await? {
            Ok(uri) => uri,
            Err(wrong) => return Ok(ToolResult::error(wrong)),
        };
        let Some(body) = self.0.get(&keys::document(&uri)).await? else {
            return Ok(ToolResult::error(format!(
                "there is no text at `{uri}`: steps are numbered from 1, and the history says where \
                 their texts lie"
            )));
        };
        let text: Vec<char> = String::from_utf8_lossy(&body).chars().collect();
        let from = call.arguments.count("from").unwrap_or(0);
        if from > 0 && from >= text.len() {
            return Ok(ToolResult::error(format!(
                "the text has {} characters: `from` must be less, not {from}",
                text.len()
            )));
        }
        let limit = call
            .arguments
            .count("limit")
            .unwrap_or(USUAL)
            .clamp(1, MOST);
        let words: Vec<Vec<char>> = call
            .arguments
            .text("words")
            .split_whitespace()
            .map(|word| word.chars().map(lowered).collect())
            .collect();
        let told = if words.is_empty() {
            part(&text, from, limit)
        } else {
            match around(&text, &words, from, limit.max(3 * AROUND)) {
                Some(told) => told,
                None => format!(
                    "none of these words is in it, of {} characters in all",
                    text.len() - from
                ),
            }
        };
        Ok(ToolResult {
            content: format!("{uri}, {told}"),
            sources: vec![Source {
                uri,
                title: String::new(),
            }],
            ..ToolResult::default()
        })
    }
}
