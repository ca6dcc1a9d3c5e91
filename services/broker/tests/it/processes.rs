//! Several instances on one data directory: competing, waking each other, outliving each other.

use crate::support::embedded;
use agentfleet_broker::{
    Broker, Consumer, Durability, EmbeddedBroker, Options, Outgoing, Subscription,
};
use agentfleet_schema::topics::{AGENT_REQUEST, AGENT_RESPONSE, property};
use agentfleet_storage::{self as storage, Database};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn message(body: &str) -> Outgoing {
    Outgoing {
        topic: AGENT_REQUEST,
        payload: body.into(),
        properties: [(property::ROOT.to_owned(), "session".to_owned())].into(),
        deliver_at: None,
        durability: Durability::Durable,
    }
}

async fn subscribe(broker: &EmbeddedBroker) -> Box<dyn Consumer> {
    let subscription = Subscription {
        topic: AGENT_REQUEST,
        name: "workers".to_owned(),
        only: None,
        // So long that nothing here can wait for its end.
        lease: Duration::from_hours(24 * 365),
        max_deliveries: None,
    };
    broker.subscribe(subscription).await.unwrap()
}

fn open(directory: &Path) -> EmbeddedBroker {
    EmbeddedBroker::open(&Database::open(directory).unwrap(), Options::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_share_a_subscription_and_each_message_goes_to_one() {
    let fixture = embedded(3);
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for broker in &fixture.brokers[..2] {
        let mut consumer = subscribe(broker).await;
        let (broker, arrived) = (broker.clone(), arrived.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                for delivery in consumer.receive(5).await.unwrap() {
                    arrived.send(delivery.payload.to_vec()).unwrap();
                    broker.ack(&delivery).await.unwrap();
                }
            }
        }));
    }
    drop(arrived);
    for chunk in 0..30_u8 {
        let messages = (0..10_u8).map(|number| Outgoing {
            payload: vec![chunk, number],
            ..message("")
        });
        fixture.brokers[2]
            .publish(messages.collect())
            .await
            .unwrap();
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 300 {
        let body = arrivals.recv().await.unwrap();
        assert!(seen.insert(body.clone()), "{body:?} came twice");
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn who_waits_is_woken_by_what_another_instance_publishes() {
    let fixture = embedded(2);
    let [one, two] = [&fixture.brokers[0], &fixture.brokers[1]];
    let mut consumer = subscribe(two).await;
    for round in 0..20 {
        let body = format!("{round}");
        let (received, published) =
            tokio::join!(biased; consumer.receive(1), one.publish(vec![message(&body)]));
        published.unwrap();
        let received = received.unwrap().remove(0);
        assert_eq!(received.payload.as_ref(), body.as_bytes());
        two.ack(&received).await.unwrap();
    }
    let topic = AGENT_RESPONSE;
    let retained = Outgoing {
        topic: topic.clone(),
        ..message("answer")
    };
    let reading = two.read(&topic, "session", 0, 10);
    let (read, published) = tokio::join!(biased; reading, one.publish(vec![retained]));
    published.unwrap();
    assert_eq!(read.unwrap().len(), 1);
}

#[tokio::test]
async fn who_waits_is_woken_when_the_delay_or_lease_of_another_instance_ends() {
    let fixture = embedded(2);
    let [one, two] = [&fixture.brokers[0], &fixture.brokers[1]];
    let short = Subscription {
        topic: AGENT_REQUEST,
        name: "workers".to_owned(),
        only: None,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    };
    let mut slow = one.subscribe(short).await.unwrap();
    let mut consumer = subscribe(two).await;
    one.publish(vec![message("leased")]).await.unwrap();
    slow.receive(1).await.unwrap();
    let delayed = Outgoing {
        deliver_at: Some(crate::support::START + 60_000),
        ..message("delayed")
    };
    one.publish(vec![delayed]).await.unwrap();
    for expected in ["leased", "delayed"] {
        let moved = async { fixture.clock.advance(Duration::from_secs(31)) };
        let (received, ()) = tokio::join!(biased; consumer.receive(1), moved);
        assert_eq!(received.unwrap()[0].payload.as_ref(), expected.as_bytes());
    }
}

const PLACE: &str = "AGENTFLEET_TEST_DIRECTORY";

/// Not a test: what the child process of the tests below does.
#[tokio::test]
#[ignore = "runs in a child process of the tests below"]
async fn child_that_holds_a_message() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let broker = open(Path::new(&place));
    let mut consumer = subscribe(&broker).await;
    let held = consumer.receive(1).await.unwrap();
    println!("holding {}", held.len());
    std::future::pending::<()>().await;
}

/// Starts a process that takes a message, and returns once it has it.
fn holder(directory: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "processes::child_that_holds_a_message",
            "--ignored",
            "--nocapture",
        ])
        .env(PLACE, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let holding = output
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("holding 1"));
    assert!(holding, "the child ended without a message");
    child
}

