//! `cost`: tokens, calls, seconds and money of committed steps, from the provenance graph.
//!
//! A step counts once, however often it was tried or delivered: the graph tells of its one record.

use super::records;
use super::spend::{self, Row, Spent, StepSpend};
use crate::cli::{Cost, CostBy};
use crate::engine::graph_to_read;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_config::queries;
use agentfleet_console::text;
use agentfleet_graph::{Graph, Solutions};
use agentfleet_runtime::Records;
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{SessionId, Term, keys, uris};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Sessions of the account, with what they are grouped by.
const SESSIONS: &str = "\
SELECT DISTINCT ?activity ?root ?parent ?conversation ?pattern ?taskType ?question ?started ?index
FROM <urn:graph:retrieval> WHERE {
  ?activity tg:rootSessionId ?root .
  NARROWED
  OPTIONAL { ?activity tg:parentSessionId ?parent }
  OPTIONAL { ?activity tg:conversationId ?conversation }
  OPTIONAL { ?activity tg:query ?question }
  OPTIONAL { ?activity prov:startedAtTime ?started }
  OPTIONAL { ?activity tg:siblingIndex ?index }
  OPTIONAL {
    ?routing a tg:RoutingDecision ; prov:wasGeneratedBy ?activity ; tg:selectedPattern ?pattern .
    OPTIONAL { ?routing tg:taskType ?taskType }
  }
}";

/// Steps, by the node that each is told of.
const STEPS: &str = "\
SELECT DISTINCT ?record ?activity ?in ?out ?cost ?unpriced ?models ?tools ?modelMs ?toolMs ?attempt ?wasted ?wastedCost FROM <urn:graph:retrieval> WHERE {
  ?activity tg:rootSessionId ?root .
  NARROWED
  ?node prov:wasGeneratedBy ?activity ; tg:stepRecord ?record ; tg:modelCalls ?models ;
    tg:toolCalls ?tools ; prov:generatedAtTime ?at .
  SINCE
  OPTIONAL { ?node tg:inToken ?in }
  OPTIONAL { ?node tg:outToken ?out }
  OPTIONAL { ?node tg:cost ?cost }
  OPTIONAL { ?node tg:unpricedCalls ?unpriced }
  OPTIONAL { ?node tg:modelTimeMs ?modelMs }
  OPTIONAL { ?node tg:toolTimeMs ?toolMs }
  OPTIONAL { ?node tg:attempt ?attempt }
  OPTIONAL { ?node tg:wastedTokens ?wasted }
  OPTIONAL { ?node tg:wastedCost ?wastedCost }
}";

/// The models of those steps.
const MODELS: &str = "\
SELECT DISTINCT ?record ?model FROM <urn:graph:retrieval> WHERE {
  ?activity tg:rootSessionId ?root .
  NARROWED
  ?node prov:wasGeneratedBy ?activity ; tg:stepRecord ?record ; tg:modelUsed ?model ;
    prov:generatedAtTime ?at .
  SINCE
}";

/// The account as JSON.
#[derive(Debug, Serialize)]
struct Account {
    by: CostBy,
    groups: Vec<Row>,
    total: Row,
    currency: &'static str,
}

/// What the amounts are in: the program knows no currencies.
const CURRENCY: &str = "the unit of the prices in `model-profile`";

pub(crate) async fn run(args: Cost, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    let since = since(&store, args.since.as_deref())?;
    let graph = graph_to_read(&store, settings).await?;
    let session = match args.id.as_ref().or(args.session.as_ref()) {
        Some(text) => Some(named(&store, &*graph, text).await?),
        None => None,
    };
    let asked = Asked {
        graph: &*graph,
        settings,
        session,
        conversation: args.conversation,
        collection: args.collection,
        since,
    };
    let steps = asked.steps().await?;
    let by = args.by.unwrap_or(if asked.session.is_some() {
        CostBy::Agent
    } else {
        CostBy::Tree
    });
    let (groups, total) = spend::account(&steps, by, asked.session.is_some());
    if args.output.json {
        let names = spend::headers(by);
        let keyed = |key: &[String]| {
            let names = names
                .iter()
                .map(|name| name.to_lowercase().replace(' ', "_"));
            names.zip(key.iter().cloned()).collect::<BTreeMap<_, _>>()
        };
        return ui::json(&Account {
            by,
            groups: groups
                .iter()
                .map(|group| {
                    let mut key = keyed(&group.key);
                    if by == CostBy::Agent {
                        key.insert("question".to_owned(), group.question.clone());
                    }
                    Row::of(group.spent, key)
                })
                .collect(),
            total: Row::of(total, BTreeMap::new()),
            currency: CURRENCY,
        });
    }
    if groups.is_empty() {
        outln!("No step of that kind was committed.");
        return Ok(());
    }
    let own = spend::headers(by);
    let headers: Vec<&str> = own
        .iter()
        .copied()
        .chain([
            "STEPS",
            "TOKENS IN",
            "TOKENS OUT",
            "MODEL CALLS",
            "TOOL CALLS",
            "MODEL TIME",
            "TOOL TIME",
            "COST",
            "WASTED",
        ])
        .chain((by == CostBy::Agent).then_some("QUESTION"))
        .collect();
    let mut rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            group
                .key
                .iter()
                .cloned()
                .chain(cells(group.spent))
                .chain((by == CostBy::Agent).then(|| text::one_line(&group.question)))
                .collect()
        })
        .collect();
    let mut last = vec![String::new(); own.len()];
    "total".clone_into(&mut last[0]);
    let mut last: Vec<String> = last.into_iter().chain(cells(total)).collect();
    last.resize(headers.len(), String::new());
    rows.push(last);
    ui.table(&headers, own.len(), rows);
    errln!(
        "COST is in {CURRENCY}; what has no price there is not in it. WASTED is what was spent and came to no record, by attempts before the \
         committed ones and by calls that were cut off; COST does not count it."
    );
    Ok(())
}

