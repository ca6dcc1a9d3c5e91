//! What a run is given where it begins: what was asked and answered before in its conversation, what is
//! remembered, and what is left of its tenant's quota.

use crate::error::Stop;
use crate::handle::Orchestrator;
use agentfleet_core::conversation::{self, MOST};
use agentfleet_core::{memories, quota};
use agentfleet_runs::exchanges;
use agentfleet_schema::{AgentRequest, Carried, Exchange, Memory};
use agentfleet_tools::Memories;

/// Exchanges looked at together, and how often: runs that are open, or ended without an answer, are passed over.
const PAGE: usize = MOST + 1;
const PAGES: usize = 10;

impl Orchestrator {
    /// Gives a request that begins a run what is remembered for who asks, where the config asks for it.
    pub(crate) async fn recall(&self, request: &mut AgentRequest) -> Result<(), Stop> {
        if !conversation::begins(request) {
            return Ok(());
        }
        let snapshot = self.config_at(request.control.config_version).await?;
        if !memories::are_wanted(&snapshot) {
            return Ok(());
        }
        let (tenant, user) = (request.tenant().to_owned(), request.asker().to_owned());
        let mut users = vec![user.as_str()];
        if !user.is_empty() {
            // What all of the tenant share comes after what is somebody's own.
            users.push("");
        }
        let mut kept: Vec<Memory> = Vec::new();
        let mut room = memories::SHOWN;
        for user in users {
            let of = Memories {
                documents: &*self.parts.documents,
                tenant: &tenant,
                user,
            };
            for one in of.all(self.parts.host.now()).await? {
                let bytes = one.name.len() + one.value.len();
                if bytes <= room && kept.iter().all(|before| before.name != one.name) {
                    room -= bytes;
                    kept.push(Memory {
                        name: one.name,
                        value: one.value,
                    });
                }
            }
        }
        request.control.memories = kept;
        Ok(())
    }

    /// Gives a request that begins a run of a tenant what is left of the tenant's quota.
    pub(crate) async fn allow(&self, request: &mut AgentRequest) -> Result<(), Stop> {
        if !quota::is_asked(request) {
            return Ok(());
        }
        let snapshot = self.config_at(request.control.config_version).await?;
        let now = self.parts.host.now();
        let left = self.usage.left(&snapshot, request.tenant(), now).await?;
        request.control.quota = left;
        Ok(())
    }

    /// Gives a request that begins a run what its conversation holds. What is not answered is left out.
    pub(crate) async fn remember(&self, request: &mut AgentRequest) -> Result<(), Stop> {
        if !conversation::remembers(request) {
            return Ok(());
        }
        let documents = &*self.parts.documents;
        let mut answered: Vec<Exchange> = Vec::new();
        let mut carried: Option<Carried> = None;
        let mut after = String::new();
        for _ in 0..PAGES {
            let (tenant, conversation) = (request.tenant(), &request.conversation_id);
            let page = exchanges(documents, tenant, conversation, &after, PAGE).await?;
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
                // The newest comes first.
                carried.get_or_insert(asked.carried);
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
        conversation::carry(request, carried.unwrap_or_default());
        conversation::remember(request, answered, &snapshot, &self.options.limits);
        Ok(())
    }
}
