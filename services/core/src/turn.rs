//! A request, parsed into what it asks for: one of the turns this worker can take.

use crate::approval::{self, Asker};
use crate::bounds;
use crate::cut;
use crate::error::{Code, Rejection, body};
use crate::history;
use crate::limits::{Budget, FleetLimits, Left, Limits};
use crate::patterns::{self, Implemented};
use crate::routing::Route;
use crate::say;
use crate::step::{Input, ModelAsk, Step};
use crate::task_types;
use crate::tools;
use agentfleet_schema::config::{Snapshot, ToolItem};
use agentfleet_schema::records::{Decision, FanInRecord, Termination, Usage};
use agentfleet_schema::{AgentRequest, Millis, Operation, Spent};
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
    /// How the record tells of the step: `TELLING` of the version that works it, or worked it.
    pub telling: u32,
    /// Of the attempt: makes what is named here impossible to guess beforehand. Empty for records of
    /// versions that did not use it.
    pub nonce: String,
    /// The verdict a synthesis answers.
    pub fan_in: Option<FanInRecord>,
}

/// One thing to do, and what it may still spend.
#[derive(Debug)]
pub struct Turn {
    kind: Kind,
    budget: Budget,
    /// What the session spent, this turn included.
    spent: Spent,
    /// What was decided about the request before it was worked: a history without room, a name that
    /// nothing is configured under.
    settled: Vec<Decision>,
    native_tools: bool,
    open: cut::Open,
}

/// Closed: a new pattern is a variant, and the exhaustive matches point at the rest.
#[derive(Debug)]
enum Kind {
    Route(Box<Route>),
    React(Box<patterns::React>),
    Plan(Box<patterns::Plan>),
    Decompose(Box<patterns::Decompose>),
    Synthesise(Box<patterns::Synthesise>),
    OpenDebate(Box<patterns::OpenDebate>),
    CloseRound(Box<patterns::CloseRound>),
    Dispatch(Box<patterns::Dispatch>),
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
        // Older versions told nothing of it.
        if situation.telling >= 4 {
            settled.extend(tools::settle(&request, &situation.snapshot));
        }
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
            native_tools: situation.native_tools,
            open: cut::Open::default(),
            kind: Kind::parse(request, situation, limits)?,
            settled,
        })
    }

    /// The tools this turn may call.
    pub fn tools(&self) -> &[ToolItem] {
        self.kind.tools()
    }

    /// Feeds what came of the last order, and answers with the next one. Nothing is ordered that
    /// the budget does not allow (BG-1): the turn ends with what it has instead. A call that needs a
    /// person is no order either: the step ends with a wait.
    pub fn resume(&mut self, input: Input) -> Step {
        let step = self.go_on(input);
        self.told(step)
    }

    /// With what was decided on the request, where the step ends.
    fn told(&self, mut step: Step) -> Step {
        if let Step::Finish(finish) = &mut step {
            finish.decisions.splice(0..0, self.settled.iter().cloned());
        }
        step
    }

    fn go_on(&mut self, input: Input) -> Step {
        self.spent = self.spent + spent_by(&input);
        if let Some(again) = self.open.after(&input, self.native_tools)
            && self.pays_for(&again)
        {
            self.open.keep(input, &again);
            return Step::AskModel(again);
        }
        let input = self.open.whole(marked(input));
        let step = self.work(input);
        self.open.note(&step);
        step
    }

    /// Whether the budget allows to ask on where a reply was cut: the last call is the answer's.
    fn pays_for(&self, ask: &ModelAsk) -> bool {
        let bytes = ask.variables.to_string().len();
        self.budget.refuses_model(self.spent).is_none()
            && (!is_before_an_answer(ask.operation)
                || self.budget.is_unbounded()
                || self.budget.last_call(self.spent, bytes).is_none())
    }

    fn work(&mut self, input: Input) -> Step {
        let mut step = self.kind.resume(input);
        // The last call that is paid for is the answer's.
        while let Step::AskModel(ask) = &step
            && is_before_an_answer(ask.operation)
            && !self.budget.is_unbounded()
            && let Some(why) = self
                .budget
                .last_call(self.spent, ask.variables.to_string().len())
            && let Some(instead) = self.kind.spare(&why)
        {
            step = instead;
        }
        let refused = match &step {
            Step::AskModel(_) => self.budget.refuses_model(self.spent),
            Step::CallTool(_) => self.budget.refuses_tool(self.spent),
            Step::FindFacts(_) | Step::ReadDocuments(_) | Step::Finish(_) => None,
        };
        match (refused, step) {
            (Some(why), _) => self.kind.broke(&why),
            (None, Step::CallTool(tool_use)) => match self.kind.asker() {
                Some(asker) => approval::gate(&asker, *tool_use),
                None => Kind::cannot_call(),
            },
            (None, step) => step,
        }
    }

    /// What is left of the budget for model calls.
    pub fn left(&self) -> Left {
        self.budget.left(self.spent)
    }

    /// Ends the step with what it has instead of the model call that was ordered last, because what is
    /// left does not pay for it; `why` says so.
    pub fn cannot_afford(&mut self, why: &str) -> Step {
        let step = match self.open.as_it_is() {
            Some(input) => match self.work(input) {
                Step::AskModel(_) => self.kind.broke(why),
                step => step,
            },
            None => self.kind.broke(why),
        };
        self.told(step)
    }

    /// Ends the step with a wait for a person instead of the call that was ordered last: an equal one
    /// was started earlier in the tree, and nobody knows whether it took effect.
    pub fn needs_person(&mut self) -> Step {
        let step = self.kind.needs_person();
        self.told(step)
    }
}

