//! `trace`: the run as a tree for the terminal.
//!
//! Each session shows how its pattern was chosen from which options, what it did step by step, what it
//! cost, how its answer begins, how sure it is, and what it rests on.

mod branch;
mod phrases;

use super::model::{
    Completion, Conclusion, Decision, FanOut, Goal, Iteration, Note, NoteKind, Session, Source,
    State, Step, Synthesis,
};
use super::{NOT_HEARD_OF, Texts, Trace, UNSOURCED, sources_of};
use crate::style::{BAD, BOLD, DIM, GOOD, ITALIC, Line, Look, NAME, PLAIN, WARN, paint_all};
use crate::{markdown, text};
use agentfleet_core::cited;
use agentfleet_schema::SessionId;
use anstyle::Style;
use branch::{Branch, Detail};
use phrases::{
    arguments, clock, confidence, decided_by, others, push_part, remarks, sign, sources,
    states_confidence, worked,
};
use std::collections::{HashMap, HashSet};

/// Lines of an answer that are shown.
const ANSWER_LINES: usize = 6;
/// No terminal shows more of a line.
const WIDEST: usize = 500;

pub(super) fn render(trace: &Trace, look: Look, texts: Texts<'_>) -> String {
    let look = Look {
        width: look.width.max(40),
        ..look
    };
    let view = View {
        trace,
        by_id: trace.by_id(),
        above_waiting: trace.above_waiting(),
        texts,
        look,
    };
    let mut lines = Vec::new();
    if trace.is_empty() {
        lines.push(Line::of("The graph knows nothing of this run.", PLAIN));
    }
    for (position, root) in trace.roots().enumerate() {
        if position > 0 {
            lines.push(Line::new());
        }
        lines.extend(view.heading(root));
        let branch = view.session(root);
        lines.extend(branch.draw(look.width));
    }
    paint_all(&lines, look.color)
}

struct View<'a> {
    trace: &'a Trace,
    by_id: HashMap<&'a SessionId, &'a Session>,
    above_waiting: HashSet<&'a SessionId>,
    texts: Texts<'a>,
    look: Look,
}

impl<'a> View<'a> {
    fn heading(&self, root: &Session) -> Vec<Line> {
        let mut first = Line::of("Run ", BOLD).with(root.id.as_str(), BOLD);
        let facts = [
            root.collection.as_ref().map(|c| format!("collection {c}")),
            root.conversation
                .as_ref()
                .map(|c| format!("conversation {c}")),
            root.started_at.map(|at| clock(at.0)),
        ];
        for fact in facts.into_iter().flatten() {
            first.push(" · ", DIM).push(&fact, DIM);
        }
        let sessions = self.trace.tree_of(&root.id).len();
        let spent = root.spent_in_tree.told(sessions, root.duration_ms);
        let second = Line::of(&spent, PLAIN);
        let mut lines = first.wrapped(self.look.width);
        lines.extend(second.wrapped(self.look.width));
        if root.state != State::Ended {
            let waits = root.state == State::Waiting || self.above_waiting.contains(&root.id);
            let note = if waits {
                "Waits for a person: this is what the graph knows so far."
            } else {
                "Still running: this is what the graph knows so far."
            };
            lines.extend(Line::of(note, WARN).wrapped(self.look.width));
        }
        if let Some(from) = &root.forked_from {
            let mut line = Line::of(&format!("Forked from run {from}"), PLAIN);
            if let Some(node) = &root.forked_at {
                let node = node.strip_prefix("urn:trustgraph:agent:").unwrap_or(node);
                let node = node.split_once('/').map_or(node, |(_, path)| path);
                line.push(&format!(", going on from its {node}"), DIM);
            }
            lines.extend(line.wrapped(self.look.width));
        }
        if root.parent.is_some() {
            let note = "A subagent; what is above it is not shown.";
            lines.extend(Line::of(note, WARN).wrapped(self.look.width));
        }
        lines.push(Line::new());
        lines
    }

