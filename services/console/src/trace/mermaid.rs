//! `trace --format mermaid`: a flowchart for documents and issue trackers that draw Mermaid.
//!
//! Mermaid refuses more than 500 edges and 50,000 characters unless its host allows more. A trace that
//! would exceed them is drawn with less in it, and says what it leaves out.
//!
//! Texts go in as entity codes wherever a character could mean something to Mermaid: its directives,
//! comments and style lines are looked for even inside quotes.

mod labels;

use super::model::{FanOut, NoteKind, Session, State, Step};
use super::{NOT_HEARD_OF, Trace};
use crate::text;
use agentfleet_schema::SessionId;
use labels::{decided, escape, of_options, wrapped};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

const MAX_CHARACTERS: usize = 45_000;
const MAX_EDGES: usize = 450;
const LABEL: usize = 60;
/// Lines of a note that are shown.
const NOTED: usize = 8;
/// Most lines of a goal, and of what a person is asked.
const GOAL_LINES: usize = 3;
const ASKED_LINES: usize = 6;

/// How much is drawn.
#[derive(Clone, Copy)]
struct Detail {
    /// Decisions, iterations and syntheses, or whole sessions as one node.
    steps: bool,
    /// Most subagents of one fan-out.
    siblings: usize,
}

const DETAILS: [Detail; 4] = [
    Detail {
        steps: true,
        siblings: usize::MAX,
    },
    Detail {
        steps: false,
        siblings: usize::MAX,
    },
    Detail {
        steps: false,
        siblings: 40,
    },
    Detail {
        steps: false,
        siblings: 3,
    },
];

pub(super) fn render(trace: &Trace) -> String {
    let mut smallest = String::new();
    for detail in DETAILS {
        let chart = Chart::draw(trace, detail);
        if chart.edges <= MAX_EDGES && chart.out.len() <= MAX_CHARACTERS {
            return chart.out;
        }
        smallest = chart.out;
    }
    smallest
}

struct Chart<'a> {
    trace: &'a Trace,
    by_id: HashMap<&'a SessionId, &'a Session>,
    above_waiting: HashSet<&'a SessionId>,
    detail: Detail,
    out: String,
    edges: usize,
    nodes: usize,
    classes: Vec<(usize, &'static str)>,
    drawn: HashSet<&'a SessionId>,
}

/// The first and the last node of what was drawn.
#[derive(Clone, Copy)]
struct Ends {
    first: usize,
    last: usize,
}

impl<'a> Chart<'a> {
    fn draw(trace: &'a Trace, detail: Detail) -> Self {
        let mut chart = Self {
            trace,
            by_id: trace.by_id(),
            above_waiting: trace.above_waiting(),
            detail,
            out: "flowchart TD\n".to_owned(),
            edges: 0,
            nodes: 0,
            classes: Vec::new(),
            drawn: HashSet::new(),
        };
        if trace.is_empty() {
            chart.node("nothing is known of this run", "([", "])", "open");
        }
        for root in chart.trace.roots() {
            if detail.steps {
                chart.session(root, 1);
            } else {
                chart.brief(root, 1);
            }
        }
        chart.styles();
        chart
    }

    fn indent(&mut self, level: usize) {
        // Depth is bounded, but a hundred spaces help nobody.
        for _ in 0..level.min(12) {
            self.out.push_str("  ");
        }
    }

    /// Adds a node whose label is put into pieces by line feeds.
    fn node(&mut self, label: &str, open: &str, close: &str, class: &'static str) -> usize {
        let id = self.nodes;
        self.nodes += 1;
        let lines: Vec<String> = label
            .split('\n')
            .map(|line| escape(&text::preview(line, LABEL)))
            .filter(|line| !line.is_empty())
            .collect();
        let label = if lines.is_empty() {
            "-".to_owned()
        } else {
            lines.join("<br/>")
        };
        let _ = writeln!(self.out, "n{id}{open}\"{label}\"{close}");
        if !class.is_empty() {
            self.classes.push((id, class));
        }
        id
    }

    fn edge(&mut self, from: usize, to: usize, label: &str, dotted: bool) {
        self.edges += 1;
        let arrow = if dotted { "-.->" } else { "-->" };
        let label = if label.is_empty() {
            String::new()
        } else {
            format!("|\"{}\"|", escape(&text::preview(label, LABEL)))
        };
        let _ = writeln!(self.out, "  n{from} {arrow}{label} n{to}");
    }

