//! A request, parsed into what it asks for: one of the turns this worker can take.

use crate::approval;
use crate::bounds;
use crate::conductor;
use crate::conversation;
use crate::cut;
use crate::error::{Code, Rejection};
use crate::gate::{self, AtGate};
use crate::history;
use crate::known;
use crate::limits::{Budget, FleetLimits, Left, Limits};
use crate::order::{Input, ModelAsk, Order, Used};
use crate::patterns::{self, Begun, Instead, PatternTurn, REACT, delegate};
use crate::pipeline;
use crate::quota;
use crate::routing::Route;
use crate::say;
use crate::task_types;
use crate::tools;
use agentfleet_schema::config::{Snapshot, ToolItem, tool_kind};
use agentfleet_schema::records::{Decision, FanInRecord, Usage};
use agentfleet_schema::{AgentRequest, Millis, Spent};
use serde_json::Value;
use std::sync::Arc;

/// What surrounds a request when it is worked.
#[derive(Clone, Debug)]
pub struct Situation {
    pub now: Millis,
    /// The config the run is pinned to.
    pub snapshot: Arc<Snapshot>,
    pub fleet: Arc<FleetLimits>,
    /// Whether the model can call tools natively.
    pub native_tools: bool,
    /// Of the attempt: makes what is named here impossible to guess beforehand.
    pub nonce: String,
    /// The verdict a synthesis answers.
    pub fan_in: Option<FanInRecord>,
}

impl Situation {
    /// The verdict a request answers, if it answers one.
    pub(crate) fn verdict(&self, request: &AgentRequest) -> Result<Option<FanInRecord>, Rejection> {
        if request.control.fan_in_step.is_some() && self.fan_in.is_none() {
            return Err(Rejection::invalid(
                Code::VerdictMissing,
                "the synthesis request names a fan-in verdict that does not exist",
                "only the aggregator publishes synthesis requests",
            ));
        }
        Ok(self.fan_in.clone())
    }
}

/// One thing to do, and what it may still spend.
#[derive(Debug)]
pub struct Turn {
    work: Box<dyn PatternTurn>,
    /// The turn whose place another took: a call that an earlier attempt had begun is for this one.
    replaced: Option<Box<dyn PatternTurn>>,
    budget: Budget,
    /// What the session spent, this turn included.
    spent: Spent,
    /// What this turn spent of that, and the time it took.
    used: Used,
    /// What was decided about the request before it was worked: a history without room, a name that
    /// nothing is configured under.
    settled: Vec<Decision>,
    /// What its prompts show of the conversation.
    conversation: Value,
    /// What they show of the results before it, and of its tool policy.
    known: Value,
    policy: Value,
    native_tools: bool,
    /// Whether who asked reads other words than those of what failed: the reason is a decision then.
    is_of_tenant: bool,
    open: cut::Open,
}

impl Turn {
    /// Parses a request whose session id is settled.
    pub fn parse(mut request: AgentRequest, situation: Situation) -> Result<Self, Rejection> {
        let wrong = |(code, what, hint)| Rejection::invalid(code, what, hint);
        bounds::check(&request).map_err(wrong)?;
        task_types::check(&request, &situation.snapshot)?;
        let unknown = task_types::settle(&mut request, &situation.snapshot);
        task_types::frame(&mut request, &situation.snapshot);
        history::settle(&mut request);
        let mut settled = Vec::new();
        if let Some((fitted, decision)) =
            history::fitted(&request, &situation.snapshot, &situation.fleet)
        {
            request = fitted;
            settled.push(decision);
        }
        settled.extend(unknown);
        let (snapshot, fleet) = (&situation.snapshot, &situation.fleet);
        settled.extend(quota::settle(&request));
        settled.extend(conversation::settle(&mut request, snapshot, fleet));
        settled.extend(tools::settle(&request, &situation.snapshot));
        Self::of(request, situation, settled)
    }

