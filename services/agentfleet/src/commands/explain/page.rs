//! An explanation as people read it.

use super::{Choice, Explained, OfSession};
use agentfleet_console::style::{BOLD, DIM, Line, PLAIN};
use agentfleet_console::text;
use anstyle::Style;
use serde_json::Value;
use std::collections::HashSet;

/// An explanation for people, as it is written. What an option means is told where it is first open.
struct Page<'e> {
    width: usize,
    lines: Vec<Line>,
    described: HashSet<(&'e str, &'e str)>,
}

pub(super) fn lines(explained: &Explained, width: usize) -> Vec<Line> {
    let mut page = Page {
        width,
        lines: Vec::new(),
        described: HashSet::new(),
    };
    for (n, session) in explained.sessions.iter().enumerate() {
        if n > 0 {
            page.push(0, "", PLAIN);
        }
        page.session(session);
    }
    page.lines
}

fn is_offline(models: &[String]) -> bool {
    !models.is_empty() && models.iter().all(|model| model == "offline")
}

impl<'e> Page<'e> {
    fn push(&mut self, indent: usize, text: &str, style: Style) {
        let indent = " ".repeat(indent);
        let room = self.width.saturating_sub(indent.len()).max(30);
        for line in Line::of(&text::clean(text), style).wrapped(room) {
            let mut whole = Line::of(&indent, PLAIN);
            whole.append(&line);
            self.lines.push(whole);
        }
    }

    fn session(&mut self, session: &'e OfSession) {
        let indent = session.depth * 2;
        let what = if session.depth == 0 {
            "Session"
        } else {
            "Subagent"
        };
        self.push(indent, &format!("{what} {}", session.session), BOLD);
        self.push(indent, &text::one_line(&session.question), PLAIN);
        for choice in &session.decisions {
            self.choice(choice, indent);
        }
        self.push(0, "", PLAIN);
        for remark in &session.remarks {
            let text = format!("step {}: {}", remark.step, text::one_line(&remark.text));
            self.push(indent + 2, &text, PLAIN);
        }
        let ended = match &session.ended {
            Some(ended) => format!("ended: {ended}"),
            None => "has not ended".to_owned(),
        };
        self.push(indent + 2, &ended, DIM);
    }

    fn choice(&mut self, choice: &'e Choice, indent: usize) {
        self.push(0, "", PLAIN);
        let by = match choice.decided_by {
            "model" if is_offline(&choice.models) => "chosen by the offline model",
            "model" => "chosen by the model",
            "only-option" => "the only option",
            "fallback" => "fallen back to",
            "person" => "decided by a person",
            _ => "given by the caller",
        };
        let head = format!(
            "step {}  {}: {}  ({by})",
            choice.step, choice.subject, choice.chosen
        );
        self.push(indent + 2, &head, BOLD);
        if let Some(arguments) = &choice.arguments {
            for (name, value) in arguments {
                self.push(
                    indent + 4,
                    &format!("{name} = {}", text::one_line(value)),
                    PLAIN,
                );
            }
        }
        let rationale = in_words(&choice.rationale);
        for (label, said) in [
            ("because", &choice.signal),
            ("in its words", &rationale),
            ("from", &choice.narrowed_by),
        ] {
            if !said.is_empty() {
                self.push(
                    indent + 4,
                    &format!("{label}: {}", text::one_line(said)),
                    PLAIN,
                );
            }
        }
        let mut again = Vec::new();
        for option in &choice.options {
            let meaning = option.description.as_str();
            let is_new = self.described.insert((option.name.as_str(), meaning));
            if !is_new && !option.chosen {
                again.push(option.name.as_str());
                continue;
            }
            let mark = if option.chosen { "●" } else { "○" };
            let style = if option.chosen { PLAIN } else { DIM };
            let named = if meaning.is_empty() || !is_new {
                option.name.clone()
            } else {
                format!("{}: {}", option.name, text::one_line(meaning))
            };
            self.push(indent + 4, &format!("{mark} {named}"), style);
        }
        if !again.is_empty() {
            self.push(indent + 4, &format!("○ {}", again.join(", ")), DIM);
        }
        if let Some(outcome) = &choice.outcome {
            self.push(
                indent + 4,
                &format!("then: {}", text::one_line(outcome)),
                PLAIN,
            );
        }
        if !choice.models.is_empty() {
            let mut cost = format!(
                "{}, {} in, {} out",
                choice.models.join(", "),
                text::counted(choice.tokens_in, "token"),
                choice.tokens_out
            );
            if !choice.cost.is_nothing() {
                let told = choice.cost.told(|amount| format!("{amount:.6}"));
                cost.push_str(&format!(", cost {told}"));
            }
            self.push(indent + 4, &cost, DIM);
        }
    }
}

/// A reason as it is told to people: what a model wrote as an object, part by part.
fn in_words(rationale: &str) -> String {
    fn said(value: &Value) -> String {
        let joined = |parts: Vec<String>, between| {
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(between)
        };
        match value {
            Value::Null => String::new(),
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            Value::Array(list) => joined(list.iter().map(said).collect(), ", "),
            Value::Object(map) => {
                let parts = map.iter().map(|(name, value)| match said(value) {
                    value if value.is_empty() => value,
                    value => format!("{} {value}", name.replace('_', " ")),
                });
                joined(parts.collect(), "; ")
            }
        }
    }
    match serde_json::from_str(rationale) {
        Ok(object @ Value::Object(_)) => said(&object),
        _ => rationale.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_wrote_as_an_object_is_told_in_words() {
        let routed = r#"{"intent": "analytics", "confidence": 0.92, "services": ["blog", "chat"],
            "entities": [], "action_required": false, "time_scope": null,
            "steps": [{"specialist": "blog", "task": "read", "depends_on": []}]}"#;
        assert_eq!(
            in_words(routed),
            "intent analytics; confidence 0.92; services blog, chat; action required no; \
             steps specialist blog; task read"
        );
        for plain in ["they are apart", "0.5", "[1]", ""] {
            assert_eq!(in_words(plain), plain);
        }
    }
}
