//! Two runs side by side: which steps correspond, how far they are equal, and what differs then.
//!
//! Pure, from step records. Steps of a fork correspond to those of the run it was forked from; else
//! steps correspond that did the same, in order. Equal are steps that decided, did and found the
//! same; tokens, cost and time are told and do not count.

use agentfleet_schema::records::{Activity, Decision, Iterated, StepRecord};
use agentfleet_schema::{Cost, Money, SessionId, uris};
use serde::Serialize;
use std::collections::BTreeMap;

/// Above so many pairs of steps, steps correspond by their number.
const MOST_PAIRS: usize = 4_000_000;
/// Longest text shown of a difference, in characters.
const SHORT: usize = 160;

/// What the records do not hold themselves: the text of an answer.
pub type Answers<'a> = &'a dyn Fn(&SessionId) -> Option<String>;

/// Two sessions compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    pub a: Totals,
    pub b: Totals,
    /// Leading rows that are equal, or lie before a fork.
    pub equal: usize,
    pub rows: Vec<Row>,
}

impl Diff {
    pub fn is_equal(&self) -> bool {
        self.equal == self.rows.len()
    }
}

/// A session in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    pub session: SessionId,
    pub outcome: String,
    pub steps: usize,
    /// Its own, without its subagents'.
    pub tokens: u64,
    #[serde(flatten)]
    pub cost: Cost,
    /// From its first step to its last.
    pub ms: u64,
}

/// One step of each, or of one only.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub a: Option<u32>,
    pub b: Option<u32>,
    /// It lies before the step that the other was forked at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    pub what: String,
    pub differences: Vec<Difference>,
    /// Numbers that differ, as `A -> B`.
    pub numbers: BTreeMap<&'static str, (f64, f64)>,
    /// Subagents of both with the same goal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<(SessionId, SessionId)>,
}

impl Row {
    fn is_equal(&self) -> bool {
        self.shared || (self.a.is_some() && self.b.is_some() && self.differences.is_empty())
    }
}

/// One thing that is otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub what: String,
    pub a: String,
    pub b: String,
}

/// Compares two sessions.
pub fn compare(a: &[StepRecord], b: &[StepRecord], answers: Answers<'_>) -> Diff {
    let mut rows = Vec::new();
    for (left, right) in aligned(a, b) {
        rows.push(match (left, right) {
            (Some(left), Some(right)) => pair(left, right, answers),
            (left, right) => Row {
                a: left.map(|record| record.step),
                b: right.map(|record| record.step),
                shared: left.is_some_and(|left| forked_at(a, b).is_some_and(|at| left.step < at)),
                what: left.or(right).map(did).unwrap_or_default(),
                ..Row::default()
            },
        });
    }
    Diff {
        a: totals(a),
        b: totals(b),
        equal: rows.iter().take_while(|row| row.is_equal()).count(),
        rows,
    }
}

/// The step of `a` that `b` was forked at.
fn forked_at(a: &[StepRecord], b: &[StepRecord]) -> Option<u32> {
    let from = b.first()?.forked_from.as_ref()?;
    (from.session == a.first()?.session).then_some(from.step)
}

type Pair<'a> = (Option<&'a StepRecord>, Option<&'a StepRecord>);

fn aligned<'a>(a: &'a [StepRecord], b: &'a [StepRecord]) -> Vec<Pair<'a>> {
    if let Some(at) = forked_at(a, b) {
        let (before, after) = a.split_at((at as usize).min(a.len()));
        let before = before.iter().map(|record| (Some(record), None));
        return before.chain(by_number(after, b)).collect();
    }
    if a.len().saturating_mul(b.len()) > MOST_PAIRS {
        return by_number(a, b).collect();
    }
    by_deed(a, b)
}

fn by_number<'a>(a: &'a [StepRecord], b: &'a [StepRecord]) -> impl Iterator<Item = Pair<'a>> {
    (0..a.len().max(b.len())).map(|at| (a.get(at), b.get(at)))
}

