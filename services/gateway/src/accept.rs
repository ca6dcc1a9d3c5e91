//! Taking a request in, at most once for each session.
//!
//! The commit point is the session's `accepted` record, created if absent. It holds the message to
//! be published, so whoever finds it without its marker can publish it. On the embedded engine
//! record, message and marker are one transaction. The record also says what the session was asked,
//! so that the same key or session id with another request is refused instead of mixed up.

use crate::identity::Caller;
use crate::problem::{Code, Problem};
use crate::seams::Collections;
use crate::state::App;
use crate::{events, intake, negotiate, session};
use agentfleet_broker::{Broker, MAX_PAYLOAD};
use agentfleet_config::ConfigStore;
use agentfleet_core::{on_behalf, prices, quota};
use agentfleet_documents::Documents;
use agentfleet_runs::Usage;
use agentfleet_runtime::records::decode;
use agentfleet_runtime::{Adoption, Committed, Committer, Host, StepCommit};
use agentfleet_schema::records::{AcceptedRecord, FleetLimits, Publication, StepRecord};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{AgentRequest, Digest, SessionId, keys};
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Header that makes a request safe to repeat.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Longest key.
const MAX_KEY: usize = 255;

/// What `POST /requests` answers with at once.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Accepted")]
pub(crate) struct AcceptedView {
    session_id: SessionId,
    /// Where the result will be.
    location: String,
    events: String,
    /// The same request had been taken in before; it is not run again.
    repeated: bool,
}

/// `POST /requests`.
pub(crate) async fn ask(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    negotiate::require_type(&headers, "application/json")?;
    let body = body.map_err(|rejection| refused_body(&rejection, app.options.max_body))?;
    let listens = negotiate::wants(&headers, "text/event-stream");
    let request = intake::parse(&body, listens)?;
    let key = idempotency_key(&headers)?;
    let trace = headers
        .get(property::TRACEPARENT)
        .and_then(|value| value.to_str().ok());
    if app.stop.is_cancelled() {
        return Err(Problem::stopping());
    }
    // Before the commit: who is told that there is no room must not have a run going.
    let open = if listens { Some(app.stream()?) } else { None };
    let mut request = request;
    if let Some(key) = caller.key() {
        // Whatever the body says: who asks is known.
        if let Err((says, hint)) = on_behalf(&mut request, &key.principal) {
            let problem = Problem::new(Code::NotPermitted, says).hint(hint);
            app.overstepped(&caller, request.collection.as_str(), &problem);
            return Err(problem);
        }
    }
    let id = identify(&mut request, key)?;
    let one = app.taking_in(&request.session_id).await;
    let asked = request.session_id.clone();
    let taken = app.parts.intake.admit(request, id, trace).await;
    match &taken {
        Err(problem) if problem.code == Code::SessionTaken => {
            app.conceal(&caller, asked.as_str());
        }
        Err(problem) if problem.code == Code::QuotaUsedUp => {
            app.overstepped(&caller, asked.as_str(), problem);
        }
        Err(_) | Ok(_) => {}
    }
    let taken = taken?;
    drop(one);
    let Taken { session, repeated } = taken;
    let location = session::link(&session, "");
    let mut response = match open {
        Some(open) => {
            // A run that was asked for before may have ended long ago.
            let seen = if repeated {
                Some(session::look(&app, &session).await?)
            } else {
                None
            };
            let ended = seen.as_ref().and_then(session::Seen::ended).cloned();
            events::stream(&app, &session, 0, ended, open)
        }
        None => {
            let events = session::link(&session, "/events");
            let location = location.clone();
            let body = AcceptedView {
                session_id: session,
                location,
                events,
                repeated,
            };
            (StatusCode::ACCEPTED, Json(body)).into_response()
        }
    };
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

pub(crate) fn refused_body(rejection: &BytesRejection, limit: usize) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(
            Code::RequestTooLarge,
            format!("the body has more than {limit} bytes, which is the limit"),
        )
        .hint("load long material as documents and ask about it");
    }
    Problem::new(
        Code::InvalidRequest,
        format!("the body could not be read: {rejection}"),
    )
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let key = value.to_str().unwrap_or_default().trim();
    if key.is_empty() || key.len() > MAX_KEY || values.next().is_some() {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!(
                "header `Idempotency-Key` must be one text of at most {MAX_KEY} ASCII characters"
            ),
        )
        .hint("a UUID will do; keep it until the request was answered"));
    }
    Ok(Some(key.to_owned()))
}

/// A request that was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub session: SessionId,
    /// It had been taken in before, and is not run again.
    pub repeated: bool,
}

