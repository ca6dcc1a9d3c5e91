//! What models, tools, graph and librarian answered when a step was worked, fed to its turn again.

use super::{Replayed, Subject};
use crate::Rejection;
use crate::order::{Finish, Input, ModelAsk, ModelFailure, Order, Outcome, Reply, ToolOutcome};
use crate::say;
use crate::turn::{Situation, Turn};
use agentfleet_schema::records::{Activity, Adopted, Call, FailedCall, Usage, Worked};
use agentfleet_schema::{AgentRequest, Digest, Spent, tolerant};
use serde_json::Value;
use std::collections::BTreeMap;

/// The recorded answers, in their order.
pub(super) struct Tape<'a, 'b> {
    pub(super) subject: &'a Subject<'b>,
    pub(super) worked: &'a Worked,
    pub(super) next: usize,
    pub(super) failed: usize,
    pub(super) replayed: &'a mut Replayed,
}

impl Tape<'_, '_> {
    /// Runs the turn to its end; `None` where it cannot go on as recorded.
    pub(super) fn play(&mut self, request: AgentRequest, situation: Situation) -> Option<Finish> {
        let mut turn = match Turn::parse(request, situation) {
            Ok(turn) => turn,
            Err(rejection) => {
                let derived = match rejection {
                    Rejection::Invalid(error) => error.message,
                    rejection @ Rejection::NotImplementedHere(_) => rejection.to_string(),
                };
                self.replayed
                    .differs("turn", self.subject.record.outcome.as_str(), &derived);
                return None;
            }
        };
        let mut input = Input::Begin;
        // A turn that orders for ever without using up what is recorded is no turn of ours.
        let most = self.subject.record.calls.len() + self.worked.failures.len() + 8;
        for _ in 0..=most {
            let mut order = turn.resume(input);
            if matches!(order, Order::CallTool(_)) && self.needed_person() {
                order = turn.needs_person();
            }
            if matches!(order, Order::AskModel(_))
                && let Some(unaffordable) = self.unaffordable()
            {
                order = turn.cannot_afford(&unaffordable.message);
            }
            input = match order {
                Order::AskModel(ask) => self.reply(&ask)?,
                Order::CallTool(tool) => self.tool(&tool.tool.name, &tool.arguments)?,
                Order::ReadDocuments(uris) => self.documents(&uris)?,
                Order::Finish(finish) => match self.left_behind() {
                    Some(input) => input,
                    None => return self.over(*finish),
                },
            };
        }
        self.replayed.differs("turn", "an end", "no end");
        None
    }

    fn call(&self) -> Option<&Call> {
        self.subject.record.calls.get(self.next)
    }

    /// Set where the model call that is ordered here was not made for want of money or tokens. What an
    /// estimate of its price said is an input, as what a clock says.
    fn unaffordable(&self) -> Option<&FailedCall> {
        let failures = &self.worked.failures;
        let here = self.worked.unaffordable.as_ref();
        here.filter(|call| call.after as usize == self.next && self.failed == failures.len())
    }

    /// Whether the call that is ordered here was not made, because nobody knew what became of an
    /// equal one.
    fn needed_person(&self) -> bool {
        let activity = &self.subject.record.activity;
        let asked = matches!(activity, Activity::Asked(asked) if asked.after_unknown);
        match self.call() {
            None => asked,
            // It came upon another attempt's call before it could wait.
            Some(Call::Tool { adopted, .. }) => *adopted == Some(Adopted::Unasked),
            Some(Call::Model { .. } | Call::Document { .. }) => false,
        }
    }

    /// The order that does not match what is recorded in its place.
    fn mismatch(&mut self, ordered: &str) -> Option<Input> {
        let recorded = self.call().map_or_else(|| "no call".to_owned(), told);
        let at = format!("calls[{}]", self.next);
        self.replayed.differs(at, &recorded, ordered);
        None
    }

