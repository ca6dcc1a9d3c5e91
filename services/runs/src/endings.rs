//! Ending a run from outside: `closed` is written, then the first missing step of the root is
//! created as its end. Only a step record can end a dialog (OR-3), so whoever loses that race goes
//! on to the next step, and finds either an end or another missing step.

use crate::Parts;
use crate::approvals::Approvals;
use crate::error::Error;
use agentfleet_core::commit::read_whole;
use agentfleet_core::error::Code;
use agentfleet_core::{
    Ending, Finish, Outcome, Overruled, Prepared, bounds, error, fan_in, say, so_far,
};
use agentfleet_runtime::effects::Standing;
use agentfleet_runtime::records::decode;
use agentfleet_runtime::{Adoption, EndedStep, StepCommitted, account, commit_step, effects};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Child, ClosedRecord, EndedBy, FanOutRecord, OutcomeKind, Publication, StepRecord, Termination,
    Worked,
};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{AgentRequest, Digest, SessionId, Spent, keys};
use futures::future::{BoxFuture, try_join_all};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Subagents that are ended at the same time.
const AT_ONCE: usize = 8;

/// What came of an attempt to end a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This call ended it.
    Now,
    /// It had ended already, as the record says.
    Before(OutcomeKind),
    /// Nothing is known of it, or only that it was asked on the queue. It is closed all the same, should it come.
    Unknown,
}

/// Ends runs.
#[derive(Clone, Debug)]
pub struct Endings {
    parts: Parts,
}

/// The request a step would have worked, with the properties of its message.
#[derive(Clone)]
pub(crate) struct Asked {
    pub request: AgentRequest,
    pub properties: BTreeMap<String, String>,
}

impl Endings {
    pub fn new(parts: Parts) -> Self {
        Self { parts }
    }

    /// Ends the run of a session, whatever it is doing, and all below it. A root's tree is closed first,
    /// so that nothing starts beside the end; of a subagent only what is below it ends, and its parent
    /// goes on without it.
    pub async fn end(&self, session: &SessionId, cause: &str, by: &str) -> Result<Ended, Error> {
        self.end_asked(session, None, cause, by).await
    }

    /// The same of a subagent that may have no record yet. What its first step would have worked stands
    /// in the record of `parent`, the session and step that started it.
    pub async fn end_child(
        &self,
        parent: (&SessionId, u32),
        child: &SessionId,
        cause: &str,
        by: &str,
    ) -> Result<Ended, Error> {
        let records = self.parts.records();
        let Some(record) = records.step(parent.0, parent.1).await? else {
            return Ok(Ended::Unknown);
        };
        let Some(asked) = asked(&record, child)? else {
            return Ok(Ended::Unknown);
        };
        if records.is_erased(&record.root).await? {
            return Ok(Ended::Unknown);
        }
        // The fan-out lies where the end of its subagent is looked for once it is published.
        self.publish_if_unpublished(record).await?;
        self.end_asked(child, Some(asked), cause, by).await
    }

    async fn end_asked(
        &self,
        session: &SessionId,
        asked: Option<Asked>,
        cause: &str,
        by: &str,
    ) -> Result<Ended, Error> {
        let closing = ClosedRecord {
            cause: cause.to_owned(),
            at: self.parts.host.now(),
            by: by.to_owned(),
        };
        let (reason, termination) = say::tree_closed(&closing);
        let finish = say::cancelled(&reason, termination);
        let ended = Box::pin(self.walk(session, asked, Some(&closing), &finish)).await?;
        match ended {
            // Nothing of the tree waits for a person any more.
            Ended::Now | Ended::Before(OutcomeKind::Cancelled) => {
                let approvals = Approvals::new(self.parts.clone());
                approvals.end_needless(session).await?;
            }
            Ended::Before(_) | Ended::Unknown => {}
        }
        Ok(ended)
    }

    /// Ends subagents that a verdict does without: nobody waits for them any more. Without this each
    /// would find out by itself, when its next message comes; but one that waits for a person has none, and
    /// a call that one began would be unknown to the next round for as long.
    pub async fn end_missing(
        &self,
        fan_out: &FanOutRecord,
        missing: &[Child],
    ) -> Result<(), Error> {
        if missing.is_empty() {
            return Ok(());
        }
        let started = self.parts.records().step(&fan_out.session, fan_out.step);
        let Some(record) = started.await? else {
            return Ok(());
        };
        let (reason, termination) = say::decided_above();
        let finish = say::cancelled(&reason, termination);
        // A few at a time: the synthesis waits for all of them.
        for some in missing.chunks(AT_ONCE) {
            let mut ending: Vec<BoxFuture<'_, Result<Ended, Error>>> = Vec::new();
            for child in some {
                let asked = asked(&record, &child.session)?;
                ending.push(Box::pin(self.walk(&child.session, asked, None, &finish)));
            }
            try_join_all(ending).await?;
        }
        Ok(())
    }

