//! Answers to calls that wait for a person. Approve, deny, edit, the end of the wait and every end of
//! the run compete for one record: that of the step after the wait. Whoever creates it has decided,
//! and whoever comes later is told what was decided.
//!
//! What is open is found by small keys of its own, one for each wait, so that a list is as long as
//! there are open ones. They say only where to look: the records say what is so.

use crate::Parts;
use crate::endings::{Asked as AskedNext, Endings};
use crate::error::Error;
use agentfleet_config::ConfigStore;
use agentfleet_core::approval::{self, Misanswered, Verdict};
use agentfleet_core::say;
use agentfleet_graph::QueryOptions;
use agentfleet_runtime::records::decode;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{
    Activity, ApprovalPlace, Decided, PauseRecord, StepRecord, Termination,
};
use agentfleet_schema::vocabulary::{RDF_TYPE, tg};
use agentfleet_schema::{ApprovalId, SessionId, Term, keys, uris};

/// Approvals named where the beginning of an id fits several.
const NAMED: usize = 5;
/// Fewest characters of an id that may stand for all of it: a call is not approved by a slip of the
/// finger.
const SHORTEST: usize = 6;

/// Waits for people, and the answers to them.
#[derive(Clone, Debug)]
pub struct Approvals {
    parts: Parts,
    endings: Endings,
}

/// What an id, or its beginning, stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Open(Box<PauseRecord>),
    /// It does not wait any more; with the step that came of it.
    Over(Box<PauseRecord>, Box<StepRecord>),
    /// The beginning fits several.
    Several(Vec<ApprovalId>),
    Unknown,
}

/// What came of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// It counts.
    Now(Decided),
    /// Something else was there first: another answer, or an end.
    Before(Box<StepRecord>),
    /// It cannot count any more: nobody waits for what would come of it.
    TooLate(String),
    Refused(Misanswered),
}

/// What became of a wait, from the step after it.
pub fn became(record: &StepRecord) -> String {
    if let Activity::Decided(decided) = &record.activity {
        return approval::who(decided);
    }
    let end = record.concluded().map(|end| end.termination.as_str());
    end.map_or_else(
        || "over".to_owned(),
        |why| format!("over, because its session ended ({why})"),
    )
}

/// The tool that is to be called, as the run knows it.
pub async fn tool_of(
    config: &dyn ConfigStore,
    pause: &PauseRecord,
) -> Result<Option<ToolItem>, agentfleet_config::Error> {
    let request = pause.request();
    let Some(version) = request.and_then(|request| request.control.config_version) else {
        return Ok(None);
    };
    let set = config.snapshot_at(version).await?;
    let mut tools = set.tools.values();
    Ok(tools.find(|tool| tool.name == pause.asked.tool).cloned())
}

impl Approvals {
    pub fn new(parts: Parts) -> Self {
        Self {
            endings: Endings::new(parts.clone()),
            parts,
        }
    }

    /// Everything that waits for a person, the oldest first.
    pub async fn open(&self) -> Result<Vec<PauseRecord>, Error> {
        let keys = self.parts.documents.list(keys::APPROVALS).await?;
        let mut open = Vec::new();
        for (pause, after) in self.read(&keys).await? {
            if after.is_none() {
                open.push(pause);
            }
        }
        open.sort_by(|a, b| (a.asked.asked_at, &a.asked.id).cmp(&(b.asked.asked_at, &b.asked.id)));
        Ok(open)
    }

    /// Takes up what somebody began and died over: an answer that was never published, a wait that
    /// nobody needs an answer to any more. Answers how much there was.
    pub async fn tend(&self) -> Result<usize, Error> {
        let keys = self.parts.documents.list(keys::APPROVALS).await?;
        let mut tended = 0;
        for (pause, after) in self.read(&keys).await? {
            if let Some(after) = after {
                self.endings.publish_if_unpublished(after).await?;
                self.forget(&pause).await?;
            } else if !self.end_if_needless(&pause).await? {
                continue;
            }
            tended += 1;
        }
        Ok(tended)
    }