    /// A session with all its steps, in a frame if it is a subagent's.
    fn session(&mut self, session: &'a Session, level: usize) -> Ends {
        self.drawn.insert(&session.id);
        let framed = session.depth > 0;
        if framed {
            self.indent(level);
            let title = text::preview(session.title(), LABEL);
            let _ = writeln!(self.out, "subgraph s{}[\"{}\"]", self.nodes, escape(&title));
        }
        self.indent(level + 1);
        let goal = wrapped(session.title(), GOAL_LINES);
        let first = self.node(&goal, "([", "])", "question");
        let mut last = first;
        let mut branches: Vec<(&FanOut, Vec<usize>)> = Vec::new();
        if let Some(routing) = &session.routing {
            let mut label = routing.pattern.clone().unwrap_or_default();
            if let Some(task_type) = &routing.task_type {
                label = format!("{task_type}: {label}");
            }
            for decision in &routing.decisions {
                let _ = write!(label, "\n{}", of_options(decision));
            }
            self.indent(level + 1);
            let node = self.node(&format!("routing\n{label}"), "{{", "}}", "decision");
            self.edge(first, node, "", false);
            last = node;
        }
        for step in &session.steps {
            last = self.step(session, step, last, level, &mut branches);
        }
        if let Some(conclusion) = &session.conclusion {
            let label = match (conclusion.answered, conclusion.partial) {
                (true, false) => "answer".to_owned(),
                (true, true) => "partial answer".to_owned(),
                (false, _) => format!("no answer\n{}", conclusion.reason().unwrap_or("error")),
            };
            let class = if conclusion.answered {
                "answer"
            } else {
                "error"
            };
            self.indent(level + 1);
            let node = self.node(&label, "([", "])", class);
            self.edge(last, node, "", false);
            last = node;
        } else {
            self.indent(level + 1);
            let (label, class) = match session.state {
                State::Waiting => ("waits for a person", "wait"),
                State::Running if self.above_waiting.contains(&session.id) => {
                    ("a subagent waits for a person", "wait")
                }
                State::Running => ("still running", "open"),
                State::NotStarted => (NOT_HEARD_OF, "open"),
                State::Ended => ("ended", "open"),
            };
            let node = self.node(label, "([", "])", class);
            self.edge(last, node, "", true);
            last = node;
        }
        if framed {
            self.indent(level);
            self.out.push_str("end\n");
        }
        // Subagents no fan-out accounts for: the graph is partial.
        let lost: Vec<&'a Session> = self.undrawn(session);
        for child in lost {
            let ends = self.session(child, level);
            self.edge(first, ends.first, "", true);
        }
        Ends { first, last }
    }

