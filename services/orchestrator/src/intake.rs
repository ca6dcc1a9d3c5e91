//! From a delivery to a request whose ids are settled.
//!
//! What a request does not say is filled in the same way on every redelivery, so that a duplicate
//! meets the records of its first delivery.

use agentfleet_broker::{Delivery, MAX_PAYLOAD};
use agentfleet_core::error::Code;
use agentfleet_schema::records::StepRecord;
use agentfleet_schema::topics::property;
use agentfleet_schema::{AgentRequest, Digest, FAR, Millis, SessionId};

/// A request as it was delivered.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub request: AgentRequest,
    pub digest: Digest,
}

/// Reads a delivery. `Err` says why it is no request, and begins with the code of the error.
pub(crate) fn read(delivery: &Delivery) -> Result<Intake, String> {
    let mut request = parse(&delivery.payload)?;
    let id = delivery.properties.get(property::ID).map(String::as_str);
    if id.is_some_and(|id| id.len() > property::MAX_CARRIED) {
        let why = format!(
            "property `id` has more than {} bytes",
            property::MAX_CARRIED
        );
        return Err(Code::InvalidRequest.refusal(&why));
    }
    if request.session_id.is_empty() {
        request.session_id = SessionId::unnamed(
            id,
            &request.user,
            delivery.topic.as_str(),
            delivery
                .properties
                .get(property::ORIGIN_MESSAGE)
                .unwrap_or(&delivery.message_id),
        );
    }
    if request.control.root.is_empty() {
        request.control.root = request.session_id.clone();
    }
    Ok(Intake {
        request,
        digest: Digest::of(&delivery.payload),
    })
}

pub(crate) fn parse(payload: &[u8]) -> Result<AgentRequest, String> {
    if payload.len() > MAX_PAYLOAD {
        let size = payload.len();
        let why = format!("the message has {size} bytes, the limit is {MAX_PAYLOAD}");
        return Err(Code::MessageTooLarge.refusal(&why));
    }
    let wrong = |error: &serde_json::Error, path: &str| {
        if error.is_data() {
            let path = if path == "." {
                "$".to_owned()
            } else {
                format!("$.{path}")
            };
            Code::InvalidRequest.refusal(&format!("`{path}`: {error}"))
        } else {
            Code::InvalidJson.refusal(&format!("the message is not JSON: {error}"))
        }
    };
    if payload.starts_with("\u{feff}".as_bytes()) {
        let why = "the message begins with a byte order mark (U+FEFF): send UTF-8 without one";
        return Err(Code::InvalidJson.refusal(why));
    }
    // A list would be read as the fields in their order.
    let first = payload.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(
            match serde_json::from_slice::<serde::de::IgnoredAny>(payload) {
                Ok(_) => Code::InvalidRequest.refusal("`$`: the message must be a JSON object"),
                Err(error) => wrong(&error, "."),
            },
        );
    }
    let mut reader = serde_json::Deserializer::from_slice(payload);
    let request: AgentRequest = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| wrong(error.inner(), &error.path().to_string()))?;
    reader.end().map_err(|error| wrong(&error, "."))?;
    // All of them become parts of keys.
    let ids = named_sessions(&request).find(|(_, id)| !id.is_empty() && !id.is_well_formed());
    if let Some((field, _)) = ids {
        let why = format!(
            "`$.{field}`: must have at most {} letters, digits, `-`, `_`, `.`, `~` or `:`, a letter \
             or digit first",
            SessionId::MAX
        );
        return Err(Code::InvalidRequest.refusal(&why));
    }
    Ok(request)
}

/// Whether a message asks something else than the first record of its session tells. White space and
/// whether somebody listens make no difference; nor does a message that is a worker's, or of which the
/// record does not hold what it asked.
pub(crate) fn is_another(record: &StepRecord, payload: &[u8]) -> bool {
    if record.request.is_empty() || record.request == Digest::of(payload) {
        return false;
    }
    let first = record.worked.request.as_deref();
    let asked = |body: &[u8]| {
        let request = serde_json::from_slice::<AgentRequest>(body).ok()?;
        Some(AgentRequest {
            streaming: false,
            ..request
        })
    };
    let (first, second) = (
        first.and_then(|first| asked(first.as_bytes())),
        asked(payload),
    );
    first.is_some() && first != second
}

/// Every session that a request names, by its field.
fn named_sessions(request: &AgentRequest) -> impl Iterator<Item = (&'static str, &SessionId)> {
    let control = &request.control;
    let above = control.ancestors.iter().map(|above| &above.session);
    let before = control.lineage.iter().map(|before| &before.session);
    [
        ("session_id", &request.session_id),
        ("parent_session_id", &request.parent_session_id),
        ("control.root", &control.root),
        ("control.fan_in_session", &control.fan_in_session),
    ]
    .into_iter()
    .chain(above.map(|session| ("control.ancestors", session)))
    .chain(before.map(|session| ("control.lineage", session)))
}