    fn of(
        request: AgentRequest,
        situation: Situation,
        settled: Vec<Decision>,
    ) -> Result<Self, Rejection> {
        let limits = Limits::of(&request, &situation.snapshot, &situation.fleet);
        // A synthesis has what its subagents spent behind it.
        let verdict = situation.fan_in.as_ref();
        let below = verdict.filter(|_| request.control.fan_in_step.is_some());
        let below = below.map(FanInRecord::spent).unwrap_or_default();
        Ok(Self {
            budget: limits.budget,
            spent: request.control.spent + below,
            used: Used::default(),
            native_tools: situation.native_tools,
            is_of_tenant: !request.tenant().is_empty(),
            open: cut::Open::default(),
            conversation: conversation::shown(&request, &situation.snapshot),
            known: known::shown(&request),
            policy: conductor::shown(&request, &situation.snapshot),
            work: begun(request, situation, limits)?,
            replaced: None,
            settled,
        })
    }

    /// The tools this turn may call.
    pub fn tools(&self) -> &[ToolItem] {
        let replaced = || self.replaced.as_ref()?.asker();
        let asker = self.work.asker().or_else(replaced);
        asker.map_or(&[], |asker| asker.tools)
    }

    /// Feeds what came of the last order, and answers with the next one. Nothing is ordered that
    /// the budget does not allow (BG-1): the turn ends with what it has instead. A call that needs a
    /// person is no order either: the step ends with a wait.
    pub fn resume(&mut self, input: Input) -> Order {
        let order = self.go_on(input);
        self.told(order)
    }

    /// With what was decided on the request, where the step ends, and with the conversation, where a model
    /// is asked.
    fn told(&mut self, mut order: Order) -> Order {
        self.settled.extend(self.work.decided());
        match &mut order {
            Order::Finish(finish) => {
                finish.decisions.splice(0..0, self.settled.iter().cloned());
            }
            Order::AskModel(ask) => {
                if let Some(variables) = ask.variables.as_object_mut() {
                    for (name, shown) in [
                        ("conversation", &self.conversation),
                        ("known", &self.known),
                        ("policy", &self.policy),
                    ] {
                        let own = variables.entry(name);
                        own.or_insert_with(|| shown.clone());
                    }
                }
            }
            Order::CallTool(_) | Order::ReadDocuments(_) => {}
        }
        order
    }

    fn go_on(&mut self, input: Input) -> Order {
        let spent = spent_by(&input);
        self.spent = self.spent + spent;
        self.used.spent = self.used.spent + spent;
        if let Input::ModelReplied(reply) = &input {
            self.used.ms += reply.ms;
        }
        self.note_tries(&input);
        if let Some(again) = self.open.after(&input, self.native_tools)
            && self.pays_for(&again)
        {
            self.open.keep(input, &again);
            return Order::AskModel(again);
        }
        let input = self.open.whole(marked(input));
        let order = self.order(input);
        self.open.note(&order);
        order
    }

    /// Notes what was decided about tries of a call that failed around its model or its tool.
    fn note_tries(&mut self, input: &Input) {
        if let Input::ModelReplied(reply) = input {
            self.settled.extend(pipeline::passed_on(&reply.tried, true));
        }
        if let Input::ModelFailed(failure) = input {
            self.settled
                .extend(pipeline::passed_on(&failure.tried, false));
            if failure.tried.is_empty() && self.is_of_tenant {
                self.settled.push(pipeline::gave_up(&failure.message));
            }
        }
        let Input::ToolReturned(outcome) = input else {
            return;
        };
        let replaced = || self.replaced.as_ref()?.asker();
        let asker = self.work.asker().or_else(replaced);
        let calling = asker.and_then(|asker| asker.calling);
        if let Some((tool, _)) = calling
            && outcome.instead.is_none()
        {
            let noted = pipeline::tried(tool, outcome);
            self.settled.extend(noted);
        }
    }

    /// Whether the budget allows to ask on where a reply was cut.
    fn pays_for(&self, ask: &ModelAsk) -> bool {
        self.budget.refuses_model(self.spent).is_none() && self.spares(ask).is_none()
    }

    /// Why a question is not asked, if so: the last call that is paid for is the answer's.
    fn spares(&self, ask: &ModelAsk) -> Option<String> {
        if ask.may_answer || self.budget.is_unbounded() {
            return None;
        }
        let bytes = ask.variables.to_string().len() + self.conversation.to_string().len();
        self.budget.last_call(self.spent, bytes)
    }

