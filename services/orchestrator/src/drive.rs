//! The only driver: carries out each order of a turn and feeds the result back, until it ends.

use crate::attempts::Attempts;
use crate::away::{self, Away, Time};
use crate::calls::{Called, Caller};
use crate::debits::Debits;
use crate::error::Stop;
use crate::handle::Orchestrator;
use crate::stream::{Attempt, Stream};
use crate::work::{Ended, Work};
use crate::{Options, Parts, model};
use agentfleet_core::commit::Streamed;
use agentfleet_core::limits::{Left, Limits};
use agentfleet_core::{
    FactsQuery, Input, ModelAsk, ModelFailure, Overruled, Step, StreamAs, ToolOutcome, ToolUse,
    Turn, approval, prices, say,
};
use agentfleet_graph::QueryOptions;
use agentfleet_models::{Discard, Error as ModelError, Retry};
use agentfleet_runtime::{metrics, texts};
use agentfleet_schema::records::{Adopted, Call, EndedBy, FailedCall, Source, TELLING, Usage};
use agentfleet_schema::vocabulary::{RDFS_LABEL, prov, tg};
use agentfleet_schema::{AgentRequest, Digest, Spent, Term, uris};
use std::collections::BTreeMap;

/// What came of a call, or how the step ends because nobody waits for it any more.
type Wanted = Result<Input, Overruled>;

