//! Whether the gateway lives, and whether a request would be answered.

use crate::seams::Check;
use crate::state::App;
use agentfleet_documents::Created;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

/// A part that does not say how it is within this time is not well.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one write tells for others. Requests to a store are paid for.
const WRITTEN: Duration = Duration::from_secs(5);
/// What is written to see whether that can be done.
const PROBE: &str = "health/probe";

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
    let (queue, (documents, writes, config), graph, others) = futures::join!(
        check("queue", parts.intake.broker.ready()),
        stored(&app),
        check("graph", parts.graph.ready()),
        tokio::time::timeout(PATIENCE, parts.status.checks()),
    );
    let mut checks = vec![queue, documents, writes, graph, config];
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

/// What needs the documents. Where they do not answer, the reason is known at once, and true of all of it.
async fn stored(app: &App) -> (Check, Check, Check) {
    let parts = &app.parts;
    let records = check("records", parts.intake.documents.ready()).await;
    if !records.ok {
        let same = |name: &str| Check {
            name: name.to_owned(),
            ..records.clone()
        };
        let (writes, config) = (same("writes"), same("config"));
        return (records, writes, config);
    }
    let (writes, config) = futures::join!(
        check("writes", writes(app)),
        check("config", parts.intake.config.snapshot()),
    );
    (records, writes, config)
}

/// Writes something small: a disk that is full, or a store that only reads, shows in nothing else.
/// What came of it counts for a while, however many ask.
async fn writes(app: &App) -> Result<(), String> {
    let mut last = app.written.lock().await;
    if let Some((at, result)) = &*last
        && at.elapsed() < WRITTEN
    {
        return result.clone();
    }
    let documents = &app.parts.intake.documents;
    let written = match documents.create(PROBE, Vec::new()).await {
        Ok(Created::New) => Ok(()),
        // To take it away is to write, too.
        Ok(Created::Exists) => documents.delete(&[PROBE.to_owned()]).await,
        Err(error) => Err(error),
    };
    let result = written.map_err(|error| error.to_string());
    *last = Some((Instant::now(), result.clone()));
    result
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
