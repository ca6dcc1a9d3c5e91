//! `approvals`: calls that wait for a person, and what a person says about them.

use super::{audit, person, records};
use crate::cli::{Answering, Approvals as Command};
use crate::engine::settled_graph;
use crate::error::{Exit, Failure};
use crate::lock::FleetLock;
use crate::settings::Settings;
use crate::store::{Store, reply_topics};
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_core::approval::{Misanswered, Verdict};
use agentfleet_core::provenance::date_time;
use agentfleet_core::say;
use agentfleet_runs::{Answered, Approvals, Found, Parts, became, tool_of};
use agentfleet_schema::Millis;
use agentfleet_schema::records::{Activity, ApprovalAnswer, Decided, PauseRecord, StepRecord};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call that waits, or waited, as programs read it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: &'a str,
    session: &'a str,
    root: &'a str,
    step: u32,
    question: String,
    tool: &'a str,
    arguments: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    thought: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    asked_at: String,
    expires_at: String,
    /// What counts if nobody answers in time.
    default: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    became: Option<String>,
    /// What the call was approved with, where a person changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_arguments: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Shown<'a> {
    fn of(pause: &'a PauseRecord, after: Option<&'a StepRecord>) -> Self {
        let asked = &pause.asked;
        let decided = after.and_then(|after| match &after.activity {
            Activity::Decided(decided) if decided.answer == ApprovalAnswer::Edit => Some(decided),
            _ => None,
        });
        Self {
            id: asked.id.as_str(),
            session: pause.session.as_str(),
            root: pause.root.as_str(),
            step: pause.step,
            question: pause.request().map(|r| goal(&r)).unwrap_or_default(),
            tool: &asked.tool,
            arguments: &asked.arguments,
            thought: &asked.thought,
            reason: &asked.reason,
            asked_at: date_time(asked.asked_at),
            expires_at: date_time(asked.expires_at),
            default: asked.default.as_str(),
            state: if after.is_some() { "over" } else { "open" },
            became: after.map(became),
            approved_arguments: decided.map(|decided| &decided.arguments),
        }
    }
}

/// A decision, as programs read it.
#[derive(Debug, Serialize)]
struct ShownDecision<'a> {
    id: &'a str,
    session: &'a str,
    /// Number of the iteration that the call belongs to.
    iteration: u32,
    tool: &'a str,
    arguments: &'a BTreeMap<String, String>,
    answer: ApprovalAnswer,
    by: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    at: String,
}

impl<'a> ShownDecision<'a> {
    fn of(pause: &'a PauseRecord, decided: &'a Decided) -> Self {
        Self {
            id: decided.id.as_str(),
            session: pause.session.as_str(),
            iteration: decided.n,
            tool: &decided.tool,
            arguments: &decided.arguments,
            answer: decided.answer,
            by: &decided.by,
            reason: &decided.reason,
            at: date_time(decided.at),
        }
    }
}

/// What the session that waits works on.
fn goal(request: &agentfleet_schema::AgentRequest) -> String {
    if request.subagent_goal.is_empty() {
        request.question.clone()
    } else {
        request.subagent_goal.clone()
    }
}

pub(crate) async fn run(command: Command, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let approvals = Approvals::new(Parts {
        broker: Arc::clone(&store.broker),
        documents: Arc::clone(&store.documents),
        committer: Arc::clone(&store.committer),
        graph: settled_graph(&store, settings).await?,
        coordination: None,
        host: Arc::clone(&store.host),
        reply_topics: reply_topics(settings)?,
    });
    let door = Door {
        store: &store,
        settings,
        approvals: &approvals,
    };
    let (answering, answer, arguments) = match command {
        Command::List { session, output } => return door.list(session, output.json, ui).await,
        Command::Show { id, output } => return door.show(&id, output.json).await,
        Command::Approve(answering) => (answering, ApprovalAnswer::Approve, None),
        Command::Deny(answering) => (answering, ApprovalAnswer::Deny, None),
        Command::Edit {
            answering,
            set,
            arguments,
        } => {
            let arguments = edited(arguments.as_deref(), set)?;
            (answering, ApprovalAnswer::Edit, Some(arguments))
        }
    };
    // Boxed: it holds the request that goes on.
    Box::pin(door.answer(answering, answer, arguments)).await
}

