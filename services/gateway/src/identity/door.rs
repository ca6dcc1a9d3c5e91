//! The door: who sent a request, whether they may do that, and how often they came.

use super::caller::{Authenticated, Caller};
use super::keyring::{self, PREFIX};
use super::rights::permitted;
use super::signed;
use crate::endpoint::Endpoint;
use crate::guard;
use crate::problem::{Code, Problem};
use crate::state::App;
use agentfleet_core::provenance::date_time;
use agentfleet_documents::Documents;
use agentfleet_issuer::looks_signed;
use agentfleet_runs::audit::Audit;
use agentfleet_schema::config::Rights;
use agentfleet_schema::records::{ApiKeyRecord, AuditEntry};
use agentfleet_schema::{Digest, Principal};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a key counts as it was read: after that a revocation is known everywhere.
const KEPT: Duration = Duration::from_secs(5);
/// Keys that are kept; also ids that there is no key for.
const MOST_KEPT: usize = 10_000;
/// How long the store may take to say whose key it is.
const SOON: Duration = Duration::from_secs(3);
const MINUTE: Duration = Duration::from_secs(60);

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");

/// What a gateway remembers of its callers.
#[derive(Debug)]
pub(crate) struct Door {
    pub audit: Audit,
    keys: Mutex<HashMap<String, Kept>>,
    /// By tenant and name: since when they are counted, and how often they came.
    came: Mutex<HashMap<(String, String), (Instant, u32)>>,
}

type Kept = (Instant, Option<Arc<ApiKeyRecord>>);

/// Somebody who showed who they are, and what they may.
pub(super) struct Known {
    pub principal: Principal,
    pub roles: Vec<String>,
    /// Most requests a minute; `None` means the gateway's.
    pub per_minute: Option<u32>,
}

/// How often somebody may still come within the minute.
#[derive(Clone, Copy, Debug)]
struct Left {
    limit: u32,
    remaining: u32,
}

impl Door {
    pub(crate) fn new(documents: Arc<dyn Documents>) -> Self {
        Self {
            audit: Audit::new(documents),
            keys: Mutex::default(),
            came: Mutex::default(),
        }
    }

    /// A key by its id, as it was at most a few seconds ago.
    async fn key(&self, app: &App, id: &str) -> Result<Option<Arc<ApiKeyRecord>>, Problem> {
        let kept = |keys: &HashMap<String, Kept>| {
            let (at, record) = keys.get(id)?;
            (at.elapsed() < KEPT).then(|| record.clone())
        };
        let found = kept(&self.keys.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(record) = found {
            return Ok(record);
        }
        // From before it is read: what is revoked meanwhile is no older than that.
        let at = Instant::now();
        let found = keyring::find(&*app.parts.intake.documents, id);
        let found = tokio::time::timeout(SOON, found).await.map_err(|_| {
            Problem::new(
                Code::Unavailable,
                "the store of the API keys does not answer",
            )
            .hint("try again; the same key or session id is safe to repeat")
        })??;
        let record = found.map(Arc::new);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= MOST_KEPT {
            keys.clear();
        }
        keys.insert(id.to_owned(), (at, record.clone()));
        Ok(record)
    }

    /// Counts a request, within a minute from the first.
    fn count(&self, principal: &Principal, limit: u32) -> Result<Left, (Duration, Left)> {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        if came.len() >= MOST_KEPT {
            came.retain(|_, (since, _)| since.elapsed() < MINUTE);
        }
        let who = (principal.tenant.clone(), principal.name.clone());
        let (since, times) = came.entry(who).or_insert((Instant::now(), 0));
        if since.elapsed() >= MINUTE {
            (*since, *times) = (Instant::now(), 0);
        }
        if *times >= limit {
            let wait = MINUTE.saturating_sub(since.elapsed());
            return Err((
                wait,
                Left {
                    limit,
                    remaining: 0,
                },
            ));
        }
        *times += 1;
        let remaining = limit - *times;
        Ok(Left { limit, remaining })
    }
}

/// Longest path that an entry of the audit log is about, in characters.
const LONGEST_PATH: usize = 300;

/// Lets a request in, with who sent it; or refuses it before anything of it is read.
pub(crate) async fn enter(
    State((app, endpoint)): State<(App, Endpoint)>,
    mut request: Request,
    next: Next,
) -> Response {
    let (mut response, left) =
        match admit(&app, endpoint, request.headers(), request.uri().path()).await {
            Ok((caller, left)) => {
                request.extensions_mut().insert(caller);
                (next.run(request).await, left)
            }
            Err((problem, left)) => (problem.into_response(), left),
        };
    if let Some(left) = left {
        let headers = response.headers_mut();
        headers.insert(LIMIT, HeaderValue::from(left.limit));
        headers.insert(REMAINING, HeaderValue::from(left.remaining));
    }
    response
}

type Refused = (Problem, Option<Left>);

async fn admit(
    app: &App,
    endpoint: Endpoint,
    headers: &HeaderMap,
    path: &str,
) -> Result<(Caller, Option<Left>), Refused> {
    let token = app.options.token.as_ref();
    if token.is_some_and(|token| guard::holds(token, headers)) {
        return Ok((Caller::Owner, None));
    }
    let action = endpoint.action();
    let given = bearer(headers).unwrap_or_default();
    let issuer = app.options.issuer.as_deref();
    let known = match issuer.filter(|_| looks_signed(given)) {
        Some(issuer) => signed::holder(app, issuer, given, &action).await,
        None if given.starts_with(PREFIX) => holder(app, given, &action).await,
        None if token.is_none() => return Ok((Caller::Owner, None)),
        None => Err(Problem::not_authorized()),
    };
    let mut known = known.map_err(|problem| (problem, None))?;
    let config = app.parts.intake.config.snapshot().await;
    let config = config.map_err(|error| (error.into(), None))?;
    let rights = Rights::of(&known.roles, &config);
    let held = &mut known.principal.permissions;
    held.extend(rights.permissions.iter().cloned());
    let limit = known.per_minute.unwrap_or(app.options.per_minute);
    let counted = app.door.count(&known.principal, limit);
    let caller = Caller::Key(Arc::new(Authenticated {
        principal: known.principal.clone(),
        action,
        rights: rights.clone(),
    }));
    let left = match counted {
        Ok(left) => left,
        Err((wait, left)) => {
            let name = caller.key().map_or("", |key| &key.principal.name);
            let problem = too_many(name, limit, wait);
            refuse(app, &caller, &problem, path);
            return Err((problem, Some(left)));
        }
    };
    match permitted(endpoint, &known, &rights, &config) {
        Ok(()) => Ok((caller, Some(left))),
        Err(problem) => {
            refuse(app, &caller, &problem, path);
            Err((problem, Some(left)))
        }
    }
}

fn refuse(app: &App, caller: &Caller, problem: &Problem, path: &str) {
    let code = problem.code.as_str();
    let entry = AuditEntry {
        reason: format!("{code}: {}", problem.message),
        ..caller.entry(&path.chars().take(LONGEST_PATH).collect::<String>())
    };
    app.door
        .audit
        .refused(entry, code, app.parts.intake.host.now());
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, given) = given.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case("bearer ").then_some(given)
}

