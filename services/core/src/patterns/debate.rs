//! Debate: reasoners answer on their own, then see each other's answers, until they agree or the
//! rounds are used up; then a judge reconciles what they say.
//!
//! The reasoners are subagents, each with its stance, pattern and model profile from the pattern's
//! config item. Between two rounds the session has no message in flight but theirs.

use super::answer::{answered, name_cut, name_missing};
use super::fan_out::{self, Goal, Round, bounded, failure, in_part, lacked, missing, summary};
use super::{Begun, Instead, Pattern, PatternTurn};
use crate::cut::CUT;
use crate::json;
use crate::limits::Limits;
use crate::order::{Input, ModelAsk, Order, Reply, Used};
use crate::say;
use crate::turn::Situation;
use agentfleet_schema::config::Reasoner;
use agentfleet_schema::records::{
    Compared, Concluded, DecidedBy, Decision, FanInRecord, Position, Termination,
};
use agentfleet_schema::{AgentRequest, AgentStep, Operation, Spent, StepKind};
use serde_json::{Value, json};

/// Longest all answers together that one reasoner, or the judge, is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 96 * 1024;
const AGREE: &str = "agree";
const DISAGREE: &str = "disagree";

/// Who takes part.
fn reasoners<'a>(request: &AgentRequest, situation: &'a Situation) -> &'a [Reasoner] {
    let pattern = situation.snapshot.patterns.get(&request.pattern);
    pattern.map(|p| p.reasoners.as_slice()).unwrap_or_default()
}

pub(crate) struct Debate;

impl Pattern for Debate {
    fn name(&self) -> &'static str {
        "debate"
    }

    fn begin(&self, request: AgentRequest, situation: Situation, limits: Limits) -> Begun {
        Ok(match situation.verdict(&request)? {
            Some(verdict) => Box::new(CloseRound {
                request,
                situation,
                limits,
                verdict,
                texts: Vec::new(),
                compared: None,
                decisions: Vec::new(),
                termination: Termination::SubagentsComplete,
                used: Used::default(),
            }),
            None => Box::new(OpenDebate {
                request,
                situation,
                limits,
            }),
        })
    }

    fn fans_out(&self) -> bool {
        true
    }
}

/// The first round.
#[derive(Debug)]
struct OpenDebate {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
}

impl PatternTurn for OpenDebate {
    /// It needs nothing to begin.
    fn resume(&mut self, _: Input) -> Order {
        let all = reasoners(&self.request, &self.situation);
        // As far as there is room.
        let reasoners = &all[..all.len().min(self.limits.width() as usize)];
        let refused = if reasoners.len() < 2 {
            "a debate takes two reasoners, and there is no room for two or there are none configured"
                .to_owned()
        } else {
            let names: Vec<&str> = reasoners.iter().map(|r| r.name.as_str()).collect();
            let thought = format!("{} answer on their own.", names.join(", "));
            let goals = reasoners
                .iter()
                .map(|reasoner| goal(reasoner, &self.request, 1, ""));
            let round = Round {
                request: &self.request,
                situation: &self.situation,
                limits: &self.limits,
                history: opened(&self.request, &thought),
                thought,
                after: None,
                compared: None,
                decisions: Vec::new(),
                used: Used::default(),
            };
            match round.fan_out(goals.collect()) {
                Ok(step) => return step,
                Err(reason) => reason,
            }
        };
        fan_out::alone(
            &self.request,
            "debate",
            None,
            &refused,
            "",
            DecidedBy::OnlyOption,
        )
    }

    /// It orders no call.
    fn broke(&mut self, _: &str) -> Order {
        self.resume(Input::Begin)
    }
}

fn opened(request: &AgentRequest, thought: &str) -> Vec<AgentStep> {
    vec![AgentStep {
        thought: thought.to_owned(),
        action: "debate".into(),
        user: request.user.clone(),
        step_type: StepKind::Supervise.into(),
        ..AgentStep::default()
    }]
}

fn goal(reasoner: &Reasoner, request: &AgentRequest, round: u32, answers: &str) -> Goal {
    let mut text = format!("Answer as {}", reasoner.name);
    if round > 1 {
        text.push_str(&format!(", round {round}"));
    }
    let mut context = format!(
        "You take part in a debate as {}, beside others who answer the same question. {}",
        reasoner.name, reasoner.stance
    );
    if !answers.is_empty() {
        context.push_str("\n\n");
        context.push_str(answers);
    }
    Goal {
        text,
        question: request.question.clone(),
        pattern: reasoner.pattern.clone(),
        fixed: true,
        context: context.trim().to_owned(),
        reasoner: reasoner.name.clone(),
        profile: reasoner.profile.clone(),
        ..Goal::default()
    }
}

/// What follows a round: the next one, or the judge.
#[derive(Debug)]
struct CloseRound {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    verdict: FanInRecord,
    /// Text of each member, in the order of the verdict.
    texts: Vec<Option<String>>,
    compared: Option<Compared>,
    decisions: Vec<Decision>,
    termination: Termination,
    used: Used,
}

