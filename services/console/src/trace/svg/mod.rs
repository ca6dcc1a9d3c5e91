//! `trace --format svg`: the run as a picture that stands alone.
//!
//! Time runs downwards, subagents stand side by side between their fan-out and the synthesis. What a
//! box has no room for is its tooltip. No script, no link, no font of its own; light and dark follow the
//! reader's setting. This file says what is in the picture, [`layout`] where it stands, [`words`] how
//! texts fit their boxes.

mod layout;
mod parts;
mod words;

use super::model::{
    Decision, FanOut, Iteration, Note, NoteKind, Session, State, Step, Synthesis,
    arguments_in_brief,
};
use super::{NOT_HEARD_OF, Texts, Trace};
use crate::text;
use agentfleet_schema::SessionId;
use layout::{Block, Class, Leaf, Rows, Shape};
use parts::{
    choice, fan_out_leaf, in_a_line, joins, not_heard_of, question, specialists, why_failed,
};
use std::collections::{HashMap, HashSet};

/// Above so many subagents in one fan-out, or sessions in all, a subagent says only how it ended.
const WIDE: usize = 12;
const MANY: usize = 48;
/// Steps that a subagent in one box names.
const NAMED: usize = 8;
/// Longest tooltip, in columns of its longest part.
const TOOLTIP: usize = 700;
/// Ends that explain themselves. What makes such an answer partial stands in what it was made of.
const EXPECTED: [&str; 3] = ["final-answer", "subagents-complete", "plan-complete"];
/// Lines of a note that its box shows; the tooltip has all.
const NOTED: usize = 8;

pub(super) fn render(trace: &Trace, texts: Texts<'_>) -> String {
    let mut picture = Picture {
        by_id: trace.by_id(),
        above_waiting: trace.above_waiting(),
        texts,
        detail: if trace.sessions.len() > MANY {
            Detail::Ends
        } else {
            Detail::Boxes
        },
    };
    let roots: Vec<&Session> = trace.roots().collect();
    let mut blocks = picture.roots(&roots);
    if picture.detail == Detail::Boxes && layout::is_too_wide(&blocks) {
        picture.detail = Detail::Lines;
        blocks = picture.roots(&roots);
    }
    let title = match roots.first() {
        Some(root) => text::preview(root.title(), 400),
        None => "The graph knows nothing of this run".to_owned(),
    };
    let totals = trace.totals();
    let mut about = vec![
        text::counted(trace.sessions.len() as u64, "session"),
        text::counted(totals.steps, "step"),
        text::counted(totals.tool_calls, "tool call"),
        totals.tokens_told(),
    ];
    if let Some(ms) = roots.first().and_then(|root| root.duration_ms) {
        about.push(text::duration(ms));
    }
    if trace.waits() {
        about.push("waits for a person".to_owned());
    } else if trace.is_running() {
        about.push("still running".to_owned());
    }
    layout::draw(&title, &about.join(" · "), blocks)
}

/// How much of a subagent that has none of its own is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// A box for each step.
    Boxes,
    /// A line for each step, in one box.
    Lines,
    /// One box, for how it ended.
    Ends,
}

struct Picture<'a> {
    by_id: HashMap<&'a SessionId, &'a Session>,
    above_waiting: HashSet<&'a SessionId>,
    texts: Texts<'a>,
    detail: Detail,
}

