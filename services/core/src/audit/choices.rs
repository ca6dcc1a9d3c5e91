//! Every recorded choice against its options, and the options against the config of the run.

use super::{About, Finding};
use crate::{conversation, history, patterns, routing, specialists, task_types, tools};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{Activity, DecidedBy, Decision, Iterated, StepRecord};
use agentfleet_schema::{AgentRequest, keys};
use std::collections::BTreeSet;

/// What is wrong with the choices of a step. `set` is the config at the version of the record, and
/// `asked` the request that the step answered, where it is known: it says which tools were visible.
pub fn choices(record: &StepRecord, asked: Option<&AgentRequest>, set: &Snapshot) -> Vec<Finding> {
    let mut check = Check {
        key: keys::outcome(&record.session, record.step),
        version: record.config_version,
        is_subagent: record.parent.is_some(),
        set,
        findings: Vec::new(),
    };
    let task_type = record.routed.as_ref().map(|r| r.task_type.as_str());
    let routed = record.routed.iter().flat_map(|routed| &routed.decisions);
    let asked = asked.map(|asked| {
        let mut asked = asked.clone();
        task_types::settle(&mut asked, set);
        if conversation::remembers(&asked) {
            conversation::carry(&mut asked, record.worked.carried.clone());
        }
        asked
    });
    let asked = asked.as_ref();
    for decision in routed.chain(&record.decisions) {
        check.decision(decision, task_type.unwrap_or_default(), asked);
    }
    if let Some(routed) = &record.routed {
        for (subject, chosen) in [
            ("task-type", &routed.task_type),
            ("pattern", &routed.pattern),
        ] {
            let decision = routed.decisions.iter().find(|d| d.subject == subject);
            if let Some(decision) = decision
                && decision.chosen != *chosen
            {
                check.found(
                    subject,
                    format!("`{}` was chosen, and `{chosen}` was taken", decision.chosen),
                );
            }
        }
    }
    let called = match &record.activity {
        Activity::Iterated(it) => Some(it),
        Activity::Executed(executed) => executed.call.as_ref(),
        Activity::None
        | Activity::FannedOut(_)
        | Activity::Planned(_)
        | Activity::Asked(_)
        | Activity::Decided(_)
        | Activity::Concluded(_) => None,
    };
    if let Some(it) = called {
        let worked = asked.map(|asked| {
            let mut worked = match &record.worked.fleet {
                Some(fleet) => history::as_worked(asked, set, fleet),
                None => asked.clone(),
            };
            engage(&mut worked, &record.activity);
            worked
        });
        check.tool(it, worked.as_ref());
    }
    check.findings
}

/// Notes whose step of a plan it was: where no subagent could work on it, the session did so with the tools of
/// that specialist.
fn engage(request: &mut AgentRequest, activity: &Activity) {
    if let Activity::Executed(executed) = activity
        && let Some(result) = executed.steps.first()
        && let Some(plan) = patterns::current_plan(request)
        && let Some(step) = plan.get(result.index as usize)
        && !step.specialist.is_empty()
    {
        request.control.specialist = step.specialist.clone();
    }
}

