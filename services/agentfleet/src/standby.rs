//! Sees to it that a fleet runs while a command needs one: this process's own if no other has the
//! fleet lock, and its own as soon as the other goes.

use crate::clock;
use crate::engine::Engine;
use crate::error::Failure;
use crate::fleet::{Fleet, Roles};
use crate::lock::{FleetLock, Holder};
use crate::settings::Settings;
use crate::store::Store;
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

/// What is said when this process works in the place of another one.
pub(crate) fn has_taken_over(model: &str) -> String {
    format!(
        "The other process has gone; this one works now, and with it all that waits here. {model}"
    )
}

/// Keeps a fleet.
pub(crate) struct Standby {
    stop: CancellationToken,
    task: JoinHandle<()>,
    worker: watch::Receiver<Worker>,
}

impl Standby {
    /// Starts a fleet here unless another process runs one; on `engine`, where there is one already.
    pub(crate) async fn start(
        store: &Store,
        settings: &Settings,
        engine: Option<Engine>,
    ) -> Result<Self, Failure> {
        if store.embedded.is_none() {
            return Self::on_servers(settings, engine).await;
        }
        let stop = CancellationToken::new();
        let (told, worker) = watch::channel(Worker::Other);
        let mut start = Start {
            store: store.clone(),
            settings: settings.clone(),
            engine,
            told,
        };
        // Our own fleet starts before we ask, so that what is wrong with it is said at once.
        let own = match FleetLock::try_take(settings)? {
            Some(lock) => Some((start.fleet(&lock).await?, lock)),
            None => None,
        };
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let (fleet, lock) = match own {
                Some(own) => own,
                None => {
                    let taken = tokio::select! {
                        () = stopped.cancelled() => return,
                        taken = start.take_over() => taken,
                    };
                    match taken {
                        Ok(own) => own,
                        Err(failure) => {
                            tracing::error!(%failure, "cannot take over");
                            drop(start.told.send(Worker::Failed(failure.to_string())));
                            return;
                        }
                    }
                }
            };
            stopped.cancelled().await;
            fleet.drain().await;
            drop(lock);
        });
        Ok(Self { stop, task, worker })
    }

    /// Where any number of processes work: one more if it came to work, and none if it came to ask.
    async fn on_servers(settings: &Settings, engine: Option<Engine>) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let (own, fleet) = match engine {
            Some(engine) => {
                clock::watch(settings).await?;
                let fleet = Fleet::start(&engine, settings, Roles::All).await?;
                let model = engine.model.reason.clone();
                (Worker::Own { model }, Some((engine, fleet)))
            }
            None => (Worker::Other, None),
        };
        let (told, worker) = watch::channel(own);
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            stopped.cancelled().await;
            if let Some((_engine, fleet)) = fleet {
                fleet.drain().await;
            }
            drop(told);
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

/// What a fleet is started with.
struct Start {
    store: Store,
    settings: Settings,
    engine: Option<Engine>,
    told: watch::Sender<Worker>,
}

impl Start {
    async fn take_over(&mut self) -> Result<(Fleet, FleetLock), Failure> {
        let lock = FleetLock::take(&self.settings).await?;
        Ok((self.fleet(&lock).await?, lock))
    }

    async fn fleet(&mut self, lock: &FleetLock) -> Result<Fleet, Failure> {
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => Engine::open(self.store.clone(), &self.settings, &|_, _| {}).await?,
        };
        let fleet = Fleet::start(&engine, &self.settings, Roles::All).await?;
        lock.say(&Holder::of(&self.settings, Some(&engine.model)));
        drop(self.told.send(Worker::Own {
            model: engine.model.reason.clone(),
        }));
        Ok(fleet)
    }
}