/// Whose key a secret is, if it counts. Whose it is and why it does not is told to who has all of it only.
async fn holder(app: &App, secret: &str, action: &str) -> Result<Known, Problem> {
    let id = keyring::id_of(secret);
    let found = match id {
        Some(id) => app.door.key(app, id).await?,
        None => None,
    };
    let digest = Digest::of(secret.as_bytes());
    let key = found.filter(|key| key.digest == digest);
    let now = app.parts.intake.host.now();
    let (code, says) = match &key {
        None => ("unknown-key", "the API key is not known".to_owned()),
        Some(key) if key.revoked_at != 0 => {
            let at = date_time(key.revoked_at);
            (
                "revoked",
                format!("API key `{}` was revoked at {at}", key.id),
            )
        }
        Some(key) if key.expires_at != 0 && key.expires_at <= now => {
            let at = date_time(key.expires_at);
            ("expired", format!("API key `{}` expired at {at}", key.id))
        }
        Some(key) => {
            return Ok(Known {
                principal: Principal {
                    name: key.name.clone(),
                    tenant: key.tenant.clone(),
                    permissions: key.permissions.clone(),
                },
                roles: key.roles.clone(),
                per_minute: key.per_minute,
            });
        }
    };
    let entry = AuditEntry {
        principal: key.as_ref().map_or("nobody", |key| &key.name).to_owned(),
        tenant: key
            .as_ref()
            .map(|key| key.tenant.clone())
            .unwrap_or_default(),
        action: action.to_owned(),
        subject: id.map(|id| format!("key {id}")).unwrap_or_default(),
        reason: format!("not-authorized: {says}"),
        ..AuditEntry::default()
    };
    app.door.audit.refused(entry, code, now);
    Err(Problem::new(Code::NotAuthorized, says)
        .hint("ask who runs the fleet for a key: `agentfleet keys create` makes one"))
}

fn too_many(name: &str, limit: u32, wait: Duration) -> Problem {
    let seconds = wait.as_secs() + 1;
    let says = format!("`{name}` may send {limit} requests a minute, and 0 of them remain");
    Problem::new(Code::TooManyRequests, says)
        .hint(format!(
            "go on in {seconds} s; nothing of this request was read"
        ))
        .after(seconds)
}
