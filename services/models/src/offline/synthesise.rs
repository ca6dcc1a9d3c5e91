//! Puts the subagents' results together: a section for each, with its best quotations, its coverage
//! and its sources; what is missing is named; every source is listed once at the end.
//!
//! A result that has nothing on its own part says so here too, and its nearest quotations, which are
//! about something else, are left where they are. Counts are those of the result.

use super::candidates::says_the_same;
use super::goal::Goal;
use super::inputs::{list, text};
use super::observation::{Origin, Passage};
use super::quotes::{CONFIDENCE_NOTE, counted, find};
use super::react::NOTHING_MENTIONS;
use super::terms::stems;
use serde_json::Value;
use std::fmt::Write as _;

/// Most quotations of one section; the full result is with its subagent.
const MOST_IN_SECTION: usize = 4;
const TITLE_CHARS: usize = 140;

/// A subagent's result as a section.
#[derive(Debug, Default)]
struct Section {
    title: String,
    quotes: Vec<Cited>,
    /// All quotations of the result.
    total: usize,
    /// Those that stand under another part already.
    elsewhere: usize,
    confidence: String,
    /// What the result says where it quotes nothing.
    remark: String,
}

/// A quotation and its source, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cited {
    /// Its lines, without the marks of the block.
    text: String,
    source: String,
}

/// The whole answer, as Markdown.
pub(super) fn answer(inputs: &Value) -> String {
    let question = text(inputs, "question").trim();
    let mut missing: Vec<(String, String)> = list(inputs, "missing")
        .iter()
        .map(|m| (text(m, "goal").to_owned(), reason(m)))
        .collect();
    let mut sections: Vec<Section> = Vec::new();
    let mut shown: Vec<Cited> = Vec::new();
    for result in list(inputs, "results") {
        let (goal, status, body) = (
            text(result, "goal"),
            text(result, "status"),
            text(result, "text"),
        );
        if body.trim().is_empty() || is_failure(status) {
            let body = body.trim();
            let told = if body.is_empty() {
                status.to_owned()
            } else {
                format!("{status}: {}", first_line(body))
            };
            missing.push((goal.to_owned(), told));
            continue;
        }
        sections.push(section(goal, body, &mut shown));
    }
    if let [only] = sections.as_mut_slice()
        && only.title == question
    {
        // The title says it already.
        "Findings".clone_into(&mut only.title);
    }
    let mut parts = vec![format!("# {}", title(question)), preamble(&sections)];
    if sections.len() > 1 {
        parts.push(at_a_glance(&sections));
    }
    parts.extend(sections.iter().map(Section::markdown));
    if !missing.is_empty() {
        parts.push(not_covered(&missing));
    }
    if !shown.is_empty() {
        parts.push(sources(&sections));
    }
    parts.join("\n\n")
}

fn title(question: &str) -> String {
    let line = first_line(question);
    if line.is_empty() {
        return "Answer".to_owned();
    }
    match line.char_indices().nth(TITLE_CHARS) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default().trim()
}

fn first_sentence(text: &str) -> String {
    match text.split_once("\" itself. ").or(text.split_once("\". ")) {
        Some((first, _)) if text[first.len()..].starts_with("\" itself") => {
            format!("{first}\" itself.")
        }
        Some((first, _)) => format!("{first}\"."),
        None => text.to_owned(),
    }
}

fn preamble(sections: &[Section]) -> String {
    if sections.iter().all(|s| s.quotes.is_empty()) {
        return "*No language model was at work, and nothing was found to quote. Where it was \
                looked is told below.*"
            .to_owned();
    }
    format!(
        "*Assembled without a language model: every statement below is a quotation with its source, \
         picked by shared words, as it was read: white space joined, links and emphasis shown as \
         their words, a table's row marked as one, and a statement of the knowledge graph as \
         `subject | relation | object`. Nothing was weighed, compared or concluded. \
         {CONFIDENCE_NOTE}*"
    )
}

