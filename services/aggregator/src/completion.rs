//! What the message of a completion says: its triples, and the fan-out that it belongs to.

use agentfleet_broker::Delivery;
use agentfleet_graph::Batch;
use agentfleet_schema::tolerant::MOST_COUNTED;
use agentfleet_schema::topics::property;
use agentfleet_schema::vocabulary::{RDF_TYPE, tg};
use agentfleet_schema::{CorrelationId, SessionId, Term, Triple, Triples};
use std::collections::BTreeMap;

/// Highest step number at which a fan-out is looked for.
const LAST_STEP: u32 = 10_000;

/// A fan-out by the session and step it was committed at.
pub(crate) type Place = (SessionId, u32);

/// What the message of a completion says of the fan-out that it belongs to.
pub(crate) enum Of {
    Place(Place),
    /// Only what its triples say: the correlation, and the session above if they name it.
    Foreign(Vec<(CorrelationId, Option<SessionId>)>),
}

/// The triples of a completion, and where it belongs.
pub(crate) fn read(delivery: &Delivery) -> Result<(Batch, Of), String> {
    let message: Triples =
        serde_json::from_slice(&delivery.payload).map_err(|error| error.to_string())?;
    let properties = &delivery.properties;
    let of = if properties.contains_key(property::PARENT) {
        Of::Place(place(properties, property::PARENT, property::PARENT_STEP)?)
    } else {
        Of::Foreign(named(&message))
    };
    Ok((Batch::of_message(message, properties), of))
}

/// The correlations that completions among triples name, with the session above where that is named.
fn named(message: &Triples) -> Vec<(CorrelationId, Option<SessionId>)> {
    let triples = &message.triples;
    let is_completion = |t: &&Triple| t.p.iri == RDF_TYPE && t.o.iri == tg::SUBAGENT_COMPLETION;
    let text = |of: &Term, name: &str| {
        let mut told = triples.iter().filter(|t| t.s == *of && t.p.iri == name);
        told.find_map(|t| Some(t.o.value.as_str()).filter(|text| !text.is_empty()))
    };
    let completions = triples.iter().filter(is_completion);
    let found = completions.filter_map(|t| {
        let correlation = text(&t.s, tg::CORRELATION_ID)?;
        let parent = text(&t.s, tg::PARENT_SESSION_ID).map(SessionId::from);
        Some((CorrelationId::from(correlation), parent))
    });
    found.collect()
}

/// The step of a session that fanned out under a correlation.
pub(crate) fn step_of(session: &SessionId, correlation: &CorrelationId) -> Option<u32> {
    (0..LAST_STEP).find(|step| CorrelationId::of_fan_out(session, *step) == *correlation)
}

/// A session and step out of a message's properties.
pub(crate) fn place(
    properties: &BTreeMap<String, String>,
    session: &str,
    step: &str,
) -> Result<Place, String> {
    let text = |name: &str| {
        properties
            .get(name)
            .ok_or_else(|| format!("the message has no property `{name}`"))
    };
    let number = text(step)?;
    let step: u32 = number
        .parse()
        .map_err(|_| format!("property `{step}` is no step number: `{number}`"))?;
    Ok((
        SessionId::from(text(session)?.as_str()),
        step.min(MOST_COUNTED),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::vocabulary::prov;

    #[test]
    fn a_completion_of_another_program_is_known_by_its_triples() {
        let said = |predicate: &str, object: Term| Triple::new("urn:c", predicate, object);
        let mut message = Triples {
            triples: vec![
                said(RDF_TYPE, Term::iri(prov::ENTITY)),
                said(tg::CORRELATION_ID, Term::text("corr")),
                said(tg::PARENT_SESSION_ID, Term::text("s")),
            ],
            ..Triples::default()
        };
        assert_eq!(named(&message), []);
        message
            .triples
            .push(said(RDF_TYPE, Term::iri(tg::SUBAGENT_COMPLETION)));
        assert_eq!(named(&message), [("corr".into(), Some("s".into()))]);
        let session = SessionId::from("s");
        let correlation = CorrelationId::of_fan_out(&session, 7);
        assert_eq!(step_of(&session, &correlation), Some(7));
        assert_eq!(step_of(&session, &"corr".into()), None);
    }
}
