//! What there is: for programs as JSON, for a person's browser as text.

use crate::endpoint::Endpoint;
use crate::{description, negotiate};
use axum::Json;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// `GET /`.
pub(crate) async fn index(headers: HeaderMap) -> Response {
    if negotiate::wants_html(&headers) {
        let mut text = format!("Agentfleet {}\n\n", env!("CARGO_PKG_VERSION"));
        for endpoint in Endpoint::ALL {
            let (method, path) = (endpoint.method(), endpoint.path());
            let (method, summary) = (method.as_str(), endpoint.summary());
            text.push_str(&format!("{method:<7}{path:<24}{summary}\n"));
        }
        return text.into_response();
    }
    let endpoints: Vec<Value> = Endpoint::ALL
        .iter()
        .map(|endpoint| {
            json!({
                "method": endpoint.method().as_str(),
                "path": endpoint.path(),
                "summary": endpoint.summary(),
            })
        })
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({ "name": "Agentfleet", "version": version, "endpoints": endpoints }))
        .into_response()
}

/// `GET /openapi.json`.
pub(crate) async fn openapi() -> Json<Value> {
    Json(description::document())
}
