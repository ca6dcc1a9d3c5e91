//! `migrate`: moves what a data directory holds to the servers that the settings name, runs in
//! progress included.
//!
//! Records go before messages, so that no worker of the other side meets a step whose past is not
//! there. Everything may be done again: what is there already is compared, provenance is a set, and
//! a message that comes twice changes nothing. So a migration that was cut off is started anew.

use crate::engine::open_graph;
use crate::error::{Exit, Failure};
use crate::lock::FleetLock;
use crate::relocation::{self, Relocation};
use crate::settings::{Place, Settings};
use crate::store::Store;
use crate::ui;
use agentfleet_broker::{Broker, EmbeddedBroker, Options as BrokerOptions};
use agentfleet_documents::{Created, Documents, EmbeddedDocuments};
use agentfleet_graph::Graph;
use agentfleet_library::Library;
use agentfleet_schema::redacted;
use agentfleet_schema::topics::CONFIG_CHANGES;
use agentfleet_storage::{Database, FILE};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use indicatif::ProgressBar;
use std::sync::Arc;

/// Objects that are on their way at the same time.
const AT_ONCE: usize = 16;
/// Objects or messages read at once.
const PAGE: usize = 200;

pub(crate) async fn migrate(settings: &Settings) -> Result<(), Failure> {
    let address = |place: &Place| match place {
        Place::Embedded => None,
        Place::At(address) => Some(redacted(address).into_owned()),
    };
    let moved = Relocation::read(settings)?;
    let target = Relocation {
        broker: address(&settings.broker),
        records: address(&settings.records),
        graph: address(&settings.graph),
        unfinished: None,
    };
    if !settings.on_servers() {
        return Err(Failure::usage("there is nothing to move: every part is embedded")
            .hint("name where to, such as `--broker pulsar://HOST:6650 --records postgres://USER@HOST/DATABASE --graph http://HOST:3030/ds`"));
    }
    if !settings.data.join(FILE).exists() {
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is no fleet in `{}`", settings.data.display()),
        )
        .hint("`--data DIR` names the data directory that is moved"));
    }
    let database = Database::open(&settings.data)?;
    let Some(_lock) = FleetLock::try_take(settings)? else {
        let pid = FleetLock::holder(settings)?.map_or(0, |holder| holder.pid);
        return Err(Failure::new(
            Exit::Unavailable,
            format!(
                "process {pid} works on `{}`: stop it first",
                settings.data.display()
            ),
        ));
    };
    moved.check_parts(settings)?;
    moved.check_target(settings)?;
    let store = Store::connect(settings).await?;
    if moved == target {
        // A move may have been cut off just before it said so there.
        relocation::end(&*store.documents).await?;
        outln!("It was moved there already.");
        return Ok(());
    }
    copy_all(moved, target, &database, &store, settings).await?;
    outln!(
        "\nMoved. What was in `{}` is not worked there any more.",
        settings.data.display()
    );
    Ok(())
}

/// Copies everything, and notes at both ends that it is under way until all is there.
async fn copy_all(
    mut moved: Relocation,
    target: Relocation,
    database: &Database,
    store: &Store,
    settings: &Settings,
) -> Result<(), Failure> {
    let begun = moved.unfinished.as_deref() == Some(&target);
    relocation::check_empty(&*store.documents, begun).await?;
    // From here on what is there is a part of the fleet, and every start says so.
    moved.unfinished = Some(Box::new(target.clone()));
    moved.write(settings)?;
    relocation::begin(&*store.documents).await?;
    let own = EmbeddedDocuments::open(database)?;
    let objects = copy_documents(&own, &*store.documents).await?;
    outln!("records    {objects} records, texts and versions of the config");
    let (graph, _) = open_graph(store, settings, &|_, _| {}).await?;
    let loaded = take_over(database, store, Arc::clone(&graph), settings).await?;
    outln!("library    {loaded} loaded documents");
    let statements = copy_graph(database, &*graph).await?;
    outln!("graph      {statements} statements");
    store.establish(settings).await?;
    let own = EmbeddedBroker::open(database, BrokerOptions::default())?;
    let messages = copy_messages(&own, &*store.broker).await?;
    outln!("broker     {messages} messages");
    // Until then the old state is the one that counts, and nobody starts on the new one.
    target.write(settings)?;
    relocation::end(&*store.documents).await
}

/// Copies every object, and answers how many there were.
async fn copy_documents(from: &dyn Documents, to: &dyn Documents) -> Result<u64, Failure> {
    let bar = bar("records");
    let mut after = String::new();
    let mut count = 0;
    loop {
        let page = from.entries("", &after, PAGE).await?;
        let Some(last) = page.last() else {
            break;
        };
        after.clone_from(&last.key);
        let copies: Vec<_> = page
            .iter()
            .map(|entry| copy(from, to, &entry.key))
            .collect();
        count += copies.len() as u64;
        stream::iter(copies)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        bar.set_position(count);
    }
    bar.finish_and_clear();
    Ok(count)
}

async fn copy(from: &dyn Documents, to: &dyn Documents, key: &str) -> Result<(), Failure> {
    let Some(body) = from.get(key).await? else {
        return Ok(());
    };
    if to.create(key, body.to_vec()).await? == Created::New {
        return Ok(());
    }
    match to.get(key).await? {
        Some(there) if there == body => Ok(()),
        _ => Err(Failure::new(
            Exit::Failed,
            format!("`{key}` is at the target already, and is another"),
        )
        .hint("the target has runs of its own: move to an empty schema")),
    }
}

/// Loaded documents go to the shared library; a document that it holds already stays as it is there.
async fn take_over(
    database: &Database,
    store: &Store,
    graph: Arc<dyn Graph>,
    settings: &Settings,
) -> Result<u64, Failure> {
    let own = Library::open(database.clone(), Arc::clone(&graph))?;
    let library = store.library(graph, settings).await?;
    let bar = bar("loaded documents");
    let progress = |count| bar.set_position(count);
    let moved = library.take_over(&own, &progress).await?;
    bar.finish_and_clear();
    Ok(moved)
}

async fn copy_graph(database: &Database, to: &dyn Graph) -> Result<u64, Failure> {
    let bar = bar("statements");
    bar.set_length(agentfleet_graph::export::statements(database).await?);
    let mut after = 0;
    let mut count = 0;
    while let Some((last, batches)) = agentfleet_graph::export::batches(database, after).await? {
        after = last;
        count += batches
            .iter()
            .map(|batch| batch.triples.len() as u64)
            .sum::<u64>();
        to.insert(batches).await?;
        bar.set_position(count);
    }
    bar.finish_and_clear();
    Ok(count)
}

async fn copy_messages(from: &EmbeddedBroker, to: &dyn Broker) -> Result<u64, Failure> {
    let bar = bar("messages");
    let mut after = 0;
    let mut count = 0;
    loop {
        let page = from.kept(after, PAGE).await?;
        let Some(last) = page.last() else {
            break;
        };
        after = last.id;
        let messages = page.into_iter().map(|kept| kept.message);
        // What this side was told of its config concerns nobody there.
        let messages: Vec<_> = messages
            .filter(|message| message.topic != CONFIG_CHANGES)
            .collect();
        count += messages.len() as u64;
        to.publish(messages).await?;
        bar.set_position(count);
    }
    bar.finish_and_clear();
    Ok(count)
}

fn bar(what: &'static str) -> ProgressBar {
    ui::bar("{spinner} {msg} {human_pos} {elapsed}").with_message(what)
}
