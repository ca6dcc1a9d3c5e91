//! `query`: SPARQL over the provenance graph and what was loaded.

use crate::cli::{Query, QueryFormat};
use crate::engine::settled_graph;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::Ui;
use agentfleet_console::text;
use agentfleet_graph::{Answer, QueryOptions, Solutions};
use agentfleet_schema::Term;
use agentfleet_schema::triples::TermType;
use std::io::Read as _;

pub(crate) async fn run(query: Query, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let text = match (&query.file, query.sparql.as_deref()) {
        (Some(file), _) => std::fs::read_to_string(file).map_err(|error| {
            Failure::usage(format!("cannot read `{}`: {error}", file.display()))
        })?,
        (None, Some("-")) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        (None, text) => text.unwrap_or_default().to_owned(),
    };
    let store = Store::open(settings).await?;
    let graph = settled_graph(&store, settings).await?;
    let options = QueryOptions {
        timeout: settings.query_timeout,
        ..QueryOptions::default()
    };
    let answer = graph
        .query(&text, &[], options)
        .await
        .map_err(|error| match error {
            error @ (agentfleet_graph::Error::Syntax { .. }
            | agentfleet_graph::Error::Update
            | agentfleet_graph::Error::Service(_)) => Failure::usage(error.to_string()),
            other => other.into(),
        })?;
    let is_graph = matches!(answer, Answer::Triples(_));
    let format = match (query.format, is_graph) {
        (Some(format), _) => format,
        (None, true) => QueryFormat::Turtle,
        (None, false) => QueryFormat::Table,
    };
    match answer {
        Answer::Boolean(yes) if format == QueryFormat::Table => outln!("{yes}"),
        Answer::Solutions(found) if format == QueryFormat::Table => table(&found, ui),
        answer => {
            let name = format.name();
            let written = agentfleet_gateway::written(answer, &name);
            let written = written.ok_or_else(|| does_not_fit(&name, is_graph))?;
            let written = written.map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    format!("the answer cannot be written: {error}"),
                )
            })?;
            let text = String::from_utf8_lossy(&written);
            let end = if text.ends_with('\n') { "" } else { "\n" };
            out!("{text}{end}");
        }
    }
    Ok(())
}

fn does_not_fit(format: &str, is_graph: bool) -> Failure {
    let (what, others): (_, &[QueryFormat]) = if is_graph {
        ("CONSTRUCT and DESCRIBE give a graph", &QueryFormat::GRAPHS)
    } else {
        ("SELECT and ASK give a table", &QueryFormat::TABLES)
    };
    let others: Vec<String> = others.iter().map(|f| format!("`{}`", f.name())).collect();
    Failure::usage(format!(
        "`--format {format}` does not fit: {what} (expected {})",
        others.join(", ")
    ))
}

fn table(found: &Solutions, ui: Ui) {
    let headers: Vec<&str> = found.variables.iter().map(String::as_str).collect();
    let rows = found.rows.iter().map(|row| {
        let cells = row.iter().map(|cell| cell.as_ref().map(plain));
        cells.map(Option::unwrap_or_default).collect()
    });
    ui.table(&headers, 0, rows.collect());
    if !found.rows.is_empty() {
        outln!("({})", text::counted(found.rows.len() as u64, "row"));
    }
}

/// A term as a person reads it in a table.
fn plain(term: &Term) -> String {
    match term.kind {
        TermType::Iri => term.iri.clone(),
        TermType::Blank => format!("_:{}", term.id),
        TermType::Literal => term.value.clone(),
        TermType::Triple => match term.triple.as_deref() {
            Some(inner) => format!(
                "<< {} {} {} >>",
                plain(&inner.s),
                plain(&inner.p),
                plain(&inner.o)
            ),
            None => String::new(),
        },
    }
}
