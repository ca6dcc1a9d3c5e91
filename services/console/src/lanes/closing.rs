//! What stands below an answer: how sure it is, what it rests on, what it cost, and where to go next.

use super::view::heading;
use crate::style::{BOLD, DIM, LINK, Line, Look, NAME, PLAIN, WARN};
use crate::text;
use crate::trace::model::{Confidence, Source};
use crate::trace::{Trace, UNSOURCED, sureness};
use agentfleet_core::cited;
use agentfleet_schema::SessionId;

/// Columns of the bar that shows a confidence.
const BAR: usize = 10;
/// Sources listed; a trace has them all.
const SOURCES: usize = 20;

/// A command worth knowing next, and what it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    pub what: String,
    pub command: String,
}

impl Hint {
    pub fn new(what: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            command: command.into(),
        }
    }
}

/// What to say below an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Closing {
    pub confidence: Vec<Confidence>,
    /// What the answer names as its sources.
    pub cited: Vec<Source>,
    /// What was read besides.
    pub only_read: Vec<Source>,
    /// The answer itself says what it lacks.
    pub partial: bool,
    /// Nothing was read for the answer.
    pub unsourced: bool,
    /// Sessions, steps, tokens and time, in words.
    pub spent: String,
    pub hints: Vec<Hint>,
}

impl Closing {
    /// Reads it from the trace of a run and from its answer.
    pub fn of(trace: &Trace, root: &SessionId, answer: &str, hints: Vec<Hint>) -> Self {
        let Some(session) = trace.session(root) else {
            return Self {
                hints,
                ..Self::default()
            };
        };
        let whole = trace.subtree(root);
        let whole = whole.as_ref().unwrap_or(trace);
        let conclusion = session.conclusion.as_ref();
        let sources = cited::divide(answer, whole.sources(), Source::names);
        let owned = |sources: Vec<&Source>| sources.into_iter().cloned().collect();
        Self {
            confidence: conclusion.map(|c| c.confidence.clone()).unwrap_or_default(),
            cited: owned(sources.cited),
            only_read: owned(sources.only_read),
            partial: conclusion.is_some_and(|c| c.partial),
            unsourced: conclusion.is_some_and(|c| c.unsourced),
            spent: session
                .spent_in_tree
                .told(whole.sessions.len(), session.duration_ms),
            hints,
        }
    }

    pub fn lines(&self, look: Look) -> Vec<Line> {
        let mut lines = Vec::new();
        if !self.confidence.is_empty() {
            section(&mut lines, "confidence", look);
            lines.extend(self.confidence_lines(look));
        }
        let read = if self.cited.is_empty() {
            "read, not cited"
        } else {
            "also read"
        };
        for (name, sources) in [("sources", &self.cited), (read, &self.only_read)] {
            if sources.is_empty() {
                continue;
            }
            section(&mut lines, name, look);
            for (source, number) in sources.iter().zip(1_usize..).take(SOURCES) {
                lines.push(source_line(source, number, look.width.max(20)));
            }
            if sources.len() > SOURCES {
                let more = format!("  … and {} more", sources.len() - SOURCES);
                lines.push(Line::of(&more, DIM));
            }
        }
        if self.unsourced {
            section(&mut lines, "sources", look);
            lines.push(Line::of(&format!("  none: the answer {UNSOURCED}"), WARN));
        }
        if !self.spent.is_empty() {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            let mut line = Line::new();
            if self.partial {
                line.push("partial answer", WARN).push(" · ", DIM);
            }
            lines.extend(line.with(&self.spent, DIM).wrapped(look.width));
        }
        if !self.hints.is_empty() {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            lines.extend(
                self.hints
                    .iter()
                    .flat_map(|hint| hint_lines(hint, &self.hints, look)),
            );
        }
        lines
    }

    fn confidence_lines(&self, look: Look) -> Vec<Line> {
        let names: Vec<String> = self
            .confidence
            .iter()
            .map(|part| match part.part.as_str() {
                "" => "overall".to_owned(),
                name => text::preview(name, look.width.saturating_sub(BAR + 10).max(12)),
            })
            .collect();
        let widest = names
            .iter()
            .map(|name| text::width(name))
            .max()
            .unwrap_or_default();
        self.confidence
            .iter()
            .zip(&names)
            .map(|(part, name)| {
                let space = widest - text::width(name);
                let mut line = Line::of(&format!("  {name}{}", " ".repeat(space)), PLAIN);
                if let Some(value) = part.value {
                    let style = sureness(value);
                    let full = (value.clamp(0.0, 1.0) * BAR as f64).round() as usize;
                    line.push(&format!("  {value:.2}  "), style);
                    line.push(&"█".repeat(full), style)
                        .push(&"░".repeat(BAR - full), DIM);
                }
                line
            })
            .collect()
    }
}

fn section(lines: &mut Vec<Line>, name: &str, look: Look) {
    if !lines.is_empty() {
        lines.push(Line::new());
    }
    lines.push(heading(name, look));
}

/// The title and the URI; where both do not fit, the title.
fn source_line(source: &Source, number: usize, width: usize) -> Line {
    let number = format!("  {number}. ");
    let room = width.saturating_sub(text::width(&number));
    let line = Line::of(&number, DIM);
    match source.title.as_deref().map(text::one_line) {
        Some(title) if title != source.uri && !title.is_empty() => {
            if text::width(&title) + 2 + text::width(&source.uri) <= room {
                line.with(&title, PLAIN)
                    .with("  ", PLAIN)
                    .with(&source.uri, LINK)
            } else {
                line.with(&title, PLAIN).shortened(width)
            }
        }
        _ => line.with(&source.uri, LINK).shortened(width),
    }
}

fn hint_lines(hint: &Hint, all: &[Hint], look: Look) -> Vec<Line> {
    let widest = all
        .iter()
        .map(|hint| text::width(&hint.what))
        .max()
        .unwrap_or_default();
    let longest = all
        .iter()
        .map(|hint| text::width(&hint.command))
        .max()
        .unwrap_or_default();
    if widest + 2 + longest > look.width {
        // A command is worth copying, so it stands whole on its own line.
        return vec![
            Line::of(&hint.what, DIM),
            Line::of(&format!("  {}", hint.command), NAME),
        ];
    }
    let space = " ".repeat(widest - text::width(&hint.what) + 2);
    vec![
        Line::of(&hint.what, DIM)
            .with(&space, PLAIN)
            .with(&hint.command, BOLD),
    ]
}
