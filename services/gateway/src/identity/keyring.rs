//! API keys in the documents store. The secret is shown once, when a key is made; the store has its hash.

use agentfleet_documents::{Created, Documents, Error};
use agentfleet_schema::records::{ApiKeyRecord, RevokedRecord};
use agentfleet_schema::{Digest, Millis, keys as key_names};
use uuid::Uuid;

/// What every API key begins with.
pub(crate) const PREFIX: &str = "af_";
/// Characters of the part that is no secret.
const ID: usize = 16;
/// Records read at once.
const AT_ONCE: usize = 500;

/// What a key is made with.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    pub name: String,
    pub tenant: String,
    pub roles: Vec<String>,
    pub permissions: Vec<String>,
    pub per_minute: Option<u32>,
    /// 0 means never.
    pub expires_at: Millis,
}

/// Makes a key. The text is the secret, and is nowhere else.
pub async fn create_key(
    documents: &dyn Documents,
    new: NewKey,
    now: Millis,
) -> Result<(ApiKeyRecord, String), Error> {
    loop {
        let id: String = random().chars().take(ID).collect();
        // Two of them hold 244 random bits.
        let secret = format!("{PREFIX}{id}_{}{}", random(), random());
        let record = ApiKeyRecord {
            digest: Digest::of(secret.as_bytes()),
            id,
            name: new.name.clone(),
            tenant: new.tenant.clone(),
            roles: new.roles.clone(),
            permissions: new.permissions.clone(),
            per_minute: new.per_minute,
            created_at: now,
            expires_at: new.expires_at,
            revoked_at: 0,
        };
        let body = serde_json::to_vec(&record).unwrap_or_default();
        let key = key_names::api_key(&record.id);
        if documents.create(&key, body).await? == Created::New {
            return Ok((record, secret));
        }
    }
}

fn random() -> String {
    Uuid::new_v4().simple().to_string()
}

/// All keys, also those that count no more; the oldest first.
pub async fn keys(documents: &dyn Documents) -> Result<Vec<ApiKeyRecord>, Error> {
    let names = documents.list(key_names::API_KEYS).await?;
    let ids = names.iter().filter_map(|name| {
        let id = name.strip_prefix(key_names::API_KEYS)?;
        (!id.contains('/')).then(|| id.to_owned())
    });
    let ids: Vec<String> = ids.collect();
    let mut found = Vec::new();
    for some in ids.chunks(AT_ONCE) {
        found.extend(load(documents, some).await?.into_iter().flatten());
    }
    found.sort_by_key(|record| record.created_at);
    Ok(found)
}

/// Revokes a key, and gives back how it stands; `None` where there is no such key. Once revoked it stays so.
pub async fn revoke_key(
    documents: &dyn Documents,
    id: &str,
    by: &str,
    now: Millis,
) -> Result<Option<ApiKeyRecord>, Error> {
    if find(documents, id).await?.is_none() {
        return Ok(None);
    }
    let record = RevokedRecord {
        at: now,
        by: by.to_owned(),
    };
    let body = serde_json::to_vec(&record).unwrap_or_default();
    documents
        .create_or_get(&key_names::api_key_revoked(id), body)
        .await?;
    find(documents, id).await
}

/// A key by the part of it that is no secret.
pub(crate) async fn find(
    documents: &dyn Documents,
    id: &str,
) -> Result<Option<ApiKeyRecord>, Error> {
    let found = load(documents, &[id.to_owned()]).await?;
    Ok(found.into_iter().next().flatten())
}

async fn load(
    documents: &dyn Documents,
    ids: &[String],
) -> Result<Vec<Option<ApiKeyRecord>>, Error> {
    let names = ids
        .iter()
        .flat_map(|id| [key_names::api_key(id), key_names::api_key_revoked(id)]);
    let names: Vec<String> = names.collect();
    let found = documents.get_many(&names).await?;
    let records = found.chunks(2).map(|pair| {
        let body = pair.first()?.as_ref()?;
        let mut record: ApiKeyRecord = serde_json::from_slice(body).ok()?;
        if let Some(body) = pair.get(1).and_then(Option::as_ref) {
            // A record that cannot be read revokes, too.
            let revoked = serde_json::from_slice::<RevokedRecord>(body);
            record.revoked_at = revoked.map_or(1, |revoked| revoked.at.max(1));
        }
        Some(record)
    });
    Ok(records.collect())
}

/// The id in what looks like a key.
pub(crate) fn id_of(secret: &str) -> Option<&str> {
    let (id, rest) = secret.strip_prefix(PREFIX)?.split_once('_')?;
    let is_id = id.len() == ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && !rest.is_empty()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_what_is_a_key_only() {
        let id = "0123456789abcdef";
        for (text, expected) in [
            (format!("af_{id}_secret"), Some(id)),
            (format!("af_{id}_"), None),
            (format!("af_{id}"), None),
            (format!("xx_{id}_secret"), None),
            ("af_../../x_secret".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(id_of(&text), expected, "{text}");
        }
    }
}
