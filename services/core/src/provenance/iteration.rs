//! An iteration: its thought, its call or the wait for a person, what came of it, and the critique.

use super::Teller;
use agentfleet_schema::records::{ApprovalAnswer, Asked, Critique, Decided, Iterated, Source};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{RDFS_LABEL, prov, tg};

impl Teller<'_> {
    pub(super) fn iteration(&mut self, it: &Iterated, derived_from: &str) -> (String, String) {
        let (uri, observation) = self.cycle(it, derived_from);
        self.attribution(&uri);
        (uri, observation)
    }

    /// An iteration, without what its step spent.
    pub(super) fn cycle(&mut self, it: &Iterated, derived_from: &str) -> (String, String) {
        let session = self.record.session.clone();
        let uri = uris::iteration(&session, it.n);
        let label = format!("Analysis: {}", it.action);
        self.node(&uri, &[tg::ANALYSIS, tg::TOOL_USE], &label, derived_from);
        self.text(&uri, tg::ACTION, &it.action);
        let arguments = serde_json::to_string(&it.arguments).unwrap_or_default();
        self.text(&uri, tg::ARGUMENTS, &arguments);
        for candidate in &it.candidates {
            self.text(&uri, tg::TOOL_CANDIDATE, candidate);
        }
        self.number(&uri, tg::STEP_NUMBER, u64::from(it.n));
        self.number(&uri, tg::LLM_DURATION_MS, it.model_ms);
        self.thought(&it.thought, it.n, &uri);

        let observation = uris::observation(&session, it.n);
        self.node(&observation, &[tg::OBSERVATION_CLASS], "Observation", &uri);
        self.link(&uri, tg::OBSERVATION, &observation);
        if !it.observation.is_empty() {
            self.link(&observation, tg::DOCUMENT, &uris::document_of(&observation));
        }
        self.number(&observation, tg::TOOL_DURATION_MS, it.tool_ms);
        if it.is_error {
            self.types(&observation, &[tg::ERROR]);
            let short: String = it.observation.chars().take(200).collect();
            self.text(&observation, tg::TOOL_ERROR, &short);
        }
        for source in &it.sources {
            let links = [tg::SOURCE, prov::HAD_PRIMARY_SOURCE, prov::WAS_DERIVED_FROM];
            self.source(&observation, source, &links);
        }
        (uri, observation)
    }

    /// A call that waits for a person.
    pub(super) fn approval(&mut self, asked: &Asked, derived_from: &str) -> String {
        let session = self.record.session.clone();
        let uri = uris::approval(&session, &asked.id);
        let label = format!("Approval asked: {}", asked.tool);
        self.node(&uri, &[tg::APPROVAL_REQUEST], &label, derived_from);
        self.text(&uri, tg::APPROVAL_ID, asked.id.as_str());
        self.text(&uri, tg::ACTION, &asked.tool);
        let arguments = serde_json::to_string(&asked.arguments).unwrap_or_default();
        self.text(&uri, tg::ARGUMENTS, &arguments);
        for candidate in &asked.candidates {
            self.text(&uri, tg::TOOL_CANDIDATE, candidate);
        }
        self.number(&uri, tg::STEP_NUMBER, u64::from(asked.n));
        self.text(&uri, tg::REASON, &asked.reason);
        self.instant(&uri, tg::EXPIRES, asked.expires_at);
        self.text(&uri, tg::DEFAULT_ANSWER, asked.default.as_str());
        self.number(&uri, tg::LLM_DURATION_MS, asked.model_ms);
        self.attribution(&uri);
        if !asked.thought.is_empty() {
            let thought = uris::approval_thought(&session, &asked.id);
            self.thought_at(&thought, &uri);
        }
        uri
    }

    /// Who answered, and with what the call is made, on the decision that the answer is.
    pub(super) fn answer(&mut self, decision: &str, decided: &Decided) {
        self.text(decision, tg::APPROVAL_ID, decided.id.as_str());
        if decided.answer == ApprovalAnswer::Edit {
            let arguments = serde_json::to_string(&decided.arguments).unwrap_or_default();
            self.text(decision, tg::ARGUMENTS, &arguments);
        }
        if decided.by.is_empty() {
            return;
        }
        let person = uris::person(&decided.by);
        self.types(&person, &[prov::AGENT, prov::PERSON]);
        self.text(&person, RDFS_LABEL, &decided.by);
        self.link(decision, prov::WAS_ATTRIBUTED_TO, &person);
    }

    pub(super) fn source(&mut self, uri: &str, source: &Source, links: &[&str]) {
        let Some(iri) = uris::as_iri(&source.uri) else {
            return;
        };
        self.types(&iri, &[prov::ENTITY]);
        self.text(&iri, RDFS_LABEL, &source.title);
        for link in links {
            self.link(uri, link, &iri);
        }
    }

    pub(super) fn thought(&mut self, thought: &str, n: u32, of: &str) {
        if thought.is_empty() {
            return;
        }
        self.thought_at(&uris::thought(&self.record.session, n), of);
    }

    fn thought_at(&mut self, uri: &str, of: &str) {
        self.types(uri, &[prov::ENTITY, tg::REFLECTION, tg::THOUGHT_CLASS]);
        self.text(uri, RDFS_LABEL, "Thought");
        self.made_by_session(uri);
        self.link(uri, prov::WAS_DERIVED_FROM, of);
        self.link(uri, tg::DOCUMENT, &uris::document_of(uri));
        self.link(of, tg::THOUGHT, uri);
    }

    /// What an agent said of what it did: a reflection, as thoughts are.
    pub(super) fn critique(&mut self, critique: &Critique, n: u32, of: &str) -> String {
        let uri = uris::critique(&self.record.session, n);
        let label = if critique.sent_back {
            "Critique: sent back"
        } else {
            "Critique"
        };
        self.node(&uri, &[tg::REFLECTION, tg::CRITIQUE], label, of);
        self.link(&uri, tg::DOCUMENT, &uris::document_of(&uri));
        self.flag(&uri, tg::SENT_BACK, critique.sent_back);
        uri
    }
}
