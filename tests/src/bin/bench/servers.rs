//! The fleet on real servers, beside a raw hop on the same broker in the same run: overhead of an
//! iteration and where it goes, supervisors, fan-in, provenance, memory, start.
//!
//! The parent starts the servers and itself again with the settings of a fleet on them, so that all
//! roles get their settings as they do in production: from the environment.

use crate::counted::{Calls, Tally};
use crate::embedded::{RUN, STEPS_A_RUN, WARM_UP, fan_in_of, load, supervised, warm_up};
use crate::instant::{Noop, ask, make_instant};
use crate::roles::{self, Report, Role, Shipped, Usage};
use crate::work::{Done, until_idle};
use crate::{Result, quantile};
use agentfleet::engine::Engine;
use agentfleet::settings::{Flags, Place, Settings};
use agentfleet::store::Store;
use agentfleet_broker::{
    Broker, Durability, Outgoing, Properties, PulsarBroker, PulsarOptions, Subscription,
};
use agentfleet_runtime::client::{Follow, submit};
use agentfleet_schema::topics::{self, Topic, property};
use agentfleet_schema::{AgentRequest, Metadata, Term, Triple, Triples};
use agentfleet_servers::Server;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// About what a request message of the loads below has, properties included.
const HOP_BYTES: usize = 2 * 1024;
/// As long as one measurement of raw hops takes.
const HOPS: Duration = Duration::from_secs(3);
/// Orchestrators at work, each with `CONCURRENCY`.
const ORCHESTRATORS: usize = 2;
const CONCURRENCY: &str = "32";
/// The variable with a dataset in memory to count siblings in.
const SIBLINGS: &str = "BENCH_SIBLINGS";
/// Supervisors worked before they are measured.
const SUPERVISORS_BEFORE: usize = 100;

/// Starts the servers, and this program again on them.
pub(crate) fn start() -> Result<()> {
    let (pulsar, fuseki) = (Server::pulsar(), Server::fuseki(None));
    let postgres = Server::postgres("");
    let siblings = Server::fuseki_in_memory();
    let pids = format!(
        "pulsar={} fuseki={} postgres={}",
        pulsar.pid(),
        fuseki.pid(),
        postgres.pid()
    );
    let data = tempfile::tempdir()?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(crate::ON_SERVERS)
        .env("BENCH_SERVERS", &pids)
        .env(SIBLINGS, siblings.address())
        .env("AGENTFLEET_DATA", data.path())
        .env("AGENTFLEET_MODEL", "offline")
        .env("AGENTFLEET_CONCURRENCY", CONCURRENCY)
        .env("AGENTFLEET_BROKER", pulsar.address())
        .env("AGENTFLEET_BROKER_ADMIN", pulsar.admin())
        .env("AGENTFLEET_RECORDS", postgres.address())
        .env("AGENTFLEET_GRAPH", fuseki.address())
        .stdin(Stdio::piped())
        .spawn()?;
    // Waiting would close it, and it ends with its input.
    let input = child.stdin.take();
    let ended = child.wait()?;
    drop(input);
    if !ended.success() {
        return Err("the bench on servers failed".into());
    }
    Ok(())
}

/// The bench itself, with the settings of a fleet in the environment.
pub(crate) async fn run() -> Result<()> {
    // The servers end with the parent, and without them there is nothing to measure.
    std::thread::spawn(|| {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        std::process::exit(1);
    });
    let settings = Settings::load(&Flags::default())?;
    let store = Store::open(&settings).await?;
    store.prepare(&settings).await?;
    Noop::allow(&*store.config).await?;
    let mut engine = Engine::open(store, &settings, &|_, _| {}).await?;
    make_instant(&mut engine);
    println!(
        "\nOn Pulsar, PostgreSQL and a SPARQL store; {ORCHESTRATORS} orchestrators of {CONCURRENCY}"
    );
    idle().await?;
    starts(&engine).await?;
    let mut crew = Crew::start(&[])?;
    iterations(&engine, &settings, &mut crew).await?;
    println!("\nA supervisor with 4 subagents of 2 steps, request to answer");
    supervisors(&engine, &mut crew).await?;
    drop(crew);
    println!("\nThe same, siblings counted in a dataset in memory (`coordination`)");
    let siblings = std::env::var(SIBLINGS)?;
    let mut crew = Crew::start(&[("AGENTFLEET_COORDINATION", &siblings)])?;
    supervisors(&engine, &mut crew).await?;
    drop(crew);
    let mut crew = Crew::start(&[])?;
    println!("\nFan-in: a supervisor with N subagents of 1 step");
    fan_in_of(&engine, &[2, 8, 64, 1_000]).await?;
    late(&engine, &settings).await?;
    memory(&mut crew)?;
    drop(crew);
    triples(&engine, &settings).await
}