/// The longest common sequence of what was done. Between two of its steps, the others correspond one
/// by one as far as there are any.
fn by_deed<'a>(a: &'a [StepRecord], b: &'a [StepRecord]) -> Vec<Pair<'a>> {
    let (left, right): (Vec<String>, Vec<String>) =
        (a.iter().map(did).collect(), b.iter().map(did).collect());
    let width = b.len() + 1;
    let mut longest = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i * width + j] = if left[i] == right[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let mut pairs = Vec::new();
    let (mut i, mut j) = (0, 0);
    let (mut from_i, mut from_j) = (0, 0);
    while i < a.len() && j < b.len() {
        if left[i] == right[j] {
            pairs.extend(by_number(&a[from_i..i], &b[from_j..j]));
            pairs.push((Some(&a[i]), Some(&b[j])));
            (i, j) = (i + 1, j + 1);
            (from_i, from_j) = (i, j);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs.extend(by_number(&a[from_i..], &b[from_j..]));
    pairs
}

/// What a step did, in one line.
pub fn did(record: &StepRecord) -> String {
    match &record.activity {
        Activity::None => match (&record.routed, record.decisions.first()) {
            (Some(routed), None) => format!("route to {}", routed.pattern),
            (_, Some(decision)) => format!("{}: {}", decision.subject, decision.chosen),
            (None, None) => record.outcome.as_str().to_owned(),
        },
        Activity::Iterated(it) => called(it),
        Activity::Planned(plan) if plan.revision == 0 => {
            format!("plan with {} steps", plan.steps.len())
        }
        Activity::Planned(plan) => format!("revision {} of the plan", plan.revision),
        Activity::Executed(executed) => {
            let call = executed.call.iter().map(called);
            let steps = executed.steps.iter();
            let steps = steps.map(|step| format!("step {} {}", step.index, step.status));
            short(&call.chain(steps).collect::<Vec<_>>().join(", "))
        }
        Activity::FannedOut(fan_out) => format!("fan-out to {}", fan_out.children.len()),
        Activity::Asked(asked) => short(&format!(
            "wait for approval of {}",
            calling(&asked.tool, &asked.arguments)
        )),
        Activity::Decided(decided) => {
            let call = calling(&decided.tool, &decided.arguments);
            short(&format!("{}: {call}", decided.answer.done()))
        }
        Activity::Concluded(end) => format!("end: {}", end.termination.as_str()),
    }
}

fn called(it: &Iterated) -> String {
    short(&calling(&it.action, &it.arguments))
}

fn calling(tool: &str, arguments: &BTreeMap<String, String>) -> String {
    let arguments = arguments.iter();
    let arguments: Vec<String> = arguments
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    format!("{tool}({})", arguments.join(", "))
}

fn pair(a: &StepRecord, b: &StepRecord, answers: Answers<'_>) -> Row {
    let mut row = Row {
        a: Some(a.step),
        b: Some(b.step),
        what: did(a),
        ..Row::default()
    };
    let mut differs = |what: &str, a: &str, b: &str| {
        if a != b {
            row.differences.push(Difference {
                what: what.to_owned(),
                a: short(a),
                b: short(b),
            });
        }
    };
    if let (Some(ours), Some(theirs)) = (&a.routed, &b.routed) {
        differs("question", &ours.question, &theirs.question);
        differs("task type", &ours.task_type, &theirs.task_type);
        differs("pattern", &ours.pattern, &theirs.pattern);
    }
    let (ours, theirs) = (chosen(a), chosen(b));
    for (subject, choice) in &ours {
        if let Some(other) = theirs.get(subject) {
            differs(&format!("decision {subject}"), choice, other);
        }
    }
    differs("does", &did(a), &did(b));
    differs("outcome", a.outcome.as_str(), b.outcome.as_str());
    match (&a.activity, &b.activity) {
        (Activity::Iterated(ours), Activity::Iterated(theirs)) => {
            let arguments = |it: &agentfleet_schema::records::Iterated| {
                serde_json::to_string(&it.arguments).unwrap_or_default()
            };
            if ours.action == theirs.action {
                differs("arguments", &arguments(ours), &arguments(theirs));
            }
            differs("result", &ours.observation, &theirs.observation);
        }
        (Activity::FannedOut(ours), Activity::FannedOut(theirs)) => {
            let goals = |children: &[agentfleet_schema::records::Child]| {
                let goals = children
                    .iter()
                    .map(|c| format!("{} [{}]", c.goal, c.pattern));
                goals.collect::<Vec<_>>().join("; ")
            };
            differs(
                "subagents",
                &goals(&ours.children),
                &goals(&theirs.children),
            );
            for child in &ours.children {
                let mut others = theirs.children.iter();
                if let Some(other) = others.find(|other| other.goal == child.goal)
                    && other.session != child.session
                {
                    row.children
                        .push((child.session.clone(), other.session.clone()));
                }
            }
        }
        (Activity::Concluded(_), Activity::Concluded(_)) => {
            let digest = |record: &StepRecord| {
                let uri = uris::answer_document(&record.session);
                let mut documents = record.documents.iter();
                documents
                    .find(|document| document.uri == uri)
                    .map(|document| document.digest.to_string())
            };
            let (ours, theirs) = (digest(a), digest(b));
            if ours != theirs {
                let text = |record: &StepRecord| answers(&record.session).unwrap_or_default();
                differs_at(&mut row.differences, &text(a), &text(b));
            }
        }
        _ => {}
    }
    let took = |record: &StepRecord| (record.committed_at - record.started_at).max(0) as f64;
    let (of_a, of_b) = (cost(a), cost(b));
    // What is not known of one is no difference.
    let costs = (of_a.is_whole() && of_b.is_whole()).then(|| ("cost", of_a.known(), of_b.known()));
    let numbers = [
        ("tokens", a.usage.total() as f64, b.usage.total() as f64),
        ("ms", took(a), took(b)),
    ];
    for (name, ours, theirs) in numbers.into_iter().chain(costs) {
        if (ours - theirs).abs() > f64::EPSILON {
            row.numbers.insert(name, (ours, theirs));
        }
    }
    row
}

/// Two answers, from a little before the first place where they part.
fn differs_at(out: &mut Vec<Difference>, a: &str, b: &str) {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let from = |text: &str| {
        let skip = same.saturating_sub(30);
        let rest: String = text.chars().skip(skip).collect();
        short(&if skip > 0 { format!("...{rest}") } else { rest })
    };
    out.push(Difference {
        what: "answer".to_owned(),
        a: from(a),
        b: from(b),
    });
}

/// What was chosen, by subject.
fn chosen(record: &StepRecord) -> BTreeMap<&str, &str> {
    let routed = record.routed.iter().flat_map(|routed| &routed.decisions);
    let of = |decision: &'_ Decision| -> bool {
        // These stand beside it already.
        !matches!(decision.subject.as_str(), "task-type" | "pattern")
    };
    routed
        .chain(&record.decisions)
        .filter(|decision| of(decision))
        .map(|decision| (decision.subject.as_str(), decision.chosen.as_str()))
        .collect()
}

/// To the nearest millionth: what is beyond that is made by adding.
fn cost(record: &StepRecord) -> Cost {
    let cost = record.usage.known_cost();
    cost.map(|amount| Money::of(amount).as_f64())
}

fn totals(steps: &[StepRecord]) -> Totals {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Totals::default();
    };
    Totals {
        session: first.session.clone(),
        outcome: last.outcome.as_str().to_owned(),
        steps: steps.len(),
        tokens: steps.iter().map(|record| record.usage.total()).sum(),
        cost: steps.iter().map(cost).sum(),
        ms: (last.committed_at - first.began()).max(0).unsigned_abs(),
    }
}

fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::records::{Concluded, ForkedFrom, Iterated, OutcomeKind, Routed};

    /// A run that calls each of these tools, and answers.
    fn run(session: &str, calls: &[&str]) -> Vec<StepRecord> {
        let mut steps: Vec<StepRecord> = calls
            .iter()
            .map(|call| StepRecord {
                activity: Activity::Iterated(Iterated {
                    action: (*call).to_owned(),
                    observation: format!("{call} found"),
                    ..Iterated::default()
                }),
                ..StepRecord::default()
            })
            .collect();
        steps.push(StepRecord {
            outcome: OutcomeKind::Answer,
            activity: Activity::Concluded(Concluded::default()),
            ..StepRecord::default()
        });
        for (step, record) in (0u32..).zip(&mut steps) {
            record.session = session.into();
            record.step = step;
        }
        steps
    }

    fn pairs(diff: &Diff) -> Vec<(Option<u32>, Option<u32>)> {
        diff.rows.iter().map(|row| (row.a, row.b)).collect()
    }

    fn none(_: &SessionId) -> Option<String> {
        None
    }

    #[test]
    fn steps_correspond_that_did_the_same_in_order() {
        let both = |n| (Some(n), Some(n));
        let cases: [(&[&str], &[&str], Vec<(Option<u32>, Option<u32>)>, usize); 5] = [
            (&["a", "b"], &["a", "b"], vec![both(0), both(1), both(2)], 3),
            (&["a", "b"], &["a", "c"], vec![both(0), both(1), both(2)], 1),
            (
                &["a", "b"],
                &["a", "x", "b"],
                vec![
                    both(0),
                    (None, Some(1)),
                    (Some(1), Some(2)),
                    (Some(2), Some(3)),
                ],
                1,
            ),
            (&["a"], &[], vec![(Some(0), None), (Some(1), Some(0))], 0),
            (&[], &[], vec![both(0)], 1),
        ];
        for (a, b, expected, equal) in cases {
            let diff = compare(&run("a", a), &run("b", b), &none);
            assert_eq!(pairs(&diff), expected, "{a:?} {b:?}");
            assert_eq!(diff.equal, equal, "{a:?} {b:?}");
        }
    }

    #[test]
    fn steps_of_a_fork_correspond_to_those_it_was_forked_from() {
        let a = run("a", &["x", "y", "z"]);
        let mut b = run("b", &["q"]);
        b[0].forked_from = Some(ForkedFrom {
            session: "a".into(),
            step: 2,
            node: String::new(),
        });
        let diff = compare(&a, &b, &none);
        let expected = [
            (Some(0), None),
            (Some(1), None),
            (Some(2), Some(0)),
            (Some(3), Some(1)),
        ];
        assert_eq!(pairs(&diff), expected);
        assert_eq!(diff.equal, 2);
        let what: Vec<&str> = diff.rows[2]
            .differences
            .iter()
            .map(|d| d.what.as_str())
            .collect();
        assert_eq!(what, ["does", "result"]);
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let (mut a, mut b) = (run("a", &["x"]), run("b", &["x"]));
        let routed = |pattern: &str| {
            Some(Routed {
                pattern: pattern.into(),
                ..Routed::default()
            })
        };
        (a[0].routed, b[0].routed) = (routed("react"), routed("supervisor"));
        (a[1].usage.input_tokens, b[1].usage.input_tokens) = (7, 9);
        let diff = compare(&a, &b, &none);
        let difference = Difference {
            what: "pattern".into(),
            a: "react".into(),
            b: "supervisor".into(),
        };
        assert_eq!(diff.rows[0].differences, [difference]);
        assert_eq!(diff.rows[1].numbers.get("tokens"), Some(&(7.0, 9.0)));
        assert!(diff.rows[1].differences.is_empty(), "numbers do not count");
    }
}