/// New arguments as they were typed: a whole object, or single ones that replace those there are.
struct Edited {
    whole: Option<BTreeMap<String, String>>,
    single: Vec<(String, String)>,
}

impl Edited {
    fn over(self, asked: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut arguments = self.whole.unwrap_or_else(|| asked.clone());
        arguments.extend(self.single);
        arguments
    }
}

fn edited(whole: Option<&str>, set: Vec<String>) -> Result<Edited, Failure> {
    let whole = whole
        .map(|text| {
            let read: Result<BTreeMap<String, serde_json::Value>, _> = serde_json::from_str(text);
            let read = read.map_err(|error| {
                Failure::usage(format!("`--arguments` is no JSON object: {error}"))
                    .hint("agentfleet approvals edit ID --arguments '{\"amount\": \"5\"}'")
            })?;
            let texts = read
                .into_iter()
                .map(|(name, value)| (name, agentfleet_schema::tolerant::text_of(value)));
            Ok::<_, Failure>(texts.collect())
        })
        .transpose()?;
    let single = set
        .into_iter()
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(Failure::usage(format!(
                "`--set` is `{pair}`, expected `NAME=VALUE`"
            ))),
        })
        .collect::<Result<_, _>>()?;
    Ok(Edited { whole, single })
}

struct Door<'a> {
    store: &'a Store,
    settings: &'a Settings,
    approvals: &'a Approvals,
}

impl Door<'_> {
    async fn list(&self, session: Option<String>, json: bool, ui: Ui) -> Result<(), Failure> {
        let mut open = self.approvals.open().await?;
        if let Some(session) = session {
            let session = records::session(self.store, &session).await?;
            open.retain(|pause| pause.root == session || pause.session == session);
        }
        if json {
            let shown: Vec<Shown<'_>> = open.iter().map(|pause| Shown::of(pause, None)).collect();
            return ui::json(&shown);
        }
        if open.is_empty() {
            outln!("Nothing waits for a person.");
            return Ok(());
        }
        let now = self.store.now();
        let rows = open.iter().map(|pause| {
            let asked = &pause.asked;
            vec![
                asked.id.to_string(),
                pause.session.to_string(),
                say::action(&asked.tool, &asked.arguments),
                time(now - asked.asked_at),
                time(asked.expires_at - now),
            ]
        });
        ui.table(&["ID", "SESSION", "CALL", "WAITS", "EXPIRES IN"], 2, rows);
        Ok(())
    }

    /// The call that an id, or the beginning of one, names; with what became of it.
    async fn find(&self, id: &str) -> Result<(PauseRecord, Option<StepRecord>), Failure> {
        match self.approvals.find(id).await? {
            Found::Open(pause) => Ok((*pause, None)),
            Found::Over(pause, after) => Ok((*pause, Some(*after))),
            Found::Several(ids) => {
                let ids: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
                Err(Failure::usage(format!(
                    "`{id}` is the beginning of several approvals: {}",
                    ids.join(", ")
                ))
                .hint("give more of it; those that are decided count, too"))
            }
            Found::Unknown if records::is_too_short(id) => Err(Failure::usage(format!(
                "`{id}` is too short to name an approval: give at least 6 characters of its id"
            ))
            .hint("`agentfleet approvals list` shows what waits for a person")),
            Found::Unknown => Err(Failure::not_found(format!("there is no approval `{id}`"))
                .hint("`agentfleet approvals list` shows what waits for a person")),
        }
    }

    async fn show(&self, id: &str, json: bool) -> Result<(), Failure> {
        let (pause, after) = self.find(id).await?;
        let shown = Shown::of(&pause, after.as_ref());
        if json {
            return ui::json(&shown);
        }
        outln!("Approval {}  {}", shown.id, shown.state);
        outln!("{}\n", text::line(&shown.question));
        outln!("  session   {}, step {}", shown.session, shown.step);
        outln!("  tool      {}", text::line(shown.tool));
        for (name, value) in shown.arguments {
            // Exactly what is approved.
            outln!("            {} = {}", text::line(name), text::quoted(value));
        }
        if !shown.thought.is_empty() {
            outln!("  thought   {}", text::line(shown.thought));
        }
        if !shown.reason.is_empty() {
            outln!("  reason    {}", text::line(shown.reason));
        }
        outln!("  asked     {}", shown.asked_at);
        outln!("  expires   {}, then `{}`", shown.expires_at, shown.default);
        match &shown.became {
            Some(became) => {
                outln!("  became    {}", text::line(became));
                for (name, value) in shown.approved_arguments.into_iter().flatten() {
                    outln!("            {} = {}", text::line(name), text::quoted(value));
                }
            }
            None => {
                let program = self.settings.program();
                outln!(
                    "\n{program} approvals approve {id}{who}\n{program} approvals deny {id}{who}",
                    id = shown.id,
                    who = person::to_say()
                );
            }
        }
        Ok(())
    }

    async fn answer(
        &self,
        answering: Answering,
        answer: ApprovalAnswer,
        arguments: Option<Edited>,
    ) -> Result<(), Failure> {
        let by = person::name(answering.by.as_deref())?;
        let (pause, after) = self.find(&answering.id).await?;
        let id = &pause.asked.id;
        if let Some(after) = after {
            return Err(already(id.as_str(), &after));
        }
        let verdict = Verdict {
            answer,
            by,
            reason: answering.reason.unwrap_or_default(),
            arguments: arguments.map(|edited| edited.over(&pause.asked.arguments)),
        };
        let tool = tool_of(&*self.store.config, &pause).await?;
        let decided = match Box::pin(self.approvals.answer(&pause, verdict, tool.as_ref())).await? {
            Answered::Now(decided) => decided,
            Answered::Before(after) => return Err(already(id.as_str(), &after)),
            Answered::TooLate(reason) => {
                return Err(Failure::new(
                    Exit::Failed,
                    format!("it is too late to answer approval `{id}`: {reason}"),
                ));
            }
            Answered::Refused(refused) => {
                let failure = Failure::usage(refused.to_string());
                return Err(match refused {
                    Misanswered::NoName => failure.hint("say it with `--as NAME`"),
                    Misanswered::NoArguments(_) => failure.hint("say them with `--set NAME=VALUE`"),
                    Misanswered::ReasonTooLong(_)
                    | Misanswered::Arguments
                    | Misanswered::Misfit(_) => failure,
                });
            }
        };
        let action = format!("answer {}", decided.answer.as_str());
        let about = format!("approval {id}, session {}", pause.session);
        audit::note(self.store, &decided.by, &action, &about).await?;
        if answering.output.json {
            return ui::json(&ShownDecision::of(&pause, &decided));
        }
        outln!(
            "{}: {}, by {}",
            decided.answer.done(),
            say::action(&decided.tool, &decided.arguments),
            text::line(&decided.by)
        );
        if !self.settings.on_servers() && FleetLock::holder(self.settings)?.is_none() {
            let program = self.settings.program();
            errln!(
                "No fleet runs; the run goes on with `{program} up` or `{program} attach {}`.",
                pause.root
            );
        }
        Ok(())
    }
}