    fn session(&self, session: &'a Session) -> Branch {
        let (sign, style) = sign(session);
        let mut title = Line::of(sign, style).with(" ", PLAIN);
        title.push(&text::one_line(session.title()), BOLD);
        let mut branch = Branch::new(title);
        branch.remarks = remarks(session, self.above_waiting.contains(&session.id));
        branch.branches.extend(self.routing(session));
        let mut shown: HashSet<&SessionId> = HashSet::new();
        for step in &session.steps {
            branch.branches.push(match step {
                Step::Decision(decision) => self.decision(decision),
                Step::Iteration(iteration) => self.iteration(iteration),
                Step::FanOut(fan_out) => self.fan_out(session, fan_out, &mut shown),
                Step::Synthesis(synthesis) => self.synthesis(synthesis),
                Step::Note(note) => self.note(note),
            });
        }
        // Subagents no fan-out accounts for: the graph is partial.
        for child in session.children.iter().filter(|id| !shown.contains(id)) {
            branch
                .branches
                .extend(self.by_id.get(child).map(|child| self.session(child)));
        }
        if let Some(conclusion) = &session.conclusion {
            branch.branches.push(self.conclusion(session, conclusion));
        }
        if let Some(completion) = &session.completion {
            branch.branches.extend(completed(completion));
        }
        branch
    }

    fn text(&self, uri: Option<&String>) -> Option<String> {
        (self.texts)(uri?).filter(|text| !text.trim().is_empty())
    }

    fn routing(&self, session: &Session) -> Option<Branch> {
        let routing = session.routing.as_ref()?;
        let mut title = Line::of("routing ", DIM);
        if let Some(task_type) = &routing.task_type {
            title.push(task_type, NAME).push(" → ", DIM);
        }
        title.push(routing.pattern.as_deref().unwrap_or("unknown"), NAME);
        let mut branch = Branch::new(title);
        branch.remarks = worked(&routing.work);
        branch.branches = routing.decisions.iter().map(|d| self.decision(d)).collect();
        if let [_] = branch.branches.as_slice()
            && let Some(mut only) = branch.branches.pop()
        {
            // One decision needs no branch of its own: what it chose stands in the title.
            branch.title.append(&others(&routing.decisions[0]));
            branch.details.append(&mut only.details);
        }
        Some(branch)
    }

    fn decision(&self, decision: &Decision) -> Branch {
        let mut title = Line::of(&decision.subject, DIM).with(" ", PLAIN);
        title.push(&decision.selected, NAME);
        title.append(&others(decision));
        let mut branch = Branch::new(title);
        if !decision.options.is_empty() && !decision.options.contains(&decision.selected) {
            branch.whole(Line::of("not among its recorded options", BAD));
        }
        let mut chosen = Line::of("chosen by ", DIM);
        chosen.push(decided_by(decision), DIM);
        if let Some(signal) = &decision.signal {
            chosen.push(&format!(": {}", text::one_line(signal)), DIM);
        }
        branch.whole(chosen);
        if !decision.arguments.is_empty() {
            let changed = arguments(&decision.arguments);
            branch.whole(Line::of("with: ", DIM).with(&changed, PLAIN));
        }
        if let Some(narrowed) = &decision.narrowed_by {
            branch.whole(Line::of("options: ", DIM).with(&text::one_line(narrowed), DIM));
        }
        if let Some(rationale) = self.text(decision.rationale.as_ref()) {
            let rationale = text::preview(&rationale, 3 * self.look.width);
            branch.whole(Line::of("because: ", DIM).with(&rationale, ITALIC));
        }
        branch
    }

    fn note(&self, note: &Note) -> Branch {
        let style = if note.failed { BAD } else { NAME };
        let mut branch = Branch::new(Line::of(&text::one_line(&note.title()), style));
        branch.remarks = worked(&note.work);
        for line in &note.lines {
            branch.whole(Line::of(&text::preview(line, WIDEST), PLAIN));
        }
        if let Some(text) = self.text(note.document.as_ref()) {
            match note.note {
                // Its steps stand above.
                NoteKind::Plan => {}
                NoteKind::StepResult => branch.glimpse("result: ", &text, PLAIN),
                NoteKind::Approval => branch.glimpse("thought: ", &text, ITALIC),
                NoteKind::Critique | NoteKind::Comparison => branch.glimpse("", &text, ITALIC),
            }
        }
        branch
    }