/// Works one turn.
pub(crate) struct Driver<'o, 'w> {
    parts: &'o Parts,
    options: &'o Options,
    pub work: &'w Work<'w>,
    attempts: Attempts<'o>,
    pub debits: Debits<'o>,
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
        let budget = Limits::of(request, &work.prepared.snapshot, &options.limits).budget;
        let metered = parts.model.capabilities().metered;
        Self {
            parts,
            options,
            work,
            attempts: orchestrator.attempts(),
            debits: Debits {
                documents: &*parts.documents,
                step: (request.session_id.clone(), request.step),
                nonce: work.prepared.nonce.clone(),
                of_models: metered || !budget.is_unbounded(),
                of_tools: budget.tool_calls.is_some(),
                last: work.debited.last,
                open: None,
                any: false,
            },
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

    /// What the calls came to.
    pub(crate) fn spent(&self) -> Spent {
        self.done.spent()
    }

    pub(crate) async fn run(&mut self, mut turn: Turn) -> Result<Ended, Stop> {
        if let Some((intent, number)) = self.work.left.clone() {
            // Known before a model is asked, which may take long: until then an equal call is nobody's to make.
            self.caller().adopt(intent, number).await?;
        }
        let mut input = Input::Begin;
        loop {
            let mut step = turn.resume(input);
            if let Step::CallTool(ordered) = &step
                && self.needs_person(ordered).await?
            {
                step = turn.needs_person();
            }
            if let Step::AskModel(ask) = &step
                && let Some(why) = self.too_dear(ask, turn.left())
            {
                step = turn.cannot_afford(&why);
                self.done.unaffordable = Some(FailedCall {
                    after: self.done.calls.len() as u32,
                    message: why,
                    ..FailedCall::default()
                });
            }
            let over = matches!(step, Step::Finish(_));
            if !over && self.parts.host.now() >= self.request().control.hard_deadline {
                // It may have come while the step was at work (BG-1).
                let over = Overruled {
                    by: EndedBy::Deadline,
                    finish: say::time_used_up(),
                };
                return Ok(over.into());
            }
            input = match step {
                Step::AskModel(ask) => match Box::pin(self.ask(&ask, turn.left())).await? {
                    Ok(input) => input,
                    Err(over) => return Ok(over.into()),
                },
                Step::CallTool(tool_use) => match Box::pin(self.call_tool(*tool_use)).await? {
                    Ok(input) => input,
                    Err(over) => return Ok(over.into()),
                },
                Step::FindFacts(query) => self.find_facts(&query).await?,
                Step::ReadDocuments(uris) => self.read_documents(uris).await?,
                Step::Finish(finish) => match self.left_behind(&turn).await? {
                    None => return Ok(Ended::own(*finish)),
                    // The turn ends otherwise, now that it knows of this call.
                    Some(input) => input,
                },
            };
        }
    }

    /// Asks the model, and keeps in mind what the turn is told where it cannot answer.
    async fn ask(&mut self, ask: &ModelAsk, left: Left) -> Result<Wanted, Stop> {
        let input = self.ask_model(ask, left).await?;
        if let Ok(Input::ModelFailed(failure)) = &input {
            let replied = !failure.spent.is_nothing();
            self.done.failures.push(FailedCall {
                after: self.done.calls.len() as u32 - u32::from(replied),
                message: failure.message.clone(),
                hint: failure.hint.clone(),
                replied,
            });
        }
        Ok(input)
    }

    /// Why a model call is not made, if what is left does not pay for it.
    fn too_dear(&self, ask: &ModelAsk, left: Left) -> Option<String> {
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
        let chat = &*self.parts.model;
        let watched = &self.work.watched;
        let replied = if ask.stream == StreamAs::Nothing || !self.request().streaming {
            watched.while_wanted(chat.chat(request, &Discard)).await
        } else {
            let stream = Stream {
                broker: &*self.parts.broker,
                request: self.request(),
                properties: &self.work.delivery.properties,
                nonce: &self.work.prepared.nonce,
                responses: &self.work.prepared.responses,
                kind: ask.stream,
                unmarked_is_answer: !ask.tools.is_empty(),
            };
            let replying = stream.run(&mut self.done.streamed, |sink| async move {
                chat.chat(request, &*sink).await
            });
            watched.while_wanted(replying).await
        };
        let replied = match replied {
            Ok(replied) => replied,
            Err(stopped) => return Ok(Err(stopped)),
        };
        let ms = (self.parts.host.now() - started).max(0).unsigned_abs();
        self.debits.open = None;
        let priced = |usage: Usage| {
            if metered {
                prices::prices(snapshot, of, ask.operation).priced(usage)
            } else {
                usage
            }
        };
        match replied {
            Ok(reply) => {
                let usage = priced(reply.usage);
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
                    ignored: told.not_called(ask.operation, TELLING),
                });
                Ok(Ok(Input::ModelReplied(told)))
            }
            Err(error) => {
                metrics::model_failed(ask.operation.as_str(), error.kind().as_str());
                // Where it told of no tokens, it is taken to have cost nothing: it was refused, or cut off early.
                let spent = if error.usage() == Usage::default() {
                    Spent::default()
                } else {
                    let wordless = Call::Model {
                        operation: ask.operation.as_str().to_owned(),
                        model: chat.describe(),
                        prompt,
                        reply: String::new(),
                        usage: priced(error.usage()),
                        ms,
                        calls_tools: false,
                        cut: false,
                        ignored: Vec::new(),
                    };
                    let spent = wordless.spent();
                    self.done.calls.push(wordless);
                    spent
                };
                let failure = self.model_failed(&error, ms)?;
                Ok(Ok(Input::ModelFailed(ModelFailure { spent, ..failure })))
            }
        }
    }

    /// What becomes of a call that failed: another try, or what the turn is told.
    fn model_failed(&self, error: &ModelError, ms: u64) -> Result<ModelFailure, Stop> {
        if let Some(asked) = away::pause_asked(error, ms) {
            let time = Time {
                now: self.parts.host.now(),
                hard_deadline: self.request().control.hard_deadline,
                nonce: &self.work.prepared.nonce,
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
            Retry::After(after) if !self.work.is_last_attempt => Err(Stop::Retry {
                reason: error.to_string(),
                after,
            }),
            Retry::After(_) => Ok(ModelFailure {
                message: format!("gave up after {} tries: {error}", self.options.max_attempts),
                hint: "ask again when the model can be reached".into(),
                ..ModelFailure::default()
            }),
            Retry::No => Ok(ModelFailure {
                message: error.to_string(),
                ..ModelFailure::default()
            }),
        }
    }

    /// Whether the model costs somebody something.
    fn metered(&self) -> bool {
        self.parts.model.capabilities().metered
    }

    fn caller(&self) -> Caller<'_> {
        Caller {
            parts: self.parts,
            options: self.options,
            request: self.request(),
            snapshot: &self.work.prepared.snapshot,
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
        if !self.parts.tools.has_side_effects(&ordered.tool)
            || held.is_some_and(|held| approval::allows(held, tool, arguments))
        {
            return Ok(false);
        }
        self.caller().is_unknown(tool, arguments).await
    }

    /// The side-effecting call of an earlier attempt that this one did not want.
    async fn left_behind(&mut self, turn: &Turn) -> Result<Option<Input>, Stop> {
        let tools = &self.parts.tools;
        // A turn makes one call, so where one stands no attempt makes another.
        if self.done.side_effects > 0
            || !turn.tools().iter().any(|tool| tools.has_side_effects(tool))
        {
            return Ok(None);
        }
        let Some((intent, number)) = self.work.left.clone() else {
            self.done.without_call = true;
            return Ok(None);
        };
        let called = self.caller().adopt(intent, number).await?;
        self.done.side_effects = number + 1;
        // What was said so far was said without knowing.
        self.done.streamed = Streamed::default();
        Ok(Some(self.called(called, None, 0)))
    }

    async fn call_tool(&mut self, tool_use: ToolUse) -> Result<Wanted, Stop> {
        let asked = (tool_use.tool.name.clone(), tool_use.arguments.clone());
        if self.debits.of_tools {
            let reserved = Spent {
                tool_calls: 1,
                ..Spent::default()
            };
            self.debits.reserve(self.done.spent(), reserved).await?;
        }
        let started = self.parts.host.now();
        let once = self.parts.tools.has_side_effects(&tool_use.tool);
        let mut number = self.done.side_effects;
        let caller = self.caller();
        let calling = async {
            if once {
                caller.once(tool_use, &mut number).await
            } else {
                caller.call(tool_use).await
            }
        };
        let told = say::action(&asked.0, &asked.1);
        let calling = self.while_told(&told, calling);
        let (called, is_told) = if once {
            // Whether it took effect must be known, whoever waits for it.
            calling.await
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
        let attempt = Attempt {
            request: self.request(),
            properties: &self.work.delivery.properties,
            nonce: &self.work.prepared.nonce,
            responses: &self.work.prepared.responses,
        };
        let (is_told, called) =
            tokio::join!(attempt.tell_action(&*self.parts.broker, text), calling);
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
            self.done.calls.push(Call::Model {
                operation: "tool".into(),
                model: self.parts.model.describe(),
                prompt: String::new(),
                reply: String::new(),
                usage,
                ms: 0,
                calls_tools: false,
                cut: false,
                ignored: Vec::new(),
            });
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
            adopted,
        });
        let instead = (Some(&called.ran) != asked).then_some(called.ran);
        Input::ToolReturned(ToolOutcome {
            content: result.content,
            is_error: result.is_error,
            sources: result.sources,
            ms,
            usage,
            instead,
        })
    }

    async fn find_facts(&mut self, query: &FactsQuery) -> Result<Input, Stop> {
        match query {
            FactsQuery::SourcesOf(correlation) => {
                let sparql = format!(
                    "SELECT DISTINCT ?session ?source ?title FROM <{}> WHERE {{ \
                       ?session <{}> ?correlation . \
                       ?found <{}> ?session ; <{}> ?source . \
                       OPTIONAL {{ ?source <{RDFS_LABEL}> ?title }} }}",
                    uris::RETRIEVAL_GRAPH,
                    tg::PARENT_CORRELATION_ID,
                    prov::WAS_GENERATED_BY,
                    tg::SOURCE,
                );
                let bindings = [("correlation", Term::text(correlation.as_str()))];
                let found = self
                    .parts
                    .graph
                    .select(&sparql, &bindings, QueryOptions::default())
                    .await?;
                let mut sources = Vec::new();
                for row in 0..found.rows.len() {
                    let text = |name| found.text(row, name).unwrap_or_default().to_owned();
                    if let Some(session) = uris::session_of(&text("session")) {
                        let source = Source {
                            uri: text("source"),
                            title: text("title"),
                        };
                        sources.push((session.to_string(), source));
                    }
                }
                sources.sort_by(|a, b| (&a.0, &a.1.uri).cmp(&(&b.0, &b.1.uri)));
                self.done.calls.push(Call::Facts {
                    query: sparql,
                    rows: sources.len() as u64,
                    found: sources.clone(),
                });
                Ok(Input::FactsFound(sources))
            }
        }
    }

    async fn read_documents(&mut self, uris: Vec<String>) -> Result<Input, Stop> {
        let texts = texts(&*self.parts.documents, &uris).await?;
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
