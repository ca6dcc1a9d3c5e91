//! The end of an agent: its answer, or the best that can be said without one.

use super::{Criticised, Iteration, PARSE_ERROR};
use crate::cut::CUT;
use crate::order::Order;
use crate::patterns::answer::{answered, name_cut};
use crate::patterns::reflexion::{self, ANSWER, Subject};
use crate::pipeline::Stopped;
use crate::say;
use crate::so_far;
use crate::words;
use agentfleet_schema::records::{Concluded, Termination};
use std::collections::BTreeMap;

impl Iteration {
    /// What becomes of a reply that was cut before its call or answer was there.
    pub(super) fn cut_off(&mut self) -> Order {
        if self.must_end() {
            return self.partial_because(Termination::ReplyCut, CUT);
        }
        let text = format!(
            "Error: {CUT}, before its call or its answer was complete, so nothing was called. Reply \
             again, and shorter."
        );
        self.retry(PARSE_ERROR.to_owned(), BTreeMap::new(), text)
    }

    pub(super) fn unreadable(&mut self, reason: &str, loose: String) -> Order {
        if self.must_end() && !loose.is_empty() {
            // It said something, if never in the format: better than nothing, and marked.
            return self.conclude(loose, Termination::FinalAnswer, true, false);
        }
        let text = format!(
            "Error: the reply could not be read: {reason}. Reply with `Thought:`, then either \
             `Action:` and `Args:`, or `Final Answer:`."
        );
        self.retry(PARSE_ERROR.to_owned(), BTreeMap::new(), text)
    }

    pub(super) fn answer(&mut self, text: String, streamed: bool) -> Order {
        let unread = self.last_call.as_ref().filter(|_| self.is_unread());
        let unread = unread.map(|why| format!("{why}, so no tool could be called"));
        if let Some(why) = self.out_of_tools().or(unread) {
            // The text may have been streamed: what is said behind it still follows.
            let text = format!("{text}\n\n---\n\n**Incomplete:** {why}.");
            return self.conclude(text, Termination::BudgetExhausted, true, streamed);
        }
        if !self.may_be_sent_back() {
            return self.conclude(text, Termination::FinalAnswer, false, streamed);
        }
        let subject = Subject::Answer(&text);
        let ask = reflexion::ask(&self.request, &self.limits, &self.thought, &subject);
        self.criticised = Some(Criticised::Answer(text));
        ask
    }

    /// Answers with a text that was cut, and could not be gone on with.
    pub(super) fn answer_in_part(&self, mut text: String) -> Order {
        name_cut(&mut text);
        self.conclude(text, Termination::ReplyCut, true, true)
    }

    /// What to ask the person for instead of letting the agent try on, where its task type says so. The agent was
    /// told once before what the call lacks.
    pub(super) fn question_for(&self, stopped: &Stopped) -> Option<String> {
        let snapshot = &self.situation.snapshot;
        let item = snapshot.task_types.get(&self.request.task_type)?;
        let is_told = self.request.control.state.react().retries > 0;
        if !item.ask_back || stopped.missing.is_empty() || !is_told || self.request.is_subagent() {
            return None;
        }
        let names = stopped.missing.iter().map(|one| {
            if one.description.is_empty() {
                one.name.as_str()
            } else {
                one.description.as_str()
            }
        });
        let what = names.collect::<Vec<_>>().join(", ");
        Some(self.say("ask-back", &[("what", &what)]))
    }

    fn say(&self, id: &str, arguments: &[(&str, &str)]) -> String {
        let locale = words::locale(&self.request, &self.situation.snapshot);
        words::say(locale, id, arguments)
    }

    /// Ends a session that calls one tool again and again.
    pub(super) fn circling(&self, name: &str) -> Order {
        let why = self.say("same-tool", &[("tool", name)]);
        self.partial_because(Termination::RepeatedAction, &why)
    }

    /// Ends a session that goes round in circles.
    pub(super) fn looping(&self, name: &str, arguments: &BTreeMap<String, String>) -> Order {
        let call = say::action(name, arguments);
        let why = self.say("same-calls", &[("call", &call)]);
        self.partial_because(Termination::RepeatedAction, &why)
    }

    /// The best that can be said from what is known so far.
    pub(super) fn partial(&self, termination: Termination) -> Order {
        if termination == Termination::Error {
            return self.partial_because(termination, "the model's replies could not be used");
        }
        if let Some(why) = self.out_of_tools() {
            return self.partial_because(Termination::BudgetExhausted, &why);
        }
        if let Some(why) = &self.last_call {
            let why = format!("the last call that the budget pays for brought no answer ({why})");
            return self.partial_as(Termination::BudgetExhausted, &why);
        }
        self.partial_because(termination, &self.say("most-iterations", &[]))
    }

    /// Why it must answer although iterations are left, if so.
    pub(super) fn out_of_tools(&self) -> Option<String> {
        if !self.is_without_tools() || self.n >= self.limits.max_iterations {
            return None;
        }
        self.limits.budget.refuses_tool(self.request.control.spent)
    }

    pub(super) fn partial_because(&self, termination: Termination, why: &str) -> Order {
        self.partial_as(termination, &self.say("before-answer", &[("why", why)]))
    }

    pub(super) fn partial_as(&self, termination: Termination, why: &str) -> Order {
        let mut text = format!("{}\n", self.say("partial-answer", &[("why", why)]));
        let found = so_far::observed(&self.request.history);
        if found.is_empty() {
            text.push_str(&format!("\n{}\n", self.say("nothing-found", &[])));
        } else {
            text.push_str(&format!("\n{}", so_far::told(&found)));
        }
        if !self.thought.is_empty() {
            let thought = self.say("last-thought", &[("thought", &self.thought)]);
            text.push_str(&format!("\n{thought}\n"));
        }
        self.conclude(text, termination, true, false)
    }

    pub(super) fn conclude(
        &self,
        text: String,
        termination: Termination,
        partial: bool,
        streamed: bool,
    ) -> Order {
        let end = Concluded {
            termination,
            thought: self.thought.clone(),
            n: self.n,
            partial,
            model_ms: self.model_ms,
            ..Concluded::default()
        };
        let session = &self.request.session_id;
        let decisions = self.last_call.iter().map(|why| {
            say::only(
                "answer-now",
                ANSWER,
                "what is left of the budget",
                why.clone(),
            )
        });
        let decisions = decisions.collect();
        answered(session, end, text, streamed, self.thoughts(), decisions)
    }
}
