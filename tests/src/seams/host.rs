//! Time, which only the scheduler moves, and nonces by number.

use super::Seam;
use crate::world::World;
use agentfleet_runtime::Host;
use agentfleet_schema::Millis;
use futures::future::BoxFuture;
use std::time::Duration;

impl Host for Seam {
    fn now(&self) -> Millis {
        self.shared.with(|world| world.time())
    }

    fn nonce(&self) -> String {
        self.shared.with(World::nonce)
    }

    /// Who comes next is the scheduler's to say.
    fn rest(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn is_gone(&self, nonce: &str) -> bool {
        self.shared.with(|world| world.is_gone(nonce))
    }
}
