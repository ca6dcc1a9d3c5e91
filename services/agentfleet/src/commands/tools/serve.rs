//! `tools serve`: answers the requests to a tool service by a program, which is run for each.
//!
//! A request is acknowledged once its answer was published, so a program may be run twice for one: after a death
//! of this process in between. It is given the idempotency key to see that.

use crate::cli::ServeTool;
use crate::error::Failure;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::store::Store;
use agentfleet_broker::{Broker, Delivery, Durability, MAX_PAYLOAD, Outgoing, Subscription};
use agentfleet_runtime::{CLOCK_SKEW, Disposition, Drain, Handler, Host, serve as consume};
use agentfleet_schema::config::{Snapshot, ToolService};
use agentfleet_schema::topics::{Topic, property};
use agentfleet_schema::{ErrorBody, ToolServiceRequest, ToolServiceResponse, millis};
use async_trait::async_trait;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// Most bytes of an answer: what a tool's result may have.
const MAX_ANSWER: u64 = 1024 * 1024;
/// Bytes of a program's standard error that are told where it fails.
const LAST_WORDS: usize = 1_000;
/// How long a request rests whose answer could not be published.
const REST: Duration = Duration::from_secs(1);
/// The code of every error, as services of TrustGraph have it.
const FAILED: &str = "tool-service-error";
/// Properties that a program is given, and the variables of its environment that hold them.
const GIVEN: [(&str, &str); 3] = [
    (property::IDEMPOTENCY_KEY, "AGENTFLEET_IDEMPOTENCY_KEY"),
    (property::SESSION, "AGENTFLEET_SESSION"),
    (property::TENANT, "AGENTFLEET_TENANT"),
];

pub(super) async fn serve(
    store: Store,
    settings: &Settings,
    snapshot: &Snapshot,
    wanted: ServeTool,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let name = &wanted.service;
    let service = snapshot.tool_services.get(name).ok_or_else(|| {
        Failure::not_found(format!("there is no tool service `{name}`"))
            .hint("agentfleet config put tool-service NAME FILE")
    })?;
    let broker = Arc::clone(&store.broker);
    let (request, response) = topics(&*broker, name, service)?;
    let subscription = Subscription {
        topic: request.clone(),
        name: format!("{name}-request"),
        only: None,
        lease: settings.lease,
        // A program that fails is an answer, and the fleet's dead letters are for its own requests.
        max_deliveries: None,
    };
    broker
        .establish(std::slice::from_ref(&subscription))
        .await?;
    outln!(
        "Serving `{name}`: requests of {request}, answers on {response}, {} at a time",
        settings.concurrency
    );
    let handler = Arc::new(Responder {
        broker: Arc::clone(&broker),
        host: Arc::clone(&store.host),
        response,
        program: wanted.program,
        timeout: wanted.timeout,
    });
    let stop = CancellationToken::new();
    let drain = Drain {
        stop: stop.clone(),
        grace: settings.grace,
        watchdog: None,
    };
    let serving = consume(
        Arc::clone(&broker),
        subscription,
        handler,
        settings.concurrency,
        drain,
    );
    let mut serving = Box::pin(serving);
    let ended = tokio::select! {
        ended = &mut serving => Some(ended),
        _ = signals.next() => None,
    };
    errln!("Stopping: finishing what is in flight. Ctrl-C again leaves at once.");
    stop.cancel();
    let mut failed = Ok(());
    let drained = async {
        failed = match ended {
            Some(ended) => ended,
            None => serving.await,
        };
        broker.close().await;
    };
    signals.drained_or_left(drained).await;
    Ok(failed?)
}

/// Where a service is asked, and where it answers.
fn topics(
    broker: &dyn Broker,
    name: &str,
    service: &ToolService,
) -> Result<(Topic, Topic), Failure> {
    let topic = |queue: &str| {
        let topic = Topic::of_queue(queue);
        let topic = topic.map_err(|says| Failure::usage(format!("service `{name}`: {says}")))?;
        if broker.is_own(&topic) {
            let says = format!("service `{name}`: `{topic}` is a topic of the fleet itself");
            return Err(Failure::usage(says));
        }
        Ok(topic)
    };
    Ok((
        topic(&service.request_queue)?,
        topic(&service.response_queue)?,
    ))
}

/// Answers requests by running a program.
struct Responder {
    broker: Arc<dyn Broker>,
    host: Arc<dyn Host>,
    response: Topic,
    program: Vec<String>,
    timeout: Duration,
}

