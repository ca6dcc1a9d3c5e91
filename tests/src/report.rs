//! What a storm did and what it found, for people on the screen and for programs as JSON.

use crate::callers::{Asked, Callers, Heard, now};
use crate::evidence::Evidence;
use crate::load::binary;
use agentfleet_schema::Millis;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Something was killed.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    pub what: &'static str,
    pub at: Millis,
    /// When it was there again: started and ready.
    pub back: Millis,
}

impl Kill {
    /// Kills and starts something.
    pub fn and_start(what: &'static str, kill_and_start: impl FnOnce()) -> Self {
        let at = now();
        kill_and_start();
        let back = now();
        Self { what, at, back }
    }
}

/// What kills of one kind did.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    pub kills: usize,
    /// Kills while at least one run was open.
    pub under_load: usize,
    /// The longest time until it was there again.
    pub until_back: Option<Millis>,
    /// The longest time from such a kill until a response of a step recorded after it was heard.
    pub until_step: Option<Millis>,
    /// The longest time until a run ended.
    pub until_end: Option<Millis>,
    /// For each kill under load, how long it took until every run that was open had gone on.
    pub recoveries: Vec<Millis>,
}

impl Kind {
    /// The median and the longest time until every open run had gone on.
    pub fn recovery(&self) -> (Option<Millis>, Option<Millis>) {
        let mut sorted = self.recoveries.clone();
        sorted.sort_unstable();
        (
            sorted.get(sorted.len() / 2).copied(),
            sorted.last().copied(),
        )
    }
}

#[derive(Debug)]
pub struct Report {
    pub seed: String,
    pub kinds: BTreeMap<&'static str, Kind>,
    pub requests: usize,
    pub responses: usize,
    pub repeats: usize,
    pub repeated_ends: usize,
    pub redelivered: usize,
    /// Requests whose caller was told no end.
    pub lost: Vec<Asked>,
    /// Requests whose caller was told several ends.
    pub duplicated: Vec<Asked>,
    /// Requests that ended with an error.
    pub failed: Vec<String>,
    pub calls: usize,
    pub calls_started_twice: usize,
    pub evidence: Evidence,
    pub traces_validated: usize,
    /// From the last kill.
    pub last_end_ms: Option<Millis>,
}

impl Report {
    pub fn new(
        seed: String,
        kills: &[Kill],
        callers: &Callers,
        starts: &crate::load::Starts,
        evidence: Evidence,
    ) -> Self {
        let (asked, heard) = (callers.asked(), callers.heard());
        let last_kill = kills.last().map(|kill| kill.at);
        let ends = heard.progress.iter().filter(|one| one.ends);
        let starts = starts.lock().unwrap();
        let having = |wanted: &dyn Fn(&Asked) -> bool| {
            asked.iter().filter(|one| wanted(one)).cloned().collect()
        };
        Self {
            seed,
            kinds: kinds(kills, &asked, &heard),
            requests: asked.len(),
            responses: heard.responses,
            repeats: heard.repeats,
            repeated_ends: heard.ends.values().map(|ends| ends.len() - 1).sum(),
            redelivered: heard.redelivered,
            lost: having(&|one| heard.end(one).is_none()),
            duplicated: having(&|one| heard.distinct_ends(one).len() > 1),
            failed: heard
                .ends
                .iter()
                .flat_map(|(root, ends)| {
                    ends.iter()
                        .filter_map(move |end| Some(format!("{root}: {}", end.error.as_ref()?)))
                })
                .collect(),
            calls: starts.len(),
            calls_started_twice: starts.values().filter(|count| **count > 1).count(),
            evidence,
            traces_validated: 0,
            last_end_ms: last_kill
                .and_then(|kill| ends.map(|end| (end.heard_at - kill).max(0)).max()),
        }
    }

    /// Writes it as JSON beside what was built, and returns where.
    pub fn write(&self) -> PathBuf {
        let file = binary()
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("storm.json");
        std::fs::write(&file, format!("{:#}\n", self.json())).unwrap();
        file
    }

    fn json(&self) -> Value {
        let kinds: serde_json::Map<String, Value> = self.kinds.iter().map(|(what, kind)| {
            let (median, longest) = kind.recovery();
            let told = json!({
                "median_until_every_run_went_on_ms": median,
                "longest_until_every_run_went_on_ms": longest,
                "kills": kind.kills, "under_load": kind.under_load,
                    "longest_until_back_ms": kind.until_back,
                "longest_until_step_ms": kind.until_step, "longest_until_end_ms": kind.until_end,
            });
            ((*what).to_owned(), told)
        }).collect();
        json!({
            "seed": self.seed, "kills": kinds, "requests": self.requests,
            "responses": self.responses, "repeats": self.repeats,
            "repeated_ends": self.repeated_ends, "redelivered": self.redelivered,
            "lost": self.lost.len(), "duplicated": self.duplicated.len(), "failed": self.failed.len(),
            "stuck": self.stuck(),
            "calls": self.calls, "calls_started_twice": self.calls_started_twice,
            "steps": self.evidence.steps, "steps_worked_again": self.evidence.worked_again,
            "fan_outs": self.evidence.fan_outs, "fan_outs_of_eight": self.evidence.full_fan_outs,
            "fan_outs_without_one_synthesis": self.evidence.syntheses.len(),
            "statements": self.evidence.statements, "statements_missing": self.evidence.untold.len(),
            "steps_replayed": self.evidence.replayed, "runs_verified": self.evidence.verified,
            "findings": self.evidence.diverging.len(),
            "dead_letters": self.evidence.parked.len(), "traces_validated": self.traces_validated,
            "last_kill_to_last_end_ms": self.last_end_ms,
        })
    }

