//! `trace --format svg`: the run as a picture that stands alone.
//!
//! Time runs downwards, subagents stand side by side between their fan-out and the synthesis. What a
//! box has no room for is its tooltip. No script, no link, no font of its own; light and dark follow the
//! reader's setting. This file says what is in the picture, [`layout`] where it stands.

mod layout;

use super::model::{Decision, FanOut, Goal, Iteration, Note, Session, State, Step, Synthesis};
use super::{Texts, Trace};
use crate::text;
use agentfleet_schema::SessionId;
use layout::{Block, Class, Leaf, Shape};
use std::collections::{HashMap, HashSet};

/// Above so many subagents in one fan-out, or sessions in all, a subagent is one box.
const WIDE: usize = 12;
const MANY: usize = 48;
/// Longest tooltip, in columns of its longest part.
const TOOLTIP: usize = 700;
/// Lines of a note that its box shows; the tooltip has all.
const NOTED: usize = 8;

pub(super) fn render(trace: &Trace, texts: Texts<'_>) -> String {
    let picture = Picture {
        by_id: trace.by_id(),
        texts,
        brief: trace.sessions.len() > MANY,
    };
    let roots: Vec<&Session> = trace.roots().collect();
    let blocks: Vec<Block> = roots.iter().map(|root| picture.session(root)).collect();
    let title = match roots.first() {
        Some(root) => text::preview(root.title(), 200),
        None => "The graph knows nothing of this run".to_owned(),
    };
    let totals = trace.totals();
    let mut about = vec![
        text::counted(trace.sessions.len() as u64, "session"),
        text::counted(totals.steps, "step"),
        text::counted(totals.tool_calls, "tool call"),
        text::counted(totals.tokens(), "token"),
    ];
    if let Some(ms) = roots.first().and_then(|root| root.duration_ms) {
        about.push(text::duration(ms));
    }
    if trace.is_running() {
        about.push("still running".to_owned());
    }
    layout::draw(&title, &about.join(" · "), blocks)
}

struct Picture<'a> {
    by_id: HashMap<&'a SessionId, &'a Session>,
    texts: Texts<'a>,
    brief: bool,
}

