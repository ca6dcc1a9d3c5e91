//! Whether the gateway lives, and whether a request would be answered.

use crate::seams::Check;
use crate::state::App;
use agentfleet_graph::QueryOptions;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

/// A part that does not say how it is within this time is not well.
const PATIENCE: Duration = Duration::from_secs(5);

/// `GET /health/live`.
pub(crate) async fn live() -> Json<Live> {
    Json(Live {
        status: "live",
        version: env!("CARGO_PKG_VERSION"),
    })
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Live {
    status: &'static str,
    version: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Readiness {
    /// `ready` or `not-ready`.
    status: &'static str,
    checks: Vec<Check>,
}

/// `GET /health/ready`.
pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, Json<Readiness>) {
    let parts = &app.parts;
    let ask = QueryOptions {
        timeout: PATIENCE,
        max_rows: 1,
    };
    let (queue, documents, graph, config, others) = futures::join!(
        check("queue", parts.broker.ready()),
        check("documents", parts.documents.get("health")),
        check("graph", parts.graph.query("ASK {}", &[], ask)),
        check("config", parts.config.snapshot()),
        tokio::time::timeout(PATIENCE, parts.status.checks()),
    );
    let mut checks = vec![queue, documents, graph, config];
    checks.extend(others.unwrap_or_else(|_| vec![silent("fleet")]));
    if app.stop.is_cancelled() {
        let detail = "the gateway is stopping".to_owned();
        checks.push(Check {
            name: "gateway".to_owned(),
            ok: false,
            detail,
        });
    }
    let ok = checks.iter().all(|check| check.ok);
    let status = if ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let word = if ok { "ready" } else { "not-ready" };
    (
        status,
        Json(Readiness {
            status: word,
            checks,
        }),
    )
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let text = app.parts.status.metrics().await;
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
}

async fn check<T, E: Display>(name: &str, asked: impl Future<Output = Result<T, E>>) -> Check {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(_)) => Check {
            name: name.to_owned(),
            ok: true,
            detail: String::new(),
        },
        Ok(Err(error)) => Check {
            name: name.to_owned(),
            ok: false,
            detail: error.to_string(),
        },
        Err(_) => silent(name),
    }
}

fn silent(name: &str) -> Check {
    let detail = format!("no answer within {} s", PATIENCE.as_secs());
    Check {
        name: name.to_owned(),
        ok: false,
        detail,
    }
}
