//! Records that attempts at a step leave before its own: of calls with effects, and of what they paid.

use super::{About, Finding};
use agentfleet_schema::records::{
    Call, CallStatus, DebitRecord, IntentRecord, ResultRecord, StepRecord,
};
use agentfleet_schema::{Spent, keys};
use std::collections::BTreeMap;

/// What is stored of a call with effects, by its number.
pub type StoredCalls = BTreeMap<u32, (Option<IntentRecord>, Option<ResultRecord>)>;

/// What is wrong with the calls of a step: they were recorded before and after they were made, and what
/// the step tells of them must be the same.
pub fn calls(record: &StepRecord, stored: &StoredCalls) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, (intent, result)) in stored {
        let Some(problem) = call(record, intent.as_ref(), result.as_ref()) else {
            continue;
        };
        let folder = keys::calls(&record.session, record.step);
        let key = format!("{folder}{number}");
        findings.push(Finding::new(About::Record, key, problem));
    }
    // Only a call that was recorded beforehand can be another attempt's.
    let adopted = record.calls.iter().filter_map(|call| match call {
        Call::Tool {
            name,
            arguments,
            adopted: Some(_),
            ..
        } => Some((name, arguments)),
        _ => None,
    });
    for (name, arguments) in adopted {
        let intents = stored.values().filter_map(|(intent, _)| intent.as_ref());
        let mut made = intents.filter(|intent| !intent.fence);
        if !made.any(|intent| (&intent.tool, &intent.arguments) == (name, arguments)) {
            let key = keys::calls(&record.session, record.step);
            let problem = format!(
                "holds no call of `{name}`, and the record of its step took one over from another attempt"
            );
            findings.push(Finding::new(About::Record, key, problem));
        }
    }
    findings
}

fn call(
    record: &StepRecord,
    intent: Option<&IntentRecord>,
    result: Option<&ResultRecord>,
) -> Option<String> {
    let Some(intent) = intent else {
        return Some("came to a result, and nothing says that it was to be made".to_owned());
    };
    if intent.fence {
        let made = result.is_some();
        return made.then(|| "came to a result, and it was not to be made".to_owned());
    }
    // Whoever ends a step from outside chooses nothing, and may have come to another version.
    let is_chosen = record.worked.ended.is_none();
    if let Some(version) = intent.config_version
        && is_chosen
        && record.config_version != version
    {
        return Some(format!(
            "was chosen under config version {version}, and its step was worked under {}",
            record.config_version
        ));
    }
    let told = record.calls.iter().find_map(|call| match call {
        Call::Tool {
            name,
            arguments,
            result,
            is_error,
            sources,
            ..
        } if (name, arguments) == (&intent.tool, &intent.arguments) => {
            Some((result, *is_error, sources))
        }
        _ => None,
    });
    let Some((told, is_error, sources)) = told else {
        return Some("was started, and the record of its step does not tell of it".to_owned());
    };
    let is_open = is_error && told == Call::STARTED;
    let is_told = match result {
        None => is_open,
        // It may have come to its end after its step was ended over its head.
        Some(_) if is_open => record.outcome.is_terminal(),
        // What the agent was told then is that nobody knows.
        Some(result) if result.status == CallStatus::Unknown => is_error,
        Some(result) => {
            let failed = result.status == CallStatus::Error;
            (&result.content, failed, &result.sources) == (told, is_error, sources)
        }
    };
    if is_told {
        return None;
    }
    Some(match result {
        None => "has no result, and the record of its step tells one".to_owned(),
        Some(_) => "came to another result than the record of its step tells".to_owned(),
    })
}

