//! The model of a trace, from whole, partial, shuffled and broken graphs.

use crate::sample;
use agentfleet_console::style::Look;
use agentfleet_console::trace::model::{State, Step};
use agentfleet_console::trace::{Format, Trace};
use agentfleet_schema::vocabulary::tg;
use agentfleet_schema::{SessionId, Term, Triple, uris};
use std::cell::RefCell;

fn kinds(trace: &Trace, at: usize) -> Vec<&'static str> {
    trace.sessions[at]
        .steps
        .iter()
        .map(|step| match step {
            Step::Decision(_) => "decision",
            Step::Iteration(_) => "iteration",
            Step::FanOut(_) => "fan-out",
            Step::Synthesis(_) => "synthesis",
            Step::Note(_) => "note",
        })
        .collect()
}

#[test]
fn a_supervisor_run_is_read_whole() {
    let run = sample::risk();
    let trace = Trace::from_triples(&run.triples);
    let root = trace.session(&run.root).unwrap();
    assert!(!trace.is_running());
    assert_eq!(trace.roots().count(), 1);
    assert_eq!(
        trace.sessions[0].id, run.root,
        "a parent comes before its children"
    );
    assert_eq!(
        trace.sessions.iter().map(|s| s.depth).collect::<Vec<_>>(),
        [0, 1, 1, 1, 2, 2, 1]
    );
    assert_eq!(root.children.len(), 4);
    // To fan out, and a pattern for each of the four.
    assert_eq!(kinds(&trace, 0)[..5], ["decision"; 5]);
    assert_eq!(kinds(&trace, 0)[5..], ["fan-out", "synthesis", "decision"]);
    assert_eq!(kinds(&trace, 1), ["iteration", "iteration"]);

    let routing = root.routing.as_ref().unwrap();
    assert_eq!(routing.pattern.as_deref(), Some("supervisor"));
    assert_eq!(routing.task_type.as_deref(), Some("risk-assessment"));
    let subjects: Vec<_> = routing
        .decisions
        .iter()
        .map(|d| d.subject.as_str())
        .collect();
    assert_eq!(subjects, ["task-type", "pattern"]);
    let pattern = &routing.decisions[1];
    assert_eq!(pattern.options, ["react", "supervisor"]);
    assert!(
        pattern
            .narrowed_by
            .as_ref()
            .unwrap()
            .contains("tree-of-thoughts")
    );
    assert_eq!(
        pattern.signal.as_deref(),
        Some("scope: four independent dimensions")
    );
    assert_eq!(pattern.decided_by.as_deref(), Some("model"));
    let rationale = run.text(pattern.rationale.as_ref().unwrap()).unwrap();
    assert!(rationale.contains("in parallel"));

    let fan_out = root.fan_outs().next().unwrap();
    assert_eq!(fan_out.expected, Some(4));
    let by_goal: Vec<_> = fan_out
        .goals
        .iter()
        .map(|goal| goal.session.clone().unwrap())
        .collect();
    assert_eq!(by_goal, root.children, "goals and sessions belong together");

    let financial = &trace.sessions[1];
    let fetch = financial.iterations().nth(1).unwrap();
    assert_eq!((fetch.number, fetch.action.as_str()), (Some(2), "fetch"));
    assert!(fetch.arguments["uri"].ends_with("balance-sheet-2025.csv"));
    assert_eq!(fetch.candidates, ["fetch", "search"]);
    let seen = fetch.observation.as_ref().unwrap();
    assert_eq!(seen.tool_ms, Some(17));
    assert!(
        run.text(seen.document.as_ref().unwrap())
            .unwrap()
            .starts_with("year;revenue")
    );
    assert_eq!(fetch.work.model.as_deref(), Some("scripted-1"));
    let titles: Vec<_> = financial
        .sources()
        .iter()
        .map(|s| s.name().to_owned())
        .collect();
    assert_eq!(titles[0], "Annual report 2025");

    let legal = &trace.sessions[2];
    let wrong = legal.iterations().next().unwrap();
    assert!(
        wrong
            .observation
            .as_ref()
            .unwrap()
            .error
            .as_ref()
            .unwrap()
            .contains("unknown tool")
    );
    assert_eq!(wrong.work.attempt, Some(2));

    let late = trace.sessions.last().unwrap();
    assert!(late.completion.as_ref().unwrap().late);
    let synthesis = root.steps.iter().find_map(|step| match step {
        Step::Synthesis(synthesis) => Some(synthesis),
        _ => None,
    });
    let synthesis = synthesis.unwrap();
    assert_eq!(synthesis.cause.as_deref(), Some("deadline"));
    assert_eq!(synthesis.missing, std::slice::from_ref(&late.id));
    assert_eq!(synthesis.derived_from.len(), 3);

    let end = root.conclusion.as_ref().unwrap();
    assert!(end.answered && end.partial);
    let sure: Vec<_> = end
        .confidence
        .iter()
        .map(|c| (c.part.as_str(), c.value))
        .collect();
    assert_eq!(
        sure,
        [
            ("Financial health", Some(0.8)),
            ("Legal exposure", Some(0.65)),
            ("Reputation", Some(0.55))
        ]
    );
}

#[test]
fn what_a_subagent_spent_is_what_its_own_record_says() {
    for run in [sample::risk(), sample::hostile()] {
        let trace = Trace::from_triples(&run.triples);
        let mut checked = 0;
        for session in &trace.sessions {
            // The record counts a missing child as fully spent; the trace counts what was told.
            let told = session
                .completion
                .as_ref()
                .and_then(|completion| completion.tokens);
            if let Some(told) = told {
                assert_eq!(session.spent_in_tree.tokens(), told, "{}", session.title());
                checked += 1;
            }
        }
        assert!(checked >= 4);
        let children: u64 = trace.sessions.iter().map(|s| s.spent.tokens()).sum();
        assert_eq!(trace.totals().tokens(), children);
    }
}

