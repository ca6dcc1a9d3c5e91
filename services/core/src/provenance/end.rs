//! The end of a session: its answer with what that rests on, and a subagent's completion.

use super::{Teller, completion_status, is_partial};
use agentfleet_schema::records::{Concluded, Grounds, OutcomeKind};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{prov, tg};

impl Teller<'_> {
    /// What an answer rests on: it derives from what it names, and from nothing that was only read.
    fn grounds(&mut self, uri: &str, grounds: &Grounds) {
        for source in &grounds.cited {
            self.source(uri, source, &[tg::CITES, prov::WAS_DERIVED_FROM]);
        }
        for source in &grounds.consulted {
            self.source(uri, source, &[tg::CONSULTED]);
        }
        self.flag(uri, tg::UNSOURCED, grounds.is_empty());
    }

    pub(super) fn conclusion(&mut self, end: &Concluded, derived_from: &str) -> String {
        let record = self.record;
        let session = uris::session(&record.session);
        let uri = uris::answer(&record.session);
        let failed = record.outcome != OutcomeKind::Answer;
        let kinds: &[&str] = if failed {
            &[tg::CONCLUSION, tg::ERROR]
        } else {
            &[tg::CONCLUSION, tg::ANSWER]
        };
        self.node(
            &uri,
            kinds,
            if failed {
                "Ended without an answer"
            } else {
                "Answer"
            },
            derived_from,
        );
        self.text(&uri, tg::TERMINATION_REASON, end.termination.as_str());
        self.flag(&uri, tg::PARTIAL, end.partial);
        self.link(&uri, tg::DOCUMENT, &uris::answer_document(&record.session));
        if let Some(error) = &end.error {
            self.text(&uri, tg::ERROR_CODE, &error.code);
        }
        if end.n > 0 {
            self.thought(&end.thought, end.n, &uri);
        }
        for part in &end.confidence {
            let text = if part.part.is_empty() {
                format!("{:.2}", part.confidence)
            } else {
                format!("{}: {:.2}", part.part, part.confidence)
            };
            self.text(&uri, tg::CONFIDENCE, &text);
        }
        if let Some(grounds) = &end.grounds {
            self.grounds(&uri, grounds);
        }
        self.number(&uri, tg::LLM_DURATION_MS, end.model_ms);
        self.attribution(&uri);
        self.instant(&session, prov::ENDED_AT_TIME, record.committed_at);
        if record.parent.is_some() {
            self.completion(&uri, end);
        }
        uri
    }

    fn completion(&mut self, answer: &str, end: &Concluded) {
        let record = self.record;
        let Some(parent) = &record.parent else { return };
        let uri = uris::completion(&record.session);
        self.node(
            &uri,
            &[tg::SUBAGENT_COMPLETION],
            "Subagent completion",
            answer,
        );
        self.text(&uri, tg::CORRELATION_ID, parent.correlation.as_str());
        self.text(&uri, tg::SUBAGENT_SESSION_ID, record.session.as_str());
        self.text(&uri, tg::PARENT_SESSION_ID, parent.session.as_str());
        self.text(&uri, tg::SUBAGENT_GOAL, &parent.goal);
        self.number(&uri, tg::SIBLING_INDEX, u64::from(parent.index));
        self.text(&uri, tg::STATUS, completion_status(record).as_str());
        self.flag(&uri, tg::PARTIAL, is_partial(record));
        if let Some(error) = &end.error {
            self.text(&uri, tg::ERROR_MESSAGE, &error.message);
        }
        self.link(&uri, tg::RESULT, &uris::answer_document(&record.session));
        let names = [
            tg::TOKENS,
            tg::COST_TOTAL,
            tg::MODEL_CALLS_TOTAL,
            tg::TOOL_CALLS_TOTAL,
        ];
        self.account(&uri, record.total, names);
        if record.total.unpriced_calls > 0 {
            self.number(&uri, tg::UNPRICED_CALLS_TOTAL, record.total.unpriced_calls);
        }
        self.text(&uri, tg::COLLECTION, record.collection.as_str());
    }
}
