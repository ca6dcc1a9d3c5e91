//! What was asked and answered before in the conversation of a run, looked up where the run begins.

use crate::error::Stop;
use crate::handle::Orchestrator;
use agentfleet_core::conversation::{self, MOST};
use agentfleet_runs::{Asked, exchanges};
use agentfleet_schema::{AgentRequest, Exchange};

impl Orchestrator {
    /// Gives a request that begins a run what its conversation holds. What is not answered yet is left out.
    pub(crate) async fn remember(&self, request: &mut AgentRequest) -> Result<(), Stop> {
        if !conversation::remembers(request) {
            return Ok(());
        }
        let documents = &*self.parts.documents;
        // The run itself may be among them, if this step was committed before.
        let found = exchanges(documents, &request.conversation_id, "", MOST + 1).await?;
        let answered = found
            .into_iter()
            .filter(|asked| asked.session != request.session_id)
            .filter_map(|asked| {
                let Asked {
                    session,
                    question,
                    answer,
                    ..
                } = asked;
                Some(Exchange {
                    session,
                    question,
                    answer: answer?,
                })
            });
        let answered: Vec<Exchange> = answered.collect();
        let snapshot = self.config_at(request.control.config_version).await?;
        conversation::remember(request, answered, &snapshot, &self.options.limits);
        Ok(())
    }
}
