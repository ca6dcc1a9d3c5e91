//! Which record a step is of, the model that spoke, and what its calls used up.

use super::Teller;
use agentfleet_schema::records::Call;
use agentfleet_schema::vocabulary::{RDFS_LABEL, prov, tg, xsd};
use agentfleet_schema::{Digest, Spent, Term, keys, uris};
use std::collections::BTreeSet;

impl Teller<'_> {
    /// The model that spoke, if one did.
    pub(super) fn attribution(&mut self, uri: &str) {
        let model = self.record.calls.iter().rev().find_map(|call| match call {
            Call::Model { model, .. } if !model.is_empty() => Some(model.clone()),
            Call::Model { .. } | Call::Tool { .. } | Call::Document { .. } => None,
        });
        let Some(model) = model else { return };
        let agent = uris::model(&model);
        self.types(&agent, &[prov::AGENT, prov::SOFTWARE_AGENT]);
        self.text(&agent, RDFS_LABEL, &model);
        self.link(uri, prov::WAS_ATTRIBUTED_TO, &agent);
        self.text(uri, tg::LLM_MODEL, &model);
    }

    /// The time of a step that decided, and did nothing beside.
    pub(super) fn spent(&mut self, uri: &str) {
        let ms = |call: &Call| match call {
            Call::Model { ms, .. } => Some(*ms),
            Call::Tool { .. } | Call::Document { .. } => None,
        };
        let spent: Vec<u64> = self.record.calls.iter().filter_map(ms).collect();
        if !spent.is_empty() {
            self.number(uri, tg::LLM_DURATION_MS, spent.iter().sum());
        }
    }

    /// What is told of the step as a whole: which record it is of, and the calls it made. Every
    /// step has one main node, so that sums over nodes count each step once.
    pub(super) fn step(&mut self, uri: &str, identity: &Digest) {
        let record = self.record;
        let key = keys::outcome(&record.session, record.step);
        self.text(uri, tg::STEP_RECORD, &key);
        self.text(uri, tg::DIGEST, identity.as_str());
        self.usage(uri);
        let mut models = BTreeSet::new();
        let (mut by_model, mut by_tool) = ((0, 0), (0, 0));
        let (mut cut_replies, mut not_called) = (0, BTreeSet::new());
        for call in &record.calls {
            match call {
                Call::Model {
                    model,
                    ms,
                    cut,
                    ignored,
                    ..
                } => {
                    by_model = (by_model.0 + 1, by_model.1 + ms);
                    models.insert(model.as_str());
                    cut_replies += u64::from(*cut);
                    not_called.extend(ignored);
                }
                Call::Tool { ms, .. } => by_tool = (by_tool.0 + 1, by_tool.1 + ms),
                Call::Document { .. } => {}
            }
        }
        for (counted, timed, (calls, ms)) in [
            (tg::MODEL_CALLS, tg::MODEL_TIME_MS, by_model),
            (tg::TOOL_CALLS, tg::TOOL_TIME_MS, by_tool),
        ] {
            self.number(uri, counted, calls);
            self.number(uri, timed, ms);
        }
        for model in models {
            self.text(uri, tg::MODEL_USED, model);
        }
        if cut_replies > 0 {
            self.number(uri, tg::CUT_REPLIES, cut_replies);
        }
        for tool in not_called {
            self.text(uri, tg::IGNORED_CALL, tool);
        }
        if let Some(waited) = &record.worked.waited {
            self.number(uri, tg::MODEL_WAITS, u64::from(waited.times));
            self.number(uri, tg::MODEL_WAIT_MS, waited.ms);
            self.text(uri, tg::MODEL_WAIT_REASON, &waited.reason);
        }
        if !record.wasted.is_nothing() {
            let names = [
                tg::WASTED_TOKENS,
                tg::WASTED_COST,
                tg::WASTED_MODEL_CALLS,
                tg::WASTED_TOOL_CALLS,
            ];
            self.account(uri, record.wasted, names);
        }
    }

    /// An account, by the names it has there.
    pub(super) fn account(&mut self, uri: &str, spent: Spent, names: [&'static str; 4]) {
        let [tokens, cost, model_calls, tool_calls] = names;
        self.number(uri, tokens, spent.tokens);
        for (name, calls) in [
            (model_calls, spent.model_calls),
            (tool_calls, spent.tool_calls),
        ] {
            if calls > 0 {
                self.number(uri, name, calls);
            }
        }
        if !spent.cost.is_zero() {
            let amount = Term::typed(spent.cost.to_string(), xsd::DECIMAL);
            self.add(uri, cost, amount);
        }
    }

    fn usage(&mut self, uri: &str) {
        let usage = self.record.usage;
        if usage.total() > 0 {
            self.number(uri, tg::IN_TOKEN, usage.input_tokens);
            self.number(uri, tg::OUT_TOKEN, usage.output_tokens);
        }
        let cost = usage.known_cost();
        let is_free = usage.total() > 0 && cost.is_nothing();
        if cost.known() > 0.0 || is_free {
            let amount = format!("{:.9}", cost.known());
            self.add(uri, tg::COST, Term::typed(amount, xsd::DECIMAL));
        }
        if usage.unpriced_calls > 0 {
            self.number(uri, tg::UNPRICED_CALLS, usage.unpriced_calls);
        }
    }
}