/// The fleet at work, and the servers it works on.
struct Crew {
    roles: Vec<Role>,
    servers: Vec<(String, u32)>,
}

/// What the crew did and used up to one moment, or between two.
#[derive(Default)]
struct Ledger {
    orchestrators: Tally,
    /// Written into the graph.
    triples: u64,
    used: Vec<(String, u64)>,
}

impl Crew {
    fn start(settings: &[(&str, &str)]) -> Result<Self> {
        let mut names = vec!["orchestrator"; ORCHESTRATORS];
        names.extend(["aggregator", "graph-writer"]);
        let servers = std::env::var("BENCH_SERVERS")?;
        Ok(Self {
            roles: names
                .into_iter()
                .map(|name| Role::start(name, settings))
                .collect::<Result<_>>()?,
            servers: servers
                .split(' ')
                .filter_map(|pair| pair.split_once('='))
                .filter_map(|(name, pid)| Some((name.to_owned(), pid.parse().ok()?)))
                .collect(),
        })
    }

    fn reports(&mut self) -> Result<Vec<(&'static str, Report)>> {
        let reports = self.roles.iter_mut();
        reports
            .map(|role| Ok((role.name, role.report()?)))
            .collect()
    }

    fn ledger(&mut self) -> Result<Ledger> {
        let mut ledger = Ledger::default();
        for (name, report) in self.reports()? {
            ledger.use_time(name, report.usage.cpu_ms);
            let inserts = report.tally.get("graph insert").copied();
            ledger.triples += inserts.unwrap_or_default().things;
            if name == "orchestrator" {
                for (call, calls) in report.tally {
                    let all = ledger.orchestrators.entry(call).or_default();
                    all.count += calls.count;
                    all.things += calls.things;
                    all.micros += calls.micros;
                }
            }
        }
        for (name, pid) in &self.servers {
            ledger.use_time(name, Usage::of_server(*pid)?.cpu_ms);
        }
        ledger.use_time("clients", Usage::of(std::process::id())?.cpu_ms);
        Ok(ledger)
    }
}

impl Ledger {
    fn use_time(&mut self, name: &str, millis: u64) {
        match self.used.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += millis,
            None => self.used.push((name.to_owned(), millis)),
        }
    }

    fn since(mut self, before: &Self) -> Self {
        for (call, calls) in &mut self.orchestrators {
            let earlier = before.orchestrators.get(call).copied().unwrap_or_default();
            calls.count -= earlier.count;
            calls.things -= earlier.things;
            calls.micros -= earlier.micros;
        }
        self.triples -= before.triples;
        for ((_, now), (_, then)) in self.used.iter_mut().zip(&before.used) {
            *now -= then;
        }
        self
    }

    /// What the orchestrators did for each of `iterations`, and who used which processor time.
    fn print(&self, iterations: f64) {
        println!("  calls of an orchestrator for each iteration:");
        println!(
            "    {:<20} {:>7} {:>8} {:>9} {:>14}",
            "", "calls", "things", "ms a call", "ms in sequence"
        );
        for (
            call,
            Calls {
                count,
                things,
                micros,
            },
        ) in &self.orchestrators
        {
            if *count as f64 / iterations < 0.005 {
                continue;
            }
            let millis = *micros as f64 / 1_000.0;
            println!(
                "    {call:<20} {:>7.2} {:>8.2} {:>9.2} {:>14.2}",
                *count as f64 / iterations,
                *things as f64 / iterations,
                millis / *count as f64,
                millis / iterations,
            );
        }
        let of_documents = self.orchestrators.iter();
        let rounds: u64 = of_documents
            .filter(|(call, _)| call.starts_with("documents "))
            .map(|(_, calls)| calls.count)
            .sum();
        let rounds = rounds as f64 / iterations;
        println!("  calls of the documents store for each iteration: {rounds:.2}");
        let mut line = String::from("  processor time for each iteration, ms:");
        let mut sum = 0.0;
        for (name, millis) in &self.used {
            let each = *millis as f64 / iterations;
            sum += each;
            write!(line, " {name} {each:.2},").ok();
        }
        println!("{line} together {sum:.2}");
    }
}

