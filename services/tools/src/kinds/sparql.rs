//! `sparql-select`: a query that the tool's item gives, with the call's arguments as values of its variables.
//! No text of a model becomes part of the query.

use super::{Call, ToolKind, graph_answers};
use crate::{Error, ToolResult};
use agentfleet_graph::{Graph, QueryOptions};
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::{Term, TermType, uris};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// Rows returned unless the item says otherwise.
const LIMIT: usize = 50;

pub(crate) struct Sparql(pub(crate) Arc<dyn Graph>);

/// What a run of a tenant may read: what is told of the tenant's own runs, and its collection.
fn open(call: &Call) -> Option<Arc<[String]>> {
    let tenant = &call.context.tenant;
    let graphs = || {
        [
            uris::tenant_graph(tenant),
            uris::collection_graph(call.collection.as_str()),
        ]
    };
    (!tenant.is_empty()).then(|| Arc::from(graphs()))
}

#[async_trait]
impl ToolKind for Sparql {
    fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument> {
        tool.declared()
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        graph_answers(&*self.0).await
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let name = &call.tool.name;
        let Some(query) = call.tool.sparql.as_deref() else {
            return Ok(ToolResult::error(format!("tool `{name}` has no `sparql`")));
        };
        let mut bindings: Vec<(&str, Term)> = Vec::new();
        for (argument, value) in call.arguments.iter() {
            bindings.push((argument, term(value)));
        }
        let limit = call.limit(LIMIT);
        let options = QueryOptions {
            timeout: call.timeout,
            max_rows: limit,
            graphs: open(&call),
            ..QueryOptions::default()
        };
        let found = match self.0.select(query, &bindings, options).await {
            Ok(found) => found,
            Err(error) if error.retry().is_some() => return Err(error.into()),
            Err(error) => return Ok(ToolResult::error(error.to_string())),
        };
        let mut lines = vec![found.variables.join("\t")];
        lines.extend(found.rows.iter().map(|row| {
            let cells = row.iter().map(|cell| match cell {
                Some(term) => match term.kind {
                    TermType::Iri => &term.iri,
                    TermType::Blank => &term.id,
                    TermType::Literal | TermType::Triple => &term.value,
                }
                .replace(['\t', '\n', '\r'], " "),
                None => String::new(),
            });
            cells.collect::<Vec<_>>().join("\t")
        }));
        Ok(ToolResult {
            content: lines.join("\n"),
            ..ToolResult::default()
        })
    }
}

/// An address stays one; everything else is a literal of its type.
fn term(value: &Value) -> Term {
    match value {
        Value::String(text) if text.starts_with("urn:") || text.contains("://") => {
            Term::iri(text.as_str())
        }
        Value::String(text) => Term::text(text.as_str()),
        other => Term::text(other.to_string()),
    }
}