#[async_trait]
impl Handler for Responder {
    async fn handle(&self, delivery: &Delivery) -> Disposition {
        let property = |name: &str| delivery.properties.get(name);
        let Some(id) = property(property::ID) else {
            tracing::warn!(
                message = delivery.message_id,
                "a request without `id` is dropped"
            );
            return Disposition::Ack;
        };
        let expires = property(property::EXPIRES).and_then(|at| at.parse().ok());
        let skew = millis(CLOCK_SKEW);
        if expires.is_some_and(|at: i64| at.saturating_add(skew) < self.host.now()) {
            tracing::warn!(
                id,
                "nobody waits for this answer any more; the request is dropped"
            );
            return Disposition::Ack;
        }
        let answered = self.answered(delivery).await;
        if let Err(message) = &answered {
            tracing::warn!(id, message, "a request failed");
        }
        let mut payload = payload(answered);
        if payload.len() > MAX_PAYLOAD {
            payload = self::payload(Err("the answer is too large for a message".to_owned()));
        }
        let answer = Outgoing {
            topic: self.response.clone(),
            payload,
            properties: [(property::ID.to_owned(), id.clone())].into(),
            deliver_at: None,
            durability: Durability::Process,
        };
        match self.broker.publish(vec![answer]).await {
            Ok(()) => Disposition::Ack,
            Err(error) => {
                tracing::warn!(id, %error, "an answer cannot be published; its request comes again");
                Disposition::RetryAfter(REST)
            }
        }
    }
}

fn payload(answered: Result<String, String>) -> Vec<u8> {
    let (response, error) = match answered {
        Ok(text) => (text, None),
        Err(message) => {
            let error = ErrorBody {
                code: FAILED.to_owned(),
                message,
                hint: None,
            };
            (String::new(), Some(error))
        }
    };
    let whole = ToolServiceResponse {
        error,
        response,
        end_of_stream: true,
    };
    // Wire types are plain data: writing one as JSON cannot fail.
    serde_json::to_vec(&whole).unwrap_or_default()
}

impl Responder {
    /// What the program says to a request, or what went wrong.
    async fn answered(&self, delivery: &Delivery) -> Result<String, String> {
        let unreadable = |error: serde_json::Error| format!("the request is unreadable: {error}");
        let request: ToolServiceRequest =
            serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
        let part = |text: &str| match text {
            "" => Ok(json!({})),
            text => serde_json::from_str::<Value>(text).map_err(unreadable),
        };
        let input = json!({
            "arguments": part(&request.arguments)?,
            "config": part(&request.config)?,
        });
        let given = GIVEN
            .iter()
            .filter_map(|(name, variable)| Some((*variable, delivery.properties.get(*name)?)));
        let mut command = Command::new(&self.program[0]);
        command
            .args(&self.program[1..])
            .envs(given)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let ran = run(&self.program[0], command, input.to_string());
        match tokio::time::timeout(self.timeout, ran).await {
            Ok(answered) => answered,
            Err(_) => Err(format!(
                "`{}` did not end within {:?}",
                self.program[0], self.timeout
            )),
        }
    }
}

/// A process and all it has started, which end together.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // It may have ended, and all of its group.
        killpg(self.0, Signal::SIGKILL).ok();
    }
}

/// What a program writes, if it ends well.
async fn run(name: &str, mut command: Command, input: String) -> Result<String, String> {
    let lost = |error: std::io::Error| format!("`{name}` is lost: {error}");
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start `{name}`: {error}"))?;
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let _group = id.map(Pid::from_raw).map(Group);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(format!("`{name}` ended as it was started"));
    };
    let told = async move {
        // A program need not read what it is given.
        stdin.write_all(input.as_bytes()).await.ok();
    };
    let said = async move {
        let mut said = Vec::new();
        let mut limited = stdout.take(MAX_ANSWER + 1);
        limited.read_to_end(&mut said).await.map(|_| said)
    };
    let ((), said, words) = tokio::join!(told, said, last_words(stderr));
    let said = said.map_err(lost)?;
    if said.len() as u64 > MAX_ANSWER {
        return Err(format!("`{name}` wrote more than {MAX_ANSWER} bytes"));
    }
    let status = child.wait().await.map_err(lost)?;
    if !status.success() {
        let words = words.trim();
        let words = if words.is_empty() {
            "it said nothing"
        } else {
            words
        };
        return Err(format!("`{name}` failed ({status}): {words}"));
    }
    Ok(String::from_utf8_lossy(&said)
        .trim_end_matches('\n')
        .to_owned())
}

/// The end of what a program writes to standard error.
async fn last_words(mut errors: impl AsyncRead + Unpin) -> String {
    let mut words = Vec::new();
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut bytes).await {
        words.extend_from_slice(&bytes[..read]);
        words.drain(..words.len().saturating_sub(LAST_WORDS));
    }
    String::from_utf8_lossy(&words).into_owned()
}
