//! `trace`: who decided what, from which options, at what cost.

use super::query::write_answer;
use super::records;
use crate::cli::{Trace as Args, TraceFormat};
use crate::engine::graph_to_read;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_console::trace::Format;
use agentfleet_gateway::{texts_of, trace_of};
use agentfleet_graph::{Answer, QueryOptions};
use agentfleet_runtime::Records;
use agentfleet_schema::records::{Call, FailedTry};

pub(crate) async fn run(args: Args, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    if let Some(step) = args.step {
        return raw(&store, &args, step).await;
    }
    let graph = graph_to_read(&store, settings).await?;
    let id = match records::session(&store, &args.id).await? {
        // Of a subagent or a root by its beginning; anything else the graph may know as it is.
        session if session.as_str().starts_with(args.id.trim()) => session.to_string(),
        _ => args.id.clone(),
    };
    records::roots_told(&store, &*graph, &id).await?;
    let trace = trace_of(&*graph, &id, QueryOptions::default()).await?;
    if trace.is_empty() {
        return Err(records::untold(&store, &args.id).await?);
    }
    let TraceFormat::Drawn(format) = args.format else {
        return write_answer(Answer::Triples(trace.triples), "turtle");
    };
    let texts = texts_of(&*store.documents, &trace).await?;
    let drawn = trace.render(format, ui.look(), &|uri| texts.get(uri).cloned());
    match format {
        Format::Tree => ui::painted(&drawn),
        Format::Mermaid | Format::Svg | Format::Json | Format::ProvJson => ui::write(&drawn),
    }
    Ok(())
}

/// The calls of one step, as they were recorded.
async fn raw(store: &Store, args: &Args, step: u32) -> Result<(), Failure> {
    let (session, started) = records::session_or_started(store, &args.id).await?;
    let steps = Records::new(&*store.documents).steps(&session).await?;
    let Some(record) = steps.iter().find(|record| record.step == step) else {
        let known = match steps.len() {
            0 if started.is_none() => return Err(records::missing(store, &session).await?),
            0 => "no step of it is done yet".to_owned(),
            1 => "it has step 0 alone".to_owned(),
            more => format!("it has steps 0 to {}", more - 1),
        };
        return Err(Failure::not_found(format!(
            "session `{session}` has no step {step}: {known}"
        )));
    };
    match args.format {
        TraceFormat::Drawn(Format::Json) => return ui::json(&record.calls),
        TraceFormat::Drawn(Format::Tree) => {}
        TraceFormat::Drawn(Format::Mermaid | Format::Svg | Format::ProvJson)
        | TraceFormat::Turtle => {
            return Err(Failure::usage(
                "`--raw` is written as `--format tree` or `json`",
            ));
        }
    }
    if record.calls.is_empty() {
        outln!("Step {step} called nothing.");
    }
    for (call, number) in record.calls.iter().zip(1..) {
        let (head, parts) = told(call);
        outln!("== call {number}: {head}");
        for (name, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            outln!("\n-- {name}\n{}", text::clean(&text));
        }
        outln!();
    }
    Ok(())
}

/// A call in a line, and its texts by name.
fn told(call: &Call) -> (String, Vec<(&'static str, String)>) {
    match call {
        Call::Model {
            operation,
            model,
            prompt,
            reply,
            usage,
            ms,
            cut,
            ignored,
            ..
        } => (
            format!(
                "model `{model}` for `{operation}`, {}, {} in, {} out{}{}",
                text::duration(*ms),
                text::counted(usage.input_tokens, "token"),
                text::count(usage.output_tokens),
                if *cut {
                    ", cut at the limit of its length"
                } else {
                    ""
                },
                match ignored.join(", ") {
                    nothing if nothing.is_empty() => nothing,
                    names => format!(", not called: {names}"),
                },
            ),
            vec![("prompt", prompt.clone()), ("reply", reply.clone())],
        ),
        Call::Tool {
            name,
            arguments,
            result,
            is_error,
            ms,
            tried,
            ..
        } => {
            let failed = if *is_error { ", failed" } else { "" };
            let arguments = serde_json::to_string_pretty(arguments).unwrap_or_default();
            let mut shown = vec![("arguments", arguments)];
            let says = |one: &FailedTry| match one.of.as_str() {
                "" => format!("{}: {}", one.why.as_str(), one.error),
                of => format!("model `{of}` {}: {}", one.why.as_str(), one.error),
            };
            shown.extend(tried.iter().map(|one| ("try that failed", says(one))));
            shown.push(("result", result.clone()));
            (
                format!("tool `{name}`, {}{failed}", text::duration(*ms)),
                shown,
            )
        }
        Call::Document { uri, missing, .. } => {
            let found = if *missing {
                ", which was not there"
            } else {
                ""
            };
            (format!("document `{uri}`{found}"), Vec::new())
        }
    }
}