impl PatternTurn for CloseRound {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::DocumentsRead(texts) => {
                self.texts = texts;
                self.read()
            }
            Input::ModelReplied(reply) => {
                self.used.count(&reply);
                if self.decisions.is_empty() {
                    self.compare(&reply)
                } else {
                    self.judged(&reply)
                }
            }
            Input::ModelFailed(failure) => say::model_failed(failure, self.used.ms),
            // It orders nothing else.
            Input::Begin | Input::ToolReturned(_) => {
                let members = self.verdict.members.iter();
                Order::ReadDocuments(members.map(|m| m.document.clone()).collect())
            }
        }
    }

    /// Judges without a comparison.
    fn spare(&mut self, why: &str) -> Instead {
        Instead::Order(self.stopped(why))
    }

    fn broke(&mut self, why: &str) -> Order {
        self.termination = Termination::BudgetExhausted;
        self.unjudged(&format!("Before a judgement, {why}."))
    }
}

impl CloseRound {
    /// The answers there are: place among the reasoners, name, text.
    fn answers(&self) -> Vec<(u32, String, &str)> {
        let name = self.names();
        let members = self.verdict.members.iter().zip(&self.texts);
        let answered = members.filter_map(|(member, text)| {
            let text = text.as_deref()?;
            if failure(&self.verdict, member.index, Some(text)).is_some() {
                return None;
            }
            Some((member.index, name(member.index, &member.goal), text))
        });
        answered.collect()
    }

    fn shown(&self) -> Vec<Value> {
        let answers = self.answers();
        let each = MAX_SHOWN_BYTES / answers.len().max(1);
        let answers = answers.into_iter();
        answers
            .map(|(_, name, text)| json!({"reasoner": name, "text": bounded(text, each)}))
            .collect()
    }

    fn missing(&self) -> Vec<Value> {
        missing(&self.verdict, &self.texts, self.names())
    }

    /// Names reasoners by their place; who is none of them has its goal for a name.
    fn names(&self) -> impl Fn(u32, &str) -> String {
        let reasoners = reasoners(&self.request, &self.situation);
        move |index, goal| {
            let known = reasoners.get(index as usize);
            known.map_or_else(|| goal.to_owned(), |r| r.name.clone())
        }
    }

    fn spent(&self) -> Spent {
        self.request.control.spent + self.verdict.spent()
    }

