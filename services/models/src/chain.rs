//! Other models where one is away: a call goes to the first that can be had.
//!
//! A model is passed over for a while after it failed several times, so that a call does not wait for what is
//! known to be away. What is known is known to this process; each call says what it passed over and why.

use crate::error::{Error, Kind};
use crate::select::{Choice, ModelOptions, select};
use crate::{Capabilities, ChatModel, ModelReply, ModelRequest, TextSink, Tried};
use async_trait::async_trait;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a model may take to its first words, where another follows it.
const FIRST_WORDS: Duration = Duration::from_secs(30);
/// So many failures within this time, and a model is passed over for that one.
const FAILURES: usize = 3;
const WITHIN: Duration = Duration::from_secs(5 * 60);
const PASSED_OVER: Duration = Duration::from_secs(10 * 60);

/// The fleet's model, with those that calls name to take its place.
pub struct Chain {
    first: Choice,
    options: ModelOptions,
    others: tokio::sync::Mutex<HashMap<String, Arc<dyn ChatModel>>>,
    breakers: Mutex<HashMap<String, Breaker>>,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain")
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Breaker {
    failures: VecDeque<Instant>,
    until: Option<Instant>,
    /// How it failed last.
    why: String,
}

impl Breaker {
    /// How long the model is still passed over.
    fn left(&self, now: Instant) -> Option<Duration> {
        let until = self.until.filter(|until| *until > now)?;
        Some(until.duration_since(now))
    }

    fn failed(&mut self, now: Instant, error: &Error) {
        self.why = error.to_string();
        self.failures.push_back(now);
        self.failures.retain(|at| now.duration_since(*at) < WITHIN);
        if self.failures.len() >= FAILURES {
            self.until = Some(now + PASSED_OVER);
            self.failures.clear();
        }
    }
}

impl Chain {
    /// `options` say how the others are reached.
    pub fn new(first: Choice, options: ModelOptions) -> Self {
        Self {
            first,
            options,
            others: tokio::sync::Mutex::default(),
            breakers: Mutex::default(),
        }
    }

    fn breakers(&self) -> MutexGuard<'_, HashMap<String, Breaker>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a model is passed over now, if it is.
    fn passed_over(&self, name: &str) -> Option<String> {
        let breakers = self.breakers();
        let breaker = breakers.get(name)?;
        let seconds = breaker.left(Instant::now())?.as_secs().max(1);
        Some(format!(
            "it failed {FAILURES} times lately, and is passed over for {seconds} s more; at last: {}",
            breaker.why
        ))
    }

    /// The model of a name, `PROVIDER:MODEL`.
    async fn other(&self, name: &str) -> Result<Arc<dyn ChatModel>, Error> {
        let mut others = self.others.lock().await;
        if let Some(other) = others.get(name) {
            return Ok(Arc::clone(other));
        }
        let options = ModelOptions {
            model: Some(name.to_owned()),
            // That of the fleet's model is not theirs.
            base_url: None,
            ..self.options.clone()
        };
        let chosen = select(&options).await?.model;
        if chosen.capabilities().native_tools != self.first.model.capabilities().native_tools {
            return Err(Error::new(
                Kind::Misconfigured,
                format!("`{name}` takes tools another way than the fleet's model"),
            ));
        }
        others.insert(name.to_owned(), Arc::clone(&chosen));
        Ok(chosen)
    }
}

/// Whether another model may answer what one did not.
fn passes_on(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::Timeout
            | Kind::ConnectTimeout
            | Kind::RateLimited
            | Kind::Unavailable
            | Kind::Unreachable
    )
}

/// Says whether anything was said.
struct Noting<'s> {
    sink: &'s dyn TextSink,
    spoke: AtomicBool,
    first: tokio::sync::Notify,
}

impl TextSink for Noting<'_> {
    fn text(&self, piece: &str) {
        self.spoke.store(true, Ordering::Relaxed);
        self.first.notify_one();
        self.sink.text(piece);
    }
}