    fn iteration(&self, iteration: &Iteration) -> Branch {
        let mut title = Line::new();
        if let Some(number) = iteration.number {
            title.push(&format!("{number} "), DIM);
        }
        if iteration.sent_back.is_some() {
            title.push("draft answer, sent back", WARN);
        } else {
            title.push(&text::one_line(&iteration.action), NAME);
            title
                .push("(", PLAIN)
                .push(&arguments(&iteration.arguments), PLAIN)
                .push(")", PLAIN);
        }
        let mut branch = Branch::new(title);
        let mut worked = worked(&iteration.work);
        let seen = iteration.observation.as_ref();
        if let Some(ms) = seen.and_then(|o| o.tool_ms).filter(|ms| *ms > 0) {
            push_part(&mut worked, &format!("tool {}", text::duration(ms)));
        }
        branch.remarks = worked;
        if let Some(thought) = self.text(iteration.thought.as_ref()) {
            branch.glimpse("thought: ", &thought, ITALIC);
        }
        if let Some(wrong) = &iteration.sent_back {
            // What was seen is the critique, which has a place of its own.
            branch.glimpse("what was wrong: ", wrong, PLAIN);
            return branch;
        }
        let Some(seen) = seen else { return branch };
        if let Some(error) = &seen.error {
            let error = if error.is_empty() {
                "the tool failed"
            } else {
                error
            };
            branch.whole(Line::of("✖ ", BAD).with(&text::preview(error, WIDEST), BAD));
        } else if let Some(observation) = self.text(seen.document.as_ref()) {
            branch.glimpse("→ ", &observation, PLAIN);
        }
        branch.details.extend(sources(
            "sources: ",
            &seen.sources.iter().collect::<Vec<_>>(),
        ));
        branch
    }

    fn fan_out(
        &self,
        session: &'a Session,
        fan_out: &'a FanOut,
        shown: &mut HashSet<&'a SessionId>,
    ) -> Branch {
        let mut branch = Branch::new(Line::of(&fan_out.title(), NAME));
        let mut remarks = Line::new();
        if let Some(round) = fan_out.round.filter(|round| *round > 1) {
            push_part(&mut remarks, &format!("round {round}"));
        }
        if let Some(policy) = fan_out.policy_of_note() {
            push_part(&mut remarks, &format!("join policy {policy}"));
        }
        if !remarks.is_empty() {
            remarks.push(" · ", DIM);
        }
        branch.remarks = remarks.append(&worked(&fan_out.work)).clone();
        branch.whole(Line::of(
            &format!("correlation {}", fan_out.correlation),
            DIM,
        ));
        for goal in &fan_out.goals {
            match session.child_of(goal).and_then(|id| self.by_id.get(id)) {
                Some(child) if shown.insert(&child.id) => {
                    branch.branches.push(self.session(child));
                }
                Some(_) | None => branch.branches.push(not_heard_of(goal)),
            }
        }
        branch
    }

    fn synthesis(&self, synthesis: &Synthesis) -> Branch {
        let results = synthesis
            .derived_from
            .iter()
            .filter(|uri| uri.ends_with("/answer"))
            .count();
        let title = format!("synthesis of {}", text::counted(results as u64, "result"));
        let mut branch = Branch::new(Line::of(&title, NAME));
        branch.remarks = match synthesis.cause.as_deref() {
            Some("complete") => Line::of("every subagent had ended", DIM),
            Some("enough") => Line::of("enough subagents had answered", DIM),
            Some("deadline") => Line::of("the wait had ended", WARN),
            Some(other) => Line::of(other, DIM),
            None => Line::new(),
        };
        for missing in &synthesis.missing {
            let name = self
                .by_id
                .get(missing)
                .map_or(missing.as_str(), |s| s.title());
            branch.whole(Line::of("missing: ", WARN).with(&text::one_line(name), PLAIN));
        }
        for failed in synthesis
            .derived_from
            .iter()
            .filter(|uri| !uri.ends_with("/answer"))
        {
            let name = agentfleet_schema::uris::session_of(failed)
                .and_then(|id| self.by_id.get(&id))
                .map_or(failed.as_str(), |s| s.title());
            branch.whole(Line::of("failed: ", BAD).with(&text::one_line(name), PLAIN));
        }
        branch
    }

