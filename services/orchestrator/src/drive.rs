//! The only driver: carries out each order of a turn and feeds the result back, until it ends.

mod ask_model;

use crate::attempts::Attempts;
use crate::calls::{Called, Caller, limited};
use crate::debits::Debits;
use crate::error::Stop;
use crate::handle::Orchestrator;
use crate::model;
use crate::rates::Rates;
use crate::stream::Attempt;
use crate::work::{Ended, Work};
use crate::{Options, Parts};
use agentfleet_core::commit::Streamed;
use agentfleet_core::limits::Limits;
use agentfleet_core::{Input, Order, Overruled, ToolOutcome, ToolUse, Turn, approval, say, words};
use agentfleet_runtime::Records;
use agentfleet_schema::config::Fallbacks;
use agentfleet_schema::records::{Adopted, Call, EndedBy, FailedCall, Usage};
use agentfleet_schema::{AgentRequest, Digest, Spent};
use std::collections::BTreeMap;

/// What came of a call, or how the step ends because nobody waits for it any more.
type Wanted = Result<Input, Overruled>;

/// Works one turn.
pub(crate) struct Driver<'o, 'w> {
    parts: &'o Parts,
    options: &'o Options,
    pub work: &'w Work<'w>,
    attempts: Attempts<'o>,
    rates: &'o Rates,
    /// Where tools that ask a model may go.
    fallbacks: Fallbacks,
    pub debits: Debits<'o>,
    /// The call that an earlier attempt began, with its outcome, until it is taken.
    left: Option<Called>,
    done: Done,
}

/// What was done of a turn.
#[derive(Default)]
pub(crate) struct Done {
    pub calls: Vec<Call>,
    pub streamed: Streamed,
    /// The model call that what was left of the budget did not pay for.
    pub unaffordable: Option<FailedCall>,
    /// Model calls that failed for good.
    pub failures: Vec<FailedCall>,
    /// Number of the next side-effecting call.
    pub side_effects: u32,
    /// Whether the turn ended without a call that it could have made, as another attempt still may.
    pub without_call: bool,
}

impl Done {
    /// What the calls of this attempt came to.
    pub(crate) fn spent(&self) -> Spent {
        self.calls.iter().map(Call::spent).sum()
    }
}

impl<'o, 'w> Driver<'o, 'w> {
    pub(crate) fn new(orchestrator: &'o Orchestrator, work: &'w Work<'w>) -> Self {
        let (parts, options) = (&orchestrator.parts, &orchestrator.options);
        let request = &work.prepared.request;
        let snapshot = &work.prepared.snapshot;
        let budget = Limits::of(request, snapshot, &options.limits).budget;
        Self {
            parts,
            options,
            work,
            attempts: orchestrator.attempts(),
            rates: &orchestrator.rates,
            fallbacks: model::fallbacks(request, snapshot, &options.limits),
            debits: Debits {
                documents: &*parts.documents,
                step: (request.session_id.clone(), request.step),
                nonce: work.prepared.nonce.clone(),
                of_models: orchestrator.debits_models(request, snapshot),
                of_tools: budget.tool_calls.is_some(),
                last: work.debited.last,
                ahead: work.ahead,
                open: None,
                any: work.ahead.is_some(),
            },
            left: None,
            done: Done::default(),
        }
    }

    /// What was done, and debited for it.
    pub(crate) fn over(self) -> (Done, Debits<'o>) {
        (self.done, self.debits)
    }
}