impl Picture<'_> {
    fn roots(&self, roots: &[&Session]) -> Vec<Block> {
        let roots = roots.iter();
        roots.map(|root| self.session(root, None)).collect()
    }

    /// A session with all below it. `specialist`: which one it is, where a router said so.
    fn session(&self, session: &Session, specialist: Option<&str>) -> Block {
        let mut items = vec![Block::Leaf(question(session, specialist))];
        if let Some(routing) = &session.routing {
            let mut leaf = Leaf::new(
                Class::Decision,
                routing.pattern.as_deref().unwrap_or("routing"),
            );
            if let Some(task_type) = &routing.task_type {
                leaf.say(format!("task type {task_type}"), 2);
            }
            for decision in &routing.decisions {
                choice(decision, &mut leaf);
                leaf.tooltip.push(self.decided(decision));
            }
            items.push(Block::Leaf(leaf));
        }
        let specialists = specialists(session);
        let mut shown: HashSet<&SessionId> = HashSet::new();
        for (at, step) in session.steps.iter().enumerate() {
            match step {
                Step::Decision(decision) if decision.is_of_fan_out() => {}
                Step::Decision(decision) => items.push(Block::Leaf(self.decision(decision))),
                Step::Iteration(iteration) => items.push(Block::Leaf(self.iteration(iteration))),
                Step::FanOut(fan_out) => {
                    items.push(Block::Leaf(fan_out_leaf(fan_out)));
                    items.extend(self.subagents(session, fan_out, &specialists, &mut shown));
                }
                Step::Note(note) => {
                    let why = why_failed(note, &session.steps[..at]);
                    items.push(Block::Leaf(self.note(note, why)));
                }
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
            .map(|child| self.subagent(child, None, self.detail))
            .collect();
        if !lost.is_empty() {
            items.push(Block::Side(Rows::new(lost)));
        }
        items.push(Block::Leaf(self.end(session)));
        Block::Stack {
            items,
            framed: session.depth > 0,
            joins: joins(session),
        }
    }

    /// A subagent, in as much detail as there is room for. One with subagents of its own is no box:
    /// they would be lost.
    fn subagent(&self, session: &Session, specialist: Option<&str>, detail: Detail) -> Block {
        if detail == Detail::Boxes || !session.children.is_empty() {
            return self.session(session, specialist);
        }
        let mut leaf = question(session, specialist);
        if let (Detail::Lines, Some(pattern)) = (detail, session.pattern()) {
            leaf.say(format!("as {pattern}"), 1);
        }
        if detail == Detail::Lines {
            let lines: Vec<String> = session.steps.iter().filter_map(in_a_line).collect();
            for line in lines.iter().take(NAMED) {
                leaf.say(line, 1);
            }
            if lines.len() > NAMED {
                leaf.say(format!("and {} more", lines.len() - NAMED), 1);
            }
        }
        let end = self.end(session);
        leaf.class = end.class;
        leaf.tooltip.push(end.title.clone());
        leaf.tooltip.extend(end.tooltip.iter().cloned());
        let expected = matches!(end.class, Class::Answer | Class::Open);
        if detail == Detail::Lines || !expected {
            leaf.say(&end.title, 1);
            leaf.say_as(end);
        }
        Block::Stack {
            items: vec![Block::Leaf(leaf)],
            framed: false,
            joins: joins(session),
        }
    }

    fn decision(&self, decision: &Decision) -> Leaf {
        let mut leaf;
        if decision.is_approval() {
            let class = match decision.selected.as_str() {
                "deny" => Class::Error,
                _ => Class::Decision,
            };
            leaf = Leaf::new(class, &decision.answer_in_brief());
            if !decision.arguments.is_empty() {
                let arguments = arguments_in_brief(&decision.arguments, 400);
                leaf.say(format!("with {arguments}"), 6);
            }
            leaf.say(decision.signal.clone().unwrap_or_default(), 6);
        } else {
            let title = format!("{}: {}", decision.subject, decision.selected);
            leaf = Leaf::new(Class::Decision, &title);
            choice(decision, &mut leaf);
        }
        leaf.tooltip.push(self.decided(decision));
        leaf
    }

    fn decided(&self, decision: &Decision) -> String {
        let mut parts = vec![format!(
            "{} = {}, of {}",
            decision.subject,
            decision.selected,
            decision.options.join(", ")
        )];
        for (what, said) in [
            ("decided by", &decision.decided_by),
            ("person", &decision.person),
            ("signal", &decision.signal),
            ("options", &decision.narrowed_by),
        ] {
            parts.extend(said.as_ref().map(|said| format!("{what}: {said}")));
        }
        parts.extend(self.text(decision.rationale.as_ref()));
        parts.join("\n")
    }

    fn text(&self, uri: Option<&String>) -> Option<String> {
        (self.texts)(uri?).filter(|text| !text.trim().is_empty())
    }

    fn iteration(&self, iteration: &Iteration) -> Leaf {
        let seen = iteration.observation.as_ref();
        let failed = seen.is_some_and(|o| o.error.is_some());
        let mut leaf;
        if let Some(wrong) = &iteration.sent_back {
            leaf = Leaf::new(Class::Partial, "draft answer, sent back");
            leaf.say(wrong, 4);
        } else {
            let class = if failed { Class::Error } else { Class::Tool };
            leaf = Leaf::new(class, &iteration.action);
            leaf.say(iteration.arguments_in_brief(), 2);
        }
        let mut times: Vec<String> = Vec::new();
        times.extend(
            iteration
                .work
                .model_ms
                .map(|ms| format!("model {}", text::duration(ms))),
        );
        let tool_ms = seen.and_then(|o| o.tool_ms).filter(|ms| *ms > 0);
        times.extend(tool_ms.map(|ms| format!("tool {}", text::duration(ms))));
        leaf.say(times.join(" · "), 1);
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

    fn note(&self, note: &Note, why: Option<&str>) -> Leaf {
        let class = match note.note {
            NoteKind::Approval => Class::Wait,
            NoteKind::Plan | NoteKind::StepResult | NoteKind::Critique | NoteKind::Comparison => {
                if note.failed {
                    Class::Error
                } else {
                    Class::Note
                }
            }
        };
        let mut leaf = Leaf::new(class, &note.title());
        let said = self.text(note.document.as_ref());
        for line in note.lines.iter().take(NOTED) {
            match note.note {
                // Who is to decide must see what on.
                NoteKind::Approval => leaf.say(line, 6),
                NoteKind::Plan
                | NoteKind::StepResult
                | NoteKind::Critique
                | NoteKind::Comparison => {
                    leaf.say(line, 3);
                }
            }
        }
        if note.lines.len() > NOTED {
            leaf.say(format!("and {} more", note.lines.len() - NOTED), 1);
        }
        match note.note {
            NoteKind::StepResult => {
                leaf.say(why.unwrap_or_default(), 3);
                leaf.say(said.as_deref().unwrap_or_default(), 3);
            }
            NoteKind::Critique => {
                for line in said.iter().flat_map(|said| said.lines()).take(NOTED) {
                    leaf.say(line, 3);
                }
            }
            // What they say has words of its own in the graph.
            NoteKind::Plan | NoteKind::Comparison | NoteKind::Approval => {}
        }
        leaf.tooltip.extend(note.lines.iter().cloned());
        leaf.tooltip.extend(said);
        leaf
    }

    fn subagents<'s>(
        &self,
        session: &Session,
        fan_out: &'s FanOut,
        specialists: &[(String, String)],
        shown: &mut HashSet<&'s SessionId>,
    ) -> Option<Block> {
        let detail = if fan_out.goals.len() > WIDE {
            Detail::Ends
        } else {
            self.detail
        };
        let blocks: Vec<Block> = fan_out
            .goals
            .iter()
            .map(|goal| {
                let id = session.child_of(goal);
                let child = id.and_then(|id| Some((id, self.by_id.get(id).copied()?)));
                let task = text::one_line(&goal.text);
                let specialist = specialists.iter().find(|(of, _)| *of == task);
                let specialist = specialist.map(|(_, name)| name.as_str());
                match child {
                    Some((id, child)) if shown.insert(id) => {
                        self.subagent(child, specialist, detail)
                    }
                    Some(_) | None => not_heard_of(goal, specialist),
                }
            })
            .collect();
        (!blocks.is_empty()).then(|| Block::Rows(Rows::new(blocks)))
    }

    fn synthesis(&self, synthesis: &Synthesis) -> Leaf {
        let mut leaf = Leaf::new(Class::Fan, "synthesis");
        if let Some(cause) = &synthesis.cause {
            leaf.say(format!("wait ended: {cause}"), 1);
        }
        for missing in &synthesis.missing {
            let name = self
                .by_id
                .get(missing)
                .map_or(missing.as_str(), |s| s.title());
            leaf.say(format!("missing: {name}"), 2);
            leaf.tooltip.push(format!("missing: {name}"));
        }
        leaf.tooltip
            .push(format!("correlation {}", synthesis.correlation));
        leaf
    }

    fn end(&self, session: &Session) -> Leaf {
        let Some(end) = &session.conclusion else {
            return self.without_end(session);
        };
        let (class, title) = match (end.answered, end.partial) {
            (true, false) => (Class::Answer, "answer"),
            (true, true) => (Class::Partial, "partial answer"),
            (false, _) => (Class::Error, "no answer"),
        };
        let mut leaf = Leaf::new(class, title);
        leaf.shape = Shape::Round;
        let said = self.text(end.document.as_ref());
        let reason = end.reason().unwrap_or_default();
        if class != Class::Answer && !EXPECTED.contains(&reason) {
            leaf.say(reason, 2);
            // The first line says why; what was found stands below it.
            let why = said.as_deref().and_then(|said| said.trim().lines().next());
            leaf.say(why.unwrap_or_default().replace("**", ""), 4);
        }
        for part in end.confidence.iter().take(4) {
            let value = part.value.map(|v| format!("{v:.2}")).unwrap_or_default();
            let part = if part.part.is_empty() {
                "confidence"
            } else {
                &part.part
            };
            leaf.say(format!("{part} {value}"), 2);
        }
        if session.completion.as_ref().is_some_and(|c| c.late) {
            leaf.say("late: after the synthesis began", 1);
        }
        leaf.tooltip.extend(said);
        leaf.tooltip.extend(end.document.clone());
        leaf
    }

    /// Where a session stands that has come to no end.
    fn without_end(&self, session: &Session) -> Leaf {
        let (class, title) = match session.state {
            State::Waiting => (Class::Wait, "waits for a person"),
            State::Running if self.above_waiting.contains(&session.id) => {
                (Class::Wait, "a subagent waits for a person")
            }
            State::Running => (Class::Open, "running"),
            State::NotStarted => (Class::Open, NOT_HEARD_OF),
            State::Ended => (Class::Open, "ended"),
        };
        let mut leaf = Leaf::new(class, title);
        leaf.shape = Shape::Round;
        leaf
    }
}
