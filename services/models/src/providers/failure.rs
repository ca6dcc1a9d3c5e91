//! What a provider's failure means: which [`Error`] it is and when to try again.

use super::bounds::Bound;
use super::refused::{Field, Refusal, is_about_this_schema};
use super::{ProviderKind, Target, read};
use crate::error::{DETAIL_LIMIT, Error, Kind};
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
/// Where the call came to no end.
const AFTER_SILENCE: Duration = Duration::from_secs(2);
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
    pub refuses: Option<Refusal>,
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
        Fault::TooSlow(limit) => timed_out(target.kind, target.base_url, STALLED, limit),
        // Whatever made it send so much will do so again, and each try may cost as much.
        Fault::Beyond(bound) => Error::new(
            Kind::InvalidReply,
            format!("{provider} sent more than {bound}, which is more than is read"),
        ),
        Fault::Malformed(detail) => Error::malformed(provider, &shorten(&detail)),
        Fault::Told(body) => of_event(&body, target),
        Fault::Unfinished => interrupted(provider, "the connection was closed before the end"),
    }
}

/// What did not come in time.
const STALLED: &str = "no further data";

pub(super) fn timed_out(kind: ProviderKind, url: &str, what: &str, limit: Duration) -> Error {
    let (provider, url) = (kind.as_str(), url.trim_end_matches('/'));
    let message = format!("{provider} at `{url}`: {what} within {limit:?}");
    Error::new(Kind::Timeout, message).after(AFTER_SILENCE)
}

fn interrupted(provider: &str, detail: &str) -> Error {
    let message = format!("{provider} broke off before the reply was complete: {detail}");
    Error::new(Kind::Unreachable, message).after(AFTER_SILENCE)
}

/// A call that is wrong before it is made.
pub(super) fn unsupported(target: &Target<'_>, detail: &str) -> Error {
    let provider = target.kind.as_str();
    let message = format!("{provider}: this call cannot be made: {detail}");
    Error::new(Kind::Refused, message)
}

pub(super) fn of_transport(error: &reqwest::Error, target: &Target<'_>) -> Error {
    let (provider, url) = (target.kind.as_str(), target.shown_url());
    let cause = shorten(&root_cause(error));
    if error.is_connect() && error.is_timeout() {
        let limit = target.timeouts.connect;
        let message = format!("{provider} at `{url}`: no connection within {limit:?}");
        return Error::new(Kind::ConnectTimeout, message).after(AFTER_SILENCE);
    }
    if error.is_connect() {
        let message = format!("{provider} at `{url}` cannot be reached: {cause}");
        return Error::new(Kind::Unreachable, message).after(AFTER_SILENCE);
    }
    if error.is_timeout() {
        let pause = target.timeouts.between_chunks;
        return timed_out(target.kind, target.base_url, STALLED, pause);
    }
    if error.is_builder() {
        return unsupported(target, &format!("the request cannot be built ({cause})"));
    }
    interrupted(provider, &cause)
}

/// The innermost cause: "connection refused" rather than "error sending request".
pub fn root_cause(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Reads an error status and its body.
pub(super) fn of_status(
    status: StatusCode,
    headers: &HeaderMap,
    body: &str,
    target: &Target<'_>,
) -> Failed {
    let told = Told::read(body, target);
    let (provider, model) = (target.kind.as_str(), target.model);
    let detail = told.shown();
    let code = status.as_u16();
    let named = wait_of(headers, &told.body);
    if told.means_no_credit() || code == 402 {
        return Failed::from(no_credit(provider, code, &detail));
    }
    if code == 401 || told.means_bad_key() {
        let variable = target.key_variable();
        return Failed::from(Error::new(
            Kind::NotAllowed,
            format!(
                "{provider} refused the key in `{variable}` (HTTP {code}): set a valid one{detail}"
            ),
        ));
    }
    // Some servers answer what they do not take with 500 or 501.
    let refuses = match code {
        400 | 422 | 500 | 501 if target.with_schema && is_about_this_schema(&told.says) => {
            Some(Refusal::ThisSchema)
        }
        400 | 422 | 500 | 501 => {
            let mut sent = target.sent.iter().copied();
            sent.find(|field| field.is_refused_by(&told.says))
                .map(Refusal::Field)
        }
        _ => None,
    };
    let error = match code {
        // The next try is made without tools.
        _ if refuses == Some(Refusal::Field(Field::Tools)) => Error::new(
            Kind::Refused,
            format!(
                "{provider} model `{model}` takes no tools; the text format is used from now on{detail}"
            ),
        )
        .after(Duration::ZERO),
        403 => Error::new(
            Kind::NotAllowed,
            format!(
                "{provider} does not let this key use model `{model}` (HTTP 403): choose another \
                 model or ask for access{detail}"
            ),
        ),
        404 => Error::new(
            Kind::Refused,
            format!(
                "{provider} has no model `{model}` at `{}` (HTTP 404): check the model name and the \
                 base URL{detail}",
                target.shown_url()
            ),
        ),
        429 => rate_limited(provider, named, &detail),
        503 | 529 => {
            let status = format!("HTTP {code}, overloaded");
            unavailable(provider, &status, named.unwrap_or(AFTER_OVERLOAD), &detail)
        }
        408 | 409 | 425 | 500..=599 => {
            let after = named.unwrap_or(AFTER_SERVER_ERROR);
            unavailable(provider, &format!("HTTP {code}"), after, &detail)
        }
        _ => bad_request(target, code, &detail),
    };
    Failed { error, refuses }
}

fn no_credit(provider: &str, status: u16, detail: &str) -> Error {
    let message = format!(
        "{provider} says that this account may spend no more (HTTP {status}): add credit or raise \
         its limit{detail}"
    );
    Error::new(Kind::NotAllowed, message)
}

fn rate_limited(provider: &str, named: Option<Duration>, detail: &str) -> Error {
    let message = format!("{provider} limits the rate of requests{detail}");
    Error::new(Kind::RateLimited, message).after(named.unwrap_or(AFTER_RATE_LIMIT))
}

fn unavailable(provider: &str, status: &str, after: Duration, detail: &str) -> Error {
    let message = format!("{provider} cannot answer now ({status}){detail}");
    Error::new(Kind::Unavailable, message).after(after)
}

fn bad_request(target: &Target<'_>, status: u16, detail: &str) -> Error {
    let (provider, model) = (target.kind.as_str(), target.model);
    let message = format!(
        "{provider} model `{model}` refused the request as invalid (HTTP {status}){detail}"
    );
    Error::new(Kind::Refused, message)
}

/// Reads an error that came inside a reply that had begun well.
fn of_event(body: &Value, target: &Target<'_>) -> Error {
    let told = Told::of_value(body.clone(), target);
    let provider = target.kind.as_str();
    let detail = told.shown();
    let named = wait_of(&HeaderMap::new(), &told.body);
    let kind = told.kind.to_ascii_lowercase();
    if told.means_no_credit() {
        return no_credit(provider, 429, &detail);
    }
    if kind.contains("rate_limit") || kind.contains("resource_exhausted") || kind == "429" {
        return rate_limited(provider, named, &detail);
    }
    if kind.contains("overloaded") || kind.contains("unavailable") {
        let after = named.unwrap_or(AFTER_OVERLOAD);
        return unavailable(provider, "overloaded", after, &detail);
    }
    if kind.contains("invalid") || kind.contains("permission") || kind.contains("authentication") {
        return bad_request(target, 200, &detail);
    }
    let after = named.unwrap_or(AFTER_SERVER_ERROR);
    unavailable(provider, "an error within the reply", after, &detail)
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
