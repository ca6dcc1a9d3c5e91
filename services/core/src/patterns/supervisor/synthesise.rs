//! The step of a supervisor that has a verdict: the answer from what came back, or another round.

use super::{DECOMPOSE, LEFT_OUT, decomposed, merged, no_room, read_goals};
use crate::json;
use crate::limits::Limits;
use crate::order::{Input, ModelAsk, Order, Reply, Used};
use crate::patterns::answer::{answered, name_cut, name_missing};
use crate::patterns::assign::Offer;
use crate::patterns::fan_out::{CLOSED, Round, bounded, in_part, lacked, missing, summary};
use crate::patterns::{Instead, PatternTurn};
use crate::routing::read_choice;
use crate::say;
use crate::turn::Situation;
use agentfleet_schema::records::{
    CompletionStatus, Concluded, DecidedBy, Decision, FanInRecord, Termination,
};
use agentfleet_schema::{AgentRequest, Operation, Spent};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest text of one subagent that a synthesis reads, in bytes; less where there are many.
const MAX_RESULT_BYTES: usize = 24 * 1024;
/// Longest input of one synthesis, in bytes.
const MAX_SYNTHESIS_BYTES: usize = 256 * 1024;

/// What a supervisor does when its fan-in has a verdict.
#[derive(Debug)]
pub(super) struct Synthesise {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    verdict: FanInRecord,
    /// Text of each member, in the order of the verdict.
    texts: Vec<Option<String>>,
    asking: Asking,
    /// What was wrong with the goals of the review before.
    fault: String,
    decisions: Vec<Decision>,
    termination: Termination,
    used: Used,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Review,
    Answer,
}

impl PatternTurn for Synthesise {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::Begin => self.documents(),
            Input::DocumentsRead(texts) => {
                self.texts = texts;
                self.read()
            }
            Input::ModelReplied(reply) => {
                self.used.count(&reply);
                match self.asking {
                    Asking::Review => self.reviewed(&reply),
                    Asking::Answer => self.answered(&reply),
                }
            }
            Input::ModelFailed(failure) => say::model_failed(failure, self.used.ms),
            // Synthesis calls no tool.
            Input::ToolReturned(_) => self.compose(),
        }
    }

    /// Answers without a review.
    fn spare(&mut self, why: &str) -> Instead {
        self.decisions.push(Decision {
            options: vec!["answer".to_owned()],
            signal: why.to_owned(),
            decided_by: DecidedBy::OnlyOption,
            ..self.unreviewed()
        });
        Instead::Order(self.compose())
    }

    fn broke(&mut self, why: &str) -> Order {
        self.termination = Termination::BudgetExhausted;
        self.unwritten(&format!(
            "**Partial answer:** {why}, before a synthesis. These are the subagents' own answers.\n"
        ))
    }
}

impl Synthesise {
    pub(super) fn new(
        request: AgentRequest,
        situation: Situation,
        limits: Limits,
        verdict: FanInRecord,
    ) -> Self {
        Self {
            request,
            situation,
            limits,
            verdict,
            texts: Vec::new(),
            asking: Asking::Review,
            fault: String::new(),
            decisions: Vec::new(),
            termination: Termination::SubagentsComplete,
            used: Used::default(),
        }
    }

    fn documents(&self) -> Order {
        let members = self.verdict.members.iter();
        Order::ReadDocuments(members.map(|m| m.document.clone()).collect())
    }

    fn read(&mut self) -> Order {
        let answered = self
            .verdict
            .members
            .iter()
            .zip(&self.texts)
            .any(|(m, text)| m.status == CompletionStatus::Answered && text.is_some());
        if !answered {
            // Nothing to reason from: a model could only invent.
            return self.conclude("No subagent came back with a result.".to_owned(), false);
        }
        let may_go_on = self.request.control.rounds < self.limits.max_rounds
            && self.limits.max_depth > 0
            && self.limits.width() > 0;
        if may_go_on {
            return self.review();
        }
        self.compose()
    }

    /// What was spent so far, the children's included; a missing child counts as fully spent.
    fn spent(&self) -> Spent {
        self.request.control.spent + self.verdict.spent()
    }