impl Picture<'_> {
    fn session(&self, session: &Session) -> Block {
        let mut items = vec![Block::Leaf(question(session))];
        if let Some(routing) = &session.routing {
            let mut leaf = Leaf::new(
                Class::Decision,
                routing.pattern.as_deref().unwrap_or("routing"),
            );
            leaf.lines
                .extend(routing.task_type.iter().map(|t| format!("task type {t}")));
            for decision in &routing.decisions {
                leaf.lines.push(choice(decision));
                leaf.tooltip.push(self.decided(decision));
            }
            items.push(Block::Leaf(leaf));
        }
        let mut shown: HashSet<&SessionId> = HashSet::new();
        for step in &session.steps {
            match step {
                Step::Decision(decision) => {
                    let title = format!("{}: {}", decision.subject, decision.selected);
                    let mut leaf = Leaf::new(Class::Decision, &title);
                    leaf.lines.push(choice(decision));
                    leaf.tooltip.push(self.decided(decision));
                    items.push(Block::Leaf(leaf));
                }
                Step::Iteration(iteration) => items.push(Block::Leaf(self.iteration(iteration))),
                Step::FanOut(fan_out) => {
                    items.push(Block::Leaf(fan_out_leaf(fan_out)));
                    items.extend(self.subagents(session, fan_out, &mut shown));
                }
                Step::Note(note) => items.push(Block::Leaf(self.note(note))),
                Step::Synthesis(synthesis) => {
                    items.push(Block::Leaf(self.synthesis(synthesis)));
                }
            }
        }
        // Subagents no fan-out accounts for: the graph is partial.
        let lost: Vec<Block> = session
            .children
            .iter()
            .filter(|id| !shown.contains(id))
            .filter_map(|id| self.by_id.get(id).copied())
            .map(|child| self.session(child))
            .collect();
        if !lost.is_empty() {
            items.push(Block::Side(lost));
        }
        items.push(Block::Leaf(self.end(session)));
        let late = session.completion.as_ref().is_some_and(|c| c.late);
        Block::Stack {
            items,
            framed: session.depth > 0,
            joins: !late && session.conclusion.is_some(),
        }
    }

    /// A subagent as one box.
    fn brief(&self, session: &Session) -> Block {
        let end = self.end(session);
        let mut leaf = question(session);
        leaf.class = end.class;
        leaf.tooltip.push(end.title);
        leaf.tooltip.extend(end.tooltip);
        let late = session.completion.as_ref().is_some_and(|c| c.late);
        let items = vec![Block::Leaf(leaf)];
        Block::Stack {
            items,
            framed: false,
            joins: !late && session.conclusion.is_some(),
        }
    }

    fn decided(&self, decision: &Decision) -> String {
        let mut parts = vec![format!(
            "{} = {}, of {}",
            decision.subject,
            decision.selected,
            decision.options.join(", ")
        )];
        parts.extend(
            decision
                .decided_by
                .as_ref()
                .map(|by| format!("decided by: {by}")),
        );
        parts.extend(
            decision
                .person
                .as_ref()
                .map(|person| format!("person: {person}")),
        );
        parts.extend(
            decision
                .signal
                .as_ref()
                .map(|signal| format!("signal: {signal}")),
        );
        parts.extend(
            decision
                .narrowed_by
                .as_ref()
                .map(|by| format!("options: {by}")),
        );
        parts.extend(self.text(decision.rationale.as_ref()));
        parts.join("\n")
    }

    fn text(&self, uri: Option<&String>) -> Option<String> {
        (self.texts)(uri?).filter(|text| !text.trim().is_empty())
    }

    fn iteration(&self, iteration: &Iteration) -> Leaf {
        let seen = iteration.observation.as_ref();
        let failed = seen.is_some_and(|o| o.error.is_some());
        let class = if failed { Class::Error } else { Class::Tool };
        let mut leaf = Leaf::new(class, &iteration.action);
        leaf.lines.push(iteration.arguments_in_brief());
        let mut times: Vec<String> = Vec::new();
        times.extend(
            iteration
                .work
                .model_ms
                .map(|ms| format!("model {}", text::duration(ms))),
        );
        let tool_ms = seen.and_then(|o| o.tool_ms).filter(|ms| *ms > 0);
        times.extend(tool_ms.map(|ms| format!("tool {}", text::duration(ms))));
        leaf.lines.push(times.join(" · "));
        leaf.tooltip.extend(self.text(iteration.thought.as_ref()));
        for (name, value) in &iteration.arguments {
            leaf.tooltip.push(format!("{name}: {value}"));
        }
        if let Some(seen) = seen {
            let failure = seen.error.clone().filter(|error| !error.is_empty());
            leaf.tooltip
                .extend(failure.or_else(|| self.text(seen.document.as_ref())));
            leaf.tooltip
                .extend(seen.sources.iter().map(|s| format!("source: {}", s.name())));
        }
        leaf
    }

    fn note(&self, note: &Note) -> Leaf {
        let class = if note.failed {
            Class::Error
        } else {
            Class::Note
        };
        let mut leaf = Leaf::new(class, &note.label);
        leaf.lines.extend(note.lines.iter().take(NOTED).cloned());
        if note.lines.len() > NOTED {
            leaf.lines
                .push(format!("and {} more", note.lines.len() - NOTED));
        }
        leaf.tooltip.extend(note.lines.iter().cloned());
        leaf.tooltip.extend(self.text(note.document.as_ref()));
        leaf
    }

    fn subagents<'s>(
        &self,
        session: &Session,
        fan_out: &'s FanOut,
        shown: &mut HashSet<&'s SessionId>,
    ) -> Option<Block> {
        let brief = self.brief || fan_out.goals.len() > WIDE;
        let blocks: Vec<Block> = fan_out
            .goals
            .iter()
            .map(|goal| {
                let id = goal
                    .session
                    .as_ref()
                    .filter(|id| session.children.contains(id));
                let child = id.and_then(|id| Some((id, self.by_id.get(id).copied()?)));
                match child {
                    Some((id, child)) if shown.insert(id) && !brief => self.session(child),
                    Some((_, child)) if brief => self.brief(child),
                    Some(_) | None => not_started(goal),
                }
            })
            .collect();
        (!blocks.is_empty()).then_some(Block::Rows(blocks))
    }

    fn synthesis(&self, synthesis: &Synthesis) -> Leaf {
        let mut leaf = Leaf::new(Class::Fan, "synthesis");
        leaf.lines.extend(
            synthesis
                .cause
                .as_ref()
                .map(|cause| format!("wait ended: {cause}")),
        );
        for missing in &synthesis.missing {
            let name = self
                .by_id
                .get(missing)
                .map_or(missing.as_str(), |s| s.title());
            leaf.lines.push(format!("missing: {name}"));
            leaf.tooltip.push(format!("missing: {name}"));
        }
        leaf.tooltip
            .push(format!("correlation {}", synthesis.correlation));
        leaf
    }

    fn end(&self, session: &Session) -> Leaf {
        let Some(end) = &session.conclusion else {
            let title = if session.state == State::NotStarted {
                "not started"
            } else {
                "running"
            };
            let mut leaf = Leaf::new(Class::Open, title);
            leaf.shape = Shape::Round;
            return leaf;
        };
        let (class, title) = match (end.answered, end.partial) {
            (true, false) => (Class::Answer, "answer"),
            (true, true) => (Class::Partial, "partial answer"),
            (false, _) => (Class::Error, "no answer"),
        };
        let mut leaf = Leaf::new(class, title);
        leaf.shape = Shape::Round;
        if !end.answered {
            leaf.lines
                .extend(end.error_code.clone().or_else(|| end.termination.clone()));
        }
        for part in end.confidence.iter().take(4) {
            let value = part.value.map(|v| format!("{v:.2}")).unwrap_or_default();
            let part = if part.part.is_empty() {
                "confidence"
            } else {
                &part.part
            };
            leaf.lines.push(format!("{part} {value}"));
        }
        if session.completion.as_ref().is_some_and(|c| c.late) {
            leaf.lines
                .push("late: after the synthesis began".to_owned());
        }
        leaf.tooltip.extend(self.text(end.document.as_ref()));
        leaf.tooltip.extend(end.document.clone());
        leaf
    }
}

