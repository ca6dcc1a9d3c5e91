//! `diff`: two runs side by side, their subagents too.

use super::records;
use crate::cli::Diff as Args;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::diff::{Diff, Row, Totals, compare};
use agentfleet_console::text;
use agentfleet_orchestrator::replay::{ReplayError, steps};
use agentfleet_runtime::Records;
use agentfleet_schema::records::StepRecord;
use agentfleet_schema::{SessionId, uris};
use std::collections::HashMap;

/// Most pairs of sessions that are compared; what is left out is said.
const MOST: usize = 1_000;

pub(crate) async fn run(args: Args, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    let a = records::session(&store, &args.a).await?;
    let b = records::session(&store, &args.b).await?;
    let mut open = vec![(a, b)];
    let mut diffs: Vec<Diff> = Vec::new();
    while let Some((a, b)) = open.pop() {
        let is_asked_for = diffs.is_empty();
        let (left, right) = (
            read(&store, &a, is_asked_for).await?,
            read(&store, &b, is_asked_for).await?,
        );
        let answers = answers(&store, [&a, &b]).await?;
        let diff = compare(&left, &right, &|session| answers.get(session).cloned());
        let children = diff
            .rows
            .iter()
            .flat_map(|row| row.children.iter().cloned());
        let mut children: Vec<_> = children.collect();
        children.reverse();
        open.extend(children);
        diffs.push(diff);
        if diffs.len() == MOST {
            break;
        }
    }
    if args.output.json {
        return ui::json(&serde_json::json!({
            "equal": diffs.iter().all(Diff::is_equal),
            "sessions": diffs,
            "left_out": open.len(),
        }));
    }
    for (position, diff) in diffs.iter().enumerate() {
        if position > 0 {
            outln!();
        }
        tell(diff, ui);
    }
    if !open.is_empty() {
        ui.note(&format!(
            "Left out of the comparison: {} of subagents.",
            text::counted(open.len() as u64, "pair")
        ));
    }
    Ok(())
}

async fn read(
    store: &Store,
    session: &SessionId,
    is_asked_for: bool,
) -> Result<Vec<StepRecord>, Failure> {
    match steps(Records::new(&*store.documents), session).await {
        // A subagent that was never begun has no steps.
        Err(ReplayError::Unknown(_)) if !is_asked_for => Ok(Vec::new()),
        found => Ok(found?),
    }
}

async fn answers(
    store: &Store,
    sessions: [&SessionId; 2],
) -> Result<HashMap<SessionId, String>, Failure> {
    let documents = sessions.map(uris::answer_document);
    let texts = Records::new(&*store.documents).texts(&documents).await?;
    let found = sessions.into_iter().zip(texts);
    Ok(found
        .filter_map(|(session, text)| Some((session.clone(), text?)))
        .collect())
}

fn tell(diff: &Diff, ui: Ui) {
    for (name, totals) in [("A", &diff.a), ("B", &diff.b)] {
        outln!("{name}  {}", in_numbers(totals));
    }
    outln!(
        "{}\n",
        match (diff.is_equal(), diff.equal) {
            (true, _) => "They are equal throughout.".to_owned(),
            (false, 0) => "They differ from the beginning.".to_owned(),
            (false, n) => format!("Equal in the first {}.", text::counted(n as u64, "step")),
        }
    );
    let number = |step: Option<u32>| step.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let rows = diff.rows.iter().map(|row| {
        vec![
            number(row.a),
            number(row.b),
            how(row).to_owned(),
            row.what.clone(),
        ]
    });
    ui.table(&["A", "B", "", "STEP"], 3, rows);
    for row in &diff.rows {
        if row.differences.is_empty() && row.numbers.is_empty() {
            continue;
        }
        outln!("\nStep {} of A, {} of B", number(row.a), number(row.b));
        for difference in &row.differences {
            outln!("  {}", difference.what);
            outln!("    A  {}", text::line(&difference.a));
            outln!("    B  {}", text::line(&difference.b));
        }
        for (name, (a, b)) in &row.numbers {
            outln!("  {name}  {a} -> {b}");
        }
    }
}

fn how(row: &Row) -> &'static str {
    match (row.a, row.b, row.differences.is_empty()) {
        _ if row.shared => "before the fork",
        (Some(_), Some(_), true) => "equal",
        (Some(_), Some(_), false) => "differs",
        (Some(_), None, _) => "only in A",
        (None, _, _) => "only in B",
    }
}

fn in_numbers(totals: &Totals) -> String {
    let cost = if totals.cost.is_nothing() {
        String::new()
    } else {
        format!("  cost {}", text::money(totals.cost))
    };
    format!(
        "{}  {}  {}  {}{cost}  {}",
        totals.session,
        totals.outcome,
        text::counted(totals.steps as u64, "step"),
        text::counted(totals.tokens, "token"),
        text::duration(totals.ms)
    )
}
