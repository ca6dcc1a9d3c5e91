//! What happens when a real Pulsar is killed, freezes, is not there, or does not trust us.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../server/mod.rs"]
mod server;
mod trust;

use agentfleet_broker::{
    Broker, Consumer, Durability, Error, Outgoing, PulsarBroker, PulsarOptions, Subscription,
};
use agentfleet_schema::topics::{AGENT_RESPONSE, Topic, property};
use server::Server;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) fn message(topic: &Topic, body: &str) -> Outgoing {
    Outgoing {
        topic: topic.clone(),
        payload: body.into(),
        properties: [(property::ROOT.to_owned(), "root".to_owned())].into(),
        deliver_at: None,
        durability: Durability::Durable,
    }
}

pub(crate) async fn subscribe(broker: &PulsarBroker, topic: &Topic) -> Box<dyn Consumer> {
    let subscription = Subscription {
        topic: topic.clone(),
        name: "workers".to_owned(),
        only: None,
        lease: Duration::from_secs(60),
        max_deliveries: None,
    };
    broker.subscribe(subscription).await.unwrap()
}

/// Publishes numbered messages one after the other, and tells of each that was confirmed.
fn publish_numbers(
    broker: &PulsarBroker,
    topic: &Topic,
    stop: &Arc<AtomicBool>,
) -> mpsc::UnboundedReceiver<String> {
    let (confirmed, numbers) = mpsc::unbounded_channel();
    let (broker, topic, stop) = (broker.clone(), topic.clone(), Arc::clone(stop));
    tokio::spawn(async move {
        for number in 0.. {
            let text = number.to_string();
            if broker.publish(vec![message(&topic, &text)]).await.is_ok() {
                confirmed.send(text).unwrap();
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    numbers
}

/// Acknowledges everything, and tells of each message.
fn consume(
    broker: &PulsarBroker,
    mut consumer: Box<dyn Consumer>,
) -> mpsc::UnboundedReceiver<String> {
    let (seen, messages) = mpsc::unbounded_channel();
    let broker = broker.clone();
    tokio::spawn(async move {
        loop {
            for delivery in consumer.receive(16).await.unwrap() {
                broker.ack(&delivery).await.unwrap();
                let text = String::from_utf8(delivery.payload.to_vec()).unwrap();
                if seen.send(text).is_err() {
                    return;
                }
            }
        }
    });
    messages
}

async fn some(numbers: &mut mpsc::UnboundedReceiver<String>, count: usize) -> Vec<String> {
    let mut some = Vec::new();
    while some.len() < count {
        some.push(numbers.recv().await.unwrap());
    }
    some
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_when_the_broker_is_killed_and_comes_back() {
    let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
    let server = Arc::new(server);
    let broker = PulsarBroker::connect(server.options()).await.unwrap();
    let (work, echoed) = (Topic::named("work"), AGENT_RESPONSE);
    broker
        .ensure(std::slice::from_ref(&echoed), &[])
        .await
        .unwrap();
    let consumer = subscribe(&broker, &work).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut confirmed = publish_numbers(&broker, &work, &stop);
    let mut responses = publish_numbers(&broker, &echoed, &stop);
    let mut seen = consume(&broker, consumer);
    let reading = {
        let (broker, topic) = (broker.clone(), echoed.clone());
        let count = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&count);
        let task = tokio::spawn(async move {
            let (mut after, mut all) = (0, BTreeSet::new());
            while !all.contains("end") {
                for one in broker.read(&topic, "root", after, 100).await.unwrap() {
                    after = one.position;
                    all.insert(String::from_utf8(one.payload.to_vec()).unwrap());
                }
                told.store(all.len(), Ordering::Relaxed);
            }
            all
        });
        (task, count)
    };
    let mut sent = some(&mut confirmed, 200).await;
    let mut got: BTreeSet<String> = some(&mut seen, 100).await.into_iter().collect();
    for _ in 0..2 {
        let killed = Arc::clone(&server);
        tokio::task::spawn_blocking(move || {
            killed.run("kill");
            killed.run("start");
        })
        .await
        .unwrap();
        // Both go on by themselves.
        sent.extend(some(&mut confirmed, 200).await);
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(last) = confirmed.recv().await {
        sent.push(last);
    }
    let mut told = Vec::new();
    while let Some(response) = responses.recv().await {
        told.push(response);
    }
    while !sent.iter().all(|number| got.contains(number)) {
        got.insert(seen.recv().await.unwrap());
    }
    broker.publish(vec![message(&echoed, "end")]).await.unwrap();
    let read = reading.0.await.unwrap();
    assert!(told.len() > 100, "responses went on too: {}", told.len());
    assert!(told.iter().all(|response| read.contains(response)));
    assert!(reading.1.load(Ordering::Relaxed) >= told.len());
}

/// Whether every thread of a process is stopped.
fn is_frozen(pid: &str) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.all(|thread| {
        // What ended meanwhile has no state.
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        // The name before the state may hold anything.
        stat.rsplit_once(") ")
            .is_none_or(|(_, state)| state.starts_with('T'))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_broker_is_left_and_found_again() {
    let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
    let mut options = server.options();
    options.publish_timeout = Duration::from_secs(2);
    let broker = PulsarBroker::connect(options.clone()).await.unwrap();
    let topic = Topic::named("frozen");
    let mut seen = consume(&broker, subscribe(&broker, &topic).await);
    broker
        .publish(vec![message(&topic, "before")])
        .await
        .unwrap();
    assert_eq!(some(&mut seen, 1).await, ["before"]);
    broker.ready().await.unwrap();
    let status = server.run("status");
    let pid = status
        .lines()
        .find_map(|line| line.strip_prefix("pid: "))
        .unwrap()
        .to_owned();
    let signal = |name: &str| {
        let sent = Command::new("kill")
            .args([name, pid.as_str()])
            .status()
            .unwrap();
        assert!(sent.success());
    };
    signal("-STOP");
    // The signal is sent, and each thread stops in its own time.
    while !is_frozen(&pid) {
        tokio::task::yield_now().await;
    }
    // Who asks whether it is ready is told that it is not, and does not wait for it.
    let silent = broker.ready().await.unwrap_err();
    assert!(matches!(silent, Error::Unreachable { .. }), "{silent}");
    // It still has its port, but nobody answers: not for ever.
    let error = broker
        .publish(vec![message(&topic, "meanwhile")])
        .await
        .unwrap_err();
    assert!(error.retry().is_some(), "{error}");
    let unreachable = PulsarBroker::connect(options).await.unwrap_err();
    assert!(
        matches!(unreachable, Error::Unreachable { .. }),
        "{unreachable}"
    );
    signal("-CONT");
    while let Err(error) = broker.publish(vec![message(&topic, "after")]).await {
        assert!(error.retry().is_some(), "{error}");
    }
    while seen.recv().await.unwrap() != "after" {}
    broker.ready().await.unwrap();
}

#[tokio::test]
async fn what_is_not_there_is_named_with_what_to_check() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let url = format!("pulsar://127.0.0.1:{port}");
    let error = PulsarBroker::connect(PulsarOptions::new(&url))
        .await
        .unwrap_err();
    let Error::Unreachable { url: named, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*named, url);
    assert!(error.to_string().contains("Is it running"), "{error}");
    assert!(error.retry().is_some());
    let error = PulsarBroker::connect(PulsarOptions::new("localhost:6650"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::ServiceUrl(_)), "{error}");
    assert!(error.retry().is_none());
}

#[tokio::test]
async fn what_answers_but_is_no_pulsar_is_said_to_be_none() {
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
        }
    });
    let error = PulsarBroker::connect(PulsarOptions::new(&url))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}
