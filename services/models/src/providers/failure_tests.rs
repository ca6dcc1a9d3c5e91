#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::error::Kind;
use crate::providers::refused::Refused;
use crate::providers::{ApiKey, ProviderKind, Timeouts};
use reqwest::header::{HeaderName, HeaderValue};

fn target(key: &ApiKey) -> Target<'_> {
    Target {
        kind: ProviderKind::OpenAi,
        model: "m-1",
        base_url: "http://127.0.0.1:9/v1/",
        key: Some(key),
        timeouts: Timeouts::default(),
        sent: &[Field::Schema, Field::Tools],
        with_schema: true,
    }
}

fn failure(status: u16, headers: &[(&str, &str)], body: &str) -> Error {
    let key = ApiKey::new("sk-very-secret", "OPENAI_API_KEY");
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.insert(name, HeaderValue::from_str(value).unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    of_status(status, &map, body, &target(&key)).error
}

/// Status, headers, body; when to try again; words of the message.
type Case<'a> = (
    u16,
    &'a [(&'a str, &'a str)],
    &'a str,
    Option<Duration>,
    &'a str,
);

#[test]
fn a_status_says_whether_to_try_again_and_what_to_do() {
    let secs = Duration::from_secs;
    let after = |s: u64| Some(secs(s));
    let message = r#"{"error":{"message":"told so","type":"t"}}"#;
    let no_credit = r#"{"error":{"message":"You exceeded it","code":"insufficient_quota"}}"#;
    let gemini_wait = r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow",
        "details":[{"@type":"x"},{"retryDelay":"34s"}]}}]"#;
    let gemini_key = r#"{"error":{"code":400,"message":"API key not valid. Please pass one.",
        "status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#;
    let no_tools = r#"{"error":{"message":"m-1 does not support tools"}}"#;
    let cases: &[Case<'_>] = &[
        (
            400,
            &[],
            message,
            None,
            "refused the request as invalid (HTTP 400): told so",
        ),
        (
            401,
            &[],
            message,
            None,
            "refused the key in `OPENAI_API_KEY` (HTTP 401): set a valid",
        ),
        (402, &[], message, None, "add credit"),
        (
            403,
            &[],
            message,
            None,
            "choose another model or ask for access",
        ),
        (
            404,
            &[],
            message,
            None,
            "no model `m-1` at `http://127.0.0.1:9/v1`",
        ),
        (413, &[], message, None, "HTTP 413"),
        (422, &[], message, None, "HTTP 422"),
        (
            429,
            &[("retry-after", "7")],
            message,
            after(7),
            "limits the rate",
        ),
        (
            429,
            &[("retry-after", "1.5")],
            message,
            Some(Duration::from_millis(1500)),
            "",
        ),
        (
            429,
            &[("retry-after-ms", "250")],
            message,
            Some(Duration::from_millis(250)),
            "",
        ),
        (
            429,
            &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")],
            message,
            after(0),
            "",
        ),
        (
            429,
            &[("retry-after", "99999")],
            message,
            Some(LONGEST_WAIT),
            "",
        ),
        (
            429,
            &[("retry-after", "soon")],
            message,
            Some(AFTER_RATE_LIMIT),
            "",
        ),
        (429, &[], gemini_wait, after(34), "slow"),
        (429, &[], no_credit, None, "may spend no more"),
        (400, &[], gemini_key, None, "refused the key"),
        (400, &[], no_tools, after(0), "takes no tools"),
        (
            500,
            &[],
            "<html>Bad</html>",
            Some(AFTER_SERVER_ERROR),
            "HTTP 500)",
        ),
        (
            503,
            &[("retry-after", "3")],
            message,
            after(3),
            "overloaded",
        ),
        (
            500,
            &[("retry-after-ms", "40")],
            message,
            Some(Duration::from_millis(40)),
            "HTTP 500)",
        ),
        (
            599,
            &[("retry-after", "1e300")],
            message,
            Some(LONGEST_WAIT),
            "HTTP 599)",
        ),
        (
            529,
            &[("retry-after", "11")],
            message,
            after(11),
            "overloaded",
        ),
        (529, &[], message, Some(AFTER_OVERLOAD), "overloaded"),
        (307, &[], "", None, "HTTP 307"),
    ];
    for (status, headers, body, retry, words) in cases {
        let error = failure(*status, headers, body);
        assert_eq!(
            error.retry(),
            *retry,
            "{status} {headers:?} {body}: {error}"
        );
        assert!(error.to_string().contains(words), "{status}: {error}");
        assert!(!error.to_string().contains("<html>"), "{status}: {error}");
    }
}

#[test]
fn a_wait_is_taken_as_a_date_too() {
    let then = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1_000));
    let Some(wait) = failure(503, &[("retry-after", &then)], "").retry() else {
        panic!("it can be tried again");
    };
    let expected = Duration::from_secs(900)..=Duration::from_secs(1_000);
    assert!(expected.contains(&wait), "{wait:?}");
}

