//! `tool-service`: a service that is asked over the queue. A request goes to the service's topic, and the answer
//! comes on another, under the id of the request.
//!
//! A process listens to a topic of answers once for all calls, from the first call on and until none was made for a
//! while. It sees the answers to everybody, and takes those that its calls wait for.

use super::http::MAX_ANSWER;
use super::{Call, Failed, ToolKind};
use crate::{Error, ToolResult};
use agentfleet_broker::{Broker, Durability, Outgoing, Properties, Retained};
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem, ToolService};
use agentfleet_schema::records::Trouble;
use agentfleet_schema::topics::{Topic, property};
use agentfleet_schema::{ToolServiceRequest, ToolServiceResponse, later};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

/// A topic is listened to so long without a call.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// What is left of the time of a call to tell that it is over.
const TELLING: Duration = Duration::from_millis(20);
/// Most characters quoted of an answer that cannot be read.
const MAX_QUOTED: usize = 200;

pub(crate) struct Services {
    broker: Arc<dyn Broker>,
    /// By the topics of answers.
    lines: Mutex<HashMap<Topic, Slot>>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Line>>>;

/// Listens to a topic of answers, until it is dropped.
struct Line {
    waiting: Arc<Mutex<Waiting>>,
    _task: AbortOnDropHandle<()>,
}

/// The calls that wait for an answer, by the ids of their requests.
#[derive(Default)]
struct Waiting {
    calls: HashMap<String, Pending>,
    is_over: bool,
}

/// A call that waits, with what came of its answer.
struct Pending {
    text: String,
    done: oneshot::Sender<Result<String, String>>,
}

/// The place of a call among those that wait. It is given up when it is dropped.
struct Place {
    id: String,
    waiting: Arc<Mutex<Waiting>>,
    done: oneshot::Receiver<Result<String, String>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.waiting).calls.remove(&self.id);
    }
}

fn locked(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a service is asked, and where it answers.
struct Ends {
    request: Topic,
    response: Topic,
}

#[async_trait]
impl ToolKind for Services {
    fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument> {
        tool.declared()
    }

    /// Whether both topics are there. Nothing is sent: a service knows nothing but calls.
    async fn look(&self, tool: &ToolItem, config: &Snapshot) -> Result<String, String> {
        let (name, service) = service(tool, config)?;
        let ends = self.ends(service)?;
        given(tool, name, service)?;
        let says = |error: agentfleet_broker::Error| error.to_string();
        drop(self.broker.listen(&ends.response).await.map_err(says)?);
        match self.broker.reach(&ends.request).await.map_err(says)? {
            Some(0) => Err(format!("nobody takes requests from `{}`", ends.request)),
            Some(_) => Ok(format!("`{}` has who takes requests", ends.request)),
            None => Ok(format!(
                "requests can be published to `{}`; whether somebody takes them is not told",
                ends.request
            )),
        }
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let time = call.timeout.saturating_sub(TELLING);
        let tried = self.tried(&call, time).await;
        Ok(tried.unwrap_or_else(|failed| ToolResult {
            trouble: failed.trouble,
            ..ToolResult::error(failed.says)
        }))
    }
}

impl Services {
    pub(crate) fn new(broker: Arc<dyn Broker>) -> Self {
        let lines = Mutex::default();
        Self { broker, lines }
    }

    async fn tried(&self, call: &Call, time: Duration) -> Result<ToolResult, Failed> {
        let (name, service) = service(&call.tool, &call.context.config)?;
        let ends = self.ends(service)?;
        let request = ToolServiceRequest {
            config: Value::Object(given(&call.tool, name, service)?).to_string(),
            arguments: call.arguments.to_value().to_string(),
        };
        let id = uuid::Uuid::new_v4().to_string();
        let outgoing = Outgoing {
            topic: ends.request.clone(),
            // Wire types are plain data: writing one as JSON cannot fail.
            payload: serde_json::to_vec(&request).unwrap_or_default(),
            properties: properties(call, &id),
            deliver_at: None,
            // Whoever loses power loses the call, too.
            durability: Durability::Process,
        };
        let answer = async {
            let mut place = self.place(&ends.response, &id).await?;
            self.broker.publish(vec![outgoing]).await.map_err(away)?;
            let closed = |_| Failed::away(format!("`{}` is listened to no more", ends.response));
            (&mut place.done)
                .await
                .map_err(closed)?
                .map_err(Failed::from)
        };
        let Ok(answer) = tokio::time::timeout(time, answer).await else {
            return Err(Failed {
                trouble: Some(Trouble::Timeout),
                says: format!(
                    "service `{name}` gave no whole answer on `{}` within {time:?}, after it was asked on `{}`: does it \
                     run? Allow it more with `timeout-ms`",
                    ends.response, ends.request
                ),
            });
        };
        Ok(ToolResult {
            content: answer?,
            ..ToolResult::default()
        })
    }

    /// The topics of a service, none of which may be the fleet's own, whatever an operator has named those.
    fn ends(&self, service: &ToolService) -> Result<Ends, String> {
        let topic = |queue: &str| {
            let topic = Topic::of_queue(queue).map_err(|says| format!("`{queue}` {says}"))?;
            if self.broker.is_own(&topic) {
                return Err(format!("`{topic}` is a topic of the fleet itself"));
            }
            Ok(topic)
        };
        Ok(Ends {
            request: topic(&service.request_queue)?,
            response: topic(&service.response_queue)?,
        })
    }

    /// A place among those who wait for answers on a topic, which is listened to from now on.
    async fn place(&self, topic: &Topic, id: &str) -> Result<Place, Failed> {
        let slot = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(lines.entry(topic.clone()).or_default())
        };
        // Whoever comes meanwhile waits until it is opened, and shares it.
        let mut line = slot.lock().await;
        if let Some(place) = line.as_ref().and_then(|line| take(&line.waiting, id)) {
            return Ok(place);
        }
        let answers = self.broker.listen(topic).await.map_err(away)?;
        let waiting = Arc::<Mutex<Waiting>>::default();
        let place = take(&waiting, id);
        let task = tokio::spawn(route(topic.clone(), answers, Arc::clone(&waiting)));
        *line = Some(Line {
            waiting,
            _task: AbortOnDropHandle::new(task),
        });
        place.ok_or_else(|| Failed::away(format!("`{topic}` is listened to no more")))
    }
}