    fn reply(&mut self, ask: &ModelAsk) -> Option<Input> {
        if let Some(failure) = self.failure() {
            return Some(Input::ModelFailed(failure));
        }
        let ordered = ask.operation.as_str();
        let Some(Call::Model {
            operation,
            prompt,
            reply,
            usage,
            ms,
            calls_tools,
            cut,
            ignored,
            tried,
            ..
        }) = self.call()
        else {
            return self.mismatch(&format!("model `{ordered}`"));
        };
        if operation != ordered {
            return self.mismatch(&format!("model `{ordered}`"));
        }
        let native = calls_tools.then(|| native_reply(reply)).flatten();
        let (text, tool_calls) = native.unwrap_or_else(|| (reply.clone(), Vec::new()));
        let reply = Reply {
            text,
            tool_calls,
            usage: *usage,
            ms: *ms,
            cut: *cut,
            tried: tried.clone(),
            earlier: 0,
        };
        let (prompt, ignored) = (prompt.clone(), ignored.clone());
        let not_called = reply.not_called(ask.is_agent);
        let input = Input::ModelReplied(reply);
        if ignored != not_called {
            let at = format!("calls[{}].ignored", self.next);
            self.replayed
                .differs(at, &ignored.join(", "), &not_called.join(", "));
        }
        self.prompt(ask, &prompt);
        self.next += 1;
        Some(input)
    }

    fn prompt(&mut self, ask: &ModelAsk, recorded: &str) {
        match (self.subject.prompt)(ask) {
            Ok(derived) if derived == recorded => {}
            Ok(derived) => {
                // From a little before the first difference, which is what one wants to see.
                let same = recorded
                    .chars()
                    .zip(derived.chars())
                    .take_while(|(a, b)| a == b);
                let skip = same.count().saturating_sub(20);
                let from = |text: &str| text.chars().skip(skip).collect::<String>();
                let at = format!("calls[{}].prompt, character {skip}", self.next);
                self.replayed.differs(at, &from(recorded), &from(&derived));
            }
            Err(reason) => self.replayed.unchecked(reason),
        }
    }

    fn failure(&mut self) -> Option<ModelFailure> {
        let FailedCall {
            after,
            message,
            hint,
            replied,
            tried,
        } = self.worked.failures.get(self.failed)?;
        if *after as usize != self.next {
            return None;
        }
        let mut failure = ModelFailure {
            message: message.clone(),
            hint: hint.clone(),
            spent: Spent::default(),
            tried: tried.clone(),
        };
        if *replied {
            failure.spent = self.call().map(Call::spent).unwrap_or_default();
            self.next += 1;
        }
        self.failed += 1;
        Some(failure)
    }

    fn tool(&mut self, name: &str, arguments: &BTreeMap<String, String>) -> Option<Input> {
        let usage = self.usage_of_tool();
        let matches = match self.call() {
            Some(Call::Tool {
                adopted: Some(Adopted::Instead),
                ..
            }) => true,
            Some(Call::Tool {
                name: made,
                arguments: with,
                adopted: None,
                ..
            }) => made == name && with == arguments,
            _ => false,
        };
        if !matches {
            return self.mismatch(&format!("tool {}", say::action(name, arguments)));
        }
        self.returned(usage)
    }

    /// The call of another attempt that the end of the turn came upon.
    fn left_behind(&mut self) -> Option<Input> {
        let usage = self.usage_of_tool();
        match self.call() {
            Some(Call::Tool {
                adopted: Some(Adopted::Unasked),
                ..
            }) => self.returned(usage),
            _ => None,
        }
    }

    /// Tokens that a tool spent stand before its call.
    fn usage_of_tool(&mut self) -> Usage {
        match self.call() {
            Some(Call::Model {
                operation, usage, ..
            }) if operation == "tool" => {
                let usage = *usage;
                self.next += 1;
                usage
            }
            _ => Usage::default(),
        }
    }