    /// Steps recorded and not published, and fan-outs that did not get all their answers.
    fn stuck(&self) -> usize {
        self.evidence.unpublished.len() + self.evidence.incomplete.len()
    }

    /// Fails if anything was lost, stuck, failed, or done twice, and says all of it: what is stuck tells
    /// why something has no end.
    pub fn check(&self) {
        let mut broken = self.evidence.broken();
        let mut note = |what: &str, found: &dyn fmt::Debug, is_so: bool| {
            if is_so {
                broken.push(format!("{what}: {found:?}"));
            }
        };
        note("OR-3: no end", &self.lost, !self.lost.is_empty());
        let duplicated = &self.duplicated;
        note("OR-3: several ends", duplicated, !duplicated.is_empty());
        note("ended in errors", &self.failed, !self.failed.is_empty());
        let twice = self.calls_started_twice;
        note("TL-1: calls started twice", &twice, twice > 0);
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}

/// How long each kind of kill held up the fleet, seen by its callers.
pub fn kinds(kills: &[Kill], asked: &[Asked], heard: &Heard) -> BTreeMap<&'static str, Kind> {
    let mut kinds = BTreeMap::<_, Kind>::new();
    for kill in kills {
        let kind = kinds.entry(kill.what).or_default();
        kind.kills += 1;
        let open = asked.iter().filter(|one| {
            one.at <= kill.at && heard.end(one).is_some_and(|end| end.published_at > kill.at)
        });
        let went_on = open.filter_map(|one| {
            let root = heard.root(one)?;
            let of_run = heard.progress.iter().filter(|step| step.root == root);
            let after = of_run.filter(|step| step.published_at > kill.at);
            after.map(|step| step.published_at - kill.at).min()
        });
        let Some(recovered) = went_on.max() else {
            continue;
        };
        kind.recoveries.push(recovered);
        kind.under_load += 1;
        kind.until_back = kind.until_back.max(Some(kill.back - kill.at));
        let after = |ends: bool| {
            let since = heard
                .progress
                .iter()
                .filter(move |one| one.published_at > kill.at && (one.ends || !ends));
            since.map(|one| one.heard_at - kill.at).min()
        };
        kind.until_step = kind.until_step.max(after(false));
        kind.until_end = kind.until_end.max(after(true));
    }
    kinds
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |millis: Option<Millis>| {
            millis.map_or_else(
                || "-".to_owned(),
                |ms| format!("{:.1} s", ms as f64 / 1000.0),
            )
        };
        writeln!(f, "{}", self.seed)?;
        if self.kinds.is_empty() {
            writeln!(f, "nothing was killed")?;
        }
        writeln!(
            f,
            "{:<14}{:>7}{:>12}   longest until {:>9}{:>10}{:>10}   every run: {:>8}{:>9}",
            "killed", "times", "under load", "it is back", "a step", "an end", "median", "longest"
        )?;
        for (what, kind) in &self.kinds {
            let back = seconds(kind.until_back);
            let (step, end) = (seconds(kind.until_step), seconds(kind.until_end));
            writeln!(
                f,
                "{what:<14}{:>7}{:>12}{back:>27}{step:>10}{end:>10}{:>22}{:>9}",
                kind.kills,
                kind.under_load,
                seconds(kind.recovery().0),
                seconds(kind.recovery().1)
            )?;
        }
        let evidence = &self.evidence;
        writeln!(
            f,
            "requests        {}: {} lost, {} with several ends, {} failed, {} stuck",
            self.requests,
            self.lost.len(),
            self.duplicated.len(),
            self.failed.len(),
            self.stuck()
        )?;
        writeln!(
            f,
            "responses       {}: {} repeats, {} of them of an end; {} delivered again",
            self.responses, self.repeats, self.repeated_ends, self.redelivered
        )?;
        writeln!(
            f,
            "calls           {}: {} started twice",
            self.calls, self.calls_started_twice
        )?;
        writeln!(
            f,
            "steps           {}: {} committed by a later attempt, {} dead letters",
            evidence.steps,
            evidence.worked_again,
            evidence.parked.len()
        )?;
        writeln!(
            f,
            "fan-outs        {}, {} of eight: {} without exactly one synthesis",
            evidence.fan_outs,
            evidence.full_fan_outs,
            evidence.syntheses.len()
        )?;
        writeln!(
            f,
            "graph           {} statements, {} missing; {} traces validated",
            evidence.statements,
            evidence.untold.len(),
            self.traces_validated
        )?;
        writeln!(
            f,
            "records         {} steps replayed, {} runs verified: {} findings",
            evidence.replayed,
            evidence.verified,
            evidence.diverging.len()
        )?;
        write!(f, "last kill to last end: {}", seconds(self.last_end_ms))
    }
}