fn away(error: agentfleet_broker::Error) -> Failed {
    if error.retry().is_some() {
        Failed::away(error.to_string())
    } else {
        Failed::from(error.to_string())
    }
}

/// A place, unless nobody listens any more.
fn take(waiting: &Arc<Mutex<Waiting>>, id: &str) -> Option<Place> {
    let mut among = locked(waiting);
    if among.is_over {
        return None;
    }
    let (sender, done) = oneshot::channel();
    let pending = Pending {
        text: String::new(),
        done: sender,
    };
    among.calls.insert(id.to_owned(), pending);
    Some(Place {
        id: id.to_owned(),
        waiting: Arc::clone(waiting),
        done,
    })
}

/// Gives answers to the calls that wait for them, until there was no call for a while.
async fn route(topic: Topic, mut answers: mpsc::Receiver<Retained>, waiting: Arc<Mutex<Waiting>>) {
    let mut used = tokio::time::Instant::now();
    loop {
        let next = tokio::time::timeout_at(used + IDLE, answers.recv()).await;
        let mut among = locked(&waiting);
        match next {
            Ok(Some(answer)) => {
                if among.receive(&topic, &answer) {
                    used = tokio::time::Instant::now();
                }
            }
            Err(_) if !among.calls.is_empty() => used = tokio::time::Instant::now(),
            Ok(None) | Err(_) => {
                among.is_over = true;
                // Who waits is told by the end of its channel.
                among.calls.clear();
                return;
            }
        }
    }
}

impl Waiting {
    /// Whether an answer was waited for. Those to others, and those that come late, are not.
    fn receive(&mut self, topic: &Topic, answer: &Retained) -> bool {
        let Some(id) = answer.properties.get(property::ID) else {
            return false;
        };
        let Some(pending) = self.calls.get_mut(id) else {
            return false;
        };
        let Some(outcome) = pending.add(topic, &answer.payload) else {
            return true;
        };
        if let Some(pending) = self.calls.remove(id) {
            // The call may have been given up at this moment.
            pending.done.send(outcome).ok();
        }
        true
    }
}

