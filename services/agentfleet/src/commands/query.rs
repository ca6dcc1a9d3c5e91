//! `query`: SPARQL over the provenance graph and what was loaded, or a saved query by its name.

use crate::cli::{Query, QueryFormat};
use crate::engine::graph_to_read;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::queries;
use agentfleet_console::style::Line;
use agentfleet_console::text;
use agentfleet_graph::{Answer, QueryOptions, Solutions};
use agentfleet_schema::Term;
use agentfleet_schema::config::{QueryItem, parameter_type};
use agentfleet_schema::triples::TermType;
use std::collections::BTreeMap;
use std::io::Read as _;

pub(crate) async fn run(query: Query, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    if query.list {
        return list(query.format, settings, ui).await;
    }
    let name = query
        .sparql
        .as_deref()
        .filter(|text| queries::is_name(text));
    if name.is_none() && !query.param.is_empty() {
        return Err(Failure::usage(
            "`--param` is for saved queries: put values of your own into the query",
        ));
    }
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
    let saved = match name {
        Some(name) => Some(saved(&store, name).await?),
        None => None,
    };
    let (text, bindings) = match &saved {
        Some(item) => (&item.sparql, given(&store, item, &query.param).await?),
        None => (&text, Vec::new()),
    };
    let graph = graph_to_read(&store, settings).await?;
    let options = QueryOptions {
        apart: true,
        ..settings.query_options()
    };
    let answer = graph
        .query(text, &bindings, options)
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
        answer => return write_answer(answer, &format.name()),
    }
    Ok(())
}

/// Writes an answer in the format of this name.
pub(super) fn write_answer(answer: Answer, format: &str) -> Result<(), Failure> {
    let is_graph = matches!(answer, Answer::Triples(_));
    let written = agentfleet_gateway::written(answer, format);
    let written = written.ok_or_else(|| does_not_fit(format, is_graph))?;
    let written = written.map_err(|error| {
        let says = format!("the answer cannot be written: {error}");
        Failure::new(Exit::Failed, says)
    })?;
    let text = String::from_utf8_lossy(&written);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    ui::exact(&format!("{text}{end}"));
    Ok(())
}

/// The saved query of a name.
async fn saved(store: &Store, name: &str) -> Result<QueryItem, Failure> {
    store.seed().await?;
    let mut queries = store.config.snapshot().await?.queries.clone();
    queries.remove(name).ok_or_else(|| {
        let like = queries.keys().max_by(|a, b| {
            let alike = |key: &str| strsim::jaro_winkler(name, key);
            alike(a).total_cmp(&alike(b))
        });
        let like = like.filter(|key| strsim::jaro_winkler(name, key) > 0.7);
        let meant = like.map_or_else(String::new, |key| format!(": did you mean `{key}`?"));
        Failure::not_found(format!("there is no saved query `{name}`{meant}"))
            .hint("`agentfleet query --list` shows them")
    })
}

/// The values of a run's parameters, as terms.
async fn given<'a>(
    store: &Store,
    item: &'a QueryItem,
    params: &[String],
) -> Result<Vec<(&'a str, Term)>, Failure> {
    let mut given = BTreeMap::new();
    for param in params {
        let Some((name, value)) = param.split_once('=') else {
            return Err(Failure::usage(format!(
                "`--param {param}` has no value (expected `NAME=VALUE`)"
            )));
        };
        let is_session = |it: &&agentfleet_schema::config::QueryParameter| {
            it.name == name && it.kind == parameter_type::SESSION
        };
        let value = match item.parameters.iter().find(is_session) {
            Some(_) => super::records::session(store, value).await?.to_string(),
            None => value.to_owned(),
        };
        if given.insert(name.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("`--param {name}` is given twice")));
        }
    }
    queries::bindings(item, &given, store.now())
        .map_err(|reason| Failure::usage(format!("the saved query cannot be run: {reason}")))
}

/// Every saved query, with what it answers and takes.
async fn list(format: Option<QueryFormat>, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    let set = store.config.snapshot().await?;
    match format {
        None | Some(QueryFormat::Table) => {}
        Some(QueryFormat::Json) => return ui::json(&set.queries),
        Some(_) => {
            return Err(Failure::usage(
                "`--list` is written as `--format table` or `json`",
            ));
        }
    }
    for (name, item) in &set.queries {
        outln!("{name}");
        let told = |text: &str| {
            let line = Line::of(text, anstyle::Style::new());
            for line in line.wrapped(ui.width.saturating_sub(4).max(30)) {
                outln!("    {}", line.plain());
            }
        };
        told(&text::one_line(&item.description));
        for parameter in &item.parameters {
            let need = match (&parameter.default, parameter.required) {
                (Some(default), _) => format!("{default} unless given"),
                (None, true) => "must be given".to_owned(),
                (None, false) => "may be left out".to_owned(),
            };
            told(&format!(
                "--param {}=...  {}, {need}: {}",
                parameter.name,
                parameter.kind,
                text::one_line(&parameter.description)
            ));
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
    // An id that leads to a run is there to be copied.
    let whole = usize::from(headers.first() == Some(&"session"));
    ui.table(&headers, whole, rows);
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