/// A call that has to begin to answer in time.
async fn in_time(
    model: &dyn ChatModel,
    request: ModelRequest,
    noting: &Noting<'_>,
) -> Result<ModelReply, Error> {
    let chat = model.chat(request, noting);
    tokio::pin!(chat);
    tokio::select! {
        biased;
        replied = &mut chat => return replied,
        () = noting.first.notified() => {}
        () = tokio::time::sleep(FIRST_WORDS) => {
            let seconds = FIRST_WORDS.as_secs();
            let says = format!("`{}` had not begun to answer after {seconds} s", model.describe());
            return Err(Error::new(Kind::Timeout, says).after(Duration::from_secs(1)));
        }
    }
    chat.await
}

#[async_trait]
impl ChatModel for Chain {
    fn describe(&self) -> String {
        self.first.model.describe()
    }

    fn capabilities(&self) -> Capabilities {
        self.first.model.capabilities()
    }

    async fn chat(
        &self,
        mut request: ModelRequest,
        sink: &dyn TextSink,
    ) -> Result<ModelReply, Error> {
        let others = std::mem::take(&mut request.fallbacks);
        if others.is_empty() {
            return self.first.model.chat(request, sink).await;
        }
        let mut tried: Vec<Tried> = Vec::new();
        let mut last = None;
        let own = self.describe();
        let passes_all = std::iter::once(&own)
            .chain(&others)
            .all(|name| self.passed_over(name).is_some());
        for at in 0..=others.len() {
            let other = at.checked_sub(1).and_then(|at| others.get(at));
            let name = other.unwrap_or(&own).clone();
            let is_last = at == others.len();
            // Where there is no other to prefer, each is asked all the same.
            if !passes_all && let Some(error) = self.passed_over(&name) {
                tried.push(Tried::passed_over(name, error));
                continue;
            }
            let model = match other {
                None => Arc::clone(&self.first.model),
                Some(other) => match self.other(other).await {
                    Ok(model) => model,
                    Err(error) => {
                        tried.push(Tried::of(name, &error));
                        // Whether to wait is for those to say that may come back.
                        last.get_or_insert(error);
                        continue;
                    }
                },
            };
            let mut asked = request.clone();
            if other.is_some() {
                // Its own name is what it was chosen by.
                asked.model.clear();
            }
            let noting = Noting {
                sink,
                spoke: AtomicBool::new(false),
                first: tokio::sync::Notify::new(),
            };
            let replied = if is_last {
                model.chat(asked, &noting).await
            } else {
                in_time(&*model, asked, &noting).await
            };
            match replied {
                Ok(reply) => {
                    self.breakers().remove(&name);
                    let fallback = other.cloned().unwrap_or_default();
                    return Ok(ModelReply {
                        tried,
                        fallback,
                        ..reply
                    });
                }
                Err(error) if passes_on(&error) => {
                    let now = Instant::now();
                    (self.breakers().entry(name.clone()).or_default()).failed(now, &error);
                    if noting.spoke.load(Ordering::Relaxed) {
                        // What was said was heard: the step begins anew, and may pass this one over.
                        return Err(error);
                    }
                    tried.push(Tried::of(name, &error));
                    last = Some(error);
                }
                Err(error) => {
                    tried.push(Tried::of(name, &error));
                    return Err(error.after_all(tried));
                }
            }
        }
        let told: Vec<String> = tried
            .iter()
            .map(|one| format!("{}: {}", one.of, one.error))
            .collect();
        let retry = last
            .as_ref()
            .and_then(Error::retry)
            .unwrap_or(Duration::from_secs(30));
        let says = format!("no model of the chain answers: {}", told.join("; "));
        let kind = last.map_or(Kind::Unavailable, |error| error.kind());
        Err(Error::new(kind, says).after(retry).after_all(tried))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Discard, Message, Operation, Script, Scripted};