    /// Walks the steps of a session to the first that is missing, and creates it as the end; then the
    /// same for every subagent that it waited for. Whoever loses the race for that step goes on, and
    /// finds either an end or another missing step. `asked` is what the session's first step would have
    /// worked, where that is known.
    async fn walk(
        &self,
        session: &SessionId,
        mut asked: Option<Asked>,
        closing: Option<&ClosedRecord>,
        finish: &Finish,
    ) -> Result<Ended, Error> {
        let records = self.parts.records();
        let mut step = 0;
        let mut waiting: Option<StepRecord> = None;
        let mut checked = false;
        let ended = loop {
            if let Some(record) = records.step(session, step).await? {
                if !checked {
                    checked = true;
                    if records.is_erased(&record.root).await? {
                        return Ok(Ended::Unknown);
                    }
                }
                if record.outcome.is_terminal() {
                    let kind = record.outcome;
                    self.publish_if_unpublished(record).await?;
                    break Ended::Before(kind);
                }
                let fans_out = record.outcome == OutcomeKind::FanOut;
                if fans_out || record.outcome == OutcomeKind::Pause {
                    // Its fan-out, or its wait, lies where it belongs once it is published.
                    self.publish_if_unpublished(record.clone()).await?;
                }
                asked = self.asked_next(&record).await?;
                waiting = fans_out.then_some(record);
                step += 1;
                continue;
            }
            let known = asked.as_ref().map(|asked| asked.request.root().clone());
            let root = known.unwrap_or_else(|| session.clone());
            if !checked && records.is_erased(&root).await? {
                return Ok(Ended::Unknown);
            }
            if let Some(closing) = closing.filter(|_| root == *session) {
                // Written before the end, so that nothing starts beside it; and not written for a run
                // that has ended by itself.
                let body = serde_json::to_vec(closing).unwrap_or_default();
                let key = keys::closed(&root);
                self.parts.documents.ensure(&key, body).await?;
            }
            if step == 0 && asked.is_none() {
                asked = self.taken_in(session).await?;
            }
            if step == 0 && asked.is_none() {
                // It is on the queue yet, or was never asked: when it comes, its worker sees `closed`.
                return Ok(Ended::Unknown);
            }
            let own = asked.clone();
            // Boxed: few get here, and everybody who looks at a fan-out would hold it.
            let finish = Box::pin(self.with_found(finish.clone(), own.as_ref())).await?;
            if Box::pin(self.conclude(session, step, own, finish)).await? {
                break Ended::Now;
            }
            // Lost the race: look at what won.
        };
        if let Some(record) = waiting {
            self.end_below(&record, finish).await?;
        }
        Ok(ended)
    }

    /// What the first step of a run would have worked that a door took in: its message may lie among the dead
    /// letters, and nobody works it then.
    async fn taken_in(&self, session: &SessionId) -> Result<Option<Asked>, Error> {
        let taken = self.parts.records().accepted(session).await?;
        let asked = taken.and_then(|taken| {
            let request = taken.asked()?;
            let properties = taken.publication.properties;
            Some(Asked {
                request,
                properties,
            })
        });
        Ok(asked)
    }

    /// With what the session knows, where its time is used up.
    async fn with_found(&self, finish: Finish, asked: Option<&Asked>) -> Result<Finish, Error> {
        let (true, Some(Asked { request, .. })) = (so_far::is_told(&finish), asked) else {
            return Ok(finish);
        };
        let records = self.parts.records();
        let mut found = so_far::carried(request);
        if let Some(step) = request.control.fan_in_step
            && let Some(verdict) = records.verdict(fan_in::session_of(request), step).await?
        {
            let (goals, uris) = so_far::answers_of(&verdict);
            found.extend(so_far::answers(goals, records.texts(&uris).await?));
        }
        Ok(so_far::with(finish, &found))
    }

    /// Ends the subagents that a fan-out started.
    async fn end_below(&self, record: &StepRecord, finish: &Finish) -> Result<(), Error> {
        for child in record.children() {
            let asked = asked(record, &child.session)?;
            // Of a boxed future, because trees are as deep as their limits allow.
            Box::pin(self.walk(&child.session, asked, None, finish)).await?;
        }
        Ok(())
    }

    /// Ends one step of one session as failed, or finds that it is over: the undertaker's part.
    pub async fn fail(
        &self,
        request: AgentRequest,
        properties: BTreeMap<String, String>,
        reason: &str,
    ) -> Result<(), Error> {
        let (session, step) = (request.session_id.clone(), request.step);
        loop {
            if let Some(record) = self.parts.records().step(&session, step).await? {
                return self.publish_if_unpublished(record).await;
            }
            let reason = bounds::reason(reason);
            let (code, why) = Code::of_refusal(&reason);
            let message = if code == Code::DeadLetter {
                format!("no worker could work this step: {why}")
            } else {
                why.to_owned()
            };
            let error = error::body(code, message, "`agentfleet dlq list` shows the message");
            let finish = say::failed(error, Termination::DeadLettered, 0);
            let asked = Some(Asked {
                request: request.clone(),
                properties: properties.clone(),
            });
            if self.conclude(&session, step, asked, finish).await? {
                return Ok(());
            }
        }
    }

