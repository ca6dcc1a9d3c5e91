//! Boxes, and what they say, of one part of a run.

use super::super::NOT_HEARD_OF;
use super::super::model::{Decision, FanOut, Goal, Note, NoteKind, Session, Step};
use super::layout::{Block, Class, Leaf, Shape};
use crate::text;

/// Whether what follows the fan-out of a session rests on it.
pub(super) fn joins(session: &Session) -> bool {
    let late = session.completion.as_ref().is_some_and(|c| c.late);
    !late && session.conclusion.is_some()
}

/// Why the step of a plan failed: what it came to was decided right before.
pub(super) fn why_failed<'s>(note: &Note, before: &'s [Step]) -> Option<&'s str> {
    if !note.failed || note.note != NoteKind::StepResult {
        return None;
    }
    match before.last()? {
        Step::Decision(decision) if decision.subject == "plan-step" => decision.signal.as_deref(),
        Step::Decision(_)
        | Step::Iteration(_)
        | Step::FanOut(_)
        | Step::Synthesis(_)
        | Step::Note(_) => None,
    }
}

/// A step of a subagent that is shown in one box.
pub(super) fn in_a_line(step: &Step) -> Option<String> {
    match step {
        Step::Iteration(iteration) if iteration.sent_back.is_some() => {
            Some("draft answer, sent back".to_owned())
        }
        Step::Iteration(iteration) => {
            let failed = iteration.observation.as_ref();
            let failed = failed.is_some_and(|seen| seen.error.is_some());
            Some(format!(
                "{}{}: {}",
                if failed { "✖ " } else { "" },
                iteration.action,
                iteration.arguments_in_brief()
            ))
        }
        Step::Note(note) => match note.note {
            NoteKind::Plan | NoteKind::StepResult | NoteKind::Comparison | NoteKind::Approval => {
                Some(note.title())
            }
            // It stands beside what it was of.
            NoteKind::Critique => None,
        },
        Step::Decision(decision) if decision.is_approval() => Some(decision.answer_in_brief()),
        Step::Decision(decision) if decision.subject == "specialist" => {
            Some(format!("specialist {}", decision.selected))
        }
        Step::FanOut(fan_out) => Some(fan_out.title()),
        Step::Decision(_) | Step::Synthesis(_) => None,
    }
}

pub(super) fn fan_out_leaf(fan_out: &FanOut) -> Leaf {
    let mut leaf = Leaf::new(Class::Fan, &fan_out.title());
    if let Some(round) = fan_out.round.filter(|r| *r > 1) {
        leaf.say(format!("round {round}"), 1);
    }
    if let Some(policy) = fan_out.policy_of_note() {
        leaf.say(format!("join policy {policy}"), 1);
    }
    leaf.tooltip
        .push(format!("correlation {}", fan_out.correlation));
    leaf.tooltip
        .extend(fan_out.goals.iter().map(|goal| goal.text.clone()));
    leaf
}

pub(super) fn not_heard_of(goal: &Goal, specialist: Option<&str>) -> Block {
    let mut leaf = Leaf::new(Class::Open, &goal.text);
    leaf.shape = Shape::Round;
    if let Some(name) = specialist {
        leaf.say(format!("specialist {name}"), 1);
    }
    leaf.say(NOT_HEARD_OF, 1);
    Block::Stack {
        items: vec![Block::Leaf(leaf)],
        framed: false,
        joins: false,
    }
}

/// What else there was to choose, or who left no choice.
pub(super) fn choice(decision: &Decision, leaf: &mut Leaf) {
    if decision.decided_by.as_deref() == Some("caller") {
        let named = decision.signal.as_deref();
        leaf.say(named.unwrap_or("the caller names it"), 2);
        return;
    }
    let others = decision.others();
    if others.is_empty() {
        leaf.say(format!("{}: the only option", decision.subject), 1);
    } else {
        leaf.say(format!("not {}", others.join(", ")), 4);
    }
    if let Some("only-option" | "fallback") = decision.decided_by.as_deref() {
        leaf.say(decision.signal.clone().unwrap_or_default(), 4);
    }
}

/// Which specialist works on which task of a plan. A plan tells of each step as `0: goal (to specialist,
/// after 1)`.
pub(super) fn specialists(session: &Session) -> Vec<(String, String)> {
    let plans = session.steps.iter().filter_map(|step| match step {
        Step::Note(note) if note.note == NoteKind::Plan => Some(note),
        Step::Note(_)
        | Step::Decision(_)
        | Step::Iteration(_)
        | Step::FanOut(_)
        | Step::Synthesis(_) => None,
    });
    let told = |line: &String| {
        let (_, told) = line.split_once(": ")?;
        let (goal, said) = told.strip_suffix(')')?.rsplit_once(" (")?;
        let name = said.split(", ").next()?.strip_prefix("to ")?;
        Some((text::one_line(goal), name.to_owned()))
    };
    plans
        .flat_map(|plan| plan.lines.iter().filter_map(told))
        .collect()
}

pub(super) fn question(session: &Session, specialist: Option<&str>) -> Leaf {
    let mut leaf = Leaf::new(Class::Question, session.title());
    leaf.shape = Shape::Round;
    let mut spent = vec![text::counted(session.spent.steps, "step")];
    if session.spent_in_tree.tokens() > 0 {
        spent.push(session.spent_in_tree.tokens_told());
    }
    spent.extend(session.duration_ms.map(text::duration));
    leaf.say(spent.join(" · "), 2);
    if let Some(name) = specialist {
        leaf.say(format!("specialist {name}"), 1);
    }
    leaf.tooltip.push(format!("session {}", session.id));
    leaf.tooltip
        .extend(session.started_at.map(|at| format!("started {at}")));
    leaf.tooltip.push(session.question.clone());
    leaf
}