/// Whether what is asked only serves an answer that is still to be written. What ReACT asks may be the
/// answer itself.
fn is_before_an_answer(operation: Operation) -> bool {
    match operation {
        Operation::ClassifyTaskType
        | Operation::SelectPattern
        | Operation::ClassifyIntent
        | Operation::Decompose
        | Operation::Review
        | Operation::Compare
        | Operation::Critique
        | Operation::PlanCreate
        | Operation::PlanRevise
        | Operation::PlanStep
        | Operation::PlanAssess => true,
        Operation::React
        | Operation::PlanSynthesise
        | Operation::Synthesise
        | Operation::Judge
        | Operation::Complete
        | Operation::Prompt => false,
    }
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
        Input::Begin | Input::FactsFound(_) | Input::DocumentsRead(_) => Spent::default(),
    }
}

impl Kind {
    fn parse(
        request: AgentRequest,
        situation: Situation,
        limits: Limits,
    ) -> Result<Self, Rejection> {
        if request.pattern.is_empty() && request.history.is_empty() {
            return Ok(Self::Route(Box::new(Route::new(
                request, situation, limits,
            ))));
        }
        // An empty pattern with a history is ReACT without routing.
        let name = if request.pattern.is_empty() {
            "react"
        } else {
            request.pattern.as_str()
        };
        match Implemented::by_name(name) {
            Some(Implemented::React) => Ok(Self::React(Box::new(patterns::React::new(
                request, situation, limits,
            )))),
            Some(Implemented::Reflexion) => Ok(Self::React(Box::new(patterns::React::reflecting(
                request, situation, limits,
            )))),
            Some(Implemented::PlanThenExecute) => {
                let verdict = verdict(&request, &situation)?;
                let plan = patterns::Plan::new(request, situation, limits, verdict);
                Ok(Self::Plan(Box::new(plan)))
            }
            Some(Implemented::Supervisor) => Ok(match verdict(&request, &situation)? {
                Some(verdict) => Self::Synthesise(Box::new(patterns::Synthesise::new(
                    request, situation, limits, verdict,
                ))),
                None => Self::Decompose(Box::new(patterns::Decompose::new(
                    request, situation, limits,
                ))),
            }),
            Some(Implemented::Debate) => Ok(match verdict(&request, &situation)? {
                Some(verdict) => Self::CloseRound(Box::new(patterns::CloseRound::new(
                    request, situation, limits, verdict,
                ))),
                None => Self::OpenDebate(Box::new(patterns::OpenDebate::new(
                    request, situation, limits,
                ))),
            }),
            Some(Implemented::Router) => {
                let dispatch = patterns::Dispatch::new(request, situation);
                Ok(Self::Dispatch(Box::new(dispatch)))
            }
            None if situation.snapshot.patterns.contains_key(name) => {
                Err(Rejection::NotImplementedHere(name.to_owned()))
            }
            None => {
                let known: Vec<_> = Implemented::ALL
                    .iter()
                    .map(|p| format!("`{}`", p.as_str()))
                    .collect();
                Err(Rejection::Invalid(body(
                    Code::UnknownPattern,
                    format!("unknown pattern `{name}` (available: {})", known.join(", ")),
                    "leave `pattern` empty to let the router choose",
                )))
            }
        }
    }