    fn order(&mut self, input: Input) -> Order {
        if matches!(input, Input::ToolReturned(_))
            && let Some(replaced) = self.replaced.take()
        {
            self.work = replaced;
        }
        let mut order = self.work.resume(input);
        while let Order::AskModel(ask) = &order
            && let Some(why) = self.spares(ask)
        {
            order = match self.work.spare(&why) {
                Instead::Order(order) => order,
                Instead::Turn(turn) => {
                    self.replaced = Some(std::mem::replace(&mut self.work, turn));
                    self.work.resume(Input::Begin)
                }
            };
        }
        let refused = match &order {
            Order::AskModel(_) => self.budget.refuses_model(self.spent),
            Order::CallTool(_) => self.budget.refuses_tool(self.spent),
            Order::ReadDocuments(_) | Order::Finish(_) => None,
        };
        match (refused, order) {
            (Some(why), _) => self.work.broke(&why),
            (None, Order::CallTool(tool_use)) => match self.work.asker() {
                Some(asker) => match approval::gate(&asker, *tool_use) {
                    // No worker makes such a call: the agent is a run of its own.
                    Order::CallTool(call) if call.tool.kind == tool_kind::AGENT => {
                        match delegate::start(&asker, &call, self.used) {
                            Ok(order) => order,
                            Err(outcome) => self.order(Input::ToolReturned(*outcome)),
                        }
                    }
                    order => order,
                },
                None => say::cannot_call(),
            },
            (None, order) => order,
        }
    }

    /// What is left of the budget for model calls.
    pub fn left(&self) -> Left {
        self.budget.left(self.spent)
    }

    /// Ends the step with what it has instead of the model call that was ordered last, because what is
    /// left does not pay for it; `why` says so.
    pub fn cannot_afford(&mut self, why: &str) -> Order {
        let order = match self.open.as_it_is() {
            Some(input) => match self.order(input) {
                Order::AskModel(_) => self.work.broke(why),
                order => order,
            },
            None => self.work.broke(why),
        };
        self.told(order)
    }

    /// Ends the step with a wait for a person instead of the call that was ordered last: an equal one
    /// was started earlier in the tree, and nobody knows whether it took effect.
    pub fn needs_person(&mut self) -> Order {
        let asker = self.work.asker();
        let order = asker.and_then(|asker| approval::after_unknown(&asker));
        self.told(order.unwrap_or_else(say::cannot_call))
    }
}

/// The turn that a request asks for.
fn begun(request: AgentRequest, situation: Situation, limits: Limits) -> Begun {
    if let Some(gate) = gate::of(&request, &situation.snapshot) {
        return Ok(Box::new(AtGate::new(request, &situation.snapshot, gate)));
    }
    let name = match request.pattern.as_str() {
        "" if request.history.is_empty() => {
            return Ok(Box::new(Route::new(request, situation, limits)));
        }
        // An empty pattern with a history is ReACT without routing.
        "" => REACT,
        name => name,
    };
    if let Some(pattern) = patterns::by_name(name) {
        return pattern.begin(request, situation, limits);
    }
    if situation.snapshot.patterns.contains_key(name) {
        return Err(Rejection::NotImplementedHere(name.to_owned()));
    }
    let known: Vec<_> = patterns::names().map(|name| format!("`{name}`")).collect();
    Err(Rejection::invalid(
        Code::UnknownPattern,
        format!("unknown pattern `{name}` (available: {})", known.join(", ")),
        "leave `pattern` empty to let the router choose",
    ))
}

/// What the last order used up.
fn spent_by(input: &Input) -> Spent {
    match input {
        Input::ModelReplied(reply) => reply.spent(),
        Input::ToolReturned(outcome) => Spent {
            tool_calls: 1,
            // Some tools ask a model.
            model_calls: u64::from(outcome.usage != Usage::default()),
            ..outcome.usage.spent()
        },
        Input::ModelFailed(failure) => failure.spent,
        Input::Begin | Input::DocumentsRead(_) => Spent::default(),
    }
}

/// A tool's failure is told as one in histories, whatever words the tool has for it: what is looked for
/// there later, such as failures in a row, knows it by them.
fn marked(mut input: Input) -> Input {
    if let Input::ToolReturned(outcome) = &mut input
        && outcome.is_error
        && !history::is_error(&outcome.content)
    {
        outcome.content.insert_str(0, "Error: ");
    }
    input
}
