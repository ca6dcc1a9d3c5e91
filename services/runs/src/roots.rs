//! Root sessions, as the graph knows them: the one query of every list of runs.

use agentfleet_core::provenance::date_time;
use agentfleet_graph::Solutions;
use agentfleet_schema::records::{RunState, Termination};
use agentfleet_schema::uris::{self, RETRIEVAL_GRAPH};
use agentfleet_schema::{SessionId, Term};
use serde::Serialize;

/// A run in a list.
#[derive(Debug, Serialize)]
pub struct Root {
    pub session: SessionId,
    pub question: String,
    pub state: RunState,
    /// Why it ended, where it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination: Option<Termination>,
    /// Instants as the graph writes them.
    pub started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
}

impl Root {
    /// Which root sessions, newest first, and how each of them is. Nothing of a caller's is in the text: what
    /// people gave goes in as `bindings`.
    ///
    /// `some` stands before what `?session` and `?start` are, `which` narrows them, and `standing` narrows how
    /// they are; where it is empty, the newest are chosen before that is found out.
    pub fn query(
        some: &str,
        which: &str,
        bindings: &[(&str, Term)],
        standing: &str,
        most: usize,
    ) -> String {
        // A value reaches into a sub-select only where that selects its variable.
        let given: String = bindings
            .iter()
            .map(|(name, _)| format!(" ?{name}"))
            .collect();
        let newest = format!("ORDER BY DESC(?start) DESC(STR(?session)) LIMIT {most}");
        let (first, last) = if standing.is_empty() {
            (newest.as_str(), "ORDER BY DESC(?start) DESC(STR(?session))")
        } else {
            ("", newest.as_str())
        };
        format!(
            "SELECT DISTINCT ?session ?start ?question ?collection ?conversation ?pattern ?taskType ?end ?reason
               ?answered ?partial ?waits
             FROM <{RETRIEVAL_GRAPH}> WHERE {{
               {{ SELECT DISTINCT ?session ?start{given} WHERE {{
                    {some} {{ ?session a tg:AgentQuestion ; prov:startedAtTime ?start . {which}
                    FILTER NOT EXISTS {{ ?session tg:parentSessionId ?parent }} }}
                  }} {first} }}
               OPTIONAL {{ ?session tg:query ?question }}
               OPTIONAL {{ ?session tg:collection ?collection }}
               OPTIONAL {{ ?session tg:conversationId ?conversation }}
               OPTIONAL {{ ?session prov:endedAtTime ?end }}
               OPTIONAL {{ ?routing prov:wasGeneratedBy ?session ; tg:selectedPattern ?pattern .
                           OPTIONAL {{ ?routing tg:taskType ?taskType }} }}
               OPTIONAL {{ ?answer prov:wasGeneratedBy ?session ; tg:terminationReason ?reason .
                           OPTIONAL {{ ?answer tg:partial ?partial }}
                           BIND(EXISTS {{ ?answer a tg:Answer }} AS ?answered) }}
               OPTIONAL {{ ?session tg:rootSessionId ?id }}
               BIND(EXISTS {{ ?open a tg:ApprovalRequest ; prov:wasGeneratedBy/tg:rootSessionId ?id .
                    FILTER NOT EXISTS {{ ?next prov:wasDerivedFrom ?open ; prov:generatedAtTime ?at }} }} AS ?waits)
               {standing}
             }} {last}"
        )
    }

    /// What a row of the query says.
    pub fn of(found: &Solutions, row: usize) -> Option<Self> {
        let text = |name: &str| found.text(row, name).map(str::to_owned);
        let is = |name: &str| found.text(row, name) == Some("true");
        let name = |of: &str| text(of).map(|uri| uris::config_name_of(&uri).unwrap_or(uri));
        let reason = text("reason");
        let termination = reason.as_deref().and_then(Termination::named);
        let state = match reason {
            None if is("waits") => RunState::Waiting,
            None => RunState::Running,
            Some(_) => RunState::ended(is("answered"), is("partial"), termination),
        };
        Some(Self {
            session: uris::session_of(found.text(row, "session")?)?,
            question: text("question").unwrap_or_default(),
            state,
            termination,
            started: text("start").map(in_full).unwrap_or_default(),
            ended: text("end").map(in_full),
            conversation: text("conversation"),
            collection: text("collection"),
            pattern: name("pattern"),
            task_type: name("taskType"),
        })
    }
}

/// An instant with all its digits, as the fleet writes them: a graph may leave noughts at the end out, and then
/// texts do not sort as instants follow.
fn in_full(instant: String) -> String {
    match chrono::DateTime::parse_from_rfc3339(&instant) {
        Ok(at) => date_time(at.timestamp_millis()),
        Err(_) => instant,
    }
}
