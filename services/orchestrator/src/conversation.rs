//! What was asked and answered before in the conversation of a run, looked up where the run begins.

use crate::error::Stop;
use crate::handle::Orchestrator;
use agentfleet_core::conversation::{self, MOST};
use agentfleet_runs::exchanges;
use agentfleet_schema::{AgentRequest, Exchange};

/// Exchanges looked at together, and how often: runs that are open, or ended without an answer, are passed over.
const PAGE: usize = MOST + 1;
const PAGES: usize = 10;

impl Orchestrator {
    /// Gives a request that begins a run what its conversation holds. What is not answered is left out.
    pub(crate) async fn remember(&self, request: &mut AgentRequest) -> Result<(), Stop> {
        if !conversation::remembers(request) {
            return Ok(());
        }
        let documents = &*self.parts.documents;
        let mut answered: Vec<Exchange> = Vec::new();
        let mut after = String::new();
        for _ in 0..PAGES {
            let page = exchanges(documents, &request.conversation_id, &after, PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page
                .last()
                .map(|last| last.place.clone())
                .unwrap_or_default();
            // The run itself may be among them, if this step was committed before.
            let page = page
                .into_iter()
                .filter(|asked| asked.is_answered && asked.session != request.session_id);
            answered.extend(page.filter_map(|asked| {
                Some(Exchange {
                    session: asked.session,
                    question: asked.question,
                    answer: asked.text?,
                })
            }));
            if is_last || answered.len() >= MOST {
                break;
            }
        }
        let snapshot = self.config_at(request.control.config_version).await?;
        conversation::remember(request, answered, &snapshot, &self.options.limits);
        Ok(())
    }
}