    fn step(
        &mut self,
        session: &'a Session,
        step: &'a Step,
        last: usize,
        level: usize,
        branches: &mut Vec<(&'a FanOut, Vec<usize>)>,
    ) -> usize {
        match step {
            Step::Decision(decision) if decision.is_of_fan_out() => last,
            Step::Decision(decision) => {
                let (label, class) = decided(decision);
                self.indent(level + 1);
                let node = self.node(&label, "{{", "}}", class);
                self.edge(last, node, "", false);
                node
            }
            Step::Iteration(iteration) => {
                let failed = iteration
                    .observation
                    .as_ref()
                    .is_some_and(|seen| seen.error.is_some());
                let class = if failed { "error" } else { "" };
                let label = match &iteration.sent_back {
                    Some(wrong) => {
                        format!("draft answer, sent back\n{}", wrapped(wrong, GOAL_LINES))
                    }
                    None => format!("{}\n{}", iteration.action, iteration.arguments_in_brief()),
                };
                self.indent(level + 1);
                let node = self.node(&label, "[", "]", class);
                self.edge(last, node, "", false);
                node
            }
            Step::Note(note) => {
                let (class, most) = match note.note {
                    NoteKind::Approval => ("wait", ASKED_LINES),
                    NoteKind::Plan
                    | NoteKind::StepResult
                    | NoteKind::Critique
                    | NoteKind::Comparison => (if note.failed { "error" } else { "note" }, 2),
                };
                let mut label = wrapped(&note.title(), GOAL_LINES);
                for line in note.lines.iter().take(NOTED) {
                    let _ = write!(label, "\n{}", wrapped(line, most));
                }
                self.indent(level + 1);
                let node = self.node(&label, "[/", "/]", class);
                self.edge(last, node, "", false);
                node
            }
            Step::FanOut(fan_out) => {
                self.indent(level + 1);
                let mut label = format!("fan-out to {}", fan_out.expected.unwrap_or_default());
                if let Some(policy) = fan_out.policy_of_note() {
                    let _ = write!(label, "\njoin policy {policy}");
                }
                let node = self.node(&label, "[/", "\\]", "fan");
                self.edge(last, node, "", false);
                let ends = self.branches(session, fan_out, node, level);
                branches.push((fan_out, ends));
                node
            }
            Step::Synthesis(synthesis) => {
                self.indent(level + 1);
                let cause = synthesis.cause.clone().unwrap_or_default();
                let node = self.node(&format!("synthesis\n{cause}"), "[\\", "/]", "fan");
                let mut joined = false;
                for (fan_out, ends) in branches.iter() {
                    if fan_out.correlation == synthesis.correlation {
                        for end in ends {
                            self.edge(*end, node, "", false);
                            joined = true;
                        }
                    }
                }
                self.edge(last, node, "", joined);
                node
            }
        }
    }

    /// The subagents of a fan-out; answers with the last node of each.
    fn branches(
        &mut self,
        session: &'a Session,
        fan_out: &'a FanOut,
        from: usize,
        level: usize,
    ) -> Vec<usize> {
        let mut ends = Vec::new();
        for goal in &fan_out.goals {
            let child = session.child_of(goal);
            let child = child.and_then(|id| self.by_id.get(id).copied());
            match child.filter(|child| !self.drawn.contains(&child.id)) {
                Some(child) => {
                    let drawn = self.session(child, level + 1);
                    self.edge(from, drawn.first, "", false);
                    let late = child.completion.as_ref().is_some_and(|c| c.late);
                    if !late {
                        ends.push(drawn.last);
                    }
                }
                None => {
                    self.indent(level + 1);
                    let label = format!("{}\n{NOT_HEARD_OF}", wrapped(&goal.text, GOAL_LINES));
                    let node = self.node(&label, "([", "])", "open");
                    self.edge(from, node, "", true);
                }
            }
        }
        ends
    }

    fn undrawn(&self, session: &'a Session) -> Vec<&'a Session> {
        let children = session
            .children
            .iter()
            .filter_map(|id| self.by_id.get(id).copied());
        children
            .filter(|child| !self.drawn.contains(&child.id))
            .collect()
    }

    /// A session as one node, and those below it.
    fn brief(&mut self, session: &'a Session, level: usize) -> usize {
        let spent = &session.spent;
        let label = format!(
            "{}\n{}, {}",
            wrapped(session.title(), GOAL_LINES),
            text::counted(spent.steps, "step"),
            text::counted(spent.tool_calls, "tool call")
        );
        let waits = self.above_waiting.contains(&session.id);
        let class = match (&session.conclusion, session.state) {
            (Some(conclusion), _) if !conclusion.answered => "error",
            (Some(_), _) | (None, State::Ended) => "answer",
            (None, State::Waiting) => "wait",
            (None, State::Running) if waits => "wait",
            (None, State::Running | State::NotStarted) => "open",
        };
        let label = match session.state {
            State::Waiting => format!("{label}\nwaits for a person"),
            State::Running | State::NotStarted | State::Ended => label,
        };
        self.indent(level);
        let node = self.node(&label, "([", "])", class);
        for (position, id) in session.children.iter().enumerate() {
            if position == self.detail.siblings {
                let more = session.children.len() - position;
                self.indent(level + 1);
                let rest = self.node(&format!("and {more} more"), "([", "])", "open");
                self.edge(node, rest, "", true);
                break;
            }
            if let Some(child) = self.by_id.get(id).copied() {
                let below = self.brief(child, level + 1);
                self.edge(node, below, "", false);
            }
        }
        node
    }

    fn styles(&mut self) {
        // Middling fills with their own text colour read on light and on dark pages.
        for (class, look) in [
            ("question", "fill:#dbeafe,stroke:#2563eb,color:#111827"),
            ("decision", "fill:#fef3c7,stroke:#b45309,color:#111827"),
            ("fan", "fill:#ede9fe,stroke:#7c3aed,color:#111827"),
            ("note", "fill:#ecfeff,stroke:#0e7490,color:#111827"),
            ("answer", "fill:#dcfce7,stroke:#15803d,color:#111827"),
            ("error", "fill:#fee2e2,stroke:#b91c1c,color:#111827"),
            ("wait", "fill:#fce7f3,stroke:#be185d,color:#111827"),
            (
                "open",
                "fill:#f3f4f6,stroke:#6b7280,color:#111827,stroke-dasharray:4 3",
            ),
        ] {
            let members: Vec<String> = self
                .classes
                .iter()
                .filter(|(_, of)| *of == class)
                .map(|(id, _)| format!("n{id}"))
                .collect();
            if !members.is_empty() {
                let _ = writeln!(self.out, "  classDef {class} {look}");
                let _ = writeln!(self.out, "  class {} {class}", members.join(","));
            }
        }
    }
}
