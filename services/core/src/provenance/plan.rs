//! A plan and what its steps came to.

use super::Teller;
use crate::patterns::{COMPLETE, FAILED, REVISED};
use agentfleet_schema::records::{Executed, Planned, StepResult};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{prov, tg};

impl Teller<'_> {
    pub(super) fn plan(&mut self, planned: &Planned, derived_from: &str) -> String {
        let session = self.record.session.clone();
        let uri = uris::plan(&session, planned.revision);
        let open = planned.steps.len() as u32 - planned.first;
        let label = if planned.revision == 0 {
            format!("Plan with {open} steps")
        } else {
            format!("Revised plan with {open} new steps")
        };
        self.node(&uri, &[tg::PLAN], &label, derived_from);
        if planned.revision > 0 {
            let before = uris::plan(&session, planned.revision - 1);
            self.link(&uri, prov::WAS_REVISION_OF, &before);
            self.text(&uri, tg::REASON, &planned.reason);
        }
        let before = planned
            .steps
            .iter()
            .zip(0_u32..)
            .take(planned.first as usize);
        for (step, at) in before.filter(|(step, _)| step.status == REVISED) {
            self.text(&uri, tg::REVISED_STEP, &format!("{at}: {}", step.goal));
        }
        self.number(&uri, tg::REVISION, u64::from(planned.revision));
        for (step, at) in planned
            .steps
            .iter()
            .zip(0_u32..)
            .skip(planned.first as usize)
        {
            let mut said = Vec::new();
            if !step.specialist.is_empty() {
                said.push(format!("to {}", step.specialist));
            }
            if !step.depends_on.is_empty() {
                let needed: Vec<String> = step.depends_on.iter().map(u32::to_string).collect();
                said.push(format!("after {}", needed.join(", ")));
            }
            let said = match said.join(", ") {
                nothing if nothing.is_empty() => nothing,
                said => format!(" ({said})"),
            };
            self.text(&uri, tg::PLAN_STEP, &format!("{at}: {}{said}", step.goal));
        }
        if !self.routed_to_specialists(planned) {
            self.link(&uri, tg::DOCUMENT, &uris::document_of(&uri));
        }
        self.number(&uri, tg::LLM_DURATION_MS, planned.model_ms);
        self.attribution(&uri);
        uri
    }

    /// What steps of a plan had come to when a fork took it over. What brought that is told of the run
    /// that it was forked from.
    pub(super) fn carried(&mut self, planned: &Planned, plan: &str) {
        let session = self.record.session.clone();
        let steps = planned.steps.iter().zip(0_u32..);
        for (step, at) in steps.skip(planned.first as usize) {
            if ![COMPLETE, FAILED].contains(&step.status.as_str()) {
                continue;
            }
            let uri = uris::step_result(&session, at);
            let label = format!("Step result: {}", step.goal);
            self.node(&uri, &[tg::STEP_RESULT], &label, plan);
            self.number(&uri, tg::PLAN_INDEX, u64::from(at));
            self.text(&uri, tg::PLAN_STEP, &step.goal);
            self.text(&uri, tg::PLAN_STATUS, &step.status);
        }
    }

    /// A plan that a router made is told by its decisions; it has no text of its own.
    fn routed_to_specialists(&self, planned: &Planned) -> bool {
        planned.steps.iter().any(|step| !step.specialist.is_empty())
            && self
                .record
                .decisions
                .iter()
                .any(|d| d.subject == "specialist")
    }

    pub(super) fn step_result(
        &mut self,
        executed: &Executed,
        result: &StepResult,
        from: &str,
    ) -> String {
        let session = self.record.session.clone();
        let uri = uris::step_result(&session, result.index);
        let label = format!("Step result: {}", result.goal);
        self.node(&uri, &[tg::STEP_RESULT], &label, from);
        self.link(
            &uri,
            prov::WAS_DERIVED_FROM,
            &uris::plan(&session, executed.revision),
        );
        for needed in &result.depends_on {
            self.link(
                &uri,
                prov::WAS_DERIVED_FROM,
                &uris::step_result(&session, *needed),
            );
        }
        self.number(&uri, tg::PLAN_INDEX, u64::from(result.index));
        self.text(&uri, tg::PLAN_STEP, &result.goal);
        self.text(&uri, tg::PLAN_STATUS, &result.status);
        let document = if result.session.is_empty() {
            uris::document_of(&uri)
        } else {
            uris::answer_document(&result.session)
        };
        if executed.after.is_none() || !result.session.is_empty() {
            self.link(&uri, tg::DOCUMENT, &document);
        }
        if executed.call.is_none() && executed.after.is_none() {
            // No iteration states what was spent on it.
            self.number(&uri, tg::LLM_DURATION_MS, executed.model_ms);
            self.attribution(&uri);
        }
        uri
    }
}
