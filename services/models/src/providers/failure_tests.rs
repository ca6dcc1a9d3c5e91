#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::error::{Kind, Retry};
use crate::providers::{ApiKey, ProviderKind, Timeouts};
use reqwest::header::{HeaderName, HeaderValue};

fn target(key: &ApiKey) -> Target<'_> {
    Target {
        kind: ProviderKind::OpenAi,
        protocol: ProviderKind::OpenAi,
        model: "m-1",
        base_url: "http://127.0.0.1:9/v1/",
        key: Some(key),
        timeouts: Timeouts::default(),
        sends_tools: true,
    }
}

fn failure(status: u16, headers: &[(&str, &str)], body: &str) -> Error {
    let key = ApiKey::new("sk-very-secret", "OPENAI_API_KEY");
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.insert(name, HeaderValue::from_str(value).unwrap());
    }
    let error = genai::Error::HttpError {
        status: StatusCode::from_u16(status).unwrap(),
        canonical_reason: String::new(),
        body: body.to_owned(),
        headers: Box::new(map),
    };
    read(error, &target(&key))
}

/// Status, headers, body; when to try again; words of the message.
type Case<'a> = (u16, &'a [(&'a str, &'a str)], &'a str, Retry, &'a str);

#[test]
fn a_status_says_whether_to_try_again_and_what_to_do() {
    let secs = Duration::from_secs;
    let after = |s: u64| Retry::After(secs(s));
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
            Retry::No,
            "refused the request as invalid (HTTP 400): told so",
        ),
        (
            401,
            &[],
            message,
            Retry::No,
            "refused the key in `OPENAI_API_KEY` (HTTP 401): set a valid",
        ),
        (402, &[], message, Retry::No, "add credit"),
        (
            403,
            &[],
            message,
            Retry::No,
            "choose another model or ask for access",
        ),
        (
            404,
            &[],
            message,
            Retry::No,
            "no model `m-1` at `http://127.0.0.1:9/v1`",
        ),
        (413, &[], message, Retry::No, "HTTP 413"),
        (422, &[], message, Retry::No, "HTTP 422"),
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
            Retry::After(Duration::from_millis(1500)),
            "",
        ),
        (
            429,
            &[("retry-after-ms", "250")],
            message,
            Retry::After(Duration::from_millis(250)),
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
            Retry::After(LONGEST_WAIT),
            "",
        ),
        (
            429,
            &[("retry-after", "soon")],
            message,
            Retry::After(AFTER_RATE_LIMIT),
            "",
        ),
        (429, &[], gemini_wait, after(34), "slow"),
        (429, &[], no_credit, Retry::No, "may spend no more"),
        (400, &[], gemini_key, Retry::No, "refused the key"),
        (400, &[], no_tools, after(0), "takes no tools"),
        (
            500,
            &[],
            "<html>Bad</html>",
            Retry::After(AFTER_SERVER_ERROR),
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
            529,
            &[],
            message,
            Retry::After(AFTER_OVERLOAD),
            "overloaded",
        ),
        (307, &[], "", Retry::No, "HTTP 307"),
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
        ("overloaded_error", Retry::After(AFTER_OVERLOAD)),
        ("rate_limit_error", Retry::After(AFTER_RATE_LIMIT)),
        ("api_error", Retry::After(AFTER_SERVER_ERROR)),
        ("server_error", Retry::After(AFTER_SERVER_ERROR)),
        ("invalid_request_error", Retry::No),
        ("insufficient_quota", Retry::No),
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
fn the_request_never_shows_in_an_error() {
    let key = ApiKey::new("k", "OPENAI_API_KEY");
    let error = genai::Error::ChatResponseGeneration {
        model_iden: genai::ModelIden::new(genai::adapter::AdapterKind::OpenAI, "m-1".to_owned()),
        request_payload: Box::new(serde_json::json!({"messages": "my secret prompt"})),
        response_body: Box::new(Value::Null),
        cause: "my secret prompt".to_owned(),
    };
    let told = read(error, &target(&key)).to_string();
    assert!(!told.contains("secret prompt"), "{told}");
    let error = genai::Error::Internal("my secret prompt".to_owned());
    let told = read(error, &target(&key)).to_string();
    assert!(
        told.contains("Internal") && !told.contains("secret prompt"),
        "{told}"
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
