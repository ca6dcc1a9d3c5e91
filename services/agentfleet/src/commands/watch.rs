//! Watching a run: lanes for people, one event per line for programs.

use crate::error::{Exit, Failure};
use crate::fleet::Store;
use crate::keeper::Worker;
use crate::ui::Ui;
use agentfleet_runtime::client::{Event, Follow};
use agentfleet_schema::SessionId;
use std::sync::Arc;
use tokio::sync::watch;

/// Follows a root session from its beginning to its end. Ctrl-C leaves it: the run is durable.
pub(crate) async fn watch(
    store: &Store,
    session: &SessionId,
    ui: Ui,
    json: bool,
    mut worker: watch::Receiver<Worker>,
) -> Result<(), Failure> {
    let (broker, documents) = (Arc::new(store.broker.clone()), Arc::new(store.documents.clone()));
    let mut follow = Follow::new(broker, documents, session.clone(), 0);
    let _ = ui;
    loop {
        let followed = tokio::select! {
            followed = follow.next() => followed?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Err(left(session, &worker.borrow()));
            }
            Ok(()) = worker.changed() => {
                if let Worker::Failed(reason) = &*worker.borrow_and_update() {
                    return Err(Failure::new(Exit::Unavailable, format!("nobody works the run: {reason}"))
                        .hint(format!("agentfleet attach {session}")));
                }
                continue;
            }
        };
        if json {
            let line = serde_json::to_string(&followed.response)
                .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
            println!("{line}");
        }
        for event in followed.events {
            match event {
                Event::Chunk { .. } => {}
                Event::Message { text, response, .. } if !json => {
                    eprintln!("{} {:?}: {text}", response.session_id, response.message_type);
                }
                Event::Note(note) if !json => eprintln!("{} {}", note.session_id, note.content),
                Event::Message { .. } | Event::Note(_) => {}
                Event::End { text, error, .. } => {
                    if !json {
                        println!("{text}");
                    }
                    return match error {
                        Some(error) => {
                            let failure = Failure::new(Exit::Failed, error.message);
                            Err(match error.hint {
                                Some(hint) => failure.hint(hint),
                                None => failure,
                            })
                        }
                        None => Ok(()),
                    };
                }
            }
        }
    }
}

fn left(session: &SessionId, worker: &Worker) -> Failure {
    let who = match worker {
        Worker::Other => "the run goes on",
        Worker::Own { .. } | Worker::Failed(_) => {
            "the run is kept and goes on when a fleet runs (`agentfleet up`, or the next `ask` or `attach`)"
        }
    };
    Failure::new(Exit::Left, format!("left before the end; {who}"))
        .hint(format!("agentfleet attach {session}"))
}