/// Something was there before this answer.
fn already(id: &str, after: &StepRecord) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("approval `{id}` is {}", became(after)),
    )
}

/// A span of time for people: the two largest units.
fn time(ms: Millis) -> String {
    let seconds = (ms / 1_000).max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_told_in_two_units() {
        for (ms, expected) in [
            (-5, "0s"),
            (59_999, "59s"),
            (61_000, "1m 1s"),
            (7_260_000, "2h 1m"),
            (200_000_000, "2d 7h"),
        ] {
            assert_eq!(time(ms), expected);
        }
    }

    #[test]
    fn edits_replace_single_arguments_or_all_of_them() {
        let asked = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".into(), "2".into())]);
        let of = |whole: Option<&str>, set: &[&str]| {
            let set = set.iter().map(|pair| (*pair).to_owned()).collect();
            edited(whole, set).map(|edited| {
                let arguments = edited.over(&asked);
                serde_json::to_string(&arguments).unwrap_or_default()
            })
        };
        for (whole, set, expected) in [
            (None, vec!["b=3=4"], r#"{"a":"1","b":"3=4"}"#),
            (Some(r#"{"c": 5}"#), vec![], r#"{"c":"5"}"#),
            (Some("{}"), vec!["d="], r#"{"d":""}"#),
        ] {
            assert_eq!(of(whole, &set).ok().as_deref(), Some(expected));
        }
        assert!(of(Some("[]"), &[]).is_err());
        assert!(of(None, &["=x"]).is_err());
    }
}