fn at_a_glance(sections: &[Section]) -> String {
    let mut table = String::from("| Part | Quotations | Confidence |\n|---|---|---|");
    for section in sections {
        let number = section
            .confidence
            .strip_prefix("Confidence:")
            .map_or("not stated", str::trim);
        let number = number.split_whitespace().next().unwrap_or("not stated");
        let shown = section.quotes.len();
        let count = if shown == section.total {
            shown.to_string()
        } else {
            format!("{shown} of {}", section.total)
        };
        let title = section.title.replace('|', "/");
        let _ = write!(table, "\n| {title} | {count} | {number} |");
    }
    table
}

fn is_failure(status: &str) -> bool {
    !matches!(
        status.to_lowercase().as_str(),
        "" | "answered"
            | "answer"
            | "complete"
            | "completed"
            | "done"
            | "ok"
            | "partial"
            | "success"
    )
}

fn reason(missing: &Value) -> String {
    match (text(missing, "reason"), text(missing, "status")) {
        ("", "") => "no result".to_owned(),
        ("", status) => status.to_owned(),
        (reason, _) => reason.to_owned(),
    }
}

fn section(goal_text: &str, body: &str, shown: &mut Vec<Cited>) -> Section {
    let goal = Goal::parse(goal_text);
    let mut quotes = quoted(body);
    let confidence = body
        .lines()
        .map(|line| line.trim().trim_matches('*'))
        .find(|line| line.starts_with("Confidence:"))
        .map(str::to_owned);
    let mut confidence = confidence.unwrap_or_default();
    let mut remark = String::new();
    if quotes.is_empty() {
        // The result quotes nothing: say what it says of itself, or quote the result.
        let origin = Origin {
            title: format!("result for \"{}\"", goal.title()),
            uri: String::new(),
        };
        let passage = Passage::of_text(origin, &prose(body));
        let found = find(&goal, std::slice::from_ref(&passage));
        let empty_handed = first_line(body).starts_with("Nothing was found");
        if !empty_handed {
            quotes = found
                .quotes
                .iter()
                .map(|q| Cited {
                    text: q.text.clone(),
                    source: q.origin.shown(),
                })
                .collect();
            if confidence.is_empty() {
                confidence = found.confidence_line();
            }
        }
        if quotes.is_empty() {
            first_line(body).clone_into(&mut remark);
        }
    }
    // A sentence that another section shows already is not shown again, unless nothing else is left.
    let total = quotes.len();
    let first = first_line(body);
    if first.starts_with(NOTHING_MENTIONS) {
        remark = first_sentence(first);
        quotes.clear();
    }
    let fresh: Vec<Cited> = quotes
        .iter()
        .filter(|q| !is_shown(shown, q))
        .cloned()
        .collect();
    let own = if fresh.is_empty() { quotes } else { fresh };
    let elsewhere = if remark.is_empty() {
        total - own.len()
    } else {
        0
    };
    let quotes: Vec<Cited> = own.into_iter().take(MOST_IN_SECTION).collect();
    shown.extend(quotes.iter().cloned());
    Section {
        title: goal.title().to_owned(),
        quotes,
        total,
        elsewhere,
        confidence,
        remark,
    }
}

fn is_shown(shown: &[Cited], quote: &Cited) -> bool {
    let own = stems(&quote.text);
    shown
        .iter()
        .any(|known| known.text == quote.text || says_the_same(&stems(&known.text), &own))
}

/// The block quotations of a result, each with the source it names.
fn quoted(body: &str) -> Vec<Cited> {
    let mut out: Vec<Cited> = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    for line in body.lines().chain([""]) {
        if let Some(rest) = line.trim_start().strip_prefix('>') {
            // Lines of code keep their places.
            block.push(rest.strip_prefix(' ').unwrap_or(rest).trim_end());
            continue;
        }
        if block.is_empty() {
            continue;
        }
        let source = block
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("Source:").map(|s| s.trim().to_owned()));
        let text: Vec<&str> = block
            .iter()
            .copied()
            .filter(|line| !line.trim().is_empty() && !line.starts_with("Source:"))
            .collect();
        if let Some(source) = source
            && !text.is_empty()
        {
            out.push(Cited {
                text: text.join("\n"),
                source,
            });
        }
        block.clear();
    }
    out
}