    /// The waits that keys of [`keys::approval`] speak of, with the step after each. Keys of what is
    /// over, and told, are forgotten.
    async fn read(&self, keys: &[String]) -> Result<Vec<(PauseRecord, Option<StepRecord>)>, Error> {
        let (documents, records) = (&*self.parts.documents, self.parts.records());
        let found = records.read_many::<ApprovalPlace>(keys).await?;
        let places = keys.iter().zip(found);
        let places: Vec<(&String, ApprovalPlace)> = places
            .filter_map(|(key, place)| Some((key, place?)))
            .collect();
        let wanted: Vec<String> = places
            .iter()
            .flat_map(|(_, ApprovalPlace { session, step })| {
                [
                    keys::pause(session, *step),
                    keys::outcome(session, *step + 1),
                    keys::published(session, *step + 1),
                ]
            })
            .collect();
        let bodies = documents.get_many(&wanted).await?;
        let (mut found, mut over) = (Vec::new(), Vec::new());
        for ((key, ApprovalPlace { session, step }), bodies) in places.iter().zip(bodies.chunks(3))
        {
            let body = |at: usize| bodies.get(at).and_then(Option::as_ref);
            let Some(pause) = body(0) else {
                // Erased with its session, or about to be put: its session knows.
                if !records.has(&keys::outcome(session, *step)).await? {
                    over.push((*key).clone());
                }
                continue;
            };
            let pause: PauseRecord = decode(&keys::pause(session, *step), pause)?;
            let after = keys::outcome(session, *step + 1);
            let after = body(1).map(|body| decode(&after, body)).transpose()?;
            if body(2).is_some() {
                over.push((*key).clone());
            }
            found.push((pause, after));
        }
        documents.delete(&over).await?;
        Ok(found)
    }

    /// What an id stands for, or the beginning of one if that has 6 characters. A beginning that also
    /// fits what was decided before is one of several: whoever types it may mean either.
    pub async fn find(&self, id: &str) -> Result<Found, Error> {
        let keys = self.parts.documents.list(keys::APPROVALS).await?;
        let may_begin = id.len() >= SHORTEST;
        let fits = |key: &&String| {
            keys::approval_id(key).is_some_and(|known| {
                known.as_str() == id || (may_begin && known.as_str().starts_with(id))
            })
        };
        let fitting: Vec<String> = keys.iter().filter(fits).cloned().collect();
        let mut found = self.read(&fitting).await?;
        let whole = |(pause, _): &(PauseRecord, Option<StepRecord>)| pause.asked.id.as_str() == id;
        if !found.iter().any(whole) {
            for over in self.over(id, may_begin).await? {
                let known = |(pause, _): &(PauseRecord, Option<StepRecord>)| {
                    pause.asked.id == over.0.asked.id
                };
                if !found.iter().any(known) {
                    found.push(over);
                }
            }
        }
        if let Some(at) = found.iter().position(whole) {
            found = vec![found.swap_remove(at)];
        }
        let mut ids = found.iter().map(|(pause, _)| pause.asked.id.clone());
        Ok(match (found.len(), id.is_empty()) {
            (0, _) | (_, true) => Found::Unknown,
            (1, _) => match found.swap_remove(0) {
                (pause, None) => Found::Open(Box::new(pause)),
                (pause, Some(after)) => Found::Over(Box::new(pause), Box::new(after)),
            },
            _ => Found::Several(ids.by_ref().take(NAMED).collect()),
        })
    }

    /// Waits that the graph knows by their ids, or by the beginnings of them: those that are over, too.
    async fn over(
        &self,
        id: &str,
        may_begin: bool,
    ) -> Result<Vec<(PauseRecord, Option<StepRecord>)>, Error> {
        let fits = if may_begin {
            "STRSTARTS(STR(?id), STR(?begins))"
        } else {
            "STR(?id) = STR(?begins)"
        };
        let sparql = format!(
            "SELECT DISTINCT ?key FROM <{}> WHERE {{ \
               ?asked <{RDF_TYPE}> <{}> ; <{}> ?id ; <{}> ?key . \
               FILTER ({fits}) }} LIMIT {NAMED}",
            uris::RETRIEVAL_GRAPH,
            tg::APPROVAL_REQUEST,
            tg::APPROVAL_ID,
            tg::STEP_RECORD,
        );
        let bindings = [("begins", Term::text(id))];
        let graph = &*self.parts.graph;
        let rows = graph
            .select(&sparql, &bindings, QueryOptions::default())
            .await?;
        let mut found = Vec::new();
        for row in 0..rows.rows.len() {
            let Some((session, step)) = rows.text(row, "key").and_then(keys::step_of) else {
                continue;
            };
            if let Some(pause) = self.parts.records().pause(&session, step).await? {
                let after = self.after(&pause).await?;
                found.push((pause, after));
            }
        }
        Ok(found)
    }

    /// Answers a wait. `tool` is the tool at the config version of the run, if it is known.
    pub async fn answer(
        &self,
        pause: &PauseRecord,
        verdict: Verdict,
        tool: Option<&ToolItem>,
    ) -> Result<Answered, Error> {
        let decided = match approval::decide(&pause.asked, verdict, tool, self.parts.host.now()) {
            Ok(decided) => decided,
            Err(refused) => return Ok(Answered::Refused(refused)),
        };
        let before = self.after(pause).await?;
        if before.is_none()
            && let Some(reason) = self.too_late(pause).await?
        {
            return Ok(Answered::TooLate(reason));
        }
        self.settle(pause, decided).await
    }