/// The instant that `--since` names, by itself or as an age.
pub(super) fn since(store: &Store, given: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(text) = given else { return Ok(None) };
    let instant = queries::instant(text, store.now());
    instant.map(Some).ok_or_else(|| {
        Failure::usage(format!(
            "`--since {text}` is no instant (expected `2026-11-21`, `2026-11-21T06:30:00Z` or an age such \
             as `7d`)"
        ))
    })
}

fn cells(spent: Spent) -> [String; 9] {
    [
        spent.steps.to_string(),
        spent.tokens_in.to_string(),
        spent.tokens_out.to_string(),
        spent.model_calls.to_string(),
        spent.tool_calls.to_string(),
        text::duration(spent.model_ms),
        text::duration(spent.tool_ms),
        spent.told_cost(),
        wasted(spent),
    ]
}

/// What came to no record. A call that was cut off is none of an attempt before the committed one.
fn wasted(spent: Spent) -> String {
    if (spent.wasted, spent.wasted_tokens, spent.wasted_cost) == (0, 0, 0) {
        return "none".to_owned();
    }
    let mut parts = Vec::new();
    if spent.wasted > 0 {
        parts.push(text::counted(spent.wasted, "attempt"));
    }
    parts.push(text::counted(spent.wasted_tokens, "token"));
    if spent.wasted_cost > 0 {
        parts.push(spend::money(spent.wasted_cost));
    }
    parts.join(", ")
}

/// The session that a text names as `trace` takes it, with the root of its tree: of a correlation that
/// root alone.
async fn named(
    store: &Store,
    graph: &dyn Graph,
    text: &str,
) -> Result<(SessionId, SessionId), Failure> {
    let session = records::kept(store, text).await?;
    let roots = records::roots_told(store, graph, session.as_str()).await?;
    let Some(root) = roots.into_iter().next() else {
        return Err(records::untold(store, session.as_str()).await?);
    };
    let records = Records::new(&*store.documents);
    let is_one = records.has(&keys::outcome(&session, 0)).await?;
    Ok((if is_one { session } else { root.clone() }, root))
}

/// Which steps are asked for.
struct Asked<'a> {
    graph: &'a dyn Graph,
    settings: &'a Settings,
    /// A session, and the root of its tree.
    session: Option<(SessionId, SessionId)>,
    conversation: Option<String>,
    collection: Option<String>,
    since: Option<String>,
}

/// What is known of a session.
struct Session {
    root: String,
    parent: Option<String>,
    conversation: String,
    pattern: String,
    task_type: String,
    question: String,
    began: (String, u64),
}