impl<'w> Driver<'_, 'w> {
    fn request(&self) -> &'w AgentRequest {
        &self.work.prepared.request
    }

    /// Notes what the calls came to, where the attempt gives up by itself.
    pub(crate) async fn settle(&mut self) {
        self.debits.settle(self.done.spent()).await;
    }

    pub(crate) async fn run(&mut self, mut turn: Turn) -> Result<Ended, Stop> {
        if let Some(intent) = self.work.left.clone() {
            // Known before a model is asked, which may take long: until then an equal call is nobody's to make.
            self.left = Some(self.caller().adopt(intent, 0).await?);
        }
        let mut input = Input::Begin;
        loop {
            let mut order = turn.resume(input);
            if let Order::CallTool(ordered) = &order
                && self.needs_person(ordered).await?
            {
                order = turn.needs_person();
            }
            if let Order::AskModel(ask) = &order
                && let Some(why) = self.too_dear(ask, turn.left())
            {
                order = turn.cannot_afford(&why);
                self.done.unaffordable = Some(FailedCall {
                    after: self.done.calls.len() as u32,
                    message: why,
                    ..FailedCall::default()
                });
            }
            let over = matches!(order, Order::Finish(_));
            if !over && self.parts.host.now() >= self.request().control.hard_deadline {
                // It may have come while the step was at work (BG-1).
                let over = Overruled {
                    by: EndedBy::Deadline,
                    finish: say::time_used_up(),
                };
                return Ok(over.into());
            }
            input = match order {
                Order::AskModel(ask) => match Box::pin(self.ask(&ask, turn.left())).await? {
                    Ok(input) => input,
                    Err(over) => return Ok(over.into()),
                },
                Order::CallTool(tool_use) => match Box::pin(self.call_tool(*tool_use)).await? {
                    Ok(input) => input,
                    Err(over) => return Ok(over.into()),
                },
                Order::ReadDocuments(uris) => self.read_documents(uris).await?,
                Order::Finish(finish) => match self.left_behind(&turn) {
                    None => return Ok(Ended::own(*finish)),
                    // The turn ends otherwise, now that it knows of this call.
                    Some(input) => input,
                },
            };
        }
    }

    /// Whose chunks go out.
    fn attempt(&self) -> Attempt<'w> {
        Attempt {
            request: self.request(),
            properties: &self.work.delivery.properties,
            nonce: &self.work.prepared.nonce,
            responses: &self.work.prepared.responses,
        }
    }

    fn caller(&self) -> Caller<'_> {
        Caller {
            parts: self.parts,
            request: self.request(),
            snapshot: &self.work.prepared.snapshot,
            fallbacks: self.fallbacks,
            nonce: &self.work.prepared.nonce,
            attempts: &self.attempts,
            delivery: self.work.delivery,
        }
    }

    /// Whether an equal call of this tree was started of which nobody knows whether it took effect.
    /// What a person approved may be made all the same.
    async fn needs_person(&self, ordered: &ToolUse) -> Result<bool, Stop> {
        let held = self.request().control.held.as_ref();
        let (tool, arguments) = (&ordered.tool.name, &ordered.arguments);
        if ordered.tool.effect().may_repeat()
            || held.is_some_and(|held| approval::allows(held, tool, arguments))
        {
            return Ok(false);
        }
        self.caller().is_unknown(tool, arguments).await
    }

    /// The side-effecting call of an earlier attempt that this one did not want.
    fn left_behind(&mut self, turn: &Turn) -> Option<Input> {
        // A turn makes one call, so where one stands no attempt makes another.
        if self.done.side_effects > 0 || turn.tools().iter().all(|tool| tool.effect().may_repeat())
        {
            return None;
        }
        let taken = self.take_over(None);
        if taken.is_none() {
            self.done.without_call = true;
        } else {
            // What was said so far was said without knowing.
            self.done.streamed = Streamed::default();
        }
        taken
    }

    /// Takes the call that an earlier attempt began, where there is one, as the one call of this step;
    /// `asked` is what this attempt ordered.
    fn take_over(&mut self, asked: Option<&(String, BTreeMap<String, String>)>) -> Option<Input> {
        let called = self.left.take()?;
        self.done.side_effects = 1;
        Some(self.called(called, asked, 0))
    }

    async fn call_tool(&mut self, tool_use: ToolUse) -> Result<Wanted, Stop> {
        let asked = (tool_use.tool.name.clone(), tool_use.arguments.clone());
        if self.done.side_effects == 0
            && let Some(taken) = self.take_over(Some(&asked))
        {
            // Nothing is called, and nothing debited: the attempt that began the call has done both.
            return Ok(Ok(taken));
        }
        if self.debits.of_tools {
            let reserved = Spent {
                tool_calls: 1,
                ..Spent::default()
            };
            self.debits.reserve(self.done.spent(), reserved).await?;
        }
        let started = self.parts.host.now();
        if !self
            .rates
            .take(self.request().tenant(), &tool_use.tool, started)
        {
            let snapshot = &self.work.prepared.snapshot;
            let limited = limited(tool_use, words::locale(self.request(), snapshot));
            self.debits.open = None;
            return Ok(Ok(self.called(limited, Some(&asked), 0)));
        }
        let once = !tool_use.tool.effect().may_repeat();
        let number = self.done.side_effects;
        let caller = self.caller();
        let calling = async {
            if once {
                caller.once(tool_use, number).await
            } else {
                caller.call(tool_use).await
            }
        };
        let told = say::action(&asked.0, &asked.1);
        let calling = self.while_told(&told, calling);
        let (called, is_told) = if once {
            // Whether it took effect must be known, whoever waits for it.
            Box::pin(calling).await
        } else {
            match Box::pin(self.work.watched.while_wanted(calling)).await {
                Ok(called) => called,
                Err(stopped) => return Ok(Err(stopped)),
            }
        };
        if is_told {
            self.done.streamed.action = told;
            self.done.streamed.action_chunks = 1;
        }
        let called = called?;
        if once {
            self.done.side_effects = number + 1;
        }
        let ms = (self.parts.host.now() - started).max(0).unsigned_abs();
        self.debits.open = None;
        Ok(Ok(self.called(called, Some(&asked), ms)))
    }

    /// Runs a call, and tells whoever watches of it meanwhile.
    async fn while_told<T>(&self, text: &str, calling: impl Future<Output = T>) -> (T, bool) {
        if !self.request().streaming {
            return (calling.await, false);
        }
        tokio::pin!(calling);
        tokio::select! {
            biased;
            called = &mut calling => return (called, false),
            () = std::future::ready(()) => {}
        }
        let attempt = self.attempt();
        let telling = attempt.tell_action(&*self.parts.broker, text);
        let (is_told, called) = tokio::join!(telling, calling);
        (called, is_told)
    }

    fn called(
        &mut self,
        called: Called,
        asked: Option<&(String, BTreeMap<String, String>)>,
        ms: u64,
    ) -> Input {
        let result = called.result;
        let usage = result.usage;
        if usage != Usage::default() {
            let mut wordless = self.wordless("tool", String::new(), usage, 0);
            if let Call::Model { model, .. } = &mut wordless
                && !result.model.is_empty()
            {
                model.clone_from(&result.model);
            }
            self.done.calls.push(wordless);
        }
        let adopted = match asked {
            None => Some(Adopted::Unasked),
            Some(asked) => (called.ran != *asked).then_some(Adopted::Instead),
        };
        self.done.calls.push(Call::Tool {
            name: called.ran.0.clone(),
            arguments: called.ran.1.clone(),
            result: result.content.clone(),
            is_error: result.is_error,
            ms,
            sources: result.sources.clone(),
            tried: called.tried.clone(),
            adopted,
        });
        let instead = (Some(&called.ran) != asked).then_some(called.ran);
        Input::ToolReturned(ToolOutcome {
            content: result.content,
            is_error: result.is_error,
            sources: result.sources,
            ms,
            usage,
            tried: called.tried,
            instead,
        })
    }

    /// A model call of which nothing is known but what it came to.
    fn wordless(&self, operation: &str, prompt: String, usage: Usage, ms: u64) -> Call {
        Call::Model {
            operation: operation.to_owned(),
            model: self.parts.model.describe(),
            prompt,
            reply: String::new(),
            usage,
            ms,
            calls_tools: false,
            cut: false,
            ignored: Vec::new(),
            tried: Vec::new(),
        }
    }

    async fn read_documents(&mut self, uris: Vec<String>) -> Result<Input, Stop> {
        let texts = Records::new(&*self.parts.documents).texts(&uris).await?;
        for (uri, text) in uris.into_iter().zip(&texts) {
            self.done.calls.push(Call::Document {
                uri,
                digest: Digest::of(text.as_deref().unwrap_or_default().as_bytes()),
                missing: text.is_none(),
            });
        }
        Ok(Input::DocumentsRead(texts))
    }
}