    /// Creates a step from outside, mostly as the end of its session; `false` if somebody else
    /// created it, or began a call that the step must tell: then look again.
    pub(crate) async fn conclude(
        &self,
        session: &SessionId,
        step: u32,
        asked: Option<Asked>,
        finish: Finish,
    ) -> Result<bool, Error> {
        let Asked {
            mut request,
            mut properties,
        } = asked.unwrap_or_else(|| Asked {
            request: AgentRequest::default(),
            properties: BTreeMap::new(),
        });
        request.session_id = session.clone();
        request.step = step;
        if request.control.root.is_empty() {
            request.control.root = session.clone();
        }
        properties.remove(property::STEP);
        let by = match &finish.outcome {
            Outcome::Fail { .. } => EndedBy::DeadLetter,
            Outcome::Cancelled(_)
            | Outcome::Continue(_)
            | Outcome::FanOut(_)
            | Outcome::Pause(_)
            | Outcome::Answer(_) => EndedBy::Cancelled,
        };
        let documents = &*self.parts.documents;
        let (mut calls, mut without_call) = (Vec::new(), false);
        if finish.outcome.is_terminal() {
            match effects::standing(documents, (session, step)).await? {
                Standing::Call(intent) => {
                    let (root, of) = (request.root(), (session, step));
                    calls.push(effects::told(documents, root, of, *intent).await?);
                }
                Standing::Nothing => without_call = true,
                Standing::Ended(record) => {
                    let key = keys::outcome(session, step);
                    documents.ensure(&key, record.into()).await?;
                    return Ok(false);
                }
            }
        }
        // What is not allowed has been refused before, or is refused now: by the fleet's own topic.
        let responses = self.parts.reply_topics.of(&properties);
        let now = self.parts.host.now();
        let mut prepared = Prepared {
            request_digest: Digest::default(),
            properties,
            nonce: self.parts.host.nonce(),
            attempt: 1,
            config_version: request.control.config_version.unwrap_or_default(),
            snapshot: Arc::new(Snapshot::default()),
            started_at: now,
            spent_before: request.control.spent,
            wasted: Spent::default(),
            responses: responses.unwrap_or(topics::AGENT_RESPONSE),
            worked: Box::new(Worked {
                request: serde_json::to_string(&request).ok(),
                ..Worked::default()
            }),
            request,
        };
        let debited = account::debited(documents, session, step).await?.spent;
        if !debited.is_nothing() {
            // An attempt was at work since it could be, which is when the step before was committed.
            prepared.worked.came_at =
                Some(prepared.request.control.after).filter(|after| *after > 0);
        }
        prepared.waste(debited);
        let pattern = prepared.request.pattern.clone();
        let ending = Ending {
            calls,
            ..Ending::over(Overruled { by, finish })
        };
        let assembled = prepared.end(ending, now, |_| None);
        let objects = assembled.objects();
        let (record, bare) = (assembled.record, assembled.bare);
        let published = record.publications.first();
        let properties = published.map(|first| first.properties.clone());
        let ended = EndedStep {
            record,
            bare,
            objects,
            without_call,
            pattern: &pattern,
            properties: &properties.unwrap_or_default(),
        };
        let committing = commit_step(documents, &*self.parts.committer, ended, None);
        let committed = Box::pin(committing).await?;
        Ok(matches!(committed, StepCommitted::Won(_)))
    }

    pub(crate) async fn publish_if_unpublished(&self, record: StepRecord) -> Result<(), Error> {
        let published = self.parts.records();
        if !published.is_published(&record.session, record.step).await? {
            let whole = self.whole(record).await?;
            self.parts
                .committer
                .adopt(Adoption::of(whole), None)
                .await?;
        }
        Ok(())
    }

    /// A record with all that it published.
    pub async fn whole(&self, record: StepRecord) -> Result<StepRecord, Error> {
        let key = keys::outcome(&record.session, record.step);
        match self.parts.documents.get(&key).await? {
            Some(stored) => Ok(read_whole(&stored)
                .map_err(|error| agentfleet_runtime::Error::unreadable(&key, &error))?),
            // Erased meanwhile.
            None => Ok(record),
        }
    }

    /// The request that a committed step released, or will release.
    async fn asked_next(&self, record: &StepRecord) -> Result<Option<Asked>, Error> {
        let released = self.parts.records().released(record).await?;
        let asked = released.map(|released| of_publication(record, released));
        asked.transpose()
    }
}

/// The request that a record published for a session.
fn asked(record: &StepRecord, session: &SessionId) -> Result<Option<Asked>, Error> {
    let found = record.request_for(session).cloned();
    found.map(|found| of_publication(record, found)).transpose()
}

fn of_publication(record: &StepRecord, publication: Publication) -> Result<Asked, Error> {
    let key = keys::outcome(&record.session, record.step);
    Ok(Asked {
        request: decode(&key, publication.body.as_bytes())?,
        properties: publication.properties,
    })
}
