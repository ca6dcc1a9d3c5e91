//! An open consumer of one topic, as the broker sees it. It is closed when it is dropped; the
//! subscription stays, and what was not acknowledged goes to others.

use super::cluster::{Cluster, failed};
use super::commands;
use super::link::{Arrival, Fault, Link};
use crate::Error;
use agentfleet_schema::Millis;
use std::sync::Arc;
use tokio::sync::mpsc;

pub(super) struct Stream {
    pub(super) link: Arc<Link>,
    pub(super) id: u64,
    pub(super) arrivals: mpsc::UnboundedReceiver<Arrival>,
    /// How many messages the broker may still send.
    pub(super) permits: usize,
    /// Set where it follows one that ended.
    pub(super) reopened_at: Option<Millis>,
    closed: bool,
}

impl Stream {
    /// Opens it, which creates the topic and the subscription if they are new. It brings nothing
    /// before it is given permits.
    pub(super) async fn open(
        cluster: &Cluster,
        topic: &str,
        subscription: &str,
    ) -> Result<Self, Error> {
        let link = cluster.serving(topic).await?;
        let id = cluster.id();
        let lost = |fault| failed(topic, &link, fault);
        // From here on it is closed whatever happens, also if nobody waits for it any more.
        let stream = Self {
            arrivals: link.add_consumer(id).map_err(lost)?,
            link: Arc::clone(&link),
            id,
            permits: 0,
            reopened_at: None,
            closed: false,
        };
        let subscribe = |request| commands::subscribe(request, id, topic, subscription);
        link.ask(subscribe).await.map_err(lost)?;
        Ok(stream)
    }

    /// Closes it, and returns when the broker has done so: others have what it held.
    pub(super) async fn close(mut self) -> Result<(), Fault> {
        self.closed = true;
        self.link.end_consumer(self.id).await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.closed {
            self.link.close_consumer(self.id);
        }
    }
}
