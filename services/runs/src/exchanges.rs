//! The exchanges of a conversation, newest first: what was asked, and what the run that works it answered.

use agentfleet_documents::{Documents, Error};
use agentfleet_schema::{Carried, ConversationId, Exchange, Millis, SessionId, keys, uris};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub session: SessionId,
    pub asked_at: Millis,
    /// The beginning of the question; the run's first record has all of it.
    pub question: String,
    /// Whether the run ended with an answer.
    pub is_answered: bool,
    /// What the next run begins with, where it did.
    pub carried: Carried,
    /// What it ended with, be that an answer or the reason why there is none; `None` while it has not ended.
    pub text: Option<String>,
    /// Older ones come after this.
    pub place: String,
}

/// Up to `max` exchanges of a tenant's conversation, those older than the one at the place `after` (empty for the newest).
pub async fn exchanges(
    documents: &dyn Documents,
    tenant: &str,
    conversation: &ConversationId,
    after: &str,
    max: usize,
) -> Result<Vec<Asked>, Error> {
    let folder = keys::exchanges(tenant, conversation);
    let after = match after {
        "" => String::new(),
        place => format!("{folder}{place}"),
    };
    let entries = documents.entries(&folder, &after, max).await?;
    let found: Vec<(String, Millis, SessionId)> = entries
        .into_iter()
        .filter_map(|entry| {
            let (asked_at, session) = keys::exchange_of(&entry.key)?;
            Some((entry.key, asked_at, session))
        })
        .collect();
    let wanted: Vec<String> = found
        .iter()
        .flat_map(|(key, _, session)| {
            let answer = uris::answer_document(session);
            [
                key.clone(),
                keys::document(&answer),
                keys::answered(session),
            ]
        })
        .collect();
    let bodies = documents.get_many(&wanted).await?;
    let rows = found.into_iter().zip(bodies.chunks(3));
    let asked = rows.filter_map(|((key, asked_at, session), bodies)| {
        let [Some(exchange), end, answered] = bodies else {
            // Erased in between.
            return None;
        };
        let exchange: Exchange = serde_json::from_slice(exchange).unwrap_or_default();
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        Some(Asked {
            session,
            asked_at,
            question: exchange.question,
            is_answered: answered.is_some(),
            carried: answered
                .as_deref()
                .and_then(|body| serde_json::from_slice(body).ok())
                .unwrap_or_default(),
            text: end.as_deref().map(text),
            place: key.strip_prefix(&folder)?.to_owned(),
        })
    });
    Ok(asked.collect())
}
