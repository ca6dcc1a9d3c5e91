//! What a provider's failure means: which [`Error`] it is and when to try again.
//!
//! The provider crate's own error texts are never shown: some of them hold the whole request.

use super::Target;
use crate::error::{DETAIL_LIMIT, Error, Phase};
use genai::webc::StreamTimeout;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

/// Waits used where the provider names none.
const AFTER_RATE_LIMIT: Duration = Duration::from_secs(5);
const AFTER_OVERLOAD: Duration = Duration::from_secs(10);
const AFTER_SERVER_ERROR: Duration = Duration::from_secs(2);
/// Longest wait believed: beyond it something else is wrong, and people want to know sooner.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// Reads a failure of the provider crate.
pub(super) fn read(error: genai::Error, target: &Target<'_>) -> Error {
    match error {
        genai::Error::HttpError {
            status,
            body,
            headers,
            ..
        } => of_status(status, &headers, &body, target),
        genai::Error::WebModelCall { webc_error, .. }
        | genai::Error::WebAdapterCall { webc_error, .. } => of_web(webc_error, target),
        genai::Error::WebStream { error, .. } => of_stream(error, target),
        genai::Error::ChatResponse { body, .. } => of_event(&body, target),
        genai::Error::StreamParse { serde_error, .. } => {
            malformed(target, &format!("a piece is not JSON ({serde_error})"))
        }
        genai::Error::InvalidJsonResponseElement { info } => malformed(target, info),
        genai::Error::ChatResponseGeneration { .. }
        | genai::Error::NoChatResponse { .. }
        | genai::Error::JsonValueExt(_)
        | genai::Error::SerdeJson(_) => malformed(target, "fields of the format are missing"),
        genai::Error::RequiresApiKey { .. }
        | genai::Error::NoAuthResolver { .. }
        | genai::Error::NoAuthData { .. }
        | genai::Error::Resolver { .. } => Error::MissingKey {
            provider: target.kind.as_str(),
            variables: target.key_variable(),
        },
        other => Error::Unsupported {
            provider: target.kind.as_str(),
            // The variant's name alone: the rest may hold the request.
            detail: format!("{other:?}")
                .split([' ', '{', '('])
                .next()
                .unwrap_or("")
                .to_owned(),
        },
    }
}

fn of_web(error: genai::webc::Error, target: &Target<'_>) -> Error {
    match error {
        genai::webc::Error::ResponseFailedStatus {
            status,
            body,
            headers,
        } => of_status(status, &headers, &body, target),
        genai::webc::Error::ResponseFailedNotJson { content_type, .. } => malformed(
            target,
            &format!("its content type is `{content_type}`, not JSON"),
        ),
        genai::webc::Error::ResponseFailedInvalidJson { cause, .. } => {
            malformed(target, &format!("it is not JSON ({cause})"))
        }
        genai::webc::Error::JsonValueExt(_) => {
            malformed(target, "fields of the format are missing")
        }
        genai::webc::Error::Reqwest(error) => of_transport(&error, target),
    }
}

fn of_stream(error: genai::BoxError, target: &Target<'_>) -> Error {
    let error = match error.downcast::<genai::Error>() {
        Ok(inner) => return read(*inner, target),
        Err(error) => error,
    };
    let error = match error.downcast::<genai::webc::Error>() {
        Ok(inner) => return of_web(*inner, target),
        Err(error) => error,
    };
    if let Some(timeout) = error.downcast_ref::<StreamTimeout>() {
        let (phase, limit) = match timeout {
            StreamTimeout::Headers => (Phase::FirstByte, target.timeouts.first_byte),
            StreamTimeout::Read => (Phase::BetweenChunks, target.timeouts.between_chunks),
        };
        return timed_out(target, phase, limit);
    }
    if let Some(transport) = error.downcast_ref::<reqwest::Error>() {
        return of_transport(transport, target);
    }
    // What is left are texts that are not UTF-8.
    malformed(target, "its text cannot be decoded")
}

pub(super) fn timed_out(target: &Target<'_>, phase: Phase, limit: Duration) -> Error {
    Error::Timeout {
        provider: target.kind.as_str(),
        url: target.shown_url(),
        phase,
        limit,
    }
}

fn of_transport(error: &reqwest::Error, target: &Target<'_>) -> Error {
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
fn of_status(status: StatusCode, headers: &HeaderMap, body: &str, target: &Target<'_>) -> Error {
    let told = Told::read(body, target);
    let provider = target.kind.as_str();
    let model = || target.model.to_owned();
    let detail = told.shown();
    let code = status.as_u16();
    let named = wait_of(headers, &told.body);
    if told.means_no_credit() || code == 402 {
        return Error::QuotaExhausted {
            provider,
            status: code,
            detail,
        };
    }
    if code == 401 || told.means_bad_key() {
        return Error::Unauthorized {
            provider,
            variable: target.key_variable(),
            status: code,
            detail,
        };
    }
    match code {
        400 | 422 | 501 if target.sends_tools && told.mentions(TOOLS_WORDS) => {
            Error::ToolsRefused {
                provider,
                model: model(),
                detail,
            }
        }
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
    }
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

const TOOLS_WORDS: &[&str] = &[
    "does not support tools",
    "tool choice",
    "tool_choice",
    "tool-call-parser",
    "function calling",
    "tools are not supported",
];
const SCHEMA_WORDS: &[&str] = &[
    "response_format",
    "json_schema",
    "output_config",
    "output_format",
    "responsejsonschema",
    "structured output",
    "guided_json",
];

/// Whether a refusal is about the response schema, so that the same call may pass without it.
pub(super) fn is_about_the_schema(error: &Error) -> bool {
    match error {
        Error::BadRequest { detail, .. } => contains_any(detail, SCHEMA_WORDS),
        _ => false,
    }
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// What a provider said about a failure.
struct Told {
    body: Value,
    message: String,
    kind: String,
}

impl Told {
    fn read(body: &str, target: &Target<'_>) -> Self {
        match serde_json::from_str(body) {
            Ok(value) => Self::of_value(value, target),
            Err(_) => Self::of_value(Value::String(body.to_owned()), target),
        }
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
        let mut message = shorten(&message.unwrap_or_default());
        if let Some(key) = target.key.filter(|key| !key.secret().is_empty()) {
            message = message.replace(key.secret(), "(key)");
        }
        Self {
            message,
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
        contains_any(&self.message, words)
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
        text.parse::<f64>()
            .ok()
            .and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).ok())
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
