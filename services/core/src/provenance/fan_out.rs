//! A fan-out, and what was read when it had a verdict.

use super::Teller;
use crate::say;
use agentfleet_schema::records::{Child, Compared, CompletionStatus, FanInSummary, FannedOut};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{RDFS_LABEL, prov, tg};

impl Teller<'_> {
    pub(super) fn fan_out(&mut self, fan_out: &FannedOut, derived_from: &str) -> String {
        let session = self.record.session.clone();
        let uri = uris::fan_out(&session, &fan_out.correlation);
        let label = format!("Fan-out to {}", say::subagents(fan_out.children.len()));
        self.node(&uri, &[tg::FAN_OUT], &label, derived_from);
        self.text(&uri, tg::CORRELATION_ID, fan_out.correlation.as_str());
        self.number(&uri, tg::EXPECTED_SIBLINGS, fan_out.children.len() as u64);
        self.number(&uri, tg::ROUND, u64::from(fan_out.round));
        self.text(&uri, tg::JOIN_POLICY, &fan_out.policy.to_string());
        self.instant(&uri, tg::JOIN_DEADLINE, fan_out.join_deadline);
        self.number(&uri, tg::LLM_DURATION_MS, fan_out.model_ms);
        self.link(&uri, tg::DOCUMENT, &uris::document_of(&uri));
        self.attribution(&uri);
        for child in &fan_out.children {
            let goal = uris::goal(&session, &fan_out.correlation, child.index);
            self.types(&goal, &[prov::ENTITY]);
            self.text(&goal, RDFS_LABEL, &child.goal);
            self.made_by_session(&goal);
            self.link(&goal, prov::WAS_DERIVED_FROM, &uri);
            self.link(&uri, tg::SUBAGENT_GOALS, &goal);
        }
        uri
    }

    /// How the answers of a debate stand to each other.
    pub(super) fn comparison(
        &mut self,
        compared: &Compared,
        of: &FanInSummary,
        from: &str,
    ) -> String {
        let uri = uris::comparison(&self.record.session, &of.correlation);
        let label = if compared.agreed {
            "Comparison: agreement"
        } else {
            "Comparison: disagreement"
        };
        self.node(&uri, &[tg::COMPARISON], label, from);
        self.number(&uri, tg::ROUND, u64::from(compared.round));
        for position in &compared.positions {
            let text = format!("{}: {}", position.reasoner, position.position);
            self.text(&uri, tg::POSITION, &text);
        }
        for disagreement in &compared.disagreements {
            self.text(&uri, tg::DISAGREEMENT, disagreement);
        }
        self.attribution(&uri);
        uri
    }

    /// What a supervisor read when its fan-in had a verdict.
    pub(super) fn synthesis(&mut self, fan_in: &FanInSummary, derived_from: &str) -> String {
        let uri = uris::synthesis(&self.record.session, &fan_in.correlation);
        self.node(&uri, &[tg::SYNTHESIS], "Synthesis", derived_from);
        self.text(&uri, tg::CORRELATION_ID, fan_in.correlation.as_str());
        self.text(&uri, tg::JOIN_CAUSE, fan_in.cause.as_str());
        for member in &fan_in.members {
            // What a failed sibling left is its completion, not an answer.
            let of = match member.status {
                CompletionStatus::Answered => uris::answer(&member.session),
                CompletionStatus::Error
                | CompletionStatus::Timeout
                | CompletionStatus::Cancelled
                | CompletionStatus::DeadLettered => uris::completion(&member.session),
            };
            self.link(&uri, prov::WAS_DERIVED_FROM, &of);
        }
        for Child { session, .. } in &fan_in.missing {
            self.link(&uri, tg::MISSING, &uris::session(session));
        }
        uri
    }
}
