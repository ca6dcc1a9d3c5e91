//! The end of a session in an answer, whichever pattern gives it.

use crate::cut::CUT;
use crate::order::{Answer, Finish, Order, Outcome, Said};
use crate::say;
use agentfleet_schema::records::{Activity, Concluded, Decision, PartConfidence, Termination};
use agentfleet_schema::{MessageType, SessionId, uris};
use serde_json::Value;

/// Ends a session with `text`, as `end` says. The answer is the last that is said, after what was said
/// `before`: it may be the end of the dialog.
pub(super) fn answered(
    session: &SessionId,
    end: Concluded,
    text: String,
    streamed: bool,
    before: Vec<Said>,
    decisions: Vec<Decision>,
) -> Order {
    let mut said = before;
    said.push(Said {
        streamed,
        ..say::message(MessageType::Answer, &*text, uris::answer_document(session))
    });
    let (termination, partial) = (end.termination, end.partial);
    Order::Finish(Box::new(Finish {
        activity: Activity::Concluded(Concluded {
            confidence: confidence_in(&text),
            ..end
        }),
        outcome: Outcome::Answer(Answer {
            text,
            termination,
            partial,
        }),
        routed: None,
        decisions,
        said,
    }))
}

/// Ends a session that found out nothing before its budget was used up.
pub(crate) fn unanswered(session: &SessionId, why: &str, model_ms: u64) -> Order {
    let end = Concluded {
        termination: Termination::BudgetExhausted,
        partial: true,
        model_ms,
        ..Concluded::default()
    };
    let text = format!("**No answer:** {why}, before work on the question could begin.");
    answered(session, end, text, false, Vec::new(), Vec::new())
}

/// Names what is missing below an answer, whatever the model wrote: goal and reason of each.
pub(super) fn name_missing(text: &mut String, heading: &str, missing: &[Value]) {
    if missing.is_empty() {
        return;
    }
    text.push_str(&format!("\n\n---\n\n**Incomplete.** {heading}:\n"));
    for gap in missing {
        let field = |name: &str| gap[name].as_str().unwrap_or_default();
        text.push_str(&format!("\n- {} ({})", field("goal"), field("reason")));
    }
}

/// Says below an answer that its text is not whole.
pub(super) fn name_cut(text: &mut String) {
    text.push_str(&format!("\n\n---\n\n**Incomplete:** {CUT}."));
}

/// Confidence by part, as an answer states it: a `## ` heading, and below it a line with
/// `Confidence: 0.NN` (or a percentage).
pub(crate) fn confidence_in(text: &str) -> Vec<PartConfidence> {
    let mut part = String::new();
    let mut found: Vec<PartConfidence> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('#') {
            line.trim_start_matches('#').trim().clone_into(&mut part);
            continue;
        }
        let plain = line.replace(['*', '_', '`'], "");
        let Some(at) = plain.to_ascii_lowercase().find("confidence:") else {
            continue;
        };
        let rest = plain
            .get(at + "confidence:".len()..)
            .unwrap_or_default()
            .trim_start();
        let number: String = rest
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        let Ok(mut value) = number.trim_end_matches('.').parse::<f64>() else {
            continue;
        };
        if rest[number.len()..].trim_start().starts_with('%') {
            value /= 100.0;
        }
        if (0.0..=1.0).contains(&value) && found.iter().all(|known| known.part != part) {
            found.push(PartConfidence {
                part: part.clone(),
                confidence: value,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_is_read_by_part() {
        let text = "# T\n## Financial\n**Confidence:** 0.7 (good)\ntext\n## Legal\nConfidence: 40%\n## X\nconfidence: high";
        let parts = confidence_in(text);
        let read: Vec<_> = parts
            .iter()
            .map(|p| (p.part.as_str(), p.confidence))
            .collect();
        assert_eq!(read, [("Financial", 0.7), ("Legal", 0.4)]);
    }
}