#[test]
fn rounds_come_in_their_order_with_their_own_subagents() {
    let run = sample::hostile();
    let trace = Trace::from_triples(&run.triples);
    assert_eq!(
        kinds(&trace, 0),
        [
            "decision",
            "decision",
            "decision",
            "fan-out",
            "synthesis",
            "decision",
            "decision",
            "decision",
            "fan-out",
            "synthesis"
        ]
    );
    let rounds: Vec<_> = trace.sessions[0].fan_outs().map(|f| f.round).collect();
    assert_eq!(rounds, [Some(1), Some(2)]);
    let children = trace.sessions[0]
        .fan_outs()
        .flat_map(|f| &f.goals)
        .map(|g| g.session.clone());
    assert_eq!(
        children.flatten().collect::<Vec<_>>(),
        trace.sessions[0].children
    );
}

#[test]
fn a_run_can_be_read_after_every_step_it_takes() {
    let run = sample::risk();
    let mut ended = 0;
    for length in 0..=run.triples.len() {
        let trace = Trace::from_triples(&run.triples[..length]);
        if !trace.is_running() {
            ended += usize::from(length > 0);
        }
        for format in Format::ALL {
            // Every fifth is enough: the cut falls into every kind of record.
            if length % 5 == 0 {
                assert!(
                    trace
                        .render(format, Look::plain(80), &|_| None)
                        .ends_with('\n')
                );
            }
        }
    }
    assert!(ended < run.triples.len() / 4, "a run that goes on says so");
    let trace = Trace::from_triples(&sample::running().triples);
    assert!(trace.is_running());
    let states: Vec<_> = trace.sessions.iter().map(|s| s.state).collect();
    assert!(
        states.contains(&State::Running) && states.contains(&State::Ended),
        "{states:?}"
    );
    let tree = trace.render(Format::Tree, Look::plain(80), &|_| None);
    assert!(tree.contains("Still running"), "{tree}");
}

#[test]
fn a_goal_nobody_works_on_yet_is_there_and_says_so() {
    let run = sample::risk();
    let root = uris::session(&run.root);
    let early: Vec<Triple> = run
        .triples
        .iter()
        .filter(|t| t.s.iri.starts_with(&root))
        .cloned()
        .collect();
    let tree = Trace::from_triples(&early).render(Format::Tree, Look::plain(100), &|_| None);
    assert_eq!(tree.matches("no step done yet").count(), 4, "{tree}");
}

#[test]
fn order_and_repeats_of_statements_do_not_matter() {
    let run = sample::risk();
    let trace = Trace::from_triples(&run.triples);
    let mut other = run.triples.clone();
    other.reverse();
    other.extend(run.triples.iter().cloned().map(|t| Triple { g: None, ..t }));
    assert_eq!(Trace::from_triples(&other).sessions, trace.sessions);
}

#[test]
fn sessions_above_themselves_are_each_shown_once() {
    let above = |child: &str, parent: &str| {
        let uri = uris::session(&SessionId::new(child));
        [
            Triple::new(&uri, tg::PARENT_SESSION_ID, Term::text(parent)),
            Triple::new(&uri, tg::ROOT_SESSION_ID, Term::text("r")),
        ]
    };
    let circle: Vec<Triple> = [
        above("a", "b"),
        above("b", "c"),
        above("c", "a"),
        above("self", "self"),
    ]
    .concat();
    let trace = Trace::from_triples(&circle);
    let mut ids: Vec<_> = trace.sessions.iter().map(|s| s.id.to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["a", "b", "c", "self"]);
    // A chain deeper than any run, which must not exhaust the stack.
    let deep: Vec<Triple> = (0..3_000)
        .flat_map(|n| above(&format!("d{n}"), &format!("d{}", n + 1)))
        .collect();
    let trace = Trace::from_triples(&deep);
    assert_eq!(trace.sessions.len(), 3_000);
    for format in Format::ALL {
        trace.render(format, Look::plain(80), &|_| None);
    }
}

#[test]
fn a_subtree_is_a_trace_of_its_own() {
    let run = sample::risk();
    let trace = Trace::from_triples(&run.triples);
    let press = trace
        .sessions
        .iter()
        .find(|s| s.title().contains("sentiment"))
        .unwrap();
    let part = trace.subtree(&press.id).unwrap();
    assert_eq!(
        part.sessions.iter().map(|s| s.depth).collect::<Vec<_>>(),
        [0, 1, 1]
    );
    assert_eq!(Trace::from_triples(&part.triples).sessions.len(), 3);
    assert!(part.triples.len() < trace.triples.len());
    assert_eq!(trace.subtree(&SessionId::new("unknown")), None);
}

#[test]
fn every_text_a_renderer_asks_for_is_named_beforehand() {
    for run in [sample::risk(), sample::hostile(), sample::failed()] {
        let trace = Trace::from_triples(&run.triples);
        let named = trace.documents();
        let asked = RefCell::new(Vec::new());
        for format in Format::ALL {
            trace.render(format, Look::plain(80), &|uri| {
                asked.borrow_mut().push(uri.to_owned());
                run.text(uri)
            });
        }
        let asked = asked.into_inner();
        assert!(!asked.is_empty());
        for uri in &asked {
            assert!(named.contains(uri), "{uri}");
            assert!(run.text(uri).is_some(), "no such document: {uri}");
        }
    }
}
