//! The HTTP side of an example: its table of endpoints as routes, each call in one transaction of its tenant.

use crate::answers::{self, Earlier};
use crate::call::{Answer, Call, Endpoint, Refusal};
use crate::{Error, Example, data};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, RawPathParams, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use axum::{Json, Router};
use rusqlite::{Connection, TransactionBehavior};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

/// Longest body of a request.
const LONGEST_BODY: usize = 256 * 1024;
/// The header that says whose data a call is about; the fleet fills it, and no model can.
const TENANT: &str = "x-tenant";
const KEY: &str = "idempotency-key";

/// An example that is ready to serve.
#[derive(Debug)]
pub struct Service {
    example: &'static Example,
    connection: Connection,
}

impl Service {
    /// Opens its file; the owner's data is there afterwards.
    pub fn open(example: &'static Example, path: &Path) -> Result<Self, Error> {
        let mut connection = data::open(example, path)?;
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        data::fill(&change, example, "")?;
        change.commit()?;
        Ok(Self {
            example,
            connection,
        })
    }

    /// Serves until `stop` comes; calls at work are finished.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let server = axum::serve(listener, self.routes()).with_graceful_shutdown(stop);
        Ok(server.await?)
    }

    fn routes(self) -> Router {
        let example = self.example;
        let shared = Shared {
            example,
            connection: Arc::new(Mutex::new(self.connection)),
        };
        let about = json!({
            "name": example.name, "about": example.about,
            "endpoints": example.endpoints.iter().map(|one| json!({
                "method": one.method, "path": one.path, "takes": one.takes,
            })).collect::<Vec<_>>(),
        });
        let about = move || async move { Json(about.clone()) };
        let mut router = Router::new().route("/", on(MethodFilter::GET, about));
        for endpoint in example.endpoints {
            let method = Method::from_bytes(endpoint.method.as_bytes()).ok();
            let filter = method.and_then(|method| MethodFilter::try_from(method).ok());
            let Some(filter) = filter else { continue };
            let act =
                move |State(shared): State<Shared>, path, query, told: (Uri, HeaderMap), body| {
                    shared.answer(endpoint, path, query, told, body)
                };
            router = router.route(endpoint.path, on(filter, act));
        }
        let unknown = || async {
            refused(
                404,
                json!({"error": "there is no such endpoint; `GET /` lists all"}),
            )
        };
        router
            .fallback(unknown)
            .layer(DefaultBodyLimit::max(LONGEST_BODY))
            .with_state(shared)
    }
}

#[derive(Clone)]
struct Shared {
    example: &'static Example,
    connection: Arc<Mutex<Connection>>,
}

impl Shared {
    async fn answer(
        self,
        endpoint: &'static Endpoint,
        path: RawPathParams,
        Query(query): Query<Map<String, Value>>,
        (uri, headers): (Uri, HeaderMap),
        body: Bytes,
    ) -> Response {
        let header = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().trim().to_owned()
        };
        // A page in a browser may know a name that leads here; it cannot make the browser send this one.
        if !is_local(&header(header::HOST.as_str())) {
            return refused(
                403,
                json!({"error": "this service is for callers of this machine"}),
            );
        }
        let request = format!(
            "{} {uri} {}",
            endpoint.method,
            String::from_utf8_lossy(&body)
        );
        let asked = Asked {
            endpoint,
            tenant: header(TENANT),
            key: Some(header(KEY)).filter(|key| !key.is_empty() && endpoint.method != "GET"),
            request,
        };
        let mut given = query;
        match body_of(&body) {
            Ok(fields) => given.extend(fields),
            Err(says) => return refused(400, json!({"error": says})),
        }
        if let Some(name) = given
            .keys()
            .find(|name| !endpoint.takes.contains(&name.as_str()))
        {
            let takes = endpoint.takes.join(", ");
            let says = format!("`{name}` is not known here (known: {takes})");
            return refused(400, json!({"error": says, "field": name}));
        }
        let path = path.iter();
        given.extend(path.map(|(name, value)| (name.to_owned(), Value::from(value))));
        let worked = tokio::task::spawn_blocking(move || self.work(&asked, given)).await;
        match worked {
            Ok(Ok((status, body))) => refused(status, body),
            Ok(Err(refusal)) => refused(refusal.status(), refusal.body()),
            Err(_) => refused(500, json!({"error": "the example failed inside"})),
        }
    }

    /// Makes a call in a transaction, which is taken back where it is refused.
    fn work(&self, asked: &Asked, given: Map<String, Value>) -> Result<(u16, Value), Refusal> {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let data = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let tenant = &asked.tenant;
        if !data::fill(&data, self.example, tenant)? {
            let says = "this example has no room for another tenant; `reset` makes some";
            return Ok((507, json!({"error": says})));
        }
        if let Some(key) = &asked.key {
            match answers::earlier(&data, tenant, key, &asked.request)? {
                Some(Earlier::Answered(status, body)) => return Ok((status, body)),
                Some(Earlier::Other) => {
                    let says = "this `Idempotency-Key` was used for another call";
                    return Ok((422, json!({"error": says})));
                }
                None => {}
            }
        }
        let call = Call {
            data: &data,
            tenant,
            given,
        };
        let body: Value = told((asked.endpoint.act)(&call))?;
        if let Some(key) = &asked.key {
            answers::keep(&data, tenant, key, &asked.request, (200, &body))?;
        }
        data.commit()?;
        Ok((200, body))
    }
}

/// What is called by whom.
struct Asked {
    endpoint: &'static Endpoint,
    tenant: String,
    key: Option<String>,
    request: String,
}

/// An answer; what broke inside is for the log.
fn told(answer: Answer) -> Answer {
    if let Err(Refusal::Broken(error)) = &answer {
        tracing::error!(%error, "an example cannot use its database");
    }
    answer
}

fn refused(status: u16, body: Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(body)).into_response()
}

fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    ["127.0.0.1", "localhost", "[::1]"].contains(&name)
}

/// The fields of a body; none where there is none.
fn body_of(body: &[u8]) -> Result<Map<String, Value>, String> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("the body must be a JSON object".to_owned()),
        Err(error) => Err(format!("the body is no JSON: {error}")),
    }
}
