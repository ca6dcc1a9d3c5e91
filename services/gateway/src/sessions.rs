//! Root sessions, newest first, as the graph knows them.

use crate::identity::{self, Caller};
use crate::params::Params;
use crate::problem::Problem;
use crate::session::link;
use crate::state::App;
use agentfleet_core::provenance::date_time;
use agentfleet_graph::{Graph, QueryOptions, Solutions};
use agentfleet_runs::Root;
use agentfleet_schema::records::RunState;
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{Millis, SessionId, Term};
use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

const MAX_LIMIT: usize = 200;
/// Sessions that are looked at together for those of a tenant, and how often that is done for one page.
const PASSED_AT_ONCE: usize = 100;
const MOST_PASSED: usize = 10;
/// Comes after the URI of every session.
const AFTER_ALL: &str = "~";
/// Sessions that the graph is asked about at once; subagents are among them.
const AT_ONCE: usize = 250;
/// Stands in the query for the sessions that it is about.
const SOME: &str = "@SOME@";
/// How long before the newest session those began that are looked at first: 10 seconds, 5 minutes, 3 hours,
/// 4 days.
const WINDOWS: [Millis; 4] = [10_000, 300_000, 10_800_000, 345_600_000];

/// `GET /sessions`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<SessionList>, Problem> {
    let known = ["limit", "collection", "conversation", "before"];
    let params = Params::read(query.as_deref(), &known)?;
    let limit = params.limit(MAX_LIMIT)?;
    let (collection, conversation) = (params.one("collection")?, params.one("conversation")?);
    let before = params.one("before")?.map(cursor).transpose()?;
    let asked = Wanted {
        limit,
        collection,
        conversation,
    };
    if caller.key().is_some() {
        return of_tenant(&app, &caller, asked, before).await.map(Json);
    }
    let page = page(&app, asked, before).await?;
    Ok(Json(SessionList {
        next: page.last.map(|place| asked.next(&place)),
        sessions: page.entries.into_iter().map(|(_, entry)| entry).collect(),
    }))
}

/// What a page is to hold.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    limit: usize,
    collection: Option<&'a str>,
    conversation: Option<&'a str>,
}

impl Wanted<'_> {
    /// Where the page after a place is.
    fn next(self, (at, session): &Place) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &self.limit.to_string());
        for (name, value) in [
            ("collection", self.collection),
            ("conversation", self.conversation),
        ] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.append_pair("before", &format!("{at},{session}"));
        format!("/sessions?{}", query.finish())
    }
}

/// The instant at which a session began, and its URI.
type Place = (String, String);

/// Sessions with their places, and the last place where there are more.
#[derive(Debug, Default)]
struct Page {
    entries: Vec<(Place, SessionEntry)>,
    last: Option<Place>,
}

/// A page of the sessions of one tenant: others are passed over, and no more than a bounded number of them. A
/// page that comes to that bound has fewer sessions, and says where to go on.
async fn of_tenant(
    app: &App,
    caller: &Caller,
    wanted: Wanted<'_>,
    mut before: Option<Place>,
) -> Result<SessionList, Problem> {
    let mut own = Vec::new();
    let some = Wanted {
        limit: PASSED_AT_ONCE,
        ..wanted
    };
    for _ in 0..MOST_PASSED {
        let page = page(app, some, before).await?;
        let sessions: Vec<_> = page
            .entries
            .iter()
            .map(|(_, one)| &one.session_id)
            .collect();
        let tenants = identity::tenants_of(app, &sessions).await?;
        for ((place, entry), tenant) in page.entries.into_iter().zip(tenants) {
            if tenant.is_some_and(|tenant| caller.sees(&tenant)) {
                own.push((place, entry));
            }
        }
        before = page.last;
        if before.is_none() || own.len() > wanted.limit {
            break;
        }
    }
    let next = if own.len() > wanted.limit {
        own.truncate(wanted.limit);
        own.last().map(|(place, _)| place.clone())
    } else {
        // The last one that was passed over may be another tenant's: its name is not told.
        before.map(|(at, _)| (at, AFTER_ALL.to_owned()))
    };
    Ok(SessionList {
        sessions: own.into_iter().map(|(_, entry)| entry).collect(),
        next: next.map(|place| wanted.next(&place)),
    })
}

/// A page of all sessions.
async fn page(app: &App, wanted: Wanted<'_>, before: Option<Place>) -> Result<Page, Problem> {
    let limit = wanted.limit;
    let (mut which, mut bindings) = (String::new(), Vec::new());
    if let Some(collection) = wanted.collection {
        which.push_str("?session tg:collection ?wanted_collection . ");
        bindings.push(("wanted_collection", Term::text(collection)));
    }
    if let Some(conversation) = wanted.conversation {
        which.push_str("?session tg:conversationId ?wanted_conversation . ");
        bindings.push(("wanted_conversation", Term::text(conversation)));
    }
    if let Some((at, session)) = &before {
        which.push_str(
            "FILTER(?start < ?before || (?start = ?before && STR(?session) < ?before_session)) ",
        );
        bindings.push(("before", Term::typed(at.as_str(), xsd::DATE_TIME)));
        bindings.push(("before_session", Term::text(session.as_str())));
    }
    let sparql = Root::query(SOME, &which, &bindings, "", limit + 1);
    let found = newest(app, &sparql, &bindings, before, limit).await?;
    let mut rows = one_each(&found);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let place = |row: usize| {
        let text = |name| found.text(row, name).unwrap_or_default().to_owned();
        (text("start"), text("session"))
    };
    let entries = rows.iter().filter_map(|row| {
        let root = Root::of(&found, *row)?;
        Some((place(*row), SessionEntry::of(root)))
    });
    Ok(Page {
        entries: entries.collect(),
        last: rows.last().filter(|_| more).map(|row| place(*row)),
    })
}

