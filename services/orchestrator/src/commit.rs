//! Committing what a step came to, and adopting what another attempt committed.

use crate::error::Stop;
use crate::handle::Orchestrator;
use crate::intake;
use crate::work::{Work, Worked};
use agentfleet_broker::{
    Delivery, Durability, MAX_PAYLOAD, MAX_PROPERTIES, Outgoing, properties_size,
};
use agentfleet_core::commit::{Assembled, carried, read_whole};
use agentfleet_core::error::Code;
use agentfleet_core::{Overruled, error, say};
use agentfleet_runtime::{Adoption, Disposition, EndedStep, StepCommitted, commit_step, metrics};
use agentfleet_schema::records::{EndedBy, Termination};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{AgentRequest, AgentResponse, Digest, MessageId, MessageType, keys};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Orchestrator {
    /// Commits what a step came to. Who loses the race adopts what won it.
    pub(crate) async fn commit(
        &self,
        work: Work<'_>,
        worked: Worked<'_>,
        began: Instant,
    ) -> Result<Disposition, Stop> {
        let (documents, committer) = (&*self.parts.documents, &*self.parts.committer);
        let Worked {
            ending,
            without_call,
            spent,
            mut debits,
        } = worked;
        let (delivery, watched) = (work.delivery, Arc::clone(&work.watched));
        let request = &watched.request;
        let now = self.parts.host.now();
        let assembled = work.prepared.end(ending, now, too_large);
        let step = EndedStep {
            objects: assembled.objects(),
            record: assembled.record,
            bare: assembled.bare,
            without_call,
            pattern: &request.pattern,
            properties: &delivery.properties,
        };
        let committing = commit_step(documents, committer, step, Some(delivery));
        match Box::pin(committing).await? {
            StepCommitted::Won(record) => {
                metrics::step(&record, &request.pattern, began.elapsed());
                Ok(Disposition::Settled)
            }
            StepCommitted::Lost => {
                metrics::attempt_lost();
                let key = keys::outcome(&request.session_id, request.step);
                match documents.get(&key).await? {
                    Some(theirs) => self.adopt(request, &theirs, false, delivery).await,
                    None => Err(Stop::Retry {
                        reason: format!("record `{key}` was taken but cannot be read"),
                        after: Duration::from_secs(1),
                    }),
                }
            }
            StepCommitted::Called => {
                // The call was not there when this attempt began: the next one begins with it.
                debits.settle(spent).await;
                Err(Stop::Postpone {
                    reason: "another attempt called a tool".into(),
                    after: Duration::ZERO,
                })
            }
        }
    }

    /// Publishes what somebody committed, if nobody has, and acknowledges.
    pub(crate) async fn adopt(
        &self,
        request: &AgentRequest,
        record: &[u8],
        published: bool,
        delivery: &Delivery,
    ) -> Result<Disposition, Stop> {
        let (session, step) = (&request.session_id, request.step);
        let marker = keys::published(session, step);
        let published = published || self.parts.documents.get(&marker).await?.is_some();
        let is_root = step == 0 && !request.is_subagent();
        if published && !is_root {
            return Ok(Disposition::Ack);
        }
        let key = keys::outcome(session, step);
        let record = read_whole(record).map_err(|error| Stop::unreadable(&key, &error))?;
        if is_root && intake::is_another(&record, &delivery.payload) {
            self.refuse_second(request, delivery).await?;
            return Ok(Disposition::Ack);
        }
        if published {
            return Ok(Disposition::Ack);
        }
        self.parts
            .committer
            .adopt(Adoption::of(record), Some(delivery))
            .await?;
        Ok(Disposition::Settled)
    }

    /// Tells the producer of a request that its session has another one. It ends no dialog (OR-3), and
    /// is no response of the other's run: it carries no root.
    async fn refuse_second(&self, request: &AgentRequest, delivery: &Delivery) -> Result<(), Stop> {
        let session = &request.session_id;
        let error = error::body(
            Code::SessionTaken,
            format!("`$.session_id`: session `{session}` has another request; this one is not run"),
            "use another session id for another request; to repeat one, send it unchanged",
        );
        tracing::warn!(%session, message = %delivery.message_id, "a second request names this session");
        let digest = Digest::of(&delivery.payload);
        let response = AgentResponse {
            message_type: MessageType::Error,
            session_id: session.clone(),
            conversation_id: request.conversation_id.clone(),
            content: error.message.clone(),
            error: Some(error),
            end_of_message: true,
            message_id: MessageId::of_attempt(digest.as_str(), "session-taken"),
            ..AgentResponse::default()
        };
        let topic = self.options.reply_topics.of(&delivery.properties);
        let mut properties = carried(&delivery.properties);
        properties.insert(property::SESSION.to_owned(), session.to_string());
        let refusal = Outgoing {
            topic: topic.unwrap_or(topics::AGENT_RESPONSE),
            payload: serde_json::to_vec(&response).unwrap_or_default(),
            properties,
            deliver_at: None,
            durability: Durability::Durable,
        };
        Ok(self.parts.broker.publish(vec![refusal]).await?)
    }

    /// Gives a cancellation to those who end runs from outside. Said twice it does no more.
    pub(crate) async fn pass_on(&self, request: &AgentRequest) -> Result<Disposition, Stop> {
        let now = self.parts.host.now();
        let properties = [
            (property::KIND, property::KIND_CANCEL.to_owned()),
            (property::SESSION, request.session_id.to_string()),
            (property::STEP, "0".to_owned()),
            (property::DUE, now.to_string()),
            (property::BY, request.user.clone()),
        ];
        let properties = properties.map(|(name, value)| (name.to_owned(), value));
        let order = Outgoing {
            topic: topics::DEADLINE,
            payload: b"{}".to_vec(),
            properties: properties.into(),
            deliver_at: None,
            durability: Durability::Durable,
        };
        self.parts.broker.publish(vec![order]).await?;
        Ok(Disposition::Ack)
    }
}

/// How a step ends that would publish more than a message may hold.
fn too_large(assembled: &Assembled) -> Option<Overruled> {
    let synthesis = assembled.fan_out.iter().map(|fan_out| &fan_out.synthesis);
    let resume = assembled.pause.iter().map(|pause| &pause.resume);
    let published = assembled.record.publications.iter();
    let sizes = published
        .chain(synthesis)
        .chain(resume)
        .map(|one| (one.body.len(), properties_size(&one.properties)));
    let (body, properties) = sizes.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
    let (what, size, limit) = if body > MAX_PAYLOAD {
        ("a message", body, MAX_PAYLOAD)
    } else if properties > MAX_PROPERTIES {
        ("properties", properties, MAX_PROPERTIES)
    } else {
        return None;
    };
    let error = error::body(
        Code::StepTooLarge,
        format!("the step would publish {what} of {size} bytes, the limit is {limit}"),
        "ask for less at a time, or lower the number of subagents",
    );
    Some(Overruled {
        by: EndedBy::TooLarge,
        finish: say::failed(error, Termination::Error, 0),
    })
}
