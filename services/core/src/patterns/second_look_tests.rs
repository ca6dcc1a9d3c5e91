//! A pattern that the product does not contain, to prove that one takes a file and its line in
//! [`IMPLEMENTED`](super::IMPLEMENTED): it drafts an answer, looks at it once more, and gives it, or
//! drafts anew in another step.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::answer::{answered, unanswered};
use super::{Begun, Instead, Pattern, PatternTurn};
use crate::attempt::{Ending, Prepared};
use crate::commit::{Assembled, Streamed};
use crate::limits::{self, FleetLimits, Limits};
use crate::order::{Finish, Input, ModelAsk, Order, Outcome, Reply};
use crate::replay::{Replayed, Subject, replay};
use crate::routing::{choice_schema, pattern_options, read_choice};
use crate::turn::{Situation, Turn};
use crate::{provenance, say};
use agentfleet_schema::config::{AgentPattern, Snapshot};
use agentfleet_schema::records::{
    Activity, Call, Concluded, DecidedBy, Decision, OutcomeKind, Termination, Usage, Worked,
};
use agentfleet_schema::vocabulary::tg;
use agentfleet_schema::{AgentRequest, AgentStep, Digest, Operation, Spent, topics, uris};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "second-look";

pub(super) struct SecondLook;

impl Pattern for SecondLook {
    fn name(&self) -> &'static str {
        NAME
    }

    fn begin(&self, request: AgentRequest, _: Situation, limits: Limits) -> Begun {
        Ok(Box::new(Draft {
            request,
            limits,
            first: None,
            model_ms: 0,
        }))
    }
}

#[derive(Debug)]
struct Draft {
    request: AgentRequest,
    limits: Limits,
    first: Option<String>,
    model_ms: u64,
}

impl PatternTurn for Draft {
    fn resume(&mut self, input: Input) -> Order {
        let reply = match input {
            Input::ModelReplied(reply) => reply,
            Input::ModelFailed(failure) => return say::model_failed(failure, self.model_ms),
            Input::Begin | Input::ToolReturned(_) | Input::DocumentsRead(_) => {
                let variables = json!({"question": self.request.question});
                return ModelAsk::answer(Operation::Complete, variables).into();
            }
        };
        self.model_ms += reply.ms;
        let Some(draft) = self.first.take() else {
            let variables = json!({"question": self.request.question, "results": reply.text});
            self.first = Some(reply.text);
            let schema = choice_schema(&self.options());
            return ModelAsk::choice(Operation::Review, variables, schema).into();
        };
        let options = self.options();
        let Some(choice) = read_choice(&reply.text, &options) else {
            return self.keep(draft, DecidedBy::Fallback, "the model named neither option");
        };
        if choice.chosen == "keep" {
            return self.keep(draft, DecidedBy::Model, &choice.signal);
        }
        let mut next = self.request.clone();
        next.history.push(AgentStep {
            thought: draft,
            action: "draft".into(),
            step_type: NAME.into(),
            ..AgentStep::default()
        });
        Order::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::None,
            routed: None,
            decisions: vec![self.decision("again", DecidedBy::Model, &choice.signal)],
            said: vec![say::status("Drafts anew")],
        }))
    }

    fn broke(&mut self, why: &str) -> Order {
        unanswered(&self.request.session_id, why, self.model_ms)
    }

    /// Gives the draft without a look at it.
    fn spare(&mut self, why: &str) -> Instead {
        let draft = self.first.take().unwrap_or_default();
        Instead::Order(self.keep(draft, DecidedBy::OnlyOption, why))
    }
}

impl Draft {
    fn options(&self) -> Vec<String> {
        let drafts = self
            .request
            .history
            .iter()
            .filter(|step| step.step_type == NAME);
        let may_draft = drafts.count() as u32 + 1 < self.limits.max_iterations;
        let options = ["keep", "again"]
            .into_iter()
            .filter(|option| may_draft || *option == "keep");
        options.map(str::to_owned).collect()
    }

    fn decision(&self, chosen: &str, decided_by: DecidedBy, signal: &str) -> Decision {
        Decision {
            subject: NAME.into(),
            options: self.options(),
            narrowed_by: "the iterations that are left".into(),
            signal: signal.into(),
            chosen: chosen.into(),
            decided_by,
            rationale: String::new(),
        }
    }

    fn keep(&self, draft: String, decided_by: DecidedBy, signal: &str) -> Order {
        let end = Concluded {
            termination: Termination::FinalAnswer,
            model_ms: self.model_ms,
            ..Concluded::default()
        };
        let decisions = vec![self.decision("keep", decided_by, signal)];
        answered(
            &self.request.session_id,
            end,
            draft,
            true,
            Vec::new(),
            decisions,
        )
    }
}

fn snapshot() -> Arc<Snapshot> {
    let mut snapshot = Snapshot::default();
    let pattern = AgentPattern {
        name: NAME.into(),
        ..AgentPattern::default()
    };
    snapshot.patterns.insert(NAME.into(), pattern);
    Arc::new(snapshot)
}

fn asked() -> AgentRequest {
    let mut request = AgentRequest {
        question: "who owns the mill?".into(),
        session_id: "s".into(),
        pattern: NAME.into(),
        ..AgentRequest::default()
    };
    request.control.root = "s".into();
    request.control.hard_deadline = 99_000;
    request
}

