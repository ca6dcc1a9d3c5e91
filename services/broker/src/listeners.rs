//! Who waits for something to be retained under a key.

use agentfleet_schema::topics::Topic;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

type Key = (Topic, String);

#[derive(Debug, Default)]
pub(crate) struct Listeners {
    waiting: Mutex<HashMap<Key, Arc<Notify>>>,
}

impl Listeners {
    fn waiting(&self) -> MutexGuard<'_, HashMap<Key, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens for a key, until the listener is dropped.
    pub(crate) fn listen(self: &Arc<Self>, topic: &Topic, key: &str) -> Listener {
        let key = (topic.clone(), key.to_owned());
        let notify = Arc::clone(self.waiting().entry(key.clone()).or_default());
        Listener {
            listeners: Arc::clone(self),
            key,
            notify,
        }
    }

    pub(crate) fn notify(&self, topic: &Topic, key: &str) {
        let waiting = self.waiting();
        if waiting.is_empty() {
            return;
        }
        if let Some(notify) = waiting.get(&(topic.clone(), key.to_owned())) {
            notify.notify_waiters();
        }
    }

    pub(crate) fn notify_all(&self) {
        for notify in self.waiting().values() {
            notify.notify_waiters();
        }
    }
}

pub(crate) struct Listener {
    listeners: Arc<Listeners>,
    key: Key,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut waiting = self.listeners.waiting();
        // One reference here, one in the map: nobody else listens.
        if waiting
            .get(&self.key)
            .is_some_and(|notify| Arc::strong_count(notify) <= 2)
        {
            waiting.remove(&self.key);
        }
    }
}