/// What is wrong with the account of a step, its debits by their place.
pub fn account(record: &StepRecord, debits: &BTreeMap<u32, DebitRecord>) -> Vec<Finding> {
    let (session, step) = (&record.session, record.step);
    let mut findings = Vec::new();
    let mut found = |place: u32, problem: String| {
        let key = keys::debit(session, step, place);
        findings.push(Finding::new(About::Record, key, problem));
    };
    for (expected, place) in (1..).zip(debits.keys()) {
        if *place != expected {
            found(
                expected,
                "is missing, and one behind it is there".to_owned(),
            );
            break;
        }
    }
    // What the calls came to that were made before each one.
    let mut came_to = vec![Spent::default()];
    for call in &record.calls {
        let before = came_to.last().copied().unwrap_or_default();
        came_to.push(before + call.spent());
    }
    let mut open = Spent::default();
    let mut others: BTreeMap<&str, Spent> = BTreeMap::new();
    // What others had debited at each place: the step began, or was ended, behind one of them.
    let mut seen = vec![Spent::default()];
    for (place, debit) in debits {
        if debit.nonce == record.nonce {
            open = debit.reserved;
            if !came_to.contains(&debit.settled) {
                found(
                    *place,
                    format!(
                        "says that the calls before it came to {}, which those of the step's record do not",
                        amounts(debit.settled)
                    ),
                );
            }
        } else {
            others.insert(&debit.nonce, debit.settled + debit.reserved);
            seen.push(others.values().copied().sum());
        }
    }
    // Where one call of a model was debited, each was.
    let own = || debits.values().filter(|debit| debit.nonce == record.nonce);
    if own().any(|debit| debit.reserved.model_calls > 0) {
        for (call, before) in record.calls.iter().zip(&came_to) {
            let is_debited =
                own().any(|debit| debit.settled == *before && debit.reserved.model_calls > 0);
            if matches!(call, Call::Model { operation, .. } if operation != "tool") && !is_debited {
                let place = debits.keys().last().map_or(1, |last| last + 1);
                found(
                    place,
                    format!(
                        "is missing: the record of the step tells a call of a model after {}",
                        amounts(*before)
                    ),
                );
            }
        }
    }
    // A call that another attempt began and debited is the step's own if it has effects, and else is made again.
    let debits_tools = own().any(|debit| debit.reserved.tool_calls > 0);
    let is_tool = |call: &Call| matches!(call, Call::Tool { .. });
    let took_over = !debits_tools && record.calls.iter().any(is_tool);
    let is_wasted = |seen: &Spent| {
        let mut less = *seen;
        less.tool_calls = less.tool_calls.saturating_sub(took_over.into());
        [*seen, less]
            .iter()
            .any(|seen| [*seen, *seen + open].contains(&record.wasted))
    };
    if !seen.iter().any(is_wasted) {
        let last = seen.last().copied().unwrap_or_default();
        let place = debits.keys().last().copied().unwrap_or(1);
        found(
            place,
            format!(
                "other attempts debited {}, and the record of the step counts {} of them",
                amounts(last),
                amounts(record.wasted)
            ),
        );
    }
    findings
}

