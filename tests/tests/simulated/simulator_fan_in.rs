//! Fan-in by the shipped handlers, under any order of completions, repeats, batches, missing
//! subagents, failures, late results, deaths in the middle, and deadlines at any place among them.

use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::{CompletionStatus, JoinCause};
use agentfleet_tests::directed::Stage;
use agentfleet_tests::queues::Role::{Deadlines, FanIn, Orchestrator};
use agentfleet_tests::scenario::{Scenario, Trouble};
use agentfleet_tests::sim::Engine;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// These completions come together; those that are not there are passed over.
    Completions(Vec<usize>),
    /// An aggregator takes this completion, goes on for so many steps, and dies.
    Death(usize, usize),
    /// The wait is over.
    Deadline,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => proptest::collection::vec(0usize..8, 1..4).prop_map(Event::Completions),
        2 => (0usize..8, 0usize..24).prop_map(|(child, steps)| Event::Death(child, steps)),
        1 => Just(Event::Deadline),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Child {
    Answers,
    Fails,
    /// Ends only after everything else.
    Late,
}

fn child() -> impl Strategy<Value = Child> {
    prop_oneof![4 => Just(Child::Answers), 2 => Just(Child::Fails), 1 => Just(Child::Late)]
}

fn policy() -> impl Strategy<Value = JoinPolicy> {
    prop_oneof![
        Just(JoinPolicy::All),
        (1u32..5).prop_map(JoinPolicy::AtLeast)
    ]
}

fn engine() -> impl Strategy<Value = Engine> {
    prop_oneof![
        Just(Engine::DISTRIBUTED),
        Just(Engine::MIXED),
        Just(Engine::EMBEDDED)
    ]
}

/// Plays the events, and returns the stage with the children that the last aggregation which came
/// to its end could see.
fn play(
    children: &[Child],
    policy: JoinPolicy,
    engine: Engine,
    events: &[Event],
) -> (Stage, BTreeSet<usize>) {
    let mut scenario = Scenario::new().supervisor("r0", children.len());
    scenario.policy = policy;
    for (n, child) in children.iter().enumerate() {
        if *child == Child::Fails {
            scenario = scenario.trouble(&format!("r0.{n}"), Trouble::Refused);
        }
    }
    let mut stage = Stage::asked(scenario, engine);
    stage.work(Orchestrator, "r0 0");
    for (n, child) in children.iter().enumerate() {
        if *child != Child::Late {
            stage.work(Orchestrator, &format!("r0.{n} 0"));
        }
    }
    let mut seen = BTreeSet::new();
    for event in events {
        let ended = match event {
            Event::Completions(which) => {
                let mut batch: Vec<String> = Vec::new();
                for n in which {
                    let about = format!("r0.{n} 0 completion");
                    if stage.has(FanIn, &about) && !batch.contains(&about) {
                        // It comes again later, as anything may.
                        stage.repeat(FanIn, &about);
                        batch.push(about);
                    }
                }
                let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
                if !batch.is_empty() {
                    let task = stage.give_together(FanIn, 0, &batch);
                    stage.finish(task);
                }
                !batch.is_empty()
            }
            Event::Death(n, steps) => {
                let about = format!("r0.{n} 0 completion");
                stage.has(FanIn, &about) && {
                    let task = stage.give(FanIn, 1, &about);
                    stage.go_on_and_die(task, *steps)
                }
            }
            Event::Deadline => {
                stage.pass(Duration::from_secs(60));
                if stage.has(Deadlines, "r0 0 join") {
                    stage.repeat(Deadlines, "r0 0 join");
                    stage.work(Deadlines, "r0 0 join");
                }
                true
            }
        };
        if ended {
            let counted = |n: &usize| stage.is_counted(&format!("r0.{n}"));
            seen = (0..children.len()).filter(counted).collect();
        }
        stage.hold();
    }
    (stage, seen)
}

#[test]
fn at_the_deadline_a_sibling_counts_that_ended_though_the_graph_knows_nothing_of_it() {
    for engine in [Engine::DISTRIBUTED, Engine::MIXED, Engine::EMBEDDED] {
        let mut stage = Stage::asked(Scenario::new().supervisor("r0", 3), engine);
        stage.work(Orchestrator, "r0 0");
        for n in 0..2 {
            stage.work(Orchestrator, &format!("r0.{n} 0"));
        }
        stage.pass(Duration::from_secs(60));
        stage.work(Deadlines, "r0 0 join");
        let verdict = stage.verdict("r0", 0).expect("a verdict");
        let members: Vec<_> = verdict
            .members
            .iter()
            .map(|m| (m.index, m.status))
            .collect();
        let answered = CompletionStatus::Answered;
        assert_eq!(members, [(0, answered), (1, answered)], "{}", stage.story());
        assert_eq!(verdict.missing.len(), 1);
        stage.end();
        assert_eq!(stage.count("syntheses"), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_verdict_names_every_child_once_and_falls_when_its_rule_is_met(
        children in proptest::collection::vec(child(), 2..8),
        policy in policy(),
        engine in engine(),
        events in proptest::collection::vec(event(), 0..14),
    ) {
        let (mut stage, seen) = play(&children, policy, engine, &events);
        let verdict = stage.verdict("r0", 0);
        let deadline = events.iter().any(|event| matches!(event, Event::Deadline));
        let answered = seen.iter().filter(|n| children[**n] == Child::Answers).count();
        let enough = policy.enough(children.len()).is_some_and(|enough| answered >= enough);
        if seen.len() == children.len() || enough || deadline {
            prop_assert!(verdict.is_some(), "seen {:?}\n{}", seen, stage.story());
        }
        if let Some(verdict) = &verdict {
            prop_assert_eq!(verdict.members.len() + verdict.missing.len(), children.len());
            for member in &verdict.members {
                let expected = match children[member.index as usize] {
                    Child::Answers => CompletionStatus::Answered,
                    Child::Fails => CompletionStatus::Error,
                    Child::Late => CompletionStatus::Cancelled,
                };
                prop_assert_eq!(member.status, expected);
            }
            if verdict.cause == JoinCause::Deadline {
                prop_assert!(deadline);
            }
        }
        // The rest: late subagents, the deadline, the synthesis, every invariant.
        stage.end();
        let end = stage.verdict("r0", 0).expect("a verdict in the end");
        if let Some(verdict) = verdict {
            prop_assert_eq!(end, verdict, "a verdict never changes");
        }
        prop_assert_eq!(stage.count("syntheses"), 1);
    }
}