impl Asked<'_> {
    async fn steps(&self) -> Result<Vec<StepSpend>, Failure> {
        let root = self.session.as_ref().map(|(_, root)| root.as_str());
        let sessions = self.sessions(root).await?;
        let top = self.session.as_ref().map(|(top, _)| top.as_str());
        let wanted = top.map(|top| below(&sessions, top));
        let found = self.rows(STEPS, root, true).await?;
        let told = self.rows(MODELS, root, true).await?;
        let mut models: HashMap<&str, Vec<String>> = HashMap::new();
        for row in 0..told.rows.len() {
            if let (Some(record), Some(model)) = (told.text(row, "record"), told.text(row, "model"))
            {
                models.entry(record).or_default().push(model.to_owned());
            }
        }
        let mut steps = Vec::new();
        for row in 0..found.rows.len() {
            let text = |name: &str| found.text(row, name).unwrap_or_default();
            let number = |name: &str| text(name).parse::<u64>().unwrap_or_default();
            let Some(id) = uris::session_of(text("activity")) else {
                continue;
            };
            if wanted
                .as_ref()
                .is_some_and(|wanted| !wanted.contains(id.as_str()))
            {
                continue;
            }
            let Some(session) = sessions.get(id.as_str()) else {
                continue;
            };
            let above = sessions.get(&session.root);
            let inherited = above.map_or("", |above| above.task_type.as_str());
            let mut models = models.remove(text("record")).unwrap_or_default();
            models.sort();
            steps.push(StepSpend {
                step: step_of(text("record")),
                root: session.root.clone(),
                conversation: session.conversation.clone(),
                task_type: if session.task_type.is_empty() {
                    inherited.to_owned()
                } else {
                    session.task_type.clone()
                },
                pattern: session.pattern.clone(),
                question: session.question.clone(),
                began: session.began.clone(),
                models,
                spent: Spent {
                    steps: 1,
                    tokens_in: number("in"),
                    tokens_out: number("out"),
                    model_calls: number("models"),
                    tool_calls: number("tools"),
                    model_ms: number("modelMs"),
                    tool_ms: number("toolMs"),
                    cost: spend::amount(text("cost")),
                    unpriced: u64::from(!text("unpriced").is_empty()),
                    wasted: number("attempt").saturating_sub(1),
                    wasted_tokens: number("wasted"),
                    wasted_cost: spend::amount(text("wastedCost")),
                },
                session: id.to_string(),
            });
        }
        Ok(steps)
    }

    async fn sessions(&self, root: Option<&str>) -> Result<HashMap<String, Session>, Failure> {
        let found = self.rows(SESSIONS, root, false).await?;
        let mut sessions = HashMap::new();
        for row in 0..found.rows.len() {
            let text = |name: &str| found.text(row, name).unwrap_or_default().to_owned();
            let name = |uri: &str| uris::config_name_of(uri).unwrap_or_default();
            if let Some(id) = uris::session_of(&text("activity")) {
                let session = Session {
                    root: text("root"),
                    parent: found.text(row, "parent").map(str::to_owned),
                    conversation: text("conversation"),
                    pattern: name(&text("pattern")),
                    task_type: name(&text("taskType")),
                    question: text("question"),
                    began: (text("started"), text("index").parse().unwrap_or_default()),
                };
                sessions.insert(id.to_string(), session);
            }
        }
        Ok(sessions)
    }

    /// Runs a query, narrowed to what is asked for. What people gave goes in as terms.
    async fn rows(
        &self,
        query: &str,
        root: Option<&str>,
        timed: bool,
    ) -> Result<Solutions, Failure> {
        let mut narrowed = String::new();
        let mut bindings: Vec<(&str, Term)> = Vec::new();
        if let Some(root) = root {
            bindings.push(("root", Term::text(root)));
        }
        for (name, value, pattern) in [
            (
                "givenConversation",
                &self.conversation,
                "?activity tg:conversationId ?givenConversation . ",
            ),
            (
                "givenCollection",
                &self.collection,
                "?activity tg:collection ?givenCollection . ",
            ),
        ] {
            if let Some(value) = value {
                narrowed.push_str(pattern);
                bindings.push((name, Term::text(value)));
            }
        }
        let mut since = "";
        if let (Some(at), true) = (&self.since, timed) {
            since = "FILTER (?at >= ?since)";
            bindings.push(("since", Term::typed(at, xsd::DATE_TIME)));
        }
        let sparql = query.replace("NARROWED", &narrowed).replace("SINCE", since);
        Ok(self
            .graph
            .select(&sparql, &bindings, self.settings.query_options())
            .await?)
    }
}

/// A session and every one below it.
fn below<'a>(sessions: &'a HashMap<String, Session>, top: &'a str) -> HashSet<&'a str> {
    let mut wanted = HashSet::from([top]);
    loop {
        let more: Vec<&str> = sessions
            .iter()
            .filter(|(id, session)| {
                let parent = session.parent.as_deref();
                !wanted.contains(id.as_str()) && parent.is_some_and(|one| wanted.contains(one))
            })
            .map(|(id, _)| id.as_str())
            .collect();
        if more.is_empty() {
            return wanted;
        }
        wanted.extend(more);
    }
}

/// The step of the key of a record.
fn step_of(key: &str) -> u32 {
    keys::step_of(key).map_or(0, |(_, step)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_wasted_is_told_with_and_without_attempts() {
        for (attempts, tokens, cost, told) in [
            (0, 0, 0, "none"),
            (0, 1_651, 0, "1,651 tokens"),
            (1, 0, 0, "1 attempt, 0 tokens"),
            (2, 1, 500_000_000, "2 attempts, 1 token, 0.50"),
        ] {
            let spent = Spent {
                wasted: attempts,
                wasted_tokens: tokens,
                wasted_cost: cost,
                ..Spent::default()
            };
            assert_eq!(wasted(spent), told);
        }
    }
}