/// Works a request to the end of its step, as orchestrators do: each reply is a call of the record.
fn worked(request: &AgentRequest, replies: &[&str]) -> Assembled {
    let situation = Situation {
        now: 1_000,
        snapshot: snapshot(),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: String::new(),
        fan_in: None,
    };
    let request_digest = Digest::of(json!(request).to_string().as_bytes());
    let mut request = request.clone();
    limits::accept(&mut request, &snapshot(), &FleetLimits::default(), 1_000);
    let mut turn = Turn::parse(request.clone(), situation).unwrap();
    let (mut input, mut calls, mut replies) = (Input::Begin, Vec::new(), replies.iter());
    let finish = loop {
        let ask = match turn.resume(input) {
            Order::AskModel(ask) => ask,
            Order::Finish(finish) => break *finish,
            other => panic!("{other:?}"),
        };
        let text = replies
            .next()
            .unwrap_or_else(|| panic!("no reply to {ask:?}"));
        let usage = Usage {
            input_tokens: 7,
            output_tokens: 3,
            ..Usage::default()
        };
        calls.push(Call::Model {
            operation: ask.operation.as_str().into(),
            model: "m".into(),
            prompt: ask.variables.to_string(),
            reply: (*text).into(),
            usage,
            ms: 1,
            calls_tools: false,
            cut: false,
            ignored: Vec::new(),
            tried: Vec::new(),
        });
        input = Input::ModelReplied(Reply {
            text: (*text).into(),
            usage,
            ms: 1,
            ..Reply::default()
        });
    };
    let prepared = Prepared {
        request,
        request_digest,
        properties: BTreeMap::new(),
        nonce: "n".into(),
        attempt: 1,
        config_version: 0,
        snapshot: snapshot(),
        started_at: 1_000,
        spent_before: Spent::default(),
        wasted: Spent::default(),
        responses: topics::AGENT_RESPONSE,
        worked: Box::new(Worked {
            fleet: Some(FleetLimits::default()),
            ..Worked::default()
        }),
    };
    let ending = Ending {
        finish,
        by: None,
        calls,
        streamed: Streamed::default(),
        parked: None,
    };
    prepared.end(ending, 1_500, |_| None)
}

fn again(request: &AgentRequest, assembled: &Assembled) -> Replayed {
    replay(&Subject {
        record: &assembled.record,
        fan_out: None,
        pause: None,
        request: &json!(request).to_string(),
        snapshot: snapshot(),
        fan_in: None,
        texts: &BTreeMap::new(),
        prompt: &|ask| Ok(ask.variables.to_string()),
    })
}

#[test]
fn a_pattern_of_one_file_is_recorded_told_and_worked_again_like_the_shipped_ones() {
    let request = asked();
    let first = worked(
        &request,
        &["Ben", r#"{"choice": "again", "signal": "unsourced"}"#],
    );
    let next = first
        .record
        .publications
        .iter()
        .find(|p| p.topic == topics::AGENT_REQUEST.as_str());
    let next: AgentRequest = serde_json::from_str(&next.unwrap().body).unwrap();
    let last = worked(
        &next,
        &["Ada", r#"{"choice": "keep", "signal": "a source"}"#],
    );

    for (request, assembled, outcome, chosen, signal) in [
        (
            &request,
            &first,
            OutcomeKind::Continue,
            "again",
            "unsourced",
        ),
        (&next, &last, OutcomeKind::Answer, "keep", "a source"),
    ] {
        let record = &assembled.record;
        assert_eq!(record.outcome, outcome);
        assert_eq!(record.usage.input_tokens, 14, "{chosen}");
        let [decision] = record.decisions.as_slice() else {
            panic!("{:?}", record.decisions)
        };
        assert_eq!(decision.options, ["keep", "again"]);
        assert_eq!(
            (decision.chosen.as_str(), decision.signal.as_str()),
            (chosen, signal)
        );
        let uri = uris::decision(&record.session, record.step, NAME);
        let told = provenance::tell(record).triples;
        for (term, value) in [
            (tg::SELECTED, chosen),
            (tg::OPTION, "keep"),
            (tg::OPTION, "again"),
        ] {
            let is_told = told.iter().any(|t| {
                let t = json!(t).to_string();
                [uri.as_str(), term, value]
                    .iter()
                    .all(|part| t.contains(part))
            });
            assert!(is_told, "{uri} {term} {value}");
        }
        assert_eq!(again(request, assembled), Replayed::default(), "{chosen}");
    }
    assert_eq!((next.step, next.history.len()), (1, 1));
    assert_eq!(last.record.total.model_calls, 4);
    let answer = last.documents.iter().find(|(_, text)| text == "Ada");
    assert_eq!(answer.unwrap().0, uris::answer_document(&"s".into()));
}

#[test]
fn its_last_call_is_the_answers_and_it_is_offered_where_it_is_configured() {
    let mut poor = asked();
    poor.limits.max_model_calls = Some(2);
    let spared = worked(&poor, &["Ada"]);
    assert_eq!(spared.record.outcome, OutcomeKind::Answer);
    assert_eq!(spared.record.decisions[0].decided_by, DecidedBy::OnlyOption);

    let (options, _) = pattern_options(&asked(), &snapshot(), "general", 0);
    assert_eq!(options, [NAME]);
}