#[test]
fn what_is_refused_is_told_from_what_is_wrong() {
    let key = ApiKey::new("k", "OPENAI_API_KEY");
    let fields = Refused::default().others();
    let target = Target {
        sent: &fields,
        ..target(&key)
    };
    let extra = r#"{"detail":[{"loc":["body","parallel_tool_calls"],"msg":"Extra inputs are not permitted"}]}"#;
    for (body, refuses) in [
        (extra, Some(Refusal::Field(Field::OneCall))),
        (
            r#"{"error":{"message":"Unsupported parameter: 'parallel_tool_calls' is not supported with this model."}}"#,
            Some(Refusal::Field(Field::OneCall)),
        ),
        (
            r#"{"error":{"message":"tool_choice.disable_parallel_tool_use: Extra inputs are not permitted"}}"#,
            Some(Refusal::Field(Field::OneCall)),
        ),
        (
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}"#,
            Some(Refusal::Field(Field::Limit)),
        ),
        (
            r#"{"error":{"message":"max_completion_tokens is too large: 300000. This model supports at most 16384 completion tokens."}}"#,
            None,
        ),
        (
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported."}}"#,
            Some(Refusal::Field(Field::Temperature)),
        ),
        (
            r#"{"error":{"message":"temperature must be between 0 and 2"}}"#,
            None,
        ),
        (
            r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#,
            Some(Refusal::Field(Field::Usage)),
        ),
        (
            r#"{"error":{"message":"tools param requires --jinja flag"}}"#,
            Some(Refusal::Field(Field::Tools)),
        ),
        (r#"{"error":{"message":"the prompt is too long"}}"#, None),
        (
            r#"{"error":{"message":"Invalid parameter: response_format json_schema is not supported"}}"#,
            Some(Refusal::Field(Field::Schema)),
        ),
        (
            r#"{"error":{"message":"Invalid schema for response_format 'plan-create': schema must have a 'type' key.","type":"invalid_request_error"}}"#,
            Some(Refusal::ThisSchema),
        ),
        (
            r#"{"error":{"code":400,"message":"Unable to generate parser for this template. Automatic parser generation failed: JSON schema error at #/properties/a: enum must be a non-empty array"}}"#,
            Some(Refusal::ThisSchema),
        ),
        (
            r#"{"error":{"code":400,"message":"The specified schema produces a constraint that has too many states for serving."}}"#,
            Some(Refusal::ThisSchema),
        ),
    ] {
        let failed = of_status(StatusCode::BAD_REQUEST, &HeaderMap::new(), body, &target);
        assert_eq!(failed.refuses, refuses, "{body}");
    } // A call without a schema is not made again for the sake of one.
    let without = Target {
        with_schema: false,
        ..target
    };
    let says = r#"{"error":{"message":"the tool has an invalid schema"}}"#;
    let failed = of_status(StatusCode::BAD_REQUEST, &HeaderMap::new(), says, &without);
    assert_eq!(failed.refuses, None);
}

#[test]
fn a_key_that_a_provider_repeats_is_not_passed_on() {
    let error = failure(
        401,
        &[],
        r#"{"error":{"message":"Incorrect API key: sk-very-secret."}}"#,
    );
    let told = format!("{error} {error:?}");
    assert!(!told.contains("sk-very-secret"), "{told}");
    assert!(told.contains("(key)"), "{told}");
}

#[test]
fn an_error_within_a_reply_is_read_like_a_status() {
    let key = ApiKey::new("k", "OPENAI_API_KEY");
    let overloaded = |kind: &str| {
        of_event(
            &serde_json::json!({"type": "error", "error": {"type": kind, "message": "m"}}),
            &target(&key),
        )
    };
    for (kind, retry) in [
        ("overloaded_error", Some(AFTER_OVERLOAD)),
        ("rate_limit_error", Some(AFTER_RATE_LIMIT)),
        ("api_error", Some(AFTER_SERVER_ERROR)),
        ("server_error", Some(AFTER_SERVER_ERROR)),
        ("invalid_request_error", None),
        ("insufficient_quota", None),
    ] {
        assert_eq!(overloaded(kind).retry(), retry, "{kind}");
    }
}

#[test]
fn long_texts_of_a_provider_are_cut() {
    let error = failure(
        400,
        &[],
        &format!(r#"{{"error":{{"message":"{}"}}}}"#, "x ".repeat(2_000)),
    );
    assert!(
        error.to_string().chars().count() < DETAIL_LIMIT + 200,
        "{error}"
    );
}

#[test]
fn a_status_is_of_one_of_few_kinds() {
    let table = [
        (401, "", Kind::NotAllowed),
        (403, "", Kind::NotAllowed),
        (404, "", Kind::Refused),
        (400, "", Kind::Refused),
        (429, "", Kind::RateLimited),
        (500, "", Kind::Unavailable),
        (503, "", Kind::Unavailable),
    ];
    for (status, body, kind) in table {
        let failed = failure(status, &[], body);
        assert_eq!(failed.kind(), kind, "{status}: {failed}");
    }
    // Each can be told from the others on a dashboard.
    let all = [
        Kind::Timeout,
        Kind::RateLimited,
        Kind::Unavailable,
        Kind::Unreachable,
        Kind::NotAllowed,
        Kind::Refused,
        Kind::Declined,
        Kind::InvalidReply,
        Kind::Misconfigured,
    ];
    let names: std::collections::BTreeSet<_> = all.map(Kind::as_str).into();
    assert_eq!(names.len(), all.len());
}