impl Pending {
    /// Adds a part of an answer. What came of the call, if this was the last one.
    fn add(&mut self, topic: &Topic, payload: &[u8]) -> Option<Result<String, String>> {
        let response = match read(payload) {
            Ok(response) => response,
            Err(says) => return Some(Err(format!("the answer on `{topic}` {says}"))),
        };
        if let Some(error) = response.error {
            let kind = if error.code.is_empty() {
                String::new()
            } else {
                format!(" ({})", error.code)
            };
            return Some(Err(format!("the service failed{kind}: {}", error.message)));
        }
        self.text.push_str(&response.response);
        if self.text.len() > MAX_ANSWER {
            self.text
                .truncate(self.text.floor_char_boundary(MAX_ANSWER));
            self.text += &format!("\n\n[the answer was cut after {MAX_ANSWER} bytes]");
        } else if !response.end_of_stream {
            return None;
        }
        Some(Ok(std::mem::take(&mut self.text)))
    }
}

/// An answer, or what is wrong with it.
fn read(payload: &[u8]) -> Result<ToolServiceResponse, String> {
    let quoted = || {
        let text = String::from_utf8_lossy(&payload[..payload.len().min(MAX_QUOTED * 4)]);
        text.chars().take(MAX_QUOTED).collect::<String>()
    };
    let value: Value = serde_json::from_slice(payload)
        .map_err(|error| format!("is not JSON ({error}): {}", quoted()))?;
    let Value::Object(fields) = &value else {
        return Err(format!("is not a JSON object: {}", quoted()));
    };
    if !fields.contains_key("response") && !fields.contains_key("error") {
        return Err(format!("has neither `response` nor `error`: {}", quoted()));
    }
    serde_json::from_value(value).map_err(|error| {
        format!("must have `error` (null, or `type` and `message`), `response` (text) and `end_of_stream`: {error}")
    })
}

/// What travels beside a request: its id, and by what a service can drop repeats and what came too late.
fn properties(call: &Call, id: &str) -> Properties {
    let context = &call.context;
    let timeout = u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX);
    let expires = later(now(), timeout).to_string();
    let all = [
        (property::ID, id),
        (property::IDEMPOTENCY_KEY, &context.idempotency_key),
        (property::SESSION, &context.session),
        (property::ROOT, &context.root),
        (property::TENANT, &context.tenant),
        (property::EXPIRES, &expires),
    ];
    let all = all.into_iter().filter(|(_, value)| !value.is_empty());
    all.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn now() -> agentfleet_schema::Millis {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    agentfleet_schema::millis(now.unwrap_or_default())
}

fn service<'a>(
    tool: &'a ToolItem,
    config: &'a Snapshot,
) -> Result<(&'a str, &'a ToolService), String> {
    let key = tool.service.as_deref().unwrap_or_default();
    let service = config.tool_services.get(key).ok_or_else(|| {
        format!(
            "tool `{}` is of service `{key}`, which is no item of the config",
            tool.name
        )
    })?;
    Ok((key, service))
}

/// What the tool's item gives its service.
fn given(tool: &ToolItem, name: &str, service: &ToolService) -> Result<Map<String, Value>, String> {
    // A parameter may have the name of any field.
    let item = serde_json::to_value(tool).map_err(|error| error.to_string())?;
    let mut given = Map::new();
    for param in &service.config_params {
        match item.get(param.name()).filter(|value| !value.is_null()) {
            Some(value) => {
                given.insert(param.name().to_owned(), value.clone());
            }
            None if param.is_required() => {
                return Err(format!(
                    "tool `{}` has no `{}`, which service `{name}` needs",
                    tool.name,
                    param.name()
                ));
            }
            None => {}
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_topic_is_listened_to_while_calls_wait_and_a_while_longer() {
        let waiting = Arc::<Mutex<Waiting>>::default();
        let place = take(&waiting, "a").unwrap();
        let (_answers, receiver) = mpsc::channel(1);
        let routed = tokio::spawn(route(
            Topic::named("answers"),
            receiver,
            Arc::clone(&waiting),
        ));
        tokio::time::sleep(IDLE * 3).await;
        assert!(!routed.is_finished());
        drop(place);
        assert!(locked(&waiting).calls.is_empty());
        let began = tokio::time::Instant::now();
        routed.await.unwrap();
        assert!(began.elapsed() <= IDLE);
        assert!(take(&waiting, "b").is_none(), "nobody listens any more");
    }

    #[tokio::test]
    async fn who_waits_is_told_when_the_broker_is_closed() {
        let waiting = Arc::<Mutex<Waiting>>::default();
        let mut place = take(&waiting, "a").unwrap();
        let (answers, receiver) = mpsc::channel(1);
        drop(answers);
        route(Topic::named("answers"), receiver, waiting).await;
        assert!((&mut place.done).await.is_err());
    }
}
