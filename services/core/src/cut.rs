//! Replies that were cut at the limit of their length.
//!
//! Half a text is not an answer, and half an object says nothing. So the model is asked once more, where
//! the budget allows it: to go on behind a text, or to reply anew with an object. What is cut all the same
//! is told as such to whoever asked: a text is answered in part, an object counts as none, and a call that
//! may be half is not made.
//!
//! A reply without a word is asked for once more, too, and told to be empty.

use crate::json;
use crate::order::{AfterCut, Input, ModelAsk, Order, Reply, StreamAs};
use crate::react_format::{Said, parse};

/// What stands for an object that was cut.
pub(crate) const CUT: &str = "the reply was cut at the limit of its length";

/// What is wrong with a reply that holds no JSON.
pub(crate) fn no_json(text: &str) -> &'static str {
    if text == CUT {
        CUT
    } else {
        "the reply holds no JSON"
    }
}

/// The question to the model that is open.
#[derive(Debug, Default)]
pub(crate) struct Open {
    ask: Option<Box<ModelAsk>>,
    /// Its reply so far, where that was cut.
    beginning: Option<Reply>,
}

impl Open {
    /// Notes what a turn ordered.
    pub(crate) fn note(&mut self, step: &Order) {
        self.ask = match step {
            Order::AskModel(ask) => Some(ask.clone()),
            Order::CallTool(_) | Order::ReadDocuments(_) | Order::Finish(_) => None,
        };
    }

    /// What is asked because a reply was cut, if something is to be.
    pub(crate) fn after(&self, input: &Input, native: bool) -> Option<Box<ModelAsk>> {
        let (Input::ModelReplied(reply), Some(ask), None) = (input, &self.ask, &self.beginning)
        else {
            return None;
        };
        let cut = if is_silent(reply) {
            Some(AfterCut::Silence)
        } else if !reply.cut {
            None
        } else if ask.schema.is_some() {
            (!json::is_whole(&reply.text)).then_some(AfterCut::Anew)
        } else {
            is_answer(ask, reply, native).then(|| AfterCut::GoOn(reply.text.clone()))
        };
        let mut again = ask.clone();
        again.cut = Some(cut?);
        // What was streamed is the beginning of the whole, which comes with the record.
        again.stream = StreamAs::Nothing;
        Some(again)
    }

    /// Keeps a reply until the rest of it is there.
    pub(crate) fn keep(&mut self, input: Input, again: &ModelAsk) {
        if let Input::ModelReplied(reply) = input {
            self.beginning = Some(reply);
            self.ask = Some(Box::new(again.clone()));
        }
    }

    /// What came of an order, with the beginning of a reply that was cut.
    pub(crate) fn whole(&mut self, input: Input) -> Input {
        let beginning = self.beginning.take();
        let mut reply = match (beginning, input) {
            (None, Input::ModelReplied(reply)) => reply,
            (Some(beginning), Input::ModelReplied(reply)) => self.joined(beginning, reply),
            (Some(beginning), failed @ Input::ModelFailed(_)) if is_silent(&beginning) => {
                return failed;
            }
            // As far as it came.
            (Some(beginning), Input::ModelFailed(_)) => beginning,
            (_, input) => return input,
        };
        let is_object = self.ask.as_ref().is_some_and(|ask| ask.schema.is_some());
        if reply.cut && is_object && !json::is_whole(&reply.text) {
            // Whoever reads it may mend what looks like small damage: this is none.
            CUT.clone_into(&mut reply.text);
        }
        Input::ModelReplied(reply)
    }

    /// The beginning as it is, where nothing pays for the rest.
    pub(crate) fn as_it_is(&mut self) -> Option<Input> {
        let beginning = self.beginning.take()?;
        Some(self.whole(Input::ModelReplied(beginning)))
    }

    fn joined(&self, beginning: Reply, reply: Reply) -> Reply {
        let mut usage = beginning.usage;
        usage.add(reply.usage);
        let goes_on = match self.ask.as_ref().and_then(|ask| ask.cut.as_ref()) {
            Some(AfterCut::GoOn(_)) => true,
            Some(AfterCut::Anew | AfterCut::Silence) | None => false,
        };
        Reply {
            text: if goes_on {
                beginning.text + &reply.text
            } else {
                reply.text
            },
            usage,
            ms: beginning.ms.saturating_add(reply.ms),
            earlier: 1,
            ..reply
        }
    }
}

/// Whether a reply says nothing and calls nothing, though nothing kept it from going on.
fn is_silent(reply: &Reply) -> bool {
    !reply.cut && reply.tool_calls.is_empty() && reply.text.trim().is_empty()
}

/// Whether a reply, as far as it came, is the beginning of an answer.
fn is_answer(ask: &ModelAsk, reply: &Reply, native: bool) -> bool {
    if !reply.tool_calls.is_empty() || reply.text.trim().is_empty() {
        return false;
    }
    if !ask.is_agent {
        return true;
    }
    match parse(&reply.text).said {
        Said::Final(_) => true,
        Said::Malformed { loose, .. } => native && !loose.is_empty(),
        Said::Action { .. } => false,
    }
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
