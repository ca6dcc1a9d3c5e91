//! What a provider's failure means: which [`Error`] it is and when to try again.

use super::bounds::Bound;
use super::refused::Field;
use super::{Target, read};
use crate::error::{DETAIL_LIMIT, Error, Phase};
use agentfleet_schema::redacted;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

/// Waits used where the provider names none.
const AFTER_RATE_LIMIT: Duration = Duration::from_secs(2);
const AFTER_OVERLOAD: Duration = Duration::from_secs(1);
const AFTER_SERVER_ERROR: Duration = Duration::from_secs(2);
/// Longest wait believed. Whoever waits has a deadline of its own, mostly a shorter one.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// Why a reply could not be had, before it is said of whom.
pub(crate) enum Fault {
    Transport(reqwest::Error),
    /// Nothing came for so long.
    TooSlow(Duration),
    /// More came than may.
    Beyond(Bound),
    /// What came cannot be read.
    Malformed(String),
    /// The server told an error within a reply that had begun well.
    Told(Value),
    /// The stream ended before the reply did.
    Unfinished,
}

/// A call that failed.
pub(super) struct Failed {
    pub error: Error,
    /// What the call carried and the server does not take: the same call may pass without it.
    pub refuses: Option<Field>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            refuses: None,
        }
    }
}

/// Says of whom a fault is.
pub(super) fn of_fault(fault: Fault, target: &Target<'_>) -> Error {
    let provider = target.kind.as_str();
    match fault {
        Fault::Transport(error) => of_transport(&error, target),
        Fault::TooSlow(limit) => timed_out(target, Phase::BetweenChunks, limit),
        Fault::Beyond(bound) => Error::Oversized { provider, bound },
        Fault::Malformed(detail) => malformed(target, &detail),
        Fault::Told(body) => of_event(&body, target),
        Fault::Unfinished => Error::Interrupted {
            provider,
            detail: "the connection was closed before the end".to_owned(),
        },
    }
}

pub(super) fn timed_out(target: &Target<'_>, phase: Phase, limit: Duration) -> Error {
    Error::Timeout {
        provider: target.kind.as_str(),
        url: target.shown_url(),
        phase,
        limit,
    }
}

pub(super) fn of_transport(error: &reqwest::Error, target: &Target<'_>) -> Error {
    if error.is_connect() && error.is_timeout() {
        return timed_out(target, Phase::Connect, target.timeouts.connect);
    }
    let cause = root_cause(error);
    if error.is_connect() {
        return Error::Connection {
            provider: target.kind.as_str(),
            url: target.shown_url(),
            detail: cause,
        };
    }
    if error.is_timeout() {
        return timed_out(target, Phase::BetweenChunks, target.timeouts.between_chunks);
    }
    if error.is_builder() {
        return Error::Unsupported {
            provider: target.kind.as_str(),
            detail: format!("the request cannot be built ({cause})"),
        };
    }
    Error::Interrupted {
        provider: target.kind.as_str(),
        detail: cause,
    }
}

/// The innermost cause: "connection refused" rather than "error sending request".
fn root_cause(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    shorten(&cause.to_string())
}

fn malformed(target: &Target<'_>, detail: &str) -> Error {
    Error::Malformed {
        provider: target.kind.as_str(),
        detail: shorten(detail),
    }
}

/// Reads an error status and its body.
pub(super) fn of_status(
    status: StatusCode,
    headers: &HeaderMap,
    body: &str,
    target: &Target<'_>,
) -> Failed {
    let told = Told::read(body, target);
    let provider = target.kind.as_str();
    let model = || target.model.to_owned();
    let detail = told.shown();
    let code = status.as_u16();
    let named = wait_of(headers, &told.body);
    if told.means_no_credit() || code == 402 {
        return Failed::from(Error::QuotaExhausted {
            provider,
            status: code,
            detail,
        });
    }
    if code == 401 || told.means_bad_key() {
        return Failed::from(Error::Unauthorized {
            provider,
            variable: target.key_variable(),
            status: code,
            detail,
        });
    }
    // Some servers answer what they do not take with 500 or 501.
    let refuses = match code {
        400 | 422 | 500 | 501 => target
            .sent
            .iter()
            .copied()
            .find(|field| field.is_refused_by(&told.says)),
        _ => None,
    };
    let error = match code {
        _ if refuses == Some(Field::Tools) => Error::ToolsRefused {
            provider,
            model: model(),
            detail,
        },
        403 => Error::Forbidden {
            provider,
            model: model(),
            detail,
        },
        404 => Error::NotFound {
            provider,
            model: model(),
            url: target.shown_url(),
            detail,
        },
        429 => Error::RateLimited {
            provider,
            after: named.unwrap_or(AFTER_RATE_LIMIT),
            detail,
        },
        503 | 529 => Error::Unavailable {
            provider,
            status: format!("HTTP {code}, overloaded"),
            after: named.unwrap_or(AFTER_OVERLOAD),
            detail,
        },
        408 | 409 | 425 | 500..=599 => Error::Unavailable {
            provider,
            status: format!("HTTP {code}"),
            after: named.unwrap_or(AFTER_SERVER_ERROR),
            detail,
        },
        _ => Error::BadRequest {
            provider,
            model: model(),
            status: code,
            detail,
        },
    };
    Failed { error, refuses }
}