    fn returned(&mut self, usage: Usage) -> Option<Input> {
        let Some(Call::Tool {
            name,
            arguments,
            result,
            is_error,
            ms,
            sources,
            tried,
            adopted,
        }) = self.call()
        else {
            return None;
        };
        let input = Input::ToolReturned(ToolOutcome {
            content: result.clone(),
            is_error: *is_error,
            sources: sources.clone(),
            ms: *ms,
            usage,
            tried: tried.clone(),
            instead: adopted.map(|_| (name.clone(), arguments.clone())),
        });
        self.next += 1;
        Some(input)
    }

    fn documents(&mut self, uris: &[String]) -> Option<Input> {
        let mut texts = Vec::with_capacity(uris.len());
        for ordered in uris {
            let Some(Call::Document {
                uri,
                digest,
                missing,
            }) = self.call()
            else {
                return self.mismatch(&format!("document `{ordered}`"));
            };
            if uri != ordered {
                return self.mismatch(&format!("document `{ordered}`"));
            }
            let text = self.subject.texts.get(uri);
            let there = Digest::of(text.map(String::as_bytes).unwrap_or_default());
            if *missing {
                texts.push(None);
            } else if text.is_some() && there == *digest {
                texts.push(text.cloned());
            } else {
                let at = format!("calls[{}].digest of `{uri}`", self.next);
                let derived = text.map_or("no such text", |_| there.as_str());
                let (recorded, derived) = (digest.to_string(), derived.to_owned());
                self.replayed.differs(at, &recorded, &derived);
                return None;
            }
            self.next += 1;
        }
        Some(Input::DocumentsRead(texts))
    }

    /// Nothing may be left; but an end tells what other attempts had begun.
    fn over(&mut self, finish: Finish) -> Option<Finish> {
        let rest = self.subject.record.calls.get(self.next..).unwrap_or(&[]);
        let is_told = |call: &Call| matches!(call, Call::Tool { .. });
        let told_all = finish.outcome.is_terminal() && rest.iter().all(is_told);
        if !told_all && let Some(call) = rest.first() {
            let at = format!("calls[{}]", self.next);
            let ends = match &finish.outcome {
                Outcome::Continue(_) => "the end of the step: the session goes on",
                Outcome::FanOut(_) => "the end of the step: a fan-out",
                Outcome::Pause(_) => "the end of the step: a wait for a person",
                Outcome::Answer(_) => "the end of the step: an answer",
                Outcome::Cancelled(_) => "the end of the step: it is cancelled",
                Outcome::Fail { .. } => "the end of the step: a failure",
            };
            self.replayed.differs(at, &told(call), ends);
            return None;
        }
        if let Some(failure) = self.worked.failures.get(self.failed) {
            let at = format!("worked.failures[{}]", self.failed);
            self.replayed
                .differs(at, &failure.message, "no question to the model");
        }
        Some(finish)
    }
}

/// A recorded call in short.
fn told(call: &Call) -> String {
    match call {
        Call::Model { operation, .. } => format!("model `{operation}`"),
        Call::Tool {
            name, arguments, ..
        } => format!("tool {}", say::action(name, arguments)),
        Call::Document { uri, .. } => format!("document `{uri}`"),
    }
}

pub(super) type NativeReply = (String, Vec<(String, BTreeMap<String, String>)>);

/// A reply with native tool calls, as the record keeps it.
pub(super) fn native_reply(reply: &str) -> Option<NativeReply> {
    let value: Value = serde_json::from_str(reply).ok()?;
    let calls = value.get("tool_calls")?.as_array()?;
    let calls = calls.iter().map(|call| {
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = call.get("arguments").and_then(Value::as_object);
        let arguments = arguments.into_iter().flatten();
        let arguments = arguments
            .map(|(name, value)| (name.clone(), tolerant::text_of(value.clone())))
            .collect();
        (name.to_owned(), arguments)
    });
    Some((value.get("text")?.as_str()?.to_owned(), calls.collect()))
}