fn fan_out_leaf(fan_out: &FanOut) -> Leaf {
    let count = fan_out.expected.unwrap_or(fan_out.goals.len() as u64);
    let mut leaf = Leaf::new(
        Class::Fan,
        &format!("fan-out to {}", text::counted(count, "subagent")),
    );
    leaf.lines.extend(
        fan_out
            .round
            .filter(|r| *r > 1)
            .map(|round| format!("round {round}")),
    );
    leaf.tooltip
        .push(format!("correlation {}", fan_out.correlation));
    leaf.tooltip
        .extend(fan_out.goals.iter().map(|goal| goal.text.clone()));
    leaf
}

fn not_started(goal: &Goal) -> Block {
    let mut leaf = Leaf::new(Class::Open, &goal.text);
    leaf.shape = Shape::Round;
    leaf.lines.push("not started".to_owned());
    Block::Stack {
        items: vec![Block::Leaf(leaf)],
        framed: false,
        joins: false,
    }
}

fn choice(decision: &Decision) -> String {
    let others: Vec<&str> = decision
        .options
        .iter()
        .map(String::as_str)
        .filter(|option| *option != decision.selected)
        .collect();
    if others.is_empty() {
        format!("{}: the only option", decision.subject)
    } else {
        format!("not {}", others.join(", "))
    }
}

fn question(session: &Session) -> Leaf {
    let mut leaf = Leaf::new(Class::Question, session.title());
    leaf.shape = Shape::Round;
    let mut spent = vec![text::counted(session.spent.steps, "step")];
    let tokens = session.spent_in_tree.tokens();
    if tokens > 0 {
        spent.push(text::counted(tokens, "token"));
    }
    spent.extend(session.duration_ms.map(text::duration));
    leaf.lines.push(spent.join(" · "));
    leaf.tooltip.push(format!("session {}", session.id));
    leaf.tooltip
        .extend(session.started_at.map(|at| format!("started {at}")));
    leaf.tooltip.push(session.question.clone());
    leaf
}