/// Reads an error that came inside a reply that had begun well.
fn of_event(body: &Value, target: &Target<'_>) -> Error {
    let told = Told::of_value(body.clone(), target);
    let provider = target.kind.as_str();
    let detail = told.shown();
    let after = |fallback| wait_of(&HeaderMap::new(), &told.body).unwrap_or(fallback);
    let kind = told.kind.to_ascii_lowercase();
    if told.means_no_credit() {
        return Error::QuotaExhausted {
            provider,
            status: 429,
            detail,
        };
    }
    if kind.contains("rate_limit") || kind.contains("resource_exhausted") || kind == "429" {
        return Error::RateLimited {
            provider,
            after: after(AFTER_RATE_LIMIT),
            detail,
        };
    }
    if kind.contains("overloaded") || kind.contains("unavailable") {
        let status = "overloaded".to_owned();
        return Error::Unavailable {
            provider,
            status,
            after: after(AFTER_OVERLOAD),
            detail,
        };
    }
    if kind.contains("invalid") || kind.contains("permission") || kind.contains("authentication") {
        return Error::BadRequest {
            provider,
            model: target.model.to_owned(),
            status: 200,
            detail,
        };
    }
    let status = "an error within the reply".to_owned();
    Error::Unavailable {
        provider,
        status,
        after: after(AFTER_SERVER_ERROR),
        detail,
    }
}

/// What a provider said about a failure.
struct Told {
    body: Value,
    /// The message, cut to what is shown to people.
    message: String,
    /// All that the error says, in lower case, for looking words up.
    says: String,
    kind: String,
}

impl Told {
    fn read(body: &str, target: &Target<'_>) -> Self {
        let value = read::json(body.as_bytes());
        Self::of_value(value.unwrap_or_else(|_| body.into()), target)
    }

    fn of_value(body: Value, target: &Target<'_>) -> Self {
        // Gemini wraps its errors in an array when it streams.
        let body = match body {
            Value::Array(mut items) if !items.is_empty() => items.swap_remove(0),
            other => other,
        };
        let first = |pointers: &[&str]| {
            pointers.iter().find_map(|p| match body.pointer(p) {
                Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
                Some(Value::Number(number)) => Some(number.to_string()),
                _ => None,
            })
        };
        let message = first(&["/error/message", "/message", "/error", "/detail", ""]);
        // The most telling field first: OpenAI's `code` is finer than its `type`.
        let kind = first(&[
            "/error/status",
            "/error/code",
            "/error/type",
            "/code",
            "/type",
            "/status",
        ]);
        let message = message.unwrap_or_default();
        // Mistral and vLLM list in `detail` what they do not take; OpenAI names it in `param`.
        let lists = ["/detail", "/error/param"].map(|at| body.pointer(at));
        let mut says = message.to_ascii_lowercase();
        for list in lists.into_iter().flatten() {
            says.push_str(&list.to_string().to_ascii_lowercase());
        }
        let mut message = redacted(&shorten(&message)).into_owned();
        if let Some(key) = target.key.filter(|key| !key.secret().is_empty()) {
            message = message.replace(key.secret(), "(key)");
        }
        Self {
            message,
            says,
            kind: kind.unwrap_or_default(),
            body,
        }
    }

    /// `: what they said`, or nothing.
    fn shown(&self) -> String {
        // A page of HTML says nothing worth showing.
        if self.message.is_empty() || self.message.trim_start().starts_with('<') {
            return String::new();
        }
        format!(": {}", self.message)
    }

    fn mentions(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.says.contains(word))
    }

    fn means_no_credit(&self) -> bool {
        self.kind.eq_ignore_ascii_case("insufficient_quota")
            || self.mentions(&[
                "credit balance is too low",
                "exceeded your current quota, please check your plan",
            ]) && !self.body.to_string().contains("retryDelay")
    }

    fn means_bad_key(&self) -> bool {
        self.mentions(&["api key not valid", "invalid api key", "incorrect api key"])
            || self.body.to_string().contains("API_KEY_INVALID")
    }
}

fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(DETAIL_LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The wait a provider asks for: in milliseconds, in seconds, as a date, or in Gemini's body.
fn wait_of(headers: &HeaderMap, body: &Value) -> Option<Duration> {
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .map(str::trim)
    };
    let seconds = |text: &str| {
        let seconds: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST_WAIT.as_secs_f64())).ok()
    };
    let wait = header("retry-after-ms")
        .and_then(|ms| ms.parse::<u64>().ok())
        .map(Duration::from_millis)
        .or_else(|| header("retry-after").and_then(seconds))
        .or_else(|| {
            let date =
                header("retry-after").and_then(|text| httpdate::parse_http_date(text).ok())?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        })
        .or_else(|| {
            let details = body.pointer("/error/details")?.as_array()?;
            let delay = details.iter().find_map(|d| d.get("retryDelay"))?.as_str()?;
            seconds(delay.strip_suffix('s')?)
        })?;
    Some(wait.min(LONGEST_WAIT))
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
