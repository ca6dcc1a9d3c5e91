//! A finished run whose rows went into an archive: what comes of it once more changes nothing.

use agentfleet_aggregator::{Ended, Endings};
use agentfleet_broker::{Broker as _, EmbeddedBroker, Options};
use agentfleet_documents::{Archive, Archived, Documents, EmbeddedDocuments};
use agentfleet_orchestrator::Orchestrator as Worker;
use agentfleet_runtime::{Disposition, Handler as _, SequentialCommitter, outgoing};
use agentfleet_schema::keys;
use agentfleet_schema::records::{OutcomeKind, Publication, StepRecord};
use agentfleet_schema::topics;
use agentfleet_storage::Database;
use agentfleet_tests::directed::Stage;
use agentfleet_tests::scenario::{Kind, Scenario, Use};
use agentfleet_tests::sim::Engine;
use object_store::memory::InMemory;
use std::sync::Arc;

// 18
#[test]
fn a_message_that_comes_again_after_its_run_was_archived_is_acknowledged_and_nothing_is_done() {
    let scenario = Scenario::new()
        .supervisor("r0", 2)
        .work("r0.1", Kind::React(vec![Use::Write]));
    let mut stage = Stage::asked(scenario, Engine::DISTRIBUTED);
    stage.end();
    let worked = (stage.starts(), stage.count("model calls"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(come_again(&stage));
    assert_eq!((stage.starts(), stage.count("model calls")), worked);
}

async fn come_again(stage: &Stage) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let broker = EmbeddedBroker::open(&database, Options::default()).unwrap();
    let rows: Arc<dyn Documents> = Arc::new(EmbeddedDocuments::open(&database).unwrap());
    let objects = stage.sim.with(|world| world.documents.clone());
    let root = stage.session("r0");
    let mut sessions = vec![root.clone()];
    let mut messages: Vec<Publication> = Vec::new();
    for (key, body) in &objects {
        rows.create(key, body.to_vec()).await.unwrap();
        if keys::step_of(key).is_some() {
            let record: StepRecord = serde_json::from_slice(body).unwrap();
            let again = record.publications.into_iter();
            messages.extend(again.filter(|one| one.topic == topics::AGENT_REQUEST.as_str()));
        }
        let session = keys::session_of(key).filter(|session| !sessions.contains(session));
        sessions.extend(session);
    }
    let archive = Archive::on(Arc::new(InMemory::new()), "s3://bucket", "");
    let archived = Arc::new(Archived::new(Arc::clone(&rows), archive));
    archived.archive(&sessions, 0).await.unwrap();
    assert!(archived.drop_rows(&sessions).await.unwrap());
    let left = rows.list("").await.unwrap();

    let documents: Arc<dyn Documents> = archived;
    let committer = SequentialCommitter::new(Arc::new(broker.clone()), Arc::clone(&documents));
    let options = stage.sim.options();
    let parts = agentfleet_orchestrator::Parts {
        broker: Arc::new(broker.clone()),
        documents: Arc::clone(&documents),
        committer: Arc::new(committer.clone()),
        ..stage.sim.parts().0
    };
    let worker = Worker::new(parts, options.clone());
    let mut consumer = broker.subscribe(options.subscription()).await.unwrap();
    // Those of the subagents, at least.
    assert!(messages.len() >= 2, "{messages:?}");
    for message in messages {
        broker.publish(vec![outgoing(message)]).await.unwrap();
        let delivery = consumer.receive(1).await.unwrap().remove(0);
        let came = worker.handle(&delivery).await;
        assert!(
            matches!(came, Disposition::Ack | Disposition::Settled),
            "{came:?}"
        );
    }
    assert_eq!(rows.list("").await.unwrap(), left, "nothing was written");

    let parts = agentfleet_aggregator::Parts {
        broker: Arc::new(broker.clone()),
        documents: Arc::clone(&documents),
        committer: Arc::new(committer),
        ..stage.sim.parts().1
    };
    let ended = Endings::new(parts)
        .end(&root, "cancelled", "somebody")
        .await;
    assert_eq!(ended.unwrap(), Ended::Before(OutcomeKind::Answer));
    assert_eq!(rows.list(keys::SESSIONS).await.unwrap(), [""; 0]);
}
