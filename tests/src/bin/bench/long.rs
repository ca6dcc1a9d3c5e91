//! What a step of a long run costs beside an early one of the same run.

use crate::Result;
use crate::instant::ask;
use agentfleet::fleet::{Fleet, Roles};
use agentfleet_schema::records::{Call, StepRecord};
use agentfleet_schema::topics::AGENT_REQUEST;
use agentfleet_schema::{AgentRequest, keys};
use std::path::Path;

/// Calls of the run, and what each returns.
const CALLS: usize = 100;
const BYTES: usize = 200_000;

/// One step as it was committed.
struct Cost {
    record: usize,
    prompt: usize,
    message: usize,
    at: i64,
}

pub(crate) async fn history(dir: &Path) -> Result<()> {
    println!("\nA run of {CALLS} calls that return {BYTES} bytes each");
    let (engine, settings) = crate::embedded::engine(dir).await?;
    let fleet = Fleet::start(&engine, &settings, Roles::All).await?;
    let question = format!("steps={} bytes={BYTES}", CALLS + 1);
    ask(&engine, question.clone(), "react").await?;
    let documents = engine.documents();
    let mut session = None;
    for key in documents.list("sessions/").await? {
        let Some(found) = key.strip_suffix("/steps/0/outcome") else {
            continue;
        };
        session = found.strip_prefix("sessions/").map(str::to_owned);
    }
    let session = session.ok_or("the run left no record")?.as_str().into();
    let mut costs = Vec::new();
    for step in 0..CALLS as u32 {
        let body = documents.get(&keys::outcome(&session, step)).await?;
        let body = body.ok_or("a step left no record")?;
        let record: StepRecord = serde_json::from_slice(&body)?;
        let prompt = record.calls.iter().find_map(|call| match call {
            Call::Model { prompt, .. } => Some(prompt.len()),
            _ => None,
        });
        let mut sent = record.publications.iter();
        let next = sent.find(|sent| sent.topic == AGENT_REQUEST.as_str());
        let next = next.ok_or("a step sent no next one")?;
        serde_json::from_str::<AgentRequest>(&next.body)?;
        costs.push(Cost {
            record: body.len(),
            prompt: prompt.unwrap_or_default(),
            message: next.body.len(),
            at: record.committed_at,
        });
    }
    fleet.drain().await;
    println!(
        "{:>9} {:>12} {:>12} {:>12} {:>12}",
        "step", "record", "prompt", "message", "time"
    );
    // A history goes down to half its room and fills up again: means of twenty steps, from when it is
    // full for the first time.
    let mean = |from: usize| {
        let some = &costs[from - 1..from + 19];
        let of = |what: fn(&Cost) -> usize| some.iter().map(what).sum::<usize>() / some.len();
        let took = (costs[from + 18].at - costs[from - 2].at) as f64 / 20.0;
        (of(|c| c.record), of(|c| c.prompt), of(|c| c.message), took)
    };
    for from in [21, 51, 81] {
        let (record, prompt, message, took) = mean(from);
        let steps = format!("{from}-{}", from + 19);
        println!("{steps:>9} {record:>12} {prompt:>12} {message:>12} {took:>9.1} ms");
    }
    let (first, last) = (mean(21), mean(81));
    println!(
        "  the last to the first: record {:.2}, prompt {:.2}, message {:.2}, time {:.2}",
        ratio(last.0, first.0),
        ratio(last.1, first.1),
        ratio(last.2, first.2),
        last.3 / first.3.max(0.1),
    );
    Ok(())
}

fn ratio(a: usize, b: usize) -> f64 {
    a as f64 / b.max(1) as f64
}