    fn read(&mut self) -> Order {
        let answers = self.answers();
        if answers.is_empty() {
            // Nothing to reason from: a model could only invent.
            return self.conclude("No reasoner came back with an answer.".to_owned(), false);
        }
        if let [(_, only, _)] = answers.as_slice() {
            self.decisions.push(say::only(
                "agreement",
                AGREE,
                "the answers of this round",
                format!("only {only} answered"),
            ));
            return self.judge();
        }
        let names: Vec<&str> = answers.iter().map(|(_, name, _)| name.as_str()).collect();
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["agreement", "reason", "positions", "disagreements"],
            "properties": {
                "agreement": {"type": "string", "enum": [AGREE, DISAGREE]},
                "reason": {"type": "string", "description": "the one thing that decided"},
                "positions": {"type": "array", "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["reasoner", "position"],
                    "properties": {
                        "reasoner": {"type": "string", "enum": names},
                        "position": {"type": "string"},
                    },
                }},
                "disagreements": {"type": "array", "items": {"type": "string"}},
            },
        });
        let variables = json!({
            "question": self.request.question,
            "round": self.request.control.rounds,
            "answers": self.shown(),
        });
        ModelAsk::choice(Operation::Compare, variables, schema).into()
    }

    fn compare(&mut self, reply: &Reply) -> Order {
        let object = json::extract(&reply.text).unwrap_or_default();
        let text = |value: &Value, name: &str| bounded(json::text(value, name), 400);
        let named = text(&object, "agreement").to_lowercase();
        let options = [AGREE, DISAGREE];
        let (chosen, decided_by, signal) = match options.iter().find(|o| **o == named) {
            Some(option) => (*option, DecidedBy::Model, text(&object, "reason")),
            // Half a comparison is no agreement.
            None => (
                DISAGREE,
                DecidedBy::Fallback,
                if reply.cut {
                    CUT.to_owned()
                } else {
                    "the model named none of the options".to_owned()
                },
            ),
        };
        let list = |name: &str| {
            object
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        let stated: Vec<(String, String)> = list("positions")
            .map(|entry| (text(entry, "reasoner"), text(entry, "position")))
            .collect();
        let answers = self.answers();
        let positions = answers.iter().map(|(index, name, _)| {
            let member = self.verdict.members.iter().find(|m| m.index == *index);
            let stated = stated
                .iter()
                .find(|(reasoner, _)| reasoner.eq_ignore_ascii_case(name));
            Position {
                reasoner: name.clone(),
                session: member.map(|m| m.session.clone()).unwrap_or_default(),
                position: match stated {
                    Some((_, position)) if !position.is_empty() => position.clone(),
                    _ => "not stated".to_owned(),
                },
            }
        });
        let compared = Compared {
            round: self.request.control.rounds,
            agreed: chosen == AGREE,
            positions: positions.collect(),
            disagreements: list("disagreements")
                .filter_map(Value::as_str)
                .map(|text| bounded(text.trim(), 400))
                .filter(|text| !text.is_empty())
                .collect(),
        };
        self.decisions.push(Decision {
            subject: "agreement".into(),
            options: options.map(str::to_owned).to_vec(),
            narrowed_by: format!(
                "the answers of round {} of at most {}",
                self.request.control.rounds, self.limits.max_rounds
            ),
            signal: if signal.is_empty() {
                "not stated by the model".into()
            } else {
                signal
            },
            chosen: chosen.into(),
            decided_by,
            rationale: String::new(),
        });
        self.compared = Some(compared);
        if chosen == AGREE {
            return self.judge();
        }
        if self.request.control.rounds >= self.limits.max_rounds {
            return self.stopped("the rounds are used up");
        }
        match self.next_round() {
            Ok(step) => step,
            Err(reason) => self.stopped(&reason),
        }
    }

    /// They disagree, and go no further.
    fn stopped(&mut self, reason: &str) -> Order {
        self.decisions.push(say::only(
            "next-round",
            "judge",
            format!("at most {} rounds, and the limits", self.limits.max_rounds),
            reason,
        ));
        self.judge()
    }

    fn next_round(&self) -> Result<Order, String> {
        let round = self.request.control.rounds + 1;
        let answers = self.answers();
        let each = MAX_SHOWN_BYTES / answers.len().max(1);
        let all = reasoners(&self.request, &self.situation);
        let took_part = self.verdict.members.len() + self.verdict.missing.len();
        let goals = all
            .iter()
            .take(took_part)
            .zip(0_u32..)
            .map(|(reasoner, at)| {
                let mut seen = String::new();
                for (index, name, text) in &answers {
                    let whose = if *index == at {
                        "Your answer so far".to_owned()
                    } else {
                        format!("The answer of {name}")
                    };
                    seen.push_str(&format!("## {whose}\n\n{}\n\n", bounded(text, each)));
                }
                seen.push_str(
                "Weigh the other answers. Say where they convince you and where they do not, and \
                 give your answer anew.",
            );
                goal(reasoner, &self.request, round, &seen)
            });
        let mut request = self.request.clone();
        request.control.spent = self.spent();
        let thought = format!("They do not agree: round {round}, each with all answers before it.");
        Round {
            request: &request,
            situation: &self.situation,
            limits: &self.limits,
            history: opened(&request, &thought),
            thought,
            after: Some(summary(&self.verdict)),
            compared: self.compared.clone(),
            decisions: self.decisions.clone(),
            used: self.used,
        }
        .fan_out(goals.collect())
    }

    fn judge(&self) -> Order {
        let compared = self.compared.as_ref();
        let positions: Vec<Value> = compared
            .into_iter()
            .flat_map(|c| &c.positions)
            .map(|p| json!({"reasoner": p.reasoner, "position": p.position}))
            .collect();
        let variables = json!({
            "question": self.request.question,
            "framing": self.request.framing,
            "answers": self.shown(),
            "agreed": compared.is_none_or(|c| c.agreed),
            "positions": positions,
            "disagreements": compared.map(|c| c.disagreements.clone()).unwrap_or_default(),
            "missing": self.missing(),
        });
        ModelAsk::answer(Operation::Judge, variables).into()
    }

    fn judged(&mut self, reply: &Reply) -> Order {
        let mut text = reply.text.trim().to_owned();
        if text.is_empty() {
            return self.unjudged("The model returned no text.");
        }
        if reply.cut {
            self.termination = Termination::ReplyCut;
            name_cut(&mut text);
        }
        self.conclude(text, true)
    }

    /// The answers as they are, where no model reconciles them.
    fn unjudged(&mut self, why: &str) -> Order {
        let mut text = format!("**Partial answer:** {why} These are the reasoners' own answers.\n");
        for (_, name, answer) in self.answers() {
            text.push_str(&format!("\n## {name}\n\n{}\n", answer.trim()));
        }
        self.conclude(text, false)
    }

    fn conclude(&self, mut text: String, streamed: bool) -> Order {
        let missing = lacked(&self.verdict, self.missing());
        let in_part = in_part(&self.verdict, self.names());
        name_missing(&mut text, "No answer from", &missing);
        name_missing(&mut text, "Only a partial answer from", &in_part);
        let end = Concluded {
            termination: self.termination,
            partial: !streamed
                || self.termination == Termination::ReplyCut
                || !missing.is_empty()
                || !in_part.is_empty(),
            fan_in: Some(summary(&self.verdict)),
            compared: self.compared.clone(),
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
}

#[cfg(test)]
#[path = "debate_tests.rs"]
mod tests;