struct Check<'a> {
    key: String,
    version: u64,
    is_subagent: bool,
    set: &'a Snapshot,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn found(&mut self, subject: &str, problem: impl Into<String>) {
        let what = format!("{}, decision `{subject}`", self.key);
        self.findings
            .push(Finding::new(About::Choice, what, problem));
    }

    fn decision(&mut self, decision: &Decision, task_type: &str, asked: Option<&AgentRequest>) {
        let subject = &decision.subject;
        if !decision.options.contains(&decision.chosen) {
            self.found(
                subject,
                format!(
                    "`{}` was chosen, and is none of its options",
                    decision.chosen
                ),
            );
        }
        if decision.decided_by == DecidedBy::OnlyOption && decision.options.len() != 1 {
            self.found(
                subject,
                format!(
                    "is told as the only option, and there were {}",
                    decision.options.len()
                ),
            );
        }
        match subject.as_str() {
            "task-type" => self.task_types(decision),
            "pattern" => self.patterns(decision, task_type),
            "intent" => {
                let general = patterns::GENERAL_CHAT;
                self.configured(decision, "intent", patterns::intents(self.set), general);
            }
            "specialist" => {
                let known: Vec<String> = self.set.specialists.keys().cloned().collect();
                self.configured(decision, "specialist", known, specialists::GENERAL);
            }
            subject => {
                if let Some(asked) = asked {
                    self.assigned(subject, decision, asked);
                }
            }
        }
    }

    /// What a fan-out settled for one goal.
    fn assigned(&mut self, subject: &str, decision: &Decision, asked: &AgentRequest) {
        let is = |kind: &str| {
            let number = subject.strip_prefix(kind);
            number.is_some_and(|number| number.starts_with('-'))
        };
        if is(patterns::PATTERN) {
            self.patterns(decision, &asked.task_type);
        } else if is(patterns::GROUP) {
            let mut open = tools::groups(asked, self.set);
            // Several groups together, or none, are told as one option.
            open.extend([patterns::ALL.to_owned(), decision.chosen.clone()]);
            let had: BTreeSet<&str> = decision.options.iter().map(String::as_str).collect();
            let were = open.iter().map(String::as_str).collect();
            self.same(subject, "tool group", &had, &were);
        }
    }

    /// Differences between recorded options and those that the config had.
    fn same(&mut self, subject: &str, what: &str, had: &BTreeSet<&str>, were: &BTreeSet<&str>) {
        for option in had.difference(were) {
            self.found(
                subject,
                format!(
                    "has the option `{option}`, and config version {} has no such {what} open to it",
                    self.version
                ),
            );
        }
        for option in were.difference(had) {
            self.found(
                subject,
                format!(
                    "lacks the option `{option}`, which config version {} has as {what}",
                    self.version
                ),
            );
        }
    }

    /// What a message is dispatched by: `general` is always there to fall back on, and those who have no tool
    /// here are named in what narrowed the options.
    fn configured(&mut self, decision: &Decision, what: &str, known: Vec<String>, general: &str) {
        let had: BTreeSet<&str> = decision.options.iter().map(String::as_str).collect();
        let mut were: BTreeSet<&str> = known
            .iter()
            .map(String::as_str)
            .filter(|name| !decision.narrowed_by.contains(&format!("`{name}`: ")))
            .collect();
        if had.contains(general) {
            were.insert(general);
        }
        self.same(what, what, &had, &were);
    }

    fn task_types(&mut self, decision: &Decision) {
        let had: BTreeSet<&str> = decision.options.iter().map(String::as_str).collect();
        let mut were: BTreeSet<&str> = self.set.task_types.keys().map(String::as_str).collect();
        if were.is_empty() || decision.decided_by == DecidedBy::Fallback {
            were.insert(routing::GENERAL);
        }
        self.same("task-type", "task type", &had, &were);
    }

    /// What may be left out of the patterns (for want of depth, or of a worker that knows them) is
    /// named in what narrowed them.
    fn patterns(&mut self, decision: &Decision, task_type: &str) {
        let set = self.set;
        let had: BTreeSet<&str> = decision.options.iter().map(String::as_str).collect();
        let configured: BTreeSet<&str> = set.patterns.keys().map(String::as_str).collect();
        let of_task_type = decision.narrowed_by.starts_with(routing::VALID);
        let of_fan_out = self.is_subagent || decision.subject != "pattern";
        if (of_fan_out || decision.decided_by == DecidedBy::Caller) && !of_task_type {
            // A caller may name what no item is about, if workers know it.
            let open: BTreeSet<&str> = configured
                .into_iter()
                .chain([decision.chosen.as_str()])
                .collect();
            let known: BTreeSet<&str> = open.intersection(&had).copied().collect();
            self.same("pattern", "pattern", &had, &known);
            return;
        }
        let listed = set
            .task_types
            .get(routing::or_general(task_type))
            .map(|t| &t.valid_patterns);
        let listed = listed.filter(|listed| !listed.is_empty());
        let valid: BTreeSet<&str> = match listed {
            Some(listed) => listed.iter().map(String::as_str).collect(),
            None => configured.clone(),
        };
        let mut open: BTreeSet<&str> = valid
            .into_iter()
            .filter(|name| configured.contains(name))
            .filter(|name| !decision.narrowed_by.contains(&format!("`{name}`: ")))
            .collect();
        if open.is_empty() && decision.decided_by == DecidedBy::Fallback {
            open.insert(decision.chosen.as_str());
        }
        if of_fan_out || decision.decided_by == DecidedBy::Caller {
            // A fan-out may always choose it for a subagent.
            open.insert(patterns::REACT);
        }
        self.same(&decision.subject, "pattern", &had, &open);
    }

    fn tool(&mut self, it: &Iterated, asked: Option<&AgentRequest>) {
        let subject = format!("tool of iteration {}", it.n);
        let had: BTreeSet<&str> = it.candidates.iter().map(String::as_str).collect();
        if !it.is_error && !had.contains(it.action.as_str()) {
            self.found(
                &subject,
                format!("`{}` was called, and was no candidate", it.action),
            );
        }
        let set = self.set;
        let mut were: BTreeSet<&str> = match asked {
            Some(request) => {
                let visible = tools::visible(request, set);
                visible.into_iter().map(|t| t.name.as_str()).collect()
            }
            None => {
                let all: BTreeSet<&str> = set.tools.values().map(|t| t.name.as_str()).collect();
                all.intersection(&had).copied().collect()
            }
        };
        if it
            .critique
            .as_ref()
            .is_some_and(|critique| critique.sent_back)
            && it.action == patterns::ANSWER
        {
            // An answer that was sent back: giving one is open to every iteration.
            were.insert(patterns::ANSWER);
        }
        self.same(&subject, "tool", &had, &were);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::config::{AgentPattern, AgentTaskType, ToolItem};
    use agentfleet_schema::records::Routed;

    fn set() -> Snapshot {
        let mut set = Snapshot {
            version: 3,
            ..Snapshot::default()
        };
        for name in ["react", "supervisor", "unheard-of"] {
            set.patterns.insert(name.into(), AgentPattern::default());
        }
        for (name, valid) in [("general", vec![]), ("risk", vec!["supervisor".into()])] {
            let task_type = AgentTaskType {
                valid_patterns: valid,
                ..AgentTaskType::default()
            };
            set.task_types.insert(name.into(), task_type);
        }
        for (name, group) in [("search", "default"), ("pay", "finance")] {
            let tool = ToolItem {
                name: name.into(),
                group: vec![group.into()],
                applicable_states: vec!["*".into()],
                ..ToolItem::default()
            };
            set.tools.insert(name.into(), tool);
        }
        set
    }

    fn texts(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn routed(task_type: &str, patterns: &str, narrowed_by: &str, chosen: &str) -> StepRecord {
        StepRecord {
            config_version: 3,
            routed: Some(Routed {
                task_type: task_type.into(),
                pattern: chosen.into(),
                decisions: vec![
                    Decision {
                        subject: "task-type".into(),
                        options: texts("general risk"),
                        chosen: task_type.into(),
                        ..Decision::default()
                    },
                    Decision {
                        subject: "pattern".into(),
                        options: texts(patterns),
                        narrowed_by: narrowed_by.into(),
                        chosen: chosen.into(),
                        ..Decision::default()
                    },
                ],
                ..Routed::default()
            }),
            ..StepRecord::default()
        }
    }

    fn problems(record: &StepRecord, asked: Option<&AgentRequest>) -> Vec<String> {
        let found = choices(record, asked, &set());
        found.into_iter().map(|one| one.problem).collect()
    }

    const LEFT_OUT: &str = "the valid patterns, without `unheard-of`: not implemented";

    #[test]
    fn routing_is_held_against_the_config_of_its_version() {
        for (record, expected) in [
            (routed("general", "react supervisor", LEFT_OUT, "react"), ""),
            (routed("risk", "supervisor", "", "supervisor"), ""),
            (
                routed("risk", "supervisor react", "", "supervisor"),
                "has the option `react`",
            ),
            (
                routed("general", "react", LEFT_OUT, "react"),
                "lacks the option `supervisor`",
            ),
            (
                routed("general", "react supervisor", "", "react"),
                "lacks the option `unheard-of`",
            ),
            (
                routed("general", "react supervisor", LEFT_OUT, "debate"),
                "`debate` was chosen, and is none",
            ),
            (
                routed("gone", "react supervisor", LEFT_OUT, "react"),
                "`gone` was chosen, and is none",
            ),
        ] {
            let found = problems(&record, None);
            if expected.is_empty() {
                assert_eq!(found, Vec::<String>::new());
            } else {
                assert!(found.iter().any(|one| one.contains(expected)), "{found:?}");
            }
        }
        // What a fan-out chose for a subagent is held against the task type; what a caller names is not.
        for (narrowed_by, patterns, expected) in [
            (
                "the patterns this worker implements",
                "debate react supervisor unheard-of",
                "",
            ),
            (
                "the valid patterns of task type `risk`",
                "supervisor react",
                "",
            ),
            (
                "the valid patterns of task type `risk`",
                "supervisor react debate",
                "has the option `debate`",
            ),
            (
                "the valid patterns of task type `risk`",
                "react",
                "lacks the option `supervisor`",
            ),
        ] {
            let chosen = patterns.split(' ').next().unwrap_or_default();
            let mut named = routed("risk", patterns, narrowed_by, chosen);
            if let Some(routed) = &mut named.routed {
                routed.decisions[1].decided_by = DecidedBy::Caller;
            }
            let found = problems(&named, None);
            match expected {
                "" => assert_eq!(found, Vec::<String>::new(), "{patterns}"),
                expected => assert!(found.iter().any(|one| one.contains(expected)), "{found:?}"),
            }
        }
        let mut taken = routed("risk", "supervisor", "", "supervisor");
        if let Some(routed) = &mut taken.routed {
            routed.pattern = "react".into();
        }
        let found = problems(&taken, None);
        assert_eq!(found, ["`supervisor` was chosen, and `react` was taken"]);
    }

    #[test]
    fn what_a_fan_out_settled_for_a_goal_is_held_against_what_its_parent_had() {
        let asked = AgentRequest {
            task_type: "risk".into(),
            group: Some(texts("*")),
            ..AgentRequest::default()
        };
        for (subject, options, chosen, expected) in [
            ("subagent-pattern-1", "supervisor react", "react", ""),
            (
                "subagent-pattern-1",
                "supervisor react debate",
                "react",
                "has the option `debate`",
            ),
            (
                "subagent-pattern-12",
                "react",
                "react",
                "lacks the option `supervisor`",
            ),
            (
                "subagent-group-1",
                "default finance",
                "finance",
                "lacks the option `all of its parent's`",
            ),
            (
                "subagent-group-1",
                "default finance secret",
                "finance",
                "has the option `secret`",
            ),
        ] {
            let record = StepRecord {
                decisions: vec![Decision {
                    subject: subject.into(),
                    options: texts(options),
                    narrowed_by: format!("{} `risk`", routing::VALID),
                    chosen: chosen.into(),
                    ..Decision::default()
                }],
                ..StepRecord::default()
            };
            let found = problems(&record, Some(&asked));
            if expected.is_empty() {
                assert_eq!(found, Vec::<String>::new());
            } else {
                assert!(found.iter().any(|one| one.contains(expected)), "{found:?}");
            }
        }
    }

    #[test]
    fn a_tool_is_held_against_those_that_its_request_could_see() {
        let called = |action: &str, candidates: &str, is_error: bool| StepRecord {
            config_version: 3,
            activity: Activity::Iterated(Iterated {
                n: 1,
                action: action.into(),
                candidates: texts(candidates),
                is_error,
                ..Iterated::default()
            }),
            ..StepRecord::default()
        };
        let of = |group: Option<&str>| AgentRequest {
            group: group.map(|group| vec![group.to_owned()]),
            ..AgentRequest::default()
        };
        let (default, finance) = (of(None), of(Some("finance")));
        for (record, asked, expected) in [
            (called("search", "search", false), Some(&default), ""),
            (called("pay", "pay", false), Some(&finance), ""),
            (called("guess", "search", true), Some(&default), ""),
            (
                called("pay", "search", false),
                Some(&default),
                "no candidate",
            ),
            (
                called("pay", "pay search", false),
                Some(&default),
                "has the option `pay`",
            ),
            (called("pay", "pay", false), None, ""),
            (called("gone", "gone", false), None, "has the option `gone`"),
            (
                called("__parse_error__", "", true),
                Some(&default),
                "lacks the option `search`",
            ),
        ] {
            let found = problems(&record, asked);
            if expected.is_empty() {
                assert_eq!(found, Vec::<String>::new(), "{record:?}");
            } else {
                assert!(found.iter().any(|one| one.contains(expected)), "{found:?}");
            }
        }
    }
}
