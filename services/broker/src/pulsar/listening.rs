//! Listening to a topic: readers that begin with what comes next. Pulsar forgets them with their connection.

use super::cluster::Cluster;
use super::reader::{Reader, latest, start_after};
use super::retained::reopened;
use crate::{Error, Retained};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Messages on their way to who listens.
const AHEAD: usize = 500;

/// A reader of one part of a topic, and the position of the last message before it, where the topic has any.
async fn open(cluster: &Cluster, part: &str) -> Result<(Reader, i64), Error> {
    let reader = Reader::open(cluster, part, latest()).await?;
    // Of a topic that keeps nothing Pulsar knows no last message.
    let last = if part.starts_with("persistent://") {
        reader.last().await?
    } else {
        0
    };
    Ok((reader, last))
}

pub(super) async fn listen(
    cluster: &Arc<Cluster>,
    topic: &str,
    stop: &CancellationToken,
) -> Result<mpsc::Receiver<Retained>, Error> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    for part in cluster.parts(topic).await? {
        let (reader, last) = open(cluster, &part).await?;
        let (cluster, sender, stop) = (Arc::clone(cluster), sender.clone(), stop.clone());
        tokio::spawn(async move {
            let _task = cluster.tasks().token();
            tokio::select! {
                () = pass_on(&cluster, &part, (reader, last), &sender, &stop) => {}
                () = sender.closed() => {}
                () = stop.cancelled() => {}
            }
        });
    }
    Ok(receiver)
}

async fn pass_on(
    cluster: &Cluster,
    part: &str,
    (mut reader, mut last): (Reader, i64),
    sender: &mpsc::Sender<Retained>,
    stop: &CancellationToken,
) {
    let mut backoff = cluster.backoff();
    let witness = cluster.outage.witness();
    loop {
        match reader.next().await {
            Ok((at, message)) => {
                backoff = backoff.fresh();
                let Some(message) = message else {
                    continue;
                };
                last = at;
                if sender.send(message).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(topic = part, %error, "listening again");
                let start = if last > 0 {
                    start_after(last)
                } else {
                    latest()
                };
                match reopened(cluster, part, start, &mut backoff, &witness, stop).await {
                    Some(opened) => reader = opened,
                    None => return,
                }
            }
        }
    }
}