/// Takes requests in, whichever door they come through.
#[derive(Clone)]
pub struct Intake {
    pub documents: Arc<dyn Documents>,
    pub committer: Arc<dyn Committer>,
    pub broker: Arc<dyn Broker>,
    pub config: Arc<dyn ConfigStore>,
    pub host: Arc<dyn Host>,
    /// Where the door does not look itself.
    pub collections: Option<Arc<dyn Collections>>,
    /// The limits of the fleet, where this door knows that its model costs something: a run that is bounded in
    /// money then needs prices.
    pub metered: Option<Arc<FleetLimits>>,
    /// What tenants used, where this door refuses those who used up their quota.
    pub usage: Option<Arc<Usage>>,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").finish_non_exhaustive()
    }
}

/// Gives the request its session, and returns the caller's id of it.
fn identify(request: &mut AgentRequest, key: Option<String>) -> Result<String, Problem> {
    let id = match (&key, request.session_id.as_str()) {
        (Some(key), _) => key.clone(),
        (None, "") => uuid::Uuid::new_v4().to_string(),
        (None, session) => session.to_owned(),
    };
    if key.is_some() || request.session_id.is_empty() {
        let derived = SessionId::derive(&[request.tenant(), &request.user, &id]);
        if !request.session_id.is_empty() && request.session_id != derived {
            return Err(Problem::new(
                Code::InvalidRequest,
                "`$.session_id` and header `Idempotency-Key` both name the session, and differ",
            )
            .hint("send one of them: either makes the request safe to repeat"));
        }
        request.session_id = derived;
    }
    Ok(id)
}

impl Intake {
    /// Says what is wrong with a request before it is taken in.
    pub async fn check(&self, request: &AgentRequest) -> Result<(), Problem> {
        intake::check(request)?;
        check_size(request)?;
        self.check_config(request).await
    }

    /// Says what in a request does not fit the config in force.
    async fn check_config(&self, request: &AgentRequest) -> Result<(), Problem> {
        let config = self.config.snapshot().await?;
        intake::check_names(request, &config)?;
        let fleet = self.metered.as_deref();
        let missing = fleet.and_then(|fleet| prices::missing(request, &config, fleet));
        missing.map_or(Ok(()), |error| {
            let hint = error.hint.unwrap_or_default();
            Err(Problem::new(Code::NoPrices, error.message).hint(hint))
        })
    }

    /// Says whether a tenant may begin another run this month.
    async fn check_quota(&self, request: &AgentRequest) -> Result<(), Problem> {
        let Some(usage) = self.usage.as_ref().filter(|_| quota::is_asked(request)) else {
            return Ok(());
        };
        let config = self.config.snapshot().await?;
        let left = usage.left(&config, request.tenant(), self.host.now());
        let refused = left
            .await?
            .and_then(|left| quota::refusal(request.tenant(), &left));
        refused.map_or(Ok(()), |error| {
            let hint = error.hint.unwrap_or_default();
            Err(Problem::new(Code::QuotaUsedUp, error.message).hint(hint))
        })
    }

    /// Takes a request in, as [`Intake::check`] passed it. The same `key` and user give the same session, so a request that is sent
    /// twice is run once; another request under the key is refused.
    pub async fn take_in(
        &self,
        mut request: AgentRequest,
        key: Option<String>,
    ) -> Result<Taken, Problem> {
        let id = identify(&mut request, key)?;
        self.admit(request, id, None).await
    }

    async fn admit(
        &self,
        request: AgentRequest,
        id: String,
        trace: Option<&str>,
    ) -> Result<Taken, Problem> {
        let session = request.session_id.clone();
        let digest = digest(&request);
        let taken = |repeated| Taken {
            session: session.clone(),
            repeated,
        };
        if self.look_up(&request, &id, &digest).await? {
            return Ok(taken(true));
        }
        check_size(&request)?;
        self.check_config(&request).await?;
        self.check_quota(&request).await?;
        // A tenant asks in its own collections only, and is told of no other's.
        if let Some(collections) = &self.collections
            && request.tenant().is_empty()
        {
            let loaded = collections.loaded().await;
            let loaded =
                loaded.map_err(|error| Problem::internal("reading the collections", &error))?;
            intake::check_collection(&request.collection, &loaded)?;
        }
        let record = AcceptedRecord {
            session: session.clone(),
            user: request.user.clone(),
            accepted_at: self.host.now(),
            nonce: self.host.nonce(),
            responses_after: self.broker.mark(&topics::AGENT_RESPONSE).await?,
            publication: publication(&request, &id, trace),
            id: id.clone(),
        };
        let commit = StepCommit {
            record: (
                keys::accepted(&session),
                serde_json::to_vec(&record).unwrap_or_default(),
            ),
            nonce: record.nonce.clone(),
            objects: Vec::new(),
            publications: vec![record.publication],
            marker: keys::accepted_published(&session),
            without_call: None,
        };
        match self.committer.commit(commit, None).await? {
            Committed::Won => Ok(taken(false)),
            // Another process was quicker: what it took in decides.
            Committed::Lost | Committed::Called => {
                Ok(taken(self.look_up(&request, &id, &digest).await?))
            }
        }
    }

