//! Texts of the librarian.

use crate::identity::{self, Caller};
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::state::App;
use agentfleet_schema::{Digest, keys, uris};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Where a document is found.
pub(crate) fn link(uri: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(uri.as_bytes()).collect();
    format!("/documents?uri={encoded}")
}

/// `GET /documents`.
pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = Params::read(query.as_deref(), &["uri"])?;
    let uri = params.one("uri")?.ok_or_else(|| {
        Problem::parameter("uri", "missing")
            .hint("`document` of an event and `tg:document` of a node hold URIs of documents")
    })?;
    let body = app.parts.intake.documents.get(&keys::document(uri)).await?;
    let body = match body {
        Some(_) if !is_shown(&app, &caller, uri).await? => {
            app.conceal(&caller, uri);
            None
        }
        body => body,
    };
    let Some(body) = body else {
        return Err(Problem::new(
            Code::UnknownDocument,
            format!("there is no document `{uri}`"),
        )
        .hint("it may have been erased, or its step is not committed yet"));
    };
    // A document never changes, but it may be erased: a reader may keep it, and must ask.
    let tag = format!("\"{}\"", Digest::of(&body));
    let unchanged = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        let given = value.to_str().unwrap_or_default();
        given
            .split(',')
            .any(|one| one.trim().trim_start_matches("W/") == tag)
    });
    let mut response = if unchanged {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        String::from_utf8_lossy(&body).into_owned().into_response()
    };
    let headers = response.headers_mut();
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Whether a text is of a session that the caller sees. What no session wrote, such as a document that was
/// loaded, is the owner's.
async fn is_shown(app: &App, caller: &Caller, uri: &str) -> Result<bool, Problem> {
    if caller.key().is_none() {
        return Ok(true);
    }
    let Some(session) = uris::session_of(uri) else {
        return Ok(false);
    };
    let tenant = identity::tenant_of(app, &session).await?;
    Ok(tenant.is_some_and(|tenant| caller.sees(&tenant)))
}