/// A row of each session. A node may say a thing twice, and two rows are one session all the same.
fn one_each(found: &Solutions) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..found.rows.len()).collect();
    rows.dedup_by_key(|row| found.text(*row, "session"));
    rows
}

/// Rows of more sessions than the limit, if there are more. A graph that knows in which order
/// sessions began is asked about some at a time, so that a page reads no more than it shows.
async fn newest(
    app: &App,
    sparql: &str,
    bindings: &[(&str, Term)],
    mut before: Option<(String, String)>,
    limit: usize,
) -> Result<Solutions, Problem> {
    let graph = &app.parts.graph;
    let options = app.query_options();
    let mut found = Solutions::default();
    loop {
        let from = before
            .as_ref()
            .map(|(at, session)| (at.as_str(), session.as_str()));
        let Some(some) = graph.begun(from, AT_ONCE).await? else {
            return lately(graph, sparql, bindings, before.as_ref(), limit, options).await;
        };
        before = some.last().cloned();
        let all_seen = some.len() < AT_ONCE;
        let some: String = some.iter().map(|(_, uri)| format!("<{uri}> ")).collect();
        // Without `LATERAL` all sessions would be read, and joined with these.
        let some = format!("VALUES ?session {{ {some}}} LATERAL");
        let page = graph
            .select(&sparql.replace(SOME, &some), bindings, options.clone())
            .await?;
        found.variables = page.variables;
        found.rows.extend(page.rows);
        if all_seen || one_each(&found).len() > limit {
            return Ok(found);
        }
    }
}

/// The same of a graph that does not know the order. It would look at every session there is, and sort them;
/// instants it goes through quickly. So it is asked about longer and longer times while there are too few.
async fn lately(
    graph: &Arc<dyn Graph>,
    sparql: &str,
    bindings: &[(&str, Term)],
    before: Option<&(String, String)>,
    limit: usize,
    options: QueryOptions,
) -> Result<Solutions, Problem> {
    let newest = match before {
        Some((at, _)) => Some(at.clone()),
        None => {
            let sparql = format!(
                "SELECT (MAX(?start) AS ?newest) FROM <{RETRIEVAL_GRAPH}> WHERE {{ ?session prov:startedAtTime ?start }}"
            );
            let found = graph.select(&sparql, &[], options.clone()).await?;
            found.text(0, "newest").map(str::to_owned)
        }
    };
    let newest = newest.and_then(|at| chrono::DateTime::parse_from_rfc3339(&at).ok());
    // The sessions of a conversation are few, and are found by it.
    let mut names = bindings.iter().map(|(name, _)| *name);
    let newest = newest.filter(|_| !names.any(|name| name == "wanted_conversation"));
    let begins = newest.map(|at| WINDOWS.map(|window| at.timestamp_millis() - window));
    for since in begins.into_iter().flatten() {
        let since = date_time(since);
        let some = format!(
            "{{ ?session prov:startedAtTime ?start FILTER(?start >= \"{since}\"^^xsd:dateTime) }}"
        );
        let sparql = sparql.replace(SOME, &some);
        let found = graph.select(&sparql, bindings, options.clone()).await?;
        if one_each(&found).len() > limit {
            return Ok(found);
        }
    }
    let sparql = sparql.replace(SOME, "");
    Ok(graph.select(&sparql, bindings, options).await?)
}

/// Root sessions, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionList {
    sessions: Vec<SessionEntry>,
    /// Where older ones are; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SessionEntry {
    session_id: SessionId,
    state: RunState,
    question: String,
    collection: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    conversation_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pattern: String,
    started_at: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    finished_at: String,
    location: String,
}

impl SessionEntry {
    fn of(root: Root) -> Self {
        Self {
            location: link(&root.session, ""),
            session_id: root.session,
            state: root.state,
            question: root.question,
            collection: root.collection.unwrap_or_default(),
            conversation_id: root.conversation.unwrap_or_default(),
            pattern: root.pattern.unwrap_or_default(),
            started_at: root.started,
            finished_at: root.ended.unwrap_or_default(),
        }
    }
}

/// Where the next page begins: after an instant and a session.
fn cursor(text: &str) -> Result<(String, String), Problem> {
    text.split_once(',')
        .filter(|(at, session)| {
            chrono::DateTime::parse_from_rfc3339(at).is_ok() && !session.is_empty()
        })
        .map(|(at, session)| (at.to_owned(), session.to_owned()))
        .ok_or_else(|| Problem::parameter("before", "take it from `next` of the page before"))
}
