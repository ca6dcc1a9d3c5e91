//! The order to ask the model: what the call may cost, the call, and what becomes of it.

use super::{Driver, Wanted};
use crate::away::{self, Away, Time};
use crate::error::Stop;
use crate::model;
use crate::stream::Stream;
use agentfleet_core::limits::Left;
use agentfleet_core::{Input, ModelAsk, ModelFailure, Overruled, Reply, StreamAs, prices};
use agentfleet_models::{Discard, Error as ModelError, ModelReply, ModelRequest};
use agentfleet_runtime::metrics;
use agentfleet_schema::config::ModelProfile;
use agentfleet_schema::records::{Call, FailedCall, Usage};
use agentfleet_schema::{Spent, millis};

impl Driver<'_, '_> {
    /// Asks the model, and keeps in mind what the turn is told where it cannot answer.
    pub(super) async fn ask(&mut self, ask: &ModelAsk, left: Left) -> Result<Wanted, Stop> {
        let input = self.ask_model(ask, left).await?;
        if let Ok(Input::ModelFailed(failure)) = &input {
            let replied = !failure.spent.is_nothing();
            self.done.failures.push(FailedCall {
                after: self.done.calls.len() as u32 - u32::from(replied),
                message: failure.message.clone(),
                hint: failure.hint.clone(),
                replied,
                tried: failure.tried.clone(),
            });
        }
        Ok(input)
    }

    /// Why a model call is not made, if what is left does not pay for it.
    pub(super) fn too_dear(&self, ask: &ModelAsk, left: Left) -> Option<String> {
        if left.is_unbounded() {
            return None;
        }
        let prompts = &self.options.default_prompts;
        let (snapshot, of) = (&self.work.prepared.snapshot, self.request());
        // What cannot be rendered is told where it is asked.
        let messages = model::messages(ask, of, snapshot, prompts).ok()?;
        let prompt = model::prompt_text(&messages);
        model::bounded(snapshot, of, ask.operation, &prompt, left, self.metered()).err()
    }

    /// What the model replies, streamed as the order says; or how the step ends because nobody waits for it.
    async fn replied(
        &mut self,
        ask: &ModelAsk,
        request: ModelRequest,
    ) -> Result<Result<ModelReply, ModelError>, Overruled> {
        let chat = &*self.parts.model;
        let watched = &self.work.watched;
        if ask.stream == StreamAs::Nothing || !self.request().streaming {
            return watched.while_wanted(chat.chat(request, &Discard)).await;
        }
        let stream = Stream {
            broker: &*self.parts.broker,
            host: &*self.parts.host,
            attempt: self.attempt(),
            kind: ask.stream,
            unmarked_is_answer: !ask.tools.is_empty(),
        };
        let replying = stream.run(&mut self.done.streamed, |sink| async move {
            chat.chat(request, &*sink).await
        });
        watched.while_wanted(replying).await
    }