async fn iterations(engine: &Engine, settings: &Settings, crew: &mut Crew) -> Result<()> {
    let Place::At(broker) = &settings.broker else {
        return Err("the broker must be on a server".into());
    };
    println!(
        "\nOverhead per iteration (instant model and tool; provenance, records, streaming on)"
    );
    println!(
        "A hop: a message is received, the next one published and confirmed, the first acknowledged."
    );
    warm_up(engine, WARM_UP).await?;
    for sessions in [1, 16, 64] {
        let before_hops = hops(broker, sessions).await?;
        let before_work = Done::count(engine).await?;
        let before = crew.ledger()?;
        let (runs, took) = load(engine, sessions, Duration::from_secs(20)).await?;
        let began = Instant::now();
        let did = crew.ledger()?.since(&before);
        until_idle(engine).await?;
        let settled = took + began.elapsed();
        let whole = crew.ledger()?.since(&before);
        let triples = Done::count(engine)
            .await?
            .check(before_work, RUN.times(runs))?;
        // Before and after, since others may use the machine meanwhile.
        let hops = f64::midpoint(before_hops, hops(broker, sessions).await?);
        let count = (runs * STEPS_A_RUN) as f64;
        let rate = count / took.as_secs_f64();
        println!(
            "{sessions:>4} sessions, {count} iterations: {rate:>6.1} a second ({:.1} ms each), sustained {:.1}; {hops:.0} raw hops/s ({:.2} ms each): {:.1} hops an iteration",
            1_000.0 * sessions as f64 / rate,
            count / settled.as_secs_f64(),
            1_000.0 * sessions as f64 / hops,
            hops / rate
        );
        println!(
            "  triples of an iteration: {triples:.1}, of which {:.1} were written when the last answer came",
            did.triples as f64 / count
        );
        whole.print(count);
    }
    Ok(())
}

/// Hops a second, so many at once.
async fn hops(url: &str, sessions: usize) -> Result<f64> {
    let broker = Arc::new(PulsarBroker::connect(PulsarOptions::new(url)).await?);
    let topic = Topic::named(format!("hops-{}", uuid::Uuid::new_v4()));
    let message = || Outgoing {
        topic: topic.clone(),
        payload: vec![b'x'; HOP_BYTES],
        properties: Properties::new(),
        deliver_at: None,
        durability: Durability::Durable,
    };
    let subscription = Subscription {
        topic: topic.clone(),
        name: "workers".to_owned(),
        only: None,
        lease: Duration::from_secs(60),
        max_deliveries: None,
    };
    let mut consumer = broker.subscribe(subscription).await?;
    broker.publish(vec![message(); sessions]).await?;
    let mut running: JoinSet<Result<()>> = JoinSet::new();
    let (mut done, start) = (0_u32, Instant::now());
    while start.elapsed() < HOPS {
        while let Some(ended) = running.try_join_next() {
            ended??;
        }
        // A hop that ends makes room for another one.
        let received = tokio::select! {
            biased;
            received = consumer.receive(sessions), if running.len() < sessions => received?,
            Some(ended) = running.join_next() => { ended??; continue }
        };
        for delivery in received {
            done += 1;
            let (broker, next) = (Arc::clone(&broker), message());
            running.spawn(async move {
                broker.publish(vec![next]).await?;
                broker.ack(&delivery).await?;
                Ok(())
            });
        }
    }
    let rate = f64::from(done) / start.elapsed().as_secs_f64();
    running.shutdown().await;
    Ok(rate)
}

