//! `query`: SPARQL over the provenance graph and what was loaded.

use crate::cli::{Query, RowFormat};
use crate::error::Failure;
use crate::fleet::{Store, settled_graph};
use crate::settings::Settings;
use crate::ui::{self, Ui};
use agentfleet_console::table::TableFormat;
use agentfleet_console::text;
use agentfleet_graph::{Answer, Graph as _, QueryOptions, Solutions};
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
    let store = Store::open(settings)?;
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
    match answer {
        Answer::Boolean(yes) => {
            if query.format == RowFormat::Json {
                return ui::json(&serde_json::json!({"boolean": yes}));
            }
            outln!("{yes}");
            Ok(())
        }
        Answer::Solutions(found) => solutions(&found, query.format, ui),
        Answer::Triples(triples) => {
            for triple in triples {
                let term = |term: &Term| spelled(term);
                outln!(
                    "{} {} {} .",
                    term(&triple.s),
                    term(&triple.p),
                    term(&triple.o)
                );
            }
            Ok(())
        }
    }
}

fn solutions(found: &Solutions, format: RowFormat, ui: Ui) -> Result<(), Failure> {
    let headers: Vec<&str> = found.variables.iter().map(String::as_str).collect();
    let cells: Vec<Vec<String>> = found
        .rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| cell.as_ref().map(plain).unwrap_or_default())
                .collect()
        })
        .collect();
    let format = match format {
        RowFormat::Table => TableFormat::Table,
        RowFormat::Csv => TableFormat::Csv,
        RowFormat::Json => TableFormat::Json,
    };
    let rows = found.rows.len() as u64;
    out!("{}", ui::table(&headers, cells).render(format, ui.page()));
    if format == TableFormat::Table && rows > 0 {
        outln!("({})", text::counted(rows, "row"));
    }
    Ok(())
}

/// A term as a person reads it in a table.
fn plain(term: &Term) -> String {
    match term.kind {
        TermType::Iri => term.iri.clone(),
        TermType::Blank => format!("_:{}", term.id),
        TermType::Literal => term.value.clone(),
        TermType::Triple => spelled(term),
    }
}

/// A term as N-Triples spells it.
fn spelled(term: &Term) -> String {
    match term.kind {
        TermType::Iri => format!("<{}>", term.iri),
        TermType::Blank => format!("_:{}", term.id),
        TermType::Literal => {
            let escaped = term
                .value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
                .replace('\r', "\\r");
            match (term.language.as_str(), term.datatype.as_str()) {
                ("", "") => format!("\"{escaped}\""),
                ("", datatype) => format!("\"{escaped}\"^^<{datatype}>"),
                (language, _) => format!("\"{escaped}\"@{language}"),
            }
        }
        TermType::Triple => match &term.triple {
            Some(triple) => format!(
                "<<( {} {} {} )>>",
                spelled(&triple.s),
                spelled(&triple.p),
                spelled(&triple.o)
            ),
            None => String::new(),
        },
    }
}