    fn conclusion(&self, session: &Session, conclusion: &Conclusion) -> Branch {
        let mut title = match (conclusion.answered, conclusion.partial) {
            (true, false) => Line::of("answer", GOOD),
            (true, true) => Line::of("partial answer", WARN),
            (false, _) => Line::of("ended without an answer", BAD),
        };
        let expected = ["final-answer", "subagents-complete"];
        let reason = conclusion.reason();
        if let Some(reason) = reason.filter(|reason| !expected.contains(reason)) {
            title.push(&format!(" ({reason})"), PLAIN);
        }
        let mut branch = Branch::new(title);
        branch.remarks = worked(&conclusion.work);
        if let Some(thought) = self.text(conclusion.thought.as_ref()) {
            branch.glimpse("thought: ", &thought, ITALIC);
        }
        if let Some(answer) = self.text(conclusion.document.as_ref()) {
            let stated = !conclusion.confidence.is_empty();
            branch
                .details
                .extend(self.beginning(&answer, session, stated));
        }
        branch.details.extend(confidence(&conclusion.confidence));
        if conclusion.unsourced {
            branch.whole(Line::of(UNSOURCED, WARN));
        }
        if session.depth == 0 {
            let read = sources_of(self.trace.tree_of(&session.id));
            match self.text(conclusion.document.as_ref()) {
                Some(answer) => {
                    let divided = cited::divide(&answer, read, Source::names);
                    branch.details.extend(sources("sources: ", &divided.cited));
                    let words = if divided.cited.is_empty() {
                        "read, not cited: "
                    } else {
                        "also read: "
                    };
                    branch.details.extend(sources(words, &divided.only_read));
                }
                None => branch.details.extend(sources("read: ", &read)),
            }
            if let Some(document) = &conclusion.document {
                branch.whole(Line::of("text: ", DIM).with(document, DIM));
            }
        }
        branch
    }

    /// How an answer begins. A line that states a confidence is left out where it is told below.
    fn beginning(&self, answer: &str, session: &Session, stated: bool) -> Vec<Detail> {
        let told = answer[..answer.floor_char_boundary(16 * 1024)]
            .lines()
            .filter(|line| !(stated && states_confidence(line)));
        let told = told.collect::<Vec<_>>().join("\n");
        // A subagent stands two levels below its parent: the fan-out is between them.
        let indent = 6 * (session.depth as usize + 1);
        let look = Look {
            width: self.look.width.saturating_sub(indent).max(30),
            ..self.look
        };
        let mut said = markdown::lines(&told, look)
            .into_iter()
            .filter(|line| !line.plain().trim().is_empty());
        let mut lines: Vec<Detail> = said
            .by_ref()
            .take(ANSWER_LINES)
            .map(Detail::Glimpse)
            .collect();
        if said.next().is_some() {
            lines.push(Detail::Glimpse(Line::of(text::ELLIPSIS, DIM)));
        }
        lines
    }
}

fn not_heard_of(goal: &Goal) -> Branch {
    let title = Line::of("○ ", DIM).with(&text::one_line(&goal.text), PLAIN);
    Branch {
        remarks: Line::of(NOT_HEARD_OF, DIM),
        ..Branch::new(title)
    }
}

/// What the end of a subagent meant to its parent, where it was not simply an answer in time.
fn completed(completion: &Completion) -> Option<Branch> {
    if completion.late {
        let title = Line::of("late", WARN).with(": it came after the synthesis began", DIM);
        return Some(Branch::new(title));
    }
    match completion.status.as_str() {
        "answered" | "" => None,
        status => Some(Branch::new(
            Line::of("told its parent: ", DIM).with(status, BAD),
        )),
    }
}

/// The colour of a confidence.
pub(crate) fn sureness(value: f64) -> Style {
    if value >= 0.7 {
        GOOD
    } else if value >= 0.4 {
        WARN
    } else {
        BAD
    }
}