fn amounts(spent: Spent) -> String {
    format!(
        "{} tokens, {} in money, {} model calls and {} tool calls",
        spent.tokens, spent.cost, spent.model_calls, spent.tool_calls
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::records::{Adopted, OutcomeKind, Source, Usage};

    fn problems(findings: Vec<Finding>) -> Vec<String> {
        let said = |one: Finding| format!("{}: {}", one.what, one.problem);
        findings.into_iter().map(said).collect()
    }

    fn sent(result: &str, is_error: bool) -> Call {
        Call::Tool {
            name: "send".into(),
            arguments: [("item".to_owned(), "a".to_owned())].into(),
            result: result.into(),
            is_error,
            ms: 3,
            sources: Vec::new(),
            tried: Vec::new(),
            adopted: None,
        }
    }

    fn intent() -> IntentRecord {
        IntentRecord {
            tool: "send".into(),
            arguments: [("item".to_owned(), "a".to_owned())].into(),
            config_version: Some(3),
            ..IntentRecord::default()
        }
    }

    fn came_to(status: CallStatus, content: &str) -> Option<ResultRecord> {
        Some(ResultRecord {
            status,
            content: content.into(),
            sources: Vec::new(),
        })
    }

    fn record(outcome: OutcomeKind, calls: Vec<Call>) -> StepRecord {
        StepRecord {
            session: "s".into(),
            step: 2,
            outcome,
            config_version: 3,
            calls,
            nonce: "own".into(),
            ..StepRecord::default()
        }
    }

    #[test]
    fn what_a_step_tells_of_its_call_is_what_was_recorded_of_it() {
        let (goes_on, ended) = (OutcomeKind::Continue, OutcomeKind::Cancelled);
        let fence = IntentRecord {
            fence: true,
            ..IntentRecord::default()
        };
        let of_another = IntentRecord {
            config_version: Some(2),
            ..intent()
        };
        let sources = Some(ResultRecord {
            sources: vec![Source::default()],
            ..came_to(CallStatus::Ok, "sent").unwrap()
        });
        let (ok, failed) = (CallStatus::Ok, CallStatus::Error);
        let sent_ok = || came_to(ok, "sent");
        let unknown = || came_to(CallStatus::Unknown, "");
        let told = |result, is_error| vec![sent(result, is_error)];
        let open = || told(Call::STARTED, true);
        for (outcome, told, intent, result, problem) in [
            (goes_on, told("sent", false), Some(intent()), sent_ok(), ""),
            (
                goes_on,
                told("no", true),
                Some(intent()),
                came_to(failed, "no"),
                "",
            ),
            (
                goes_on,
                told("nobody knows", true),
                Some(intent()),
                unknown(),
                "",
            ),
            (goes_on, Vec::new(), Some(fence.clone()), None, ""),
            // Ended while it was made, and it may have come to its end later.
            (ended, open(), Some(intent()), None, ""),
            (ended, open(), Some(intent()), sent_ok(), ""),
            (goes_on, open(), Some(intent()), sent_ok(), "another result"),
            (
                goes_on,
                told("sent", false),
                Some(intent()),
                came_to(ok, "x"),
                "another result",
            ),
            (
                goes_on,
                told("sent", false),
                Some(intent()),
                came_to(failed, "sent"),
                "another",
            ),
            (
                goes_on,
                told("sent", false),
                Some(intent()),
                unknown(),
                "another result",
            ),
            (
                goes_on,
                told("sent", false),
                Some(intent()),
                sources,
                "another result",
            ),
            (
                goes_on,
                told("sent", false),
                Some(intent()),
                None,
                "has no result",
            ),
            (
                goes_on,
                told("sent", false),
                None,
                sent_ok(),
                "nothing says",
            ),
            (
                goes_on,
                Vec::new(),
                Some(fence),
                sent_ok(),
                "was not to be made",
            ),
            (
                goes_on,
                Vec::new(),
                Some(intent()),
                sent_ok(),
                "does not tell of it",
            ),
            (
                goes_on,
                told("sent", false),
                Some(of_another),
                sent_ok(),
                "version 2",
            ),
        ] {
            let record = record(outcome, told);
            let stored = [(0, (intent, result))].into();
            let found = problems(calls(&record, &stored));
            if problem.is_empty() {
                assert_eq!(found, [""; 0]);
                continue;
            }
            let named = found.len() == 1
                && found[0].starts_with("sessions/s/steps/2/calls/0: ")
                && found[0].contains(problem);
            assert!(named, "{problem}: {found:?}");
        }
    }

    #[test]
    fn a_call_that_was_taken_over_was_recorded_by_who_made_it() {
        let mut call = sent("sent", false);
        if let Call::Tool { adopted, .. } = &mut call {
            *adopted = Some(Adopted::Instead);
        }
        let record = record(OutcomeKind::Continue, vec![call]);
        let stored = [(0, (Some(intent()), came_to(CallStatus::Ok, "sent")))].into();
        assert_eq!(problems(calls(&record, &stored)), [""; 0]);
        let fence = IntentRecord {
            fence: true,
            ..intent()
        };
        for stored in [StoredCalls::new(), [(0, (Some(fence), None))].into()] {
            let found = problems(calls(&record, &stored));
            assert!(
                found.len() == 1 && found[0].contains("holds no call of `send`"),
                "{found:?}"
            );
        }
    }

    fn tokens(tokens: u64) -> Spent {
        Spent {
            tokens,
            ..Spent::default()
        }
    }

    fn asked(tokens: u64) -> Call {
        Call::Model {
            operation: "agent-react".into(),
            model: "m".into(),
            prompt: String::new(),
            reply: String::new(),
            usage: Usage {
                input_tokens: tokens,
                ..Usage::default()
            },
            ms: 1,
            calls_tools: false,
            cut: false,
            ignored: Vec::new(),
            tried: Vec::new(),
        }
    }

    #[test]
    fn an_account_says_what_the_record_counts() {
        let debit = |nonce: &str, settled, reserved| DebitRecord {
            nonce: nonce.into(),
            settled,
            reserved: Spent {
                model_calls: u64::from(reserved > 0),
                ..tokens(reserved)
            },
        };
        let first = asked(7).spent();
        let none = Spent::default();
        let own = [debit("own", none, 60), debit("own", first, 70)];
        // Another attempt died in its first call; this one made two.
        let whole = [&[debit("b", none, 50)], &own[..]].concat();
        let account_of = |(tokens, model_calls), debits: &[DebitRecord], from: u32| {
            let mut record = record(OutcomeKind::Continue, vec![asked(7), asked(9)]);
            record.wasted = Spent {
                tokens,
                model_calls,
                ..none
            };
            let debits = (from..).zip(debits.iter().cloned()).collect();
            problems(account(&record, &debits))
        };
        let good: [((u64, u64), &[DebitRecord]); 6] = [
            ((0, 0), &[]),
            ((50, 1), &whole),
            // Its last call was dropped, and counts as reserved.
            ((120, 2), &whole),
            // What began beside it later is not known to the record.
            ((0, 0), &[&own[..], &[debit("b", none, 50)]].concat()),
            // The last word of each counts.
            (
                (8, 0),
                &[&[debit("b", none, 50), debit("b", tokens(8), 0)], &own[..]].concat(),
            ),
            ((58, 2), &[debit("b", none, 50), debit("c", none, 8)]),
        ];
        for (wasted, debits) in good {
            assert_eq!(
                account_of(wasted, debits, 1),
                [""; 0],
                "{wasted:?} {debits:?}"
            );
        }
        let other = [&[debit("b", none, 40)], &own[..]].concat();
        let unsettled = [whole[0].clone(), own[0].clone(), debit("own", tokens(6), 9)];
        let bad: [((u64, u64), &[DebitRecord], u32, &str); 6] = [
            ((50, 1), &[], 1, "debits/1: other attempts debited 0 tokens"),
            ((51, 1), &whole, 1, "counts 51 tokens"),
            ((50, 1), &other, 1, "debited 40 tokens"),
            ((50, 1), &unsettled, 1, "debits/3: says that the calls"),
            ((50, 1), &whole[..2], 1, "debits/3: is missing: the record"),
            ((50, 1), &whole, 2, "debits/1: is missing"),
        ];
        for (wasted, debits, from, problem) in bad {
            let found = account_of(wasted, debits, from);
            let named = found.iter().any(|one| one.contains(problem));
            assert!(named, "{problem}: {found:?}");
        }
    }

    #[test]
    fn a_call_that_another_attempt_began_is_counted_once() {
        let calls = |times| Spent {
            tool_calls: times,
            ..Spent::default()
        };
        let debit = DebitRecord {
            nonce: "b".into(),
            settled: Spent::default(),
            reserved: calls(1),
        };
        let told = Call::Tool {
            name: "write".into(),
            arguments: BTreeMap::new(),
            result: "done".into(),
            is_error: false,
            ms: 1,
            sources: Vec::new(),
            tried: Vec::new(),
            adopted: None,
        };
        let account_of = |wasted, calls_of_step: Vec<Call>| {
            let mut record = record(OutcomeKind::Continue, calls_of_step);
            record.wasted = calls(wasted);
            problems(account(&record, &BTreeMap::from([(1, debit.clone())])))
        };
        for wasted in [0, 1] {
            assert_eq!(account_of(wasted, vec![told.clone()]), [""; 0]);
        }
        let wrong = [account_of(2, vec![told]), account_of(2, Vec::new())];
        for found in wrong {
            assert!(found[0].contains("counts 0 tokens"), "{found:?}");
        }
    }
}