async fn supervisors(engine: &Engine, crew: &mut Crew) -> Result<()> {
    // Iterations warmed nothing of a fan-in, and a virtual machine is slow at first.
    for _ in 0..SUPERVISORS_BEFORE {
        ask(engine, "children=4 of=2".into(), "supervisor").await?;
    }
    until_idle(engine).await?;
    let before_work = Done::count(engine).await?;
    let before = crew.ledger()?;
    let runs = 30;
    let mut times = Vec::new();
    for _ in 0..runs {
        times.push(ask(engine, "children=4 of=2".into(), "supervisor").await?);
    }
    times.sort();
    println!(
        "  median {:.0?}, p95 {:.0?}, slowest of {runs} {:.0?}",
        quantile(&times, 0.5),
        quantile(&times, 0.95),
        quantile(&times, 1.0)
    );
    until_idle(engine).await?;
    let did = crew.ledger()?.since(&before);
    let asked = supervised(4, 2).times(runs);
    Done::count(engine).await?.check(before_work, asked)?;
    did.print(asked.steps as f64);
    Ok(())
}

/// A caller whose process came when the topic of responses was long already, beside one that was
/// there from the beginning.
async fn late(engine: &Engine, settings: &Settings) -> Result<()> {
    println!("\nA run of 1 step, asked for by a process that came late");
    let store = Store::open(settings).await?;
    let late = Engine::open(store, settings, &|_, _| {}).await?;
    let (mut early_times, mut late_times) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        early_times.push(ask(engine, "steps=1".into(), "react").await?);
        late_times.push(ask(&late, "steps=1".into(), "react").await?);
    }
    early_times.sort();
    late_times.sort();
    let admin = settings.broker_admin.as_deref().unwrap_or_default();
    let topic = topics::AGENT_RESPONSE;
    let url = format!("{admin}/admin/v2/persistent/public/default/{topic}/internalStats");
    let stats: serde_json::Value = reqwest::get(url).await?.error_for_status()?.json().await?;
    println!(
        "  with {} responses kept: {:.0?} (median) instead of {:.0?}",
        stats["numberOfEntries"],
        quantile(&late_times, 0.5),
        quantile(&early_times, 0.5)
    );
    Ok(())
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1_024.0
}

fn memory(crew: &mut Crew) -> Result<()> {
    println!("\nMemory after all of the above, MiB resident (peak)");
    for (name, report) in crew.reports()? {
        let Usage {
            resident_kib,
            peak_kib,
            ..
        } = report.usage;
        println!(
            "  {name:<14} {:>6.1} ({:.1})",
            mib(resident_kib),
            mib(peak_kib)
        );
    }
    for (name, pid) in &crew.servers {
        let resident_kib = Usage::of_server(*pid)?.resident_kib;
        println!("  {name:<14} {:>6.1}", mib(resident_kib));
    }
    Ok(())
}

/// What each role of the shipped binary needs when there is nothing to do, and was nothing before.
async fn idle() -> Result<()> {
    println!(
        "\nMemory of the shipped binary as a role, idle for 5 s after its start, MiB resident"
    );
    let mut idle = Vec::new();
    for name in roles::NAMES {
        idle.push((name, Shipped::start(name)?));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for (name, role) in &idle {
        println!("  {name:<14} {:>6.1}", mib(role.usage()?.resident_kib));
    }
    Ok(())
}

/// How long until an orchestrator of the shipped binary says something about a request that waits for it.
async fn starts(engine: &Engine) -> Result<()> {
    println!("\nStart of the shipped binary as an orchestrator, with a request that waits for it");
    let (mut works, mut says) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let request = AgentRequest {
            question: "What is there?".into(),
            pattern: "react".into(),
            streaming: true,
            ..AgentRequest::default()
        };
        let id = uuid::Uuid::new_v4().to_string();
        let broker = engine.broker();
        let session = submit(&*broker, request, &id, &[]).await?;
        let mut follow = Follow::new(broker, engine.documents(), session, 0);
        let began = Instant::now();
        let first = tokio::spawn(async move { follow.next().await.map(|_| began.elapsed()) });
        let orchestrator = tokio::task::spawn_blocking(|| Shipped::start("orchestrator")).await??;
        works.push(began.elapsed());
        says.push(first.await??);
        drop(orchestrator);
    }
    works.sort();
    says.sort();
    println!(
        "  it works after {:.0?} (median), its first message is there after {:.0?}",
        quantile(&works, 0.5),
        quantile(&says, 0.5)
    );
    Ok(())
}