    /// Whether a session was taken in before, with this very request. Publishes what was taken in and
    /// not published.
    async fn look_up(
        &self,
        request: &AgentRequest,
        id: &str,
        digest: &Digest,
    ) -> Result<bool, Problem> {
        let session = &request.session_id;
        let wanted = [
            keys::tombstone(session),
            keys::accepted(session),
            keys::accepted_published(session),
            keys::outcome(session, 0),
        ];
        let found = self.documents.get_many(&wanted).await?;
        let body = |at: usize| found.get(at).and_then(Option::as_ref);
        // Somebody with a tenant is shown nothing of what is not theirs.
        let of_others = |tenant: &str| !request.tenant().is_empty() && request.tenant() != tenant;
        if let Some(tombstone) = body(0) {
            if of_others("") {
                return Err(taken_elsewhere(id));
            }
            return Err(Problem::erased(session.as_str(), tombstone));
        }
        if let Some(body) = body(1) {
            let record: AcceptedRecord = decode(&wanted[1], body)?;
            let asked = record.asked();
            if of_others(asked.as_ref().map_or("", AgentRequest::tenant)) {
                return Err(taken_elsewhere(id));
            }
            // Compared as this program reads both, so that a field which came later makes no difference.
            let theirs = asked.map(|asked| self::digest(&asked)).unwrap_or_default();
            if theirs != *digest {
                return Err(conflict(id, session, &theirs, digest));
            }
            if found.get(2).is_none_or(Option::is_none) {
                let adoption = Adoption {
                    record_key: wanted[1].clone(),
                    publications: vec![record.publication],
                    marker: wanted[2].clone(),
                };
                self.committer.adopt(adoption, None).await?;
            }
            return Ok(true);
        }
        if let Some(body) = body(3) {
            // Asked through another door, which left no record of its own.
            let record: StepRecord = decode(&wanted[3], body)?;
            if of_others(&record.tenant) {
                return Err(taken_elsewhere(id));
            }
            let same = [true, false].into_iter().any(|streaming| {
                let asked = AgentRequest {
                    streaming,
                    ..request.clone()
                };
                record.request == Digest::of(&encode(&asked))
            });
            if !same {
                return Err(conflict(id, session, &record.request, digest));
            }
            return Ok(true);
        }
        Ok(false)
    }
}

fn taken_elsewhere(id: &str) -> Problem {
    Problem::new(Code::SessionTaken, format!("`{id}` is in use elsewhere"))
        .hint("use another key or session id")
}

fn conflict(id: &str, session: &SessionId, theirs: &Digest, ours: &Digest) -> Problem {
    Problem::new(
        Code::RequestConflict,
        format!(
            "`{id}` was used for another request (session `{session}`): that one has the SHA-256 `{theirs}`, this one `{ours}`"
        ),
    )
    .hint(
        "use another key or session id for another request; to repeat one, send it unchanged (white \
         space, the order of fields and `streaming` make no difference)",
    )
}

/// SHA-256 of a request as the fleet reads it, whether or not somebody listens, and whatever roles give to who asks:
/// these may change between two tries.
fn digest(request: &AgentRequest) -> Digest {
    let mut asked = AgentRequest {
        streaming: false,
        ..request.clone()
    };
    if let Some(principal) = &mut asked.control.principal {
        principal.permissions.clear();
    }
    Digest::of(&encode(&asked))
}

/// Wire types are plain data: writing one as JSON cannot fail.
fn encode(request: &AgentRequest) -> Vec<u8> {
    serde_json::to_vec(request).unwrap_or_default()
}

/// Refuses what is longer as a message than a message may be: what a body leaves out counts there.
fn check_size(request: &AgentRequest) -> Result<(), Problem> {
    let size = encode(request).len();
    if size <= MAX_PAYLOAD {
        return Ok(());
    }
    let steps = request.history.len();
    Err(Problem::new(
        Code::RequestTooLarge,
        format!("the request has {size} bytes as a message, with {steps} steps of `$.history`; the limit is {MAX_PAYLOAD}"),
    )
    .hint("load long material as documents and ask about it"))
}

fn publication(request: &AgentRequest, id: &str, trace: Option<&str>) -> Publication {
    let session = request.session_id.to_string();
    let mut properties = BTreeMap::from([
        (property::ID.to_owned(), id.to_owned()),
        (property::SESSION.to_owned(), session.clone()),
        (property::STEP.to_owned(), "0".to_owned()),
        (property::ROOT.to_owned(), session),
    ]);
    if let Some(trace) = trace {
        properties.insert(property::TRACEPARENT.to_owned(), trace.to_owned());
    }
    Publication {
        topic: topics::AGENT_REQUEST.as_str().to_owned(),
        properties,
        deliver_at: None,
        body: serde_json::to_string(request).unwrap_or_default(),
    }
}
