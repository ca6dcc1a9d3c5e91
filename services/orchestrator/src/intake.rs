//! From a delivery to a request whose ids are settled.
//!
//! What a request does not say is filled in the same way on every redelivery, so that a duplicate
//! meets the records of its first delivery.

use agentfleet_broker::{Delivery, MAX_PAYLOAD};
use agentfleet_core::error::Code;
use agentfleet_schema::topics::property;
use agentfleet_schema::{AgentRequest, Digest, Millis, SessionId};

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

fn parse(payload: &[u8]) -> Result<AgentRequest, String> {
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
    let session = &request.session_id;
    if !session.is_empty() && !session.is_well_formed() {
        let why = format!(
            "`$.session_id`: must have at most {} letters, digits, `-`, `_`, `.`, `~` or `:`, a \
             letter or digit first",
            SessionId::MAX
        );
        return Err(Code::InvalidRequest.refusal(&why));
    }
    Ok(request)
}

/// When a message that was put back came first.
pub(crate) fn came_at(delivery: &Delivery) -> Option<Millis> {
    delivery.properties.get(property::SINCE)?.parse().ok()
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
            receipt: Receipt::default(),
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_code_and_its_place() {
        let large = vec![b' '; MAX_PAYLOAD + 1];
        let long = "x".repeat(property::MAX_CARRIED + 1);
        let table: [(&[u8], &[(&str, &str)], &str, &str); 11] = [
            (b"", &[], "invalid-json", "not JSON"),
            (b"{\"question\": }", &[], "invalid-json", "column 14"),
            (b"{\"question\": \"\xff\"}", &[], "invalid-json", "not JSON"),
            (b"{} {}", &[], "invalid-json", "trailing"),
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
            (b"{}", &[("id", &long)], "invalid-request", "property `id`"),
            (&large, &[], "message-too-large", "4194305 bytes"),
        ];
        for (payload, properties, code, text) in table {
            let reason = read(&delivery(payload, properties)).unwrap_err();
            let (found, why) = Code::of_refusal(&reason);
            assert_eq!(found.as_str(), code, "{reason}");
            assert!(why.contains(text), "{reason}");
        }
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