    /// The wait of a step is over: the configured answer counts.
    pub async fn expire(&self, session: &SessionId, step: u32) -> Result<(), Error> {
        let records = self.parts.records();
        let Some(pause) = records.pause(session, step).await? else {
            // Erased: it was put before this was published.
            return Ok(());
        };
        if records.is_erased(&pause.root).await? {
            return Ok(());
        }
        let decided = approval::expired(&pause.asked, self.parts.host.now());
        self.settle(&pause, decided).await?;
        Ok(())
    }

    /// Whether a wait is over, and told.
    pub async fn is_settled(&self, session: &SessionId, step: u32) -> Result<bool, Error> {
        let records = self.parts.records();
        if !records.is_published(session, step + 1).await? {
            return Ok(false);
        }
        // Whoever answered may have died before it was forgotten.
        if let Some(pause) = records.pause(session, step).await? {
            self.forget(&pause).await?;
        }
        Ok(true)
    }

    async fn after(&self, pause: &PauseRecord) -> Result<Option<StepRecord>, Error> {
        let records = self.parts.records();
        Ok(records.step(&pause.session, pause.step + 1).await?)
    }

    /// Creates the step after a wait, or finds it.
    async fn settle(&self, pause: &PauseRecord, decided: Decided) -> Result<Answered, Error> {
        let request = pause
            .request()
            .ok_or_else(|| agentfleet_runtime::Error::Unreadable {
                key: keys::pause(&pause.session, pause.step),
                reason: "the request that was to be answered is none".to_owned(),
            })?;
        let answered = loop {
            if let Some(after) = self.after(pause).await? {
                self.endings.publish_if_unpublished(after.clone()).await?;
                break Answered::Before(Box::new(after));
            }
            let finish = approval::answered(&request, &decided);
            let asked = AskedNext {
                request: request.clone(),
                properties: pause.resume.properties.clone(),
            };
            let (session, step) = (&pause.session, pause.step + 1);
            if self
                .endings
                .conclude(session, step, Some(asked), finish)
                .await?
            {
                break Answered::Now(decided);
            }
            // Lost the race: look at what won.
        };
        self.forget(pause).await?;
        Ok(answered)
    }

    async fn forget(&self, pause: &PauseRecord) -> Result<(), Error> {
        let key = keys::approval(&pause.root, &pause.asked.id);
        Ok(self.parts.documents.delete(&[key]).await?)
    }

    /// Why an answer cannot count any more.
    async fn too_late(&self, pause: &PauseRecord) -> Result<Option<String>, Error> {
        let hard_deadline = pause
            .request()
            .map_or(0, |request| request.control.hard_deadline);
        if hard_deadline > 0 && self.parts.host.now() >= hard_deadline {
            return Ok(Some("the time of the run is used up".to_owned()));
        }
        Ok(self.ended_above(pause).await?.map(|(reason, _)| reason))
    }

    /// Why nothing may start in the session of a wait any more.
    async fn ended_above(
        &self,
        pause: &PauseRecord,
    ) -> Result<Option<(String, Termination)>, Error> {
        let request = pause.request().unwrap_or_default();
        let closed_key = keys::closed(&pause.root);
        let ancestors = request.control.ancestors.iter();
        let wanted: Vec<String> = [closed_key.clone()]
            .into_iter()
            .chain(ancestors.map(|above| keys::fan_in(&above.session, above.step)))
            .collect();
        let bodies = self.parts.documents.get_many(&wanted).await?;
        let mut bodies = bodies.into_iter();
        if let Some(body) = bodies.next().flatten() {
            return Ok(Some(say::tree_closed(&decode(&closed_key, &body)?)));
        }
        Ok(bodies.flatten().next().map(|_| say::decided_above()))
    }

    /// Ends the waits of a tree that nobody needs an answer to any more: no message is in flight that
    /// would.
    pub async fn end_needless(&self, root: &SessionId) -> Result<(), Error> {
        let keys = self.parts.documents.list(&keys::approvals_of(root)).await?;
        if keys.is_empty() {
            return Ok(());
        }
        for (pause, after) in self.read(&keys).await? {
            if after.is_none() {
                self.end_if_needless(&pause).await?;
            }
        }
        Ok(())
    }

    /// Ends a wait where nothing may start in its session any more; `false` where that is not so.
    async fn end_if_needless(&self, pause: &PauseRecord) -> Result<bool, Error> {
        let Some((reason, termination)) = self.ended_above(pause).await? else {
            return Ok(false);
        };
        let asked = pause.request().map(|request| AskedNext {
            request,
            properties: pause.resume.properties.clone(),
        });
        let finish = say::cancelled(&reason, termination);
        let (session, step) = (&pause.session, pause.step + 1);
        if self.endings.conclude(session, step, asked, finish).await? {
            self.forget(pause).await?;
        }
        Ok(true)
    }
}
