//! A request, parsed into what it asks for: one of the turns this worker can take.

use crate::error::{Code, Rejection, body};
use crate::limits::{FleetLimits, Limits};
use crate::patterns::{self, Implemented};
use crate::routing::Route;
use crate::step::{Input, Step};
use agentfleet_schema::config::{Snapshot, ToolItem};
use agentfleet_schema::records::FanInRecord;
use agentfleet_schema::{AgentRequest, Millis};
use std::sync::Arc;

/// Longest question a request may hold, in bytes.
pub const MAX_QUESTION_BYTES: usize = 256 * 1024;

/// What surrounds a request when it is worked.
#[derive(Clone, Debug)]
pub struct Situation {
    pub now: Millis,
    /// The config the run is pinned to.
    pub snapshot: Arc<Snapshot>,
    pub fleet: Arc<FleetLimits>,
    /// Whether the model can call tools natively.
    pub native_tools: bool,
    /// The verdict a synthesis answers.
    pub fan_in: Option<FanInRecord>,
}

/// One thing to do. Closed: a new pattern is a variant, and the exhaustive matches point at the
/// rest.
#[derive(Debug)]
pub enum Turn {
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
    pub fn parse(request: AgentRequest, situation: Situation) -> Result<Self, Rejection> {
        check(&request)?;
        let limits = Limits::of(&request, &situation.snapshot, &situation.fleet);
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

    /// The tools this turn may call.
    pub fn tools(&self) -> &[ToolItem] {
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

    /// Feeds what came of the last order, and answers with the next one.
    pub fn resume(&mut self, input: Input) -> Step {
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

fn check(request: &AgentRequest) -> Result<(), Rejection> {
    if request.question.trim().is_empty() {
        return Err(Rejection::invalid(
            Code::EmptyQuestion,
            "the request has no question",
            "set `question` to the task in plain text",
        ));
    }
    if request.question.len() > MAX_QUESTION_BYTES {
        return Err(Rejection::invalid(
            Code::QuestionTooLong,
            format!(
                "the question has {} bytes, the limit is {MAX_QUESTION_BYTES}",
                request.question.len()
            ),
            "load long material as documents and ask about it",
        ));
    }
    Ok(())
}
