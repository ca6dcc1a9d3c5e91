//! What there is: for programs as JSON, for a person's browser as text.

use crate::endpoint::Endpoint;
use crate::state::App;
use crate::{description, negotiate};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// `GET /`.
pub(crate) async fn index(State(app): State<App>, headers: HeaderMap) -> Response {
    let served = Endpoint::ALL.iter().copied();
    let served = served.filter(|endpoint| endpoint.is_served(&app.options));
    // A person's browser.
    if negotiate::wants(&headers, "text/html") {
        let mut text = format!("Agentfleet {}\n\n", env!("CARGO_PKG_VERSION"));
        for endpoint in served {
            let method = endpoint.method().to_ascii_uppercase();
            let (path, summary) = (endpoint.path(), endpoint.summary());
            text.push_str(&format!("{method:<7}{path:<24}{summary}\n"));
        }
        return text.into_response();
    }
    let endpoints: Vec<Value> = served
        .map(|endpoint| {
            json!({
                "method": endpoint.method().to_ascii_uppercase(),
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