    fn tools(&self) -> &[ToolItem] {
        match self {
            Self::React(turn) => turn.tools(),
            Self::Plan(turn) => turn.tools(),
            Self::Route(_)
            | Self::Decompose(_)
            | Self::Synthesise(_)
            | Self::OpenDebate(_)
            | Self::CloseRound(_)
            | Self::Dispatch(_) => &[],
        }
    }

    /// Ends the step without the call it ordered last, because nothing is left to pay it with: with
    /// what is known so far, and `why`.
    fn broke(&mut self, why: &str) -> Step {
        match self {
            Self::Route(turn) => turn.broke(why),
            Self::React(turn) => turn.broke(why),
            Self::Plan(turn) => turn.broke(why),
            Self::Decompose(turn) => turn.broke(why),
            Self::Synthesise(turn) => turn.broke(why),
            Self::OpenDebate(turn) => turn.resume(Input::Begin),
            Self::CloseRound(turn) => turn.broke(why),
            Self::Dispatch(turn) => turn.broke(why),
        }
    }

    /// Goes on without the model call that was ordered last, because `why` says that what is left is for
    /// the answer. `None` where nothing can be done instead.
    fn spare(&mut self, why: &str) -> Option<Step> {
        match self {
            Self::Route(turn) => Some(turn.spare(why)),
            Self::React(turn) => Some(turn.broke(why)),
            Self::Plan(turn) => turn.spare(why),
            Self::Decompose(turn) => Some(turn.broke(why)),
            Self::Synthesise(turn) => Some(turn.spare(why)),
            Self::OpenDebate(_) => None,
            Self::CloseRound(turn) => Some(turn.spare(why)),
            Self::Dispatch(turn) => Some(turn.spare(why)),
        }
    }

    fn needs_person(&self) -> Step {
        let ordered = match self {
            Self::React(turn) => turn.ordered(),
            Self::Plan(turn) => turn.ordered(),
            Self::Route(_)
            | Self::Decompose(_)
            | Self::Synthesise(_)
            | Self::OpenDebate(_)
            | Self::CloseRound(_)
            | Self::Dispatch(_) => None,
        };
        match (self.asker(), ordered) {
            (Some(asker), Some((tool, arguments))) => {
                approval::after_unknown(&asker, &tool, arguments)
            }
            _ => Self::cannot_call(),
        }
    }

    /// What those turns that call tools say of a call.
    fn asker(&self) -> Option<Asker<'_>> {
        match self {
            Self::React(turn) => Some(turn.asker()),
            Self::Plan(turn) => turn.asker(),
            Self::Route(_)
            | Self::Decompose(_)
            | Self::Synthesise(_)
            | Self::OpenDebate(_)
            | Self::CloseRound(_)
            | Self::Dispatch(_) => None,
        }
    }

    /// A turn that is none of those ordered a call: it cannot be told whether that is allowed.
    fn cannot_call() -> Step {
        let error = body(
            Code::InvalidRequest,
            "a step that calls no tools ordered a call",
            "this is a fault of the program",
        );
        Step::Finish(Box::new(say::failed(error, Termination::Error, 0)))
    }

    fn resume(&mut self, input: Input) -> Step {
        match self {
            Self::Route(turn) => turn.resume(input),
            Self::React(turn) => turn.resume(input),
            Self::Plan(turn) => turn.resume(input),
            Self::Decompose(turn) => turn.resume(input),
            Self::Synthesise(turn) => turn.resume(input),
            Self::OpenDebate(turn) => turn.resume(input),
            Self::CloseRound(turn) => turn.resume(input),
            Self::Dispatch(turn) => turn.resume(input),
        }
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

/// The verdict a request answers, if it answers one.
fn verdict(
    request: &AgentRequest,
    situation: &Situation,
) -> Result<Option<FanInRecord>, Rejection> {
    if request.control.fan_in_step.is_some() && situation.fan_in.is_none() {
        return Err(Rejection::invalid(
            Code::VerdictMissing,
            "the synthesis request names a fan-in verdict that does not exist",
            "only the aggregator publishes synthesis requests",
        ));
    }
    Ok(situation.fan_in.clone())
}
