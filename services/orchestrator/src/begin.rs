//! BEGIN: the one look-up before a step is worked. Where the broker does not count deliveries, the same
//! round trip notes the first attempt and debits its first model call; a step that was begun before, or
//! that nobody may begin, is looked up by a list of what there is of it.

use crate::attempts::{Attempts, Begun};
use crate::error::Stop;
use crate::found::{Found, asked, bars};
use crate::handle::Orchestrator;
use crate::{intake, model};
use agentfleet_broker::Delivery;
use agentfleet_core::limits::{self, Limits};
use agentfleet_core::{Input, Order, Situation, Turn};
use agentfleet_documents::Created;
use agentfleet_runtime::account;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{DebitRecord, FanInRecord};
use agentfleet_schema::{AgentRequest, Millis, Spent, keys};
use std::sync::Arc;

/// The first attempt at a step, as it was begun.
pub(crate) struct First {
    pub begun: Begun,
    pub snapshot: Arc<Snapshot>,
    /// What was debited for its first model call.
    pub debited: Option<Spent>,
}

impl Orchestrator {
    /// Looks a step up, and begins it if nobody has and nothing bars it.
    pub(crate) async fn begin(
        &self,
        request: &AgentRequest,
        delivery: &Delivery,
    ) -> Result<(Found, Option<First>), Stop> {
        let (documents, asked) = (&*self.parts.documents, asked(request));
        if delivery.deliveries.is_some() {
            let bodies = documents.get_many(&asked).await?;
            return Ok((Found::of_asked(request, &bodies)?, None));
        }
        let Ok(snapshot) = self.config_at(request.control.config_version).await else {
            // What is committed is adopted without one.
            return Ok((Found::list(documents, request).await?, None));
        };
        let (step, nonce) = ((&request.session_id, request.step), self.parts.host.nonce());
        let debited = self.first_call(request, delivery, &snapshot, &nonce);
        let debit = debited.map(|reserved| {
            let record = DebitRecord {
                nonce: nonce.clone(),
                reserved,
                ..DebitRecord::default()
            };
            account::object(step, 1, &record)
        });
        let attempts = self.attempts();
        let begun = attempts.first(step, &nonce, delivery);
        let key = keys::attempt(step.0, step.1, 1);
        let note = (key.as_str(), Attempts::note(&begun));
        let bars = bars(&asked, request);
        let answered = documents.begin(note, debit.as_slice(), &asked, bars).await;
        let (created, bodies) = match answered {
            Ok(answer) => answer,
            Err(error) => {
                attempts.give_up_unanswered(&begun).await;
                return Err(error.into());
            }
        };
        let found = Found::of_asked(request, &bodies)?;
        if created == Created::New {
            let first = First {
                begun,
                snapshot,
                debited,
            };
            // The one debit that may be there is its own, where the store was asked twice.
            let found = Found {
                debited: false,
                ..found
            };
            return Ok((found, Some(first)));
        }
        if found.tombstone || found.outcome.is_some() {
            return Ok((found, None));
        }
        Ok((Found::list(documents, request).await?, None))
    }

    pub(crate) async fn config_at(&self, version: Option<u64>) -> Result<Arc<Snapshot>, Stop> {
        Ok(match version {
            Some(version) => self.parts.config.snapshot_at(version).await?,
            None => self.parts.config.snapshot().await?,
        })
    }

    /// What the turn of a step is parsed with.
    pub(crate) fn situation(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Millis,
        nonce: &str,
        fan_in: Option<FanInRecord>,
    ) -> Situation {
        Situation {
            now,
            snapshot: Arc::clone(snapshot),
            fleet: Arc::new(self.options.limits.clone()),
            native_tools: self.parts.model.capabilities().native_tools,
            nonce: nonce.to_owned(),
            fan_in,
        }
    }

    /// Whether model calls of a request are debited: somebody pays for them, or a budget bounds them.
    pub(crate) fn debits_models(&self, request: &AgentRequest, snapshot: &Snapshot) -> bool {
        let limits = Limits::of(request, snapshot, &self.options.limits);
        self.parts.model.capabilities().metered || !limits.budget.is_unbounded()
    }

    /// What the first model call of a step may come to, if it is debited and is the first that the turn
    /// orders. That of a synthesis follows from a verdict that is not read yet.
    fn first_call(
        &self,
        request: &AgentRequest,
        delivery: &Delivery,
        snapshot: &Arc<Snapshot>,
        nonce: &str,
    ) -> Option<Spent> {
        let now = self.parts.host.now().max(request.control.after);
        let mut request = request.clone();
        let came_at = intake::came_at(delivery).unwrap_or(now);
        limits::accept(&mut request, snapshot, &self.options.limits, came_at);
        let is_over = now >= request.control.hard_deadline;
        let is_synthesis = request.control.fan_in_step.is_some();
        if is_over || is_synthesis || !self.debits_models(&request, snapshot) {
            return None;
        }
        let situation = self.situation(snapshot, now, nonce, None);
        let mut turn = Turn::parse(request.clone(), situation).ok()?;
        let Order::AskModel(ask) = turn.resume(Input::Begin) else {
            return None;
        };
        let (left, metered) = (turn.left(), self.parts.model.capabilities().metered);
        let defaults = &self.options.default_prompts;
        let messages = model::messages(&ask, &request, snapshot, defaults).ok()?;
        let prompt = model::prompt_text(&messages);
        let operation = ask.operation;
        let bounded = model::bounded(snapshot, &request, operation, &prompt, left, metered);
        bounded.ok().map(|bounded| bounded.reserved)
    }
}
