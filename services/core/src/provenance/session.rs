//! The session where it begins, how it was routed, and each decision.

use super::Teller;
use agentfleet_schema::records::{DecidedBy, Decision, Described, Routed};
use agentfleet_schema::vocabulary::{RDFS_LABEL, prov, tg};
use agentfleet_schema::{Term, uris};

impl Teller<'_> {
    /// What the config says of a task type or pattern.
    fn described(&mut self, item: &Described) {
        let (uri, class) = if item.subject == "task-type" {
            (uris::task_type(&item.name), tg::TASK_TYPE_CLASS)
        } else {
            (uris::pattern(&item.name), tg::PATTERN_CLASS)
        };
        self.types(&uri, &[prov::ENTITY, class]);
        self.text(&uri, RDFS_LABEL, &item.name);
        self.text(&uri, tg::DESCRIPTION, &item.description);
        self.number(&uri, tg::CONFIG_VERSION, self.record.config_version);
    }

    pub(super) fn session(&mut self, routed: &Routed) {
        let record = self.record;
        let session = uris::session(&record.session);
        let question = uris::question(&record.session);
        let agent = uris::agent(&record.session);
        self.types(
            &session,
            &[prov::ACTIVITY, tg::QUESTION, tg::AGENT_QUESTION],
        );
        self.text(&session, RDFS_LABEL, "Agent Question");
        self.instant(&session, prov::STARTED_AT_TIME, record.began());
        self.add(&session, tg::QUERY, Term::text(&*routed.question));
        self.link(&session, prov::USED, &question);
        self.link(&session, prov::WAS_ASSOCIATED_WITH, &agent);
        self.text(&session, tg::COLLECTION, record.collection.as_str());
        self.text(&session, tg::CONVERSATION_ID, record.conversation.as_str());
        self.text(&session, tg::ROOT_SESSION_ID, record.root.as_str());
        self.types(&agent, &[prov::AGENT, prov::SOFTWARE_AGENT]);
        let name = format!("{} agent", routed.pattern);
        self.text(&agent, RDFS_LABEL, name.trim_start());
        self.types(&question, &[prov::ENTITY]);
        self.text(&question, RDFS_LABEL, "Question");
        self.add(&question, prov::VALUE, Term::text(&*routed.question));
        self.text(&question, tg::CONVERSATION_ID, record.conversation.as_str());
        if let Some(from) = record
            .forked_from
            .as_ref()
            .filter(|_| record.parent.is_none())
        {
            // Asked anew of what another session had come to.
            self.link(
                &session,
                prov::WAS_INFORMED_BY,
                &uris::session(&from.session),
            );
            if let Some(node) = uris::as_iri(&from.node) {
                self.link(&question, prov::WAS_DERIVED_FROM, &node);
            }
        }
        for before in &record.worked.conversation {
            self.link(&session, tg::REMEMBERS, &uris::session(&before.session));
        }
        if let Some(parent) = &record.parent {
            self.text(
                &session,
                tg::PARENT_CORRELATION_ID,
                parent.correlation.as_str(),
            );
            self.text(&session, tg::PARENT_SESSION_ID, parent.session.as_str());
            self.text(&session, tg::SUBAGENT_GOAL, &parent.goal);
            self.number(&session, tg::SIBLING_INDEX, u64::from(parent.index));
            self.link(
                &session,
                prov::WAS_INFORMED_BY,
                &uris::session(&parent.session),
            );
            self.link(
                &agent,
                prov::ACTED_ON_BEHALF_OF,
                &uris::agent(&parent.session),
            );
            let goal = uris::goal(&parent.session, &parent.correlation, parent.index);
            self.link(&question, prov::WAS_DERIVED_FROM, &goal);
        }
    }

    pub(super) fn routing(&mut self, routed: &Routed) -> String {
        let session = self.record.session.clone();
        let routing = uris::routing(&session);
        let question = uris::question(&session);
        let label = format!("Routing: {}", routed.pattern);
        self.node(&routing, &[tg::ROUTING_DECISION], &label, &question);
        if !routed.task_type.is_empty() {
            self.link(&routing, tg::TASK_TYPE, &uris::task_type(&routed.task_type));
        }
        self.link(
            &routing,
            tg::SELECTED_PATTERN,
            &uris::pattern(&routed.pattern),
        );
        let mut last = question;
        for decision in &routed.decisions {
            let uri = uris::routing_decision(&session, &decision.subject);
            self.decision(&uri, decision, &last);
            self.link(&routing, prov::WAS_DERIVED_FROM, &uri);
            for option in &decision.options {
                match decision.subject.as_str() {
                    "task-type" => {
                        self.link(&routing, tg::CANDIDATE_TASK_TYPES, &uris::task_type(option));
                    }
                    _ => self.link(&routing, tg::CANDIDATE_PATTERNS, &uris::pattern(option)),
                }
            }
            if !decision.rationale.is_empty() {
                self.link(&routing, tg::ROUTING_RATIONALE, &uris::document_of(&uri));
            }
            last = uri;
        }
        for item in &routed.described {
            self.described(item);
        }
        routing
    }

    pub(super) fn decision(&mut self, uri: &str, decision: &Decision, derived_from: &str) {
        let label = format!("Decision: {} = {}", decision.subject, decision.chosen);
        self.node(uri, &[tg::DECISION], &label, derived_from);
        self.text(uri, tg::DECISION_SUBJECT, &decision.subject);
        for option in &decision.options {
            self.text(uri, tg::OPTION, option);
        }
        self.text(uri, tg::NARROWED_BY, &decision.narrowed_by);
        self.text(uri, tg::SIGNAL, &decision.signal);
        self.text(uri, tg::SELECTED, &decision.chosen);
        self.text(uri, tg::DECIDED_BY, decision.decided_by.as_str());
        if !decision.rationale.is_empty() {
            self.link(uri, tg::RATIONALE, &uris::document_of(uri));
        }
        // The pattern of a subagent was chosen above, where the model is known.
        let is_theirs = self.record.parent.is_some() && decision.subject == "pattern";
        if decision.decided_by == DecidedBy::Model && !is_theirs {
            self.attribution(uri);
        }
    }
}