    async fn ask_model(&mut self, ask: &ModelAsk, left: Left) -> Result<Wanted, Stop> {
        let (of, tools) = (self.request(), &*self.parts.tools);
        let mut request =
            match model::request(ask, of, &self.work.prepared.snapshot, self.options, tools) {
                Ok(request) => request,
                Err(reason) => {
                    return Ok(Ok(Input::ModelFailed(ModelFailure {
                        message: reason,
                        hint: "correct the prompt with `agentfleet config put`".into(),
                        ..ModelFailure::default()
                    })));
                }
            };
        let prompt = model::prompt_text(&request.messages);
        let (snapshot, metered) = (&self.work.prepared.snapshot, self.metered());
        let bounded = model::bounded(snapshot, of, ask.operation, &prompt, left, metered);
        if let Ok(bounded) = bounded {
            request.max_tokens = bounded.max_tokens;
            if self.debits.of_models {
                self.debits
                    .reserve(self.done.spent(), bounded.reserved)
                    .await?;
            }
        }
        let started = self.parts.host.now();
        let replied = match self.replied(ask, request).await {
            Ok(replied) => replied,
            Err(stopped) => return Ok(Err(stopped)),
        };
        let ms = (self.parts.host.now() - started).max(0).unsigned_abs();
        self.debits.open = None;
        let priced = |usage: Usage, fallback: &str| {
            if metered && !fallback.is_empty() {
                snapshot
                    .prices(ModelProfile::default(), fallback)
                    .priced(usage)
            } else if metered {
                prices::prices(snapshot, of, ask.operation).priced(usage)
            } else {
                usage
            }
        };
        match replied {
            Ok(reply) => {
                let usage = priced(reply.usage, &reply.fallback);
                let told = model::reply(&reply, usage, ms);
                self.done.calls.push(Call::Model {
                    operation: ask.operation.as_str().to_owned(),
                    model: reply.model.clone(),
                    prompt,
                    reply: model::reply_text(&reply),
                    usage,
                    ms,
                    calls_tools: !reply.tool_calls.is_empty(),
                    cut: reply.cut,
                    ignored: told.not_called(ask.is_agent),
                    tried: model::tried(&reply.tried),
                });
                Ok(Ok(Input::ModelReplied(told)))
            }
            Err(error) => {
                metrics::model_failed(ask.operation.as_str(), error.kind().as_str());
                if error.is_silent() && ask.cut.is_none() {
                    // The turn asks again, in other words.
                    let usage = priced(error.usage(), "");
                    return Ok(Ok(self.silent(ask, prompt, &error, usage, ms)));
                }
                // Where it told of no tokens, it is taken to have cost nothing: it was refused, or cut off early.
                let spent = if error.usage() == Usage::default() {
                    Spent::default()
                } else {
                    let usage = priced(error.usage(), "");
                    let wordless = self.wordless(ask.operation.as_str(), prompt, usage, ms);
                    let spent = wordless.spent();
                    self.done.calls.push(wordless);
                    spent
                };
                let failure = self.model_failed(&error, ms)?;
                let tried = model::tried(error.tried());
                Ok(Ok(Input::ModelFailed(ModelFailure {
                    spent,
                    tried,
                    ..failure
                })))
            }
        }
    }

    /// A reply without a word, as the turn is told it.
    fn silent(
        &mut self,
        ask: &ModelAsk,
        prompt: String,
        error: &ModelError,
        usage: Usage,
        ms: u64,
    ) -> Input {
        let mut before = model::tried(error.tried());
        // The last of them is the one that replied.
        before.pop();
        let mut wordless = self.wordless(ask.operation.as_str(), prompt, usage, ms);
        if let Call::Model { tried, .. } = &mut wordless {
            tried.clone_from(&before);
        }
        self.done.calls.push(wordless);
        Input::ModelReplied(Reply {
            usage,
            ms,
            tried: before,
            ..Reply::default()
        })
    }

    /// What becomes of a call that failed: another try, or what the turn is told.
    fn model_failed(&self, error: &ModelError, ms: u64) -> Result<ModelFailure, Stop> {
        if let Some(asked) = away::pause_asked(error, ms) {
            let time = Time {
                now: self.parts.host.now(),
                hard_deadline: self.request().control.hard_deadline,
                nonce: &self.work.prepared.nonce,
                longest: millis(self.options.model_wait),
                is_told_why: self.request().tenant().is_empty(),
            };
            return match Away::wait(Away::of(self.work.delivery), error, asked, time) {
                Ok(wait) => Err(Stop::ModelAway(Box::new(wait))),
                Err(message) => Ok(ModelFailure {
                    message,
                    hint: "`agentfleet retry` goes on when the model can be reached".into(),
                    ..ModelFailure::default()
                }),
            };
        }
        match error.retry() {
            Some(after) if !self.work.is_last_attempt => Err(Stop::Retry {
                reason: error.to_string(),
                after,
            }),
            Some(_) => Ok(ModelFailure {
                message: format!("gave up after {} tries: {error}", self.options.max_attempts),
                hint: "ask again when the model can be reached".into(),
                ..ModelFailure::default()
            }),
            None => Ok(ModelFailure {
                message: error.to_string(),
                ..ModelFailure::default()
            }),
        }
    }

    /// Whether the model costs somebody something.
    fn metered(&self) -> bool {
        self.parts.model.capabilities().metered
    }
}