/// Triples of one message, about what a step has.
const TRIPLES: usize = 50;

fn explained(run: &str, messages: usize) -> Vec<Triples> {
    let message = |n| Triples {
        metadata: Metadata {
            id: format!("urn:bench:{run}/{n}"),
            root: String::new(),
            collection: String::new(),
        },
        triples: (0..TRIPLES)
            .map(|m| {
                Triple::new(
                    &format!("urn:trustgraph:agent:bench/{run}/i{n}"),
                    &format!("https://trustgraph.ai/ns/p{m}"),
                    Term::text(format!("value {n} {m}")),
                )
            })
            .collect(),
    };
    (0..messages).map(message).collect()
}

/// Provenance that waits in the queue, worked by one graph-writer that starts then; and as many
/// triples as one document sent to the same store.
async fn triples(engine: &Engine, settings: &Settings) -> Result<()> {
    println!("\nProvenance into the SPARQL store, against one bulk insert of as many triples");
    let messages = 2_000;
    let count = messages * TRIPLES;
    let broker = engine.broker();
    let mut writer = Role::start("graph-writer", &[])?;
    let written = |report: &Report| {
        let inserts = report.tally.get("graph insert").copied();
        inserts.unwrap_or_default()
    };
    // What the runs before have left.
    settle(&mut writer, written).await?;
    drop(writer);
    let outgoing = explained("queued", messages)
        .iter()
        .map(|message| {
            Ok(Outgoing {
                topic: topics::EXPLAINABILITY,
                payload: serde_json::to_vec(message)?,
                properties: [(property::ROOT.to_owned(), "bench".to_owned())].into(),
                deliver_at: None,
                durability: Durability::Durable,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    for some in outgoing.chunks(200) {
        broker.publish(some.to_vec()).await?;
    }
    let mut writer = Role::start("graph-writer", &[])?;
    let began = Instant::now();
    let done = loop {
        let done = written(&writer.report()?);
        if done.things as usize >= count {
            break done;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let took = began.elapsed().as_secs_f64();
    let rate = count as f64 / took;

    let Place::At(store) = &settings.graph else {
        return Err("the graph must be on a server".into());
    };
    let mut body = String::new();
    for message in explained("bulk", messages) {
        for Triple { s, p, o, .. } in message.triples {
            writeln!(body, "<{}> <{}> \"{}\" .", s.iri, p.iri, o.value)?;
        }
    }
    let url = format!("{store}/data?graph=urn:graph:bench");
    let post = reqwest::Client::new()
        .post(url)
        .header("Content-Type", "application/n-triples")
        .body(body);
    let began = Instant::now();
    post.send().await?.error_for_status()?;
    let bulk = count as f64 / began.elapsed().as_secs_f64();
    println!(
        "  one graph-writer {rate:.0} triples/s, in {} updates that took {:.0} % of the time; bulk {bulk:.0} triples/s; ratio {:.2}",
        done.count,
        done.micros as f64 / 10_000.0 / took,
        rate / bulk
    );
    Ok(())
}

/// Waits until a graph-writer has had nothing to do for a second.
async fn settle(writer: &mut Role, written: impl Fn(&Report) -> Calls) -> Result<()> {
    let mut before = None;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = written(&writer.report()?).count;
        if before == Some(now) {
            return Ok(());
        }
        before = Some(now);
    }
}