/// A result without its quotation marks and its coverage line.
fn prose(body: &str) -> String {
    body.lines()
        .filter(|line| !line.trim().starts_with("Confidence:"))
        .collect::<Vec<_>>()
        .join("\n")
}

impl Section {
    fn markdown(&self) -> String {
        let mut parts = vec![format!("## {}", self.title)];
        if !self.remark.is_empty() {
            parts.push(self.remark.clone());
        }
        for quote in &self.quotes {
            let lines: Vec<String> = quote.text.lines().map(|line| format!("> {line}")).collect();
            parts.push(format!(
                "{}\n>\n> Source: {}",
                lines.join("\n"),
                quote.source
            ));
        }
        parts.extend(self.not_shown());
        let sources = self.sources();
        let mut end = Vec::new();
        if !self.confidence.is_empty() {
            end.push(self.confidence.clone());
        }
        if !sources.is_empty() {
            end.push(format!("Sources: {}", sources.join("; ")));
        }
        if !end.is_empty() {
            parts.push(end.join("\n\n"));
        }
        parts.join("\n\n")
    }

    /// Where the quotations are that the result counts and the section does not show.
    fn not_shown(&self) -> Option<String> {
        let left = self.total - self.quotes.len();
        let is = |count: usize| if count == 1 { "is" } else { "are" };
        if left == 0 {
            return None;
        }
        if !self.remark.is_empty() {
            let quotations = counted(left, "quotation");
            return Some(format!(
                "{quotations} that only share other words of the goal {} in the full result of this part.",
                is(left)
            ));
        }
        let cut = left - self.elsewhere;
        let mut told = Vec::new();
        if self.elsewhere > 0 {
            let verb = if self.elsewhere == 1 {
                "stands"
            } else {
                "stand"
            };
            told.push(format!("{} {verb} under another part", self.elsewhere));
        }
        if cut > 0 {
            told.push(format!("{cut} {} in the full result of this part", is(cut)));
        }
        Some(format!(
            "Of its {}, {}.",
            counted(self.total, "quotation"),
            told.join(", and ")
        ))
    }

    /// Each source once.
    fn sources(&self) -> Vec<String> {
        let mut sources: Vec<String> = Vec::new();
        for quote in &self.quotes {
            let source = document(&quote.source);
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }
}

/// A source without the heading within it, or what a statement of it is about.
fn document(source: &str) -> String {
    let end = [", under \"", ", about `"]
        .iter()
        .filter_map(|mark| source.find(mark))
        .min();
    source[..end.unwrap_or(source.len())].trim().to_owned()
}

fn not_covered(missing: &[(String, String)]) -> String {
    let mut out = String::from("## Not covered");
    for (goal, reason) in missing {
        let goal = Goal::parse(goal);
        let _ = write!(
            out,
            "\n- {}: {}",
            goal.title(),
            if reason.is_empty() {
                "no result"
            } else {
                reason
            }
        );
    }
    out
}

/// Every source once, with the sections that quote it.
fn sources(sections: &[Section]) -> String {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for section in sections {
        for source in section.sources() {
            match all.iter_mut().find(|(known, _)| *known == source) {
                Some((_, titles)) => titles.push(&section.title),
                None => all.push((source, vec![&section.title])),
            }
        }
    }
    let mut out = String::from("## Sources");
    for (at, (source, titles)) in all.iter().enumerate() {
        let _ = write!(out, "\n{}. {source}", at + 1);
        if sections.len() > 1 {
            let _ = write!(out, ", quoted under: {}", titles.join(", "));
        }
    }
    out
}