/// Whether a message cancels a run instead of asking something.
pub(crate) fn is_cancel(delivery: &Delivery) -> bool {
    let kind = delivery.properties.get(property::KIND);
    kind.map(String::as_str) == Some(property::KIND_CANCEL)
}

/// When a message came first that was put back, or delivered before.
pub(crate) fn came_at(delivery: &Delivery) -> Option<Millis> {
    let since = delivery.properties.get(property::SINCE);
    let since = since.and_then(|since| since.parse().ok());
    since
        .or(delivery.first_at)
        .map(|at: Millis| at.clamp(0, FAR))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_broker::{Properties, Receipt};
    use agentfleet_schema::topics::AGENT_REQUEST;

    fn delivery(payload: &[u8], properties: &[(&str, &str)]) -> Delivery {
        let properties = properties.iter();
        Delivery {
            message_id: "7:1".into(),
            topic: AGENT_REQUEST,
            payload: payload.into(),
            properties: properties
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<Properties>(),
            deliveries: None,
            published_at: 0,
            first_at: None,
            reopened_at: None,
            receipt: Receipt::default(),
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_code_and_its_place() {
        let large = vec![b' '; MAX_PAYLOAD + 1];
        let long = "x".repeat(property::MAX_CARRIED + 1);
        let number = format!("{{\"step\": \"{}\"}}", "7".repeat(3_000_000));
        let table: [(&[u8], &[(&str, &str)], &str, &str); 15] = [
            (b"", &[], "invalid-json", "not JSON"),
            (b"{\"question\": }", &[], "invalid-json", "column 14"),
            (b"{\"question\": \"\xff\"}", &[], "invalid-json", "not JSON"),
            (b"{} {}", &[], "invalid-json", "trailing"),
            (
                b"\xef\xbb\xbf{}",
                &[],
                "invalid-json",
                "begins with a byte order mark",
            ),
            (b"[\"why?\"]", &[], "invalid-request", "`$`: "),
            (b"7", &[], "invalid-request", "`$`: "),
            (
                b"{\"question\": 7}",
                &[],
                "invalid-request",
                "`$.question`: ",
            ),
            (
                b"{\"history\": [{}, {\"plan\": [{\"depends_on\": [\"x\"]}]}]}",
                &[],
                "invalid-request",
                "`$.history[1].plan[0].depends_on[0]`: ",
            ),
            (
                b"{\"session_id\": \"a/steps/0\"}",
                &[],
                "invalid-request",
                "`$.session_id`: ",
            ),
            (
                b"{\"control\": {\"root\": \"../..\"}}",
                &[],
                "invalid-request",
                "`$.control.root`: ",
            ),
            (
                b"{\"control\": {\"ancestors\": [{\"session\": \"a/b\", \"step\": 1}]}}",
                &[],
                "invalid-request",
                "`$.control.ancestors`: ",
            ),
            (number.as_bytes(), &[], "invalid-request", "expected u32"),
            (b"{}", &[("id", &long)], "invalid-request", "property `id`"),
            (&large, &[], "message-too-large", "4194305 bytes"),
        ];
        for (payload, properties, code, text) in table {
            let reason = read(&delivery(payload, properties)).unwrap_err();
            let (found, why) = Code::of_refusal(&reason);
            assert_eq!(found.as_str(), code, "{reason}");
            assert!(why.contains(text), "{reason}");
            // It travels as a property.
            assert!(reason.len() <= 2 * property::MAX_CARRIED, "{reason}");
        }
    }

    #[test]
    fn a_second_request_under_a_session_is_told_from_a_repeat_of_the_first() {
        let first = r#"{"question": "why?", "session_id": "s"}"#;
        let record = StepRecord {
            request: Digest::of(first.as_bytes()),
            worked: Box::new(agentfleet_schema::records::Worked {
                request: Some(first.to_owned()),
                ..Default::default()
            }),
            ..StepRecord::default()
        };
        for (second, another) in [
            (first, false),
            (
                r#"{"session_id":"s","question":"why?","streaming":true}"#,
                false,
            ),
            (r#"{"question": "how?", "session_id": "s"}"#, true),
        ] {
            assert_eq!(is_another(&record, second.as_bytes()), another, "{second}");
        }
        // An end from outside, before the request came, holds no request to compare with.
        assert!(!is_another(&StepRecord::default(), first.as_bytes()));
    }

    #[test]
    fn the_session_of_an_unnamed_request_is_the_same_on_every_delivery() {
        let session = |properties: &[(&str, &str)]| {
            let read = read(&delivery(b"{\"question\": \"why?\"}", properties)).unwrap();
            read.request.session_id
        };
        assert_eq!(session(&[("id", "one")]), session(&[("id", "one")]));
        assert_ne!(session(&[("id", "one")]), session(&[("id", "two")]));
        assert_eq!(session(&[]), session(&[("origin-message", "7:1")]));
    }
}