    /// What follows where no model decides on it.
    fn unreviewed(&self) -> Decision {
        Decision {
            subject: "next-round".into(),
            options: vec!["answer".to_owned(), "investigate".to_owned()],
            narrowed_by: format!(
                "round {} of at most {}",
                self.request.control.rounds, self.limits.max_rounds
            ),
            signal: "the model named neither option".into(),
            chosen: "answer".into(),
            decided_by: DecidedBy::Fallback,
            rationale: String::new(),
        }
    }

    fn review(&mut self) -> Order {
        self.asking = Asking::Review;
        let offer = Offer::of(&self.request, &self.situation, &self.limits);
        let mut variables = json!({
            "question": self.request.question,
            "framing": self.request.framing,
            "results": self.results(),
            "missing": self.missing(),
            "rounds_left": self.limits.max_rounds - self.request.control.rounds,
        });
        offer.show(&mut variables, &self.request, &self.situation, &self.fault);
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["decision", "signal", "rationale", "goals"],
            "properties": {
                "decision": {"type": "string", "enum": ["answer", "investigate"]},
                "signal": {"type": "string"},
                "rationale": {"type": "string"},
                "goals": offer.goals_schema(),
            },
        });
        ModelAsk::choice(Operation::Review, variables, schema).into()
    }

    fn reviewed(&mut self, reply: &Reply) -> Order {
        let mut decision = self.unreviewed();
        let options = decision.options.clone();
        let object = json::extract(&reply.text);
        let named = object
            .as_ref()
            .and_then(|o| o.get("decision"))
            .and_then(Value::as_str);
        let as_choice = json!({
            "choice": named.unwrap_or_default(),
            "signal": object.as_ref().and_then(|o| o.get("signal")).cloned().unwrap_or_default(),
            "rationale":
                object.as_ref().and_then(|o| o.get("rationale")).cloned().unwrap_or_default(),
        });
        if let Some(choice) = read_choice(&as_choice.to_string(), &options) {
            decision.chosen = choice.chosen;
            decision.signal = choice.signal;
            decision.rationale = choice.rationale;
            decision.decided_by = DecidedBy::Model;
        }
        if decision.chosen == "investigate" {
            let goals = read_goals(&reply.text)
                .map(|(_, goals)| goals)
                .unwrap_or_default();
            let (goals, left_out) = merged(goals, self.limits.width());
            let offer = Offer::of(&self.request, &self.situation, &self.limits);
            if let Some(fault) = offer.fault(&goals).filter(|_| self.fault.is_empty()) {
                self.fault = fault;
                return self.review();
            }
            let count = goals.len();
            let mut request = self.request.clone();
            self.remember_results(&mut request);
            request.control.spent = self.spent();
            let round = Round {
                request: &request,
                situation: &self.situation,
                limits: &self.limits,
                history: decomposed(&request, &decision.rationale, count, &left_out),
                thought: decision.rationale.clone(),
                after: Some(summary(&self.verdict)),
                compared: None,
                decisions: [decision.clone()]
                    .into_iter()
                    .chain(no_room(&left_out, count))
                    .collect(),
                used: self.used,
            };
            let outcome = if count == 0 {
                Err("the model named no goal to investigate".to_owned())
            } else {
                round.fan_out(goals)
            };
            match outcome {
                Ok(step) => return step,
                Err(reason) => {
                    decision.signal = format!("{reason}, although it asked to investigate");
                    "answer".clone_into(&mut decision.chosen);
                    decision.decided_by = DecidedBy::Fallback;
                }
            }
        }
        self.decisions.push(decision);
        self.compose()
    }

    fn compose(&mut self) -> Order {
        self.asking = Asking::Answer;
        let variables = json!({
            "question": self.request.question,
            "framing": self.request.framing,
            "results": self.results(),
            "missing": self.missing(),
        });
        ModelAsk::answer(Operation::Synthesise, variables).into()
    }

    fn answered(&mut self, reply: &Reply) -> Order {
        let mut text = reply.text.trim().to_owned();
        if text.is_empty() {
            let why = "**The model returned no text.** The subagents' own answers:\n";
            return self.unwritten(why);
        }
        if reply.cut {
            self.termination = Termination::ReplyCut;
            name_cut(&mut text);
        }
        self.conclude(text, true)
    }

    /// The results as they are, where no model writes an answer from them.
    fn unwritten(&self, why: &str) -> Order {
        let mut text = why.to_owned();
        for result in self.results() {
            text.push_str(&format!(
                "\n## {}\n\n{}\n",
                result["goal"].as_str().unwrap_or_default(),
                result["text"].as_str().unwrap_or_default(),
            ));
        }
        self.conclude(text, false)
    }

    /// Ends the session; what is missing is always named, whatever the model wrote.
    fn conclude(&self, mut text: String, streamed: bool) -> Order {
        let missing = lacked(&self.verdict, self.missing());
        let in_part = in_part(&self.verdict, |_, goal| goal.to_owned());
        name_missing(&mut text, "No result for", &missing);
        name_missing(&mut text, "Only a partial result for", &in_part);
        let short = [Termination::BudgetExhausted, Termination::ReplyCut];
        let is_short = short.contains(&self.termination);
        let end = Concluded {
            termination: self.termination,
            partial: is_short || !missing.is_empty() || !in_part.is_empty(),
            fan_in: Some(summary(&self.verdict)),
            model_ms: self.used.ms,
            ..Concluded::default()
        };
        let session = &self.request.session_id;
        answered(
            session,
            end,
            text,
            streamed,
            Vec::new(),
            self.decisions.clone(),
        )
    }

    /// What came back, as the prompts show it.
    fn results(&self) -> Vec<Value> {
        let each = (MAX_SYNTHESIS_BYTES / self.verdict.members.len().max(1)).min(MAX_RESULT_BYTES);
        self.verdict
            .members
            .iter()
            .zip(&self.texts)
            .filter(|(member, _)| member.status == CompletionStatus::Answered)
            .filter_map(|(member, text)| text.as_ref().map(|text| (member, text)))
            .map(|(member, text)| {
                let sources = member.sources.iter();
                let sources: Vec<_> = sources
                    .map(|s| json!({"uri": s.uri, "title": s.title}))
                    .collect();
                let status = if member.partial {
                    "answered in part"
                } else {
                    member.status.as_str()
                };
                json!({
                    "goal": member.goal,
                    "status": match self.closed(&member.goal) {
                        Some(why) => format!("{status}, as `react`: {why}"),
                        None => status.to_owned(),
                    },
                    "text": bounded(text, each),
                    "sources": sources,
                })
            })
            .collect()
    }

    /// What the step that divided the task says of some of its goals.
    fn of_goals(&self, name: &str) -> impl Iterator<Item = &str> {
        let mut steps = self.request.history.iter().rev();
        let newest = steps.find(|step| step.action == DECOMPOSE);
        let lines = newest.and_then(|step| step.arguments.get(name));
        lines.into_iter().flat_map(|lines| lines.lines())
    }

    /// Why a subagent did not work by the pattern that was meant for it, if so.
    fn closed(&self, goal: &str) -> Option<&str> {
        let goal = say::in_one_line(goal);
        let mut lines = self
            .of_goals(CLOSED)
            .filter_map(|line| line.split_once('\t'));
        lines.find(|(of, _)| *of == goal).map(|(_, why)| why)
    }

    /// What did not come back, with the reason.
    fn missing(&self) -> Vec<Value> {
        let not_begun = self.of_goals(LEFT_OUT).map(
            |goal| json!({"goal": goal, "reason": "not begun: the limits left no room for it"}),
        );
        let gone = missing(&self.verdict, &self.texts, |_, goal| goal.to_owned());
        not_begun.chain(gone).collect()
    }

    /// Puts the results into the history for a next round: URIs and status, not texts.
    fn remember_results(&self, request: &mut AgentRequest) {
        let results: BTreeMap<String, Value> = self
            .verdict
            .members
            .iter()
            .map(|m| {
                let entry = json!({"status": m.status.as_str(), "document": m.document});
                (m.goal.clone(), entry)
            })
            .collect();
        if let Some(step) = request.history.last_mut() {
            step.subagent_results = Some(results);
        }
    }
}
