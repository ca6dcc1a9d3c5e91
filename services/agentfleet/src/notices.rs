//! Config changes as messages: every process reads a retained topic, and looks at the config when
//! something comes. A lost notice costs a moment, because the config is looked at now and then anyway.

use agentfleet_broker::{Broker, Durability, Error, Outgoing};
use agentfleet_config::Notices;
use agentfleet_schema::topics::{self, property};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What notices are kept under.
const KEY: &str = "config";
/// How long to wait where notices cannot be read.
const PAUSE: Duration = Duration::from_secs(5);

/// Notices over the fleet's broker. Reading ends when the last of its receivers is gone.
pub(crate) struct ByBroker {
    broker: Arc<dyn Broker>,
    heard: watch::Receiver<u64>,
}

impl ByBroker {
    /// Must be called within a runtime.
    pub(crate) fn start(broker: Arc<dyn Broker>) -> Self {
        let (told, heard) = watch::channel(0);
        tokio::spawn(listen(Arc::clone(&broker), told));
        Self { broker, heard }
    }
}

async fn listen(broker: Arc<dyn Broker>, told: watch::Sender<u64>) {
    let (topic, mut after) = (topics::CONFIG_CHANGES, 0);
    loop {
        let found = tokio::select! {
            found = broker.read(&topic, KEY, after, 100) => found,
            () = told.closed() => return,
        };
        match found {
            Ok(notices) => {
                for notice in notices {
                    after = after.max(notice.position);
                    let version = std::str::from_utf8(&notice.payload).unwrap_or_default();
                    told.send_replace(version.parse().unwrap_or_default());
                }
            }
            // The process is about to end.
            Err(Error::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot hear of config changes; looking now and then");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[async_trait]
impl Notices for ByBroker {
    async fn tell(&self, version: u64) {
        let notice = Outgoing {
            topic: topics::CONFIG_CHANGES,
            payload: version.to_string().into_bytes(),
            properties: [(property::ROOT.to_owned(), KEY.to_owned())].into(),
            deliver_at: None,
            durability: Durability::Process,
        };
        if let Err(error) = self.broker.publish(vec![notice]).await {
            tracing::warn!(%error, version, "others will hear of the new config a little later");
        }
    }

    fn heard(&self) -> watch::Receiver<u64> {
        self.heard.clone()
    }
}