#[tokio::test]
async fn what_a_killed_process_held_goes_to_a_living_one_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    let mut consumer = subscribe(&broker).await;
    broker.publish(vec![message("a")]).await.unwrap();
    let mut child = holder(directory.path());
    let stats = broker.stats().await.unwrap();
    assert_eq!(stats.iter().map(|one| one.in_flight).sum::<u64>(), 1);

    child.kill().unwrap();
    child.wait().unwrap();
    let received = consumer.receive(1).await.unwrap().remove(0);
    assert_eq!(received.payload.as_ref(), b"a");
    assert_eq!(
        received.deliveries,
        Some(2),
        "the attempt of the dead counts"
    );
}

#[tokio::test]
async fn what_one_held_that_came_and_went_unseen_is_let_go_of() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    let mut consumer = subscribe(broker).await;
    broker.publish(vec![message("a")]).await.unwrap();
    let taken = broker
        .database()
        .write(storage::Durability::Process, |unit| {
            let (later, owner) = (unit.now() + 1_000_000, 90);
            unit.tx().execute(
                "UPDATE deliveries SET ready_at = ?1, owner = ?2",
                [later, owner],
            )?;
            Ok(())
        });
    taken.await.unwrap();
    let run = fixture.directory.path().join("run");
    fs::write(run.join("90.lock"), "").unwrap();
    // Its greeting is read only after its death.
    UnixDatagram::unbound()
        .unwrap()
        .send_to(b"h", run.join("1.sock"))
        .unwrap();
    let received = consumer.receive(1).await.unwrap();
    assert_eq!(received[0].payload.as_ref(), b"a");
}

#[tokio::test]
async fn what_a_killed_process_held_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let broker = open(directory.path());
    drop(subscribe(&broker).await);
    broker.publish(vec![message("a")]).await.unwrap();
    drop(broker);
    for round in 1..3 {
        let mut child = holder(directory.path());
        child.kill().unwrap();
        child.wait().unwrap();
        let broker = open(directory.path());
        let mut consumer = subscribe(&broker).await;
        let received = consumer.receive(1).await.unwrap().remove(0);
        assert_eq!(received.deliveries, Some(2 * round));
    }
}

#[tokio::test]
async fn what_a_living_process_holds_is_left_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let mut holding = subscribe(&first).await;
    first.publish(vec![message("held")]).await.unwrap();
    let held = holding.receive(1).await.unwrap();
    // Neither one that opens nor one that dies takes it away.
    let second = open(directory.path());
    let mut waiting = subscribe(&second).await;
    first.publish(vec![message("for the child")]).await.unwrap();
    let mut child = holder(directory.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let received = waiting.receive(10).await.unwrap();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].payload.as_ref(), b"for the child");
    first.ack(&held[0]).await.unwrap();
    second.ack(&received[0]).await.unwrap();
    assert!(
        first
            .backlog()
            .await
            .unwrap()
            .iter()
            .all(|(_, waiting)| *waiting == 0)
    );
}
