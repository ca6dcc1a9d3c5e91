//! Sees to it that a fleet runs while a command needs one: this process's own if no other has the
//! fleet lock, and its own as soon as the other goes.

use crate::error::Failure;
use crate::fleet::{Engine, Fleet, FleetLock, Roles, Store, settle};
use crate::settings::Settings;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Who works the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    /// Another process has the lock.
    Other,
    /// This process, with the model it chose.
    Own { model: String },
    /// This process, and it could not begin.
    Failed(String),
}

/// Keeps a fleet.
pub(crate) struct Keeper {
    stop: CancellationToken,
    task: JoinHandle<()>,
    worker: watch::Receiver<Worker>,
}

impl Keeper {
    /// Starts a fleet here unless another process runs one.
    pub(crate) async fn start(store: &Store, settings: &Settings) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let lock = FleetLock::try_take(settings)?;
        let (told, worker) = watch::channel(Worker::Other);
        let (store, settings, stopped) = (store.clone(), settings.clone(), stop.clone());
        // Our own fleet starts before we ask, so that what is wrong with it is said at once.
        let fleet = match lock {
            Some(lock) => {
                let fleet = begin(&store, &settings, &told).await?;
                Some((lock, fleet))
            }
            None => None,
        };
        let task = tokio::spawn(async move {
            let (lock, fleet) = match fleet {
                Some(own) => own,
                None => {
                    let taken = tokio::select! {
                        () = stopped.cancelled() => return,
                        taken = FleetLock::take(&settings) => taken,
                    };
                    let own = match taken {
                        Ok(lock) => begin(&store, &settings, &told)
                            .await
                            .map(|fleet| (lock, fleet)),
                        Err(failure) => Err(failure),
                    };
                    match own {
                        Ok(own) => own,
                        Err(failure) => {
                            tracing::error!(%failure, "cannot take over");
                            drop(told.send(Worker::Failed(failure.to_string())));
                            return;
                        }
                    }
                }
            };
            stopped.cancelled().await;
            if let Err(failure) = settle(&store).await {
                tracing::warn!(%failure, "the graph is behind");
            }
            fleet.drain().await;
            drop(lock);
        });
        Ok(Self { stop, task, worker })
    }

    pub(crate) fn worker(&self) -> Worker {
        self.worker.borrow().clone()
    }

    /// Changes of who works, for whoever watches.
    pub(crate) fn receiver(&self) -> watch::Receiver<Worker> {
        self.worker.clone()
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the fleet was lost");
        }
    }
}

async fn begin(
    store: &Store,
    settings: &Settings,
    told: &watch::Sender<Worker>,
) -> Result<Fleet, Failure> {
    let engine = Engine::open(store.clone(), settings, &|_, _| {}).await?;
    let fleet = Fleet::start(&engine, settings, Roles::All)?;
    drop(told.send(Worker::Own {
        model: engine.model.reason.clone(),
    }));
    Ok(fleet)
}