    /// A chain of scripts: the fleet's, and another.
    fn chain(first: &str, other: &str) -> (Chain, ModelRequest, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.json");
        std::fs::write(&path, other).unwrap();
        let own = dir.path().join("first.json");
        std::fs::write(&own, first).unwrap();
        let model = Arc::new(Scripted::new(Script::from_file(&own).unwrap()));
        let first = Choice {
            model,
            provider: "scripted",
            reason: String::new(),
        };
        let request = ModelRequest {
            operation: Operation::React,
            messages: vec![Message::User("q".into())],
            tools: Vec::new(),
            schema: None,
            inputs: serde_json::Value::Null,
            model: String::new(),
            fallbacks: vec![format!("scripted:{}", path.display())],
            temperature: None,
            max_tokens: None,
            timeout: Duration::from_secs(300),
        };
        (Chain::new(first, ModelOptions::default()), request, dir)
    }

    const AWAY: &str = r#"{"rules": [{"fail": "overloaded", "retry-after-ms": 10}]}"#;
    const WELL: &str = r#"{"rules": [{"text": "here"}]}"#;

    #[tokio::test(start_paused = true)]
    async fn one_that_is_away_is_passed_over_and_comes_back() {
        let (chain, request, _dir) = chain(AWAY, WELL);
        let ask = || chain.chat(request.clone(), &Discard);
        for _ in 0..FAILURES {
            let reply = ask().await.unwrap();
            assert_eq!((reply.text.as_str(), reply.tried.len()), ("here", 1));
            assert!(
                reply.tried[0].error.contains("overloaded"),
                "{:?}",
                reply.tried
            );
        }
        let passed_over = ask().await.unwrap().tried.remove(0);
        assert!(
            passed_over.error.contains("failed 3 times lately"),
            "{passed_over:?}"
        );
        tokio::time::advance(PASSED_OVER).await;
        let again = ask().await.unwrap().tried.remove(0);
        assert!(again.error.contains("overloaded"), "{again:?}");
    }

    struct Silent;

    #[async_trait]
    impl ChatModel for Silent {
        fn describe(&self) -> String {
            "silent".to_owned()
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                native_tools: false,
                reasons: true,
                metered: false,
            }
        }

        async fn chat(&self, _: ModelRequest, _: &dyn TextSink) -> Result<ModelReply, Error> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_begin_in_time_is_left() {
        let (mut chain, request, _dir) = chain(AWAY, WELL);
        chain.first.model = Arc::new(Silent);
        let reply = chain.chat(request, &Discard).await.unwrap();
        assert_eq!(reply.text, "here");
        assert!(
            reply.tried[0]
                .error
                .contains("had not begun to answer after 30 s")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_failed_lately_each_is_asked_again() {
        let one = r#"{"rules": [
            {"times": 3, "fail": "overloaded", "retry-after-ms": 10}, {"text": "back"}
        ]}"#;
        let (chain, request, _dir) = chain(one, AWAY);
        for _ in 0..FAILURES {
            chain.chat(request.clone(), &Discard).await.unwrap_err();
        }
        // Both are to be passed over now, and there is no third.
        let reply = chain.chat(request.clone(), &Discard).await.unwrap();
        assert_eq!(reply.text, "back");
        assert_eq!(reply.tried, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fallback_that_cannot_be_used_is_no_reason_to_give_up() {
        let (chain, mut request, _dir) = chain(AWAY, WELL);
        request.fallbacks = vec!["nobody:knows".to_owned()];
        let error = chain.chat(request, &Discard).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.to_string().contains("nobody"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn where_none_answers_all_are_told() {
        let (chain, request, _dir) = chain(AWAY, AWAY);
        let error = chain.chat(request, &Discard).await.unwrap_err();
        let says = error.to_string();
        assert!(
            says.starts_with("no model of the chain answers: "),
            "{says}"
        );
        assert_eq!(says.matches("overloaded").count(), 2, "{says}");
        assert!(error.retry().is_some());
    }
}
