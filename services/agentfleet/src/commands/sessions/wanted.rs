//! Which runs somebody asks for, of those that are queued and of those that the graph knows.

use crate::cli::{ListSessions, SortBy, Which};
use crate::error::Failure;
use crate::store::Store;
use agentfleet_core::provenance::date_time;
use agentfleet_runs::Root;
use agentfleet_schema::records::RunState;
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{Millis, Term, uris};

/// Which runs to list, and how many.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Its text is in small letters.
    pub which: Which,
    /// Instants as the graph writes them, which sort as they follow.
    pub began_before: Option<String>,
    pub began_after: Option<String>,
    pub sort: SortBy,
    pub limit: usize,
    /// Only runs that no later one went on from.
    pub left_alone: bool,
}

impl Wanted {
    pub(super) fn of(args: ListSessions, now: Millis) -> Result<Self, Failure> {
        let which = Which {
            text: args.words.or(args.which.text),
            ..args.which
        };
        Ok(Self {
            sort: args.sort,
            ..Self::which(which, args.limit, now)?
        })
    }

    pub(super) fn which(which: Which, limit: u64, now: Millis) -> Result<Self, Failure> {
        let ago = |flag: &str, age: &Option<String>| -> Result<Option<String>, Failure> {
            let Some(text) = age else { return Ok(None) };
            let age = crate::settings::age(flag, text)?;
            Ok(Some(date_time((now - age).max(0))))
        };
        Ok(Self {
            began_before: ago("--older-than", &which.older_than)?,
            began_after: ago("--newer-than", &which.newer_than)?,
            which: Which {
                text: which.text.map(|text| text.to_lowercase()),
                ..which
            },
            limit: limit as usize,
            ..Self::default()
        })
    }

    /// Whether a run that has no record yet is among them.
    pub(super) fn has(&self, run: &Root) -> bool {
        let same = |wanted: &Option<String>, has: &Option<String>| {
            wanted.is_none() || wanted.as_deref() == has.as_deref()
        };
        self.which.state.is_none_or(|wanted| wanted == run.state)
            && same(&self.which.collection, &run.collection)
            && same(&self.which.conversation, &run.conversation)
            && same(&self.which.pattern, &run.pattern)
            && same(&self.which.task_type, &run.task_type)
            && (self.which.text.as_ref())
                .is_none_or(|text| run.question.to_lowercase().contains(text))
            && self
                .began_before
                .as_ref()
                .is_none_or(|at| run.started < *at)
            && self
                .began_after
                .as_ref()
                .is_none_or(|at| run.started >= *at)
    }

    /// The same of the runs that the graph knows.
    pub(super) fn in_graph(&self) -> (String, Vec<(&'static str, Term)>) {
        let instant = |at: &String| Term::typed(at.clone(), xsd::DATE_TIME);
        let parts = [
            (
                "wantedCollection",
                self.which.collection.as_ref().map(Term::text),
                "?session tg:collection ?wantedCollection . ",
            ),
            (
                "wantedConversation",
                self.which.conversation.as_ref().map(Term::text),
                "?session tg:conversationId ?wantedConversation . ",
            ),
            (
                "wantedPattern",
                self.which
                    .pattern
                    .as_deref()
                    .map(|p| Term::iri(uris::pattern(p))),
                "?byPattern prov:wasGeneratedBy ?session ; tg:selectedPattern ?wantedPattern . ",
            ),
            (
                "wantedType",
                self.which
                    .task_type
                    .as_deref()
                    .map(|t| Term::iri(uris::task_type(t))),
                "?byType prov:wasGeneratedBy ?session ; tg:taskType ?wantedType . ",
            ),
            (
                "beganBefore",
                self.began_before.as_ref().map(instant),
                "FILTER(?start < ?beganBefore) ",
            ),
            (
                "beganAfter",
                self.began_after.as_ref().map(instant),
                "FILTER(?start >= ?beganAfter) ",
            ),
            (
                "wantedText",
                self.which.text.as_ref().map(Term::text),
                "?session tg:query ?asked . FILTER(CONTAINS(LCASE(?asked), ?wantedText)) ",
            ),
        ];
        let (mut which, mut bindings) = (String::new(), Vec::new());
        for (name, term, part) in parts {
            if let Some(term) = term {
                which.push_str(part);
                bindings.push((name, term));
            }
        }
        if self.left_alone {
            which.push_str(
                "FILTER NOT EXISTS { ?again prov:wasInformedBy ?session . \
                 FILTER NOT EXISTS { ?again tg:parentSessionId ?above } } ",
            );
        }
        (which, bindings)
    }

    /// How the runs that the graph knows are to stand.
    pub(super) fn standing(&self) -> &'static str {
        match self.which.state {
            None => "",
            // The graph knows none of these.
            Some(RunState::Queued) => "FILTER(false) ",
            Some(RunState::Running) => "FILTER(!BOUND(?end) && !?waits) ",
            Some(RunState::Waiting) => {
                "FILTER(!BOUND(?end)) FILTER EXISTS { \
                 ?held a tg:ApprovalRequest ; prov:wasGeneratedBy/tg:rootSessionId ?id . \
                 FILTER NOT EXISTS { ?after prov:wasDerivedFrom ?held ; prov:generatedAtTime ?then } } "
            }
            Some(RunState::Answered) => "?given prov:wasGeneratedBy ?session ; a tg:Answer . ",
            Some(RunState::Partial) => {
                "?given prov:wasGeneratedBy ?session ; a tg:Answer ; tg:partial ?lacks . "
            }
            Some(RunState::Failed) => {
                "FILTER(BOUND(?reason) && ?reason != \"cancelled\" && ?reason != \"timeout\") \
                 FILTER NOT EXISTS { ?given prov:wasGeneratedBy ?session ; a tg:Answer } "
            }
            Some(RunState::Cancelled) => "FILTER(?reason = \"cancelled\" && !?answered) ",
            Some(RunState::Timeout) => "FILTER(?reason = \"timeout\" && !?answered) ",
        }
    }
}

/// Refuses a name that no run can have: neither configured, nor found at any run.
pub(super) async fn check_names(store: &Store, wanted: &Wanted) -> Result<(), Failure> {
    let config = store.config.snapshot().await?;
    let Which {
        pattern, task_type, ..
    } = &wanted.which;
    match (pattern, task_type) {
        (Some(name), _) if !config.patterns.contains_key(name) => {
            Err(Failure::unknown("pattern", name, config.patterns.keys()))
        }
        (_, Some(name)) if !config.task_types.contains_key(name) => Err(Failure::unknown(
            "task type",
            name,
            config.task_types.keys(),
        )),
        _ => Ok(()),
    }
}
