//! The critique of an action or of an answer, where the pattern is reflexion.

use super::{Criticised, Iteration};
use crate::history::preview;
use crate::order::{Finish, Order, Outcome, Reply, ToolOutcome};
use crate::patterns::reflexion::{self, ANSWER, Subject};
use crate::say;
use agentfleet_schema::records::{Activity, Critique, Iterated, Termination};
use agentfleet_schema::{MessageType, StepKind, uris};
use serde_json::json;
use std::collections::BTreeMap;

impl Iteration {
    pub(super) fn did(
        &mut self,
        name: String,
        arguments: BTreeMap<String, String>,
        outcome: ToolOutcome,
    ) -> Order {
        if !self.reflects {
            return self.next(name, arguments, outcome, 0);
        }
        let session = &self.request.session_id;
        let document = uris::document_of(&uris::observation(session, self.n));
        let most = self.limits.max_observation_bytes;
        let subject = Subject::Action {
            name: &name,
            arguments: json!(arguments),
            observation: &preview(&outcome.content, most, &document),
            is_error: outcome.is_error,
        };
        let thought = if self.thought.is_empty() {
            &self.recalled
        } else {
            &self.thought
        };
        let ask = reflexion::ask(&self.request, &self.limits, thought, &subject);
        self.criticised = Some(Criticised::Action {
            name,
            arguments,
            outcome: Box::new(outcome),
        });
        ask
    }

    pub(super) fn criticise(&mut self, subject: Criticised, reply: &Reply) -> Order {
        self.model_ms += reply.ms;
        let (critique, decision) = reflexion::read(&reply.text, &self.request, &self.limits);
        let mut step = match subject {
            Criticised::Action {
                name,
                arguments,
                outcome,
            } => self.next(name, arguments, *outcome, 0),
            Criticised::Answer(text) if critique.sent_back => self.sent_back(text, &critique),
            Criticised::Answer(text) => self.conclude(text, Termination::FinalAnswer, false, false),
        };
        if let Order::Finish(finish) = &mut step {
            match &mut finish.activity {
                Activity::Iterated(it) => it.critique = Some(critique.clone()),
                Activity::Concluded(end) => end.critique = Some(critique.clone()),
                Activity::None
                | Activity::FannedOut(_)
                | Activity::Planned(_)
                | Activity::Executed(_)
                | Activity::Asked(_)
                | Activity::Decided(_) => {}
            }
            if let Outcome::Continue(next) = &mut finish.outcome
                && next
                    .history
                    .last()
                    .is_none_or(|step| !step.is(StepKind::Reflect))
            {
                reflexion::remember(next, &critique, None);
            }
            let uri = uris::document_of(&uris::critique(&self.request.session_id, self.n));
            let told = say::message(MessageType::Thought, reflexion::told(&critique), uri);
            // An answer comes last: it may be the end of the dialog.
            let at = match finish.activity {
                Activity::Concluded(_) => finish.said.len().saturating_sub(1),
                _ => finish.said.len(),
            };
            finish.said.insert(at, told);
            finish.decisions.push(decision);
        }
        step
    }

    /// Goes on without the answer that was to be given.
    pub(super) fn sent_back(&self, draft: String, critique: &Critique) -> Order {
        let mut next = self.request.clone();
        reflexion::remember(&mut next, critique, Some(&draft));
        let uri = uris::document_of(&uris::observation(&self.request.session_id, self.n));
        let observation = format!("{}\n\nThe draft:\n\n{draft}", reflexion::told(critique));
        let mut candidates: Vec<String> = self.tools.iter().map(|t| t.name.clone()).collect();
        candidates.push(ANSWER.to_owned());
        let mut said = self.thoughts();
        said.push(say::message(
            MessageType::Observation,
            &*observation,
            uri.clone(),
        ));
        Finish::goes_on(
            next,
            Activity::Iterated(Iterated {
                n: self.n,
                thought: self.thought.clone(),
                action: ANSWER.to_owned(),
                observation: preview(&observation, self.limits.max_observation_bytes, &uri),
                candidates,
                model_ms: self.model_ms,
                ..Iterated::default()
            }),
            Vec::new(),
            said,
        )
    }
}
