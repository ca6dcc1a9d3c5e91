//! Texts of the librarian, by their URIs.

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_schema::keys;

/// Reads them in one round trip, in their order; `None` where there is none.
pub async fn texts(
    documents: &dyn Documents,
    uris: &[String],
) -> Result<Vec<Option<String>>, Error> {
    let keys: Vec<String> = uris.iter().map(|uri| keys::document(uri)).collect();
    let bodies = documents.get_many(&keys).await?;
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    Ok(bodies
        .iter()
        .map(|body| body.as_deref().map(text))
        .collect())
}
