//! The seams of the shipped code, replaced. Each call stops before its effect and after it, so that
//! the scheduler decides who goes on, who dies in between, and what time it is.

mod broker;
mod committer;
mod config;
mod documents;
mod graph;
mod host;
mod model;
pub mod script;
mod tools;

pub use config::snapshots;
pub use graph::Coordination;

use crate::effect::{Effect, Fault, Point, When};
use crate::pause::Pause;
use crate::world::{Shared, World};

/// One object behind every seam; clones share the world.
#[derive(Clone, Debug)]
pub struct Seam {
    pub shared: Shared,
}

impl Seam {
    pub fn new(shared: &Shared) -> Self {
        Self {
            shared: shared.clone(),
        }
    }

    pub(crate) async fn pause(&self, when: When, effect: &Effect) {
        Pause::new(
            &self.shared,
            Point {
                when,
                effect: effect.clone(),
            },
        )
        .await;
    }

    /// A call whose effect happens at one instant.
    pub(crate) async fn act<T>(
        &self,
        effect: Effect,
        act: impl FnOnce(&mut World, Option<Fault>) -> T,
    ) -> T {
        self.pause(When::Before, &effect).await;
        let result = self.shared.with(|world| {
            let fault = world.strike(&effect);
            world.log(&effect, fault);
            act(world, fault)
        });
        self.pause(When::After, &effect).await;
        result
    }
}

/// What a store says that cannot answer now.
fn busy() -> agentfleet_storage::Error {
    agentfleet_storage::Error::Busy("simulated".into())
}
