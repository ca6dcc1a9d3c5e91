//! The sample runs, by the name of the file each is written to.

use crate::fleet::{Fate, Fleet, Trace};
use crate::patterns;
use crate::script::{Script, act, choice, config, done, goals, review};
use agentfleet_core::{ToolOutcome, ToolUse};
use agentfleet_schema::config::{ModelProfile, Snapshot, ToolItem, tool_kind};
use agentfleet_schema::{AgentRequest, Exchange, Operation};

pub(crate) const ALL: [(&str, fn() -> Trace); 19] = [
    ("supervisor", supervisor),
    ("react", react),
    ("deadline", deadline),
    ("nested", nested),
    ("limits", limits),
    ("alone", alone),
    ("cancelled", cancelled),
    ("cut-off", cut_off),
    ("refused", refused),
    ("dead-letter", dead_letter),
    ("plan", patterns::plan),
    ("plan-parallel", patterns::plan_in_parallel),
    ("no-plan", patterns::no_plan),
    ("reflexion", patterns::reflexion),
    ("debate", patterns::debate),
    ("router", patterns::router),
    ("router-steps", patterns::router_in_steps),
    ("approvals", patterns::approvals),
    ("long", long),
];

pub(crate) const QUESTION: &str = "Assess the risk profile of Company X as a potential partner";
const MONEY: &str = "Analyse financial health and stability of Company X";
const LAW: &str = "Review regulatory filings and legal exposure of Company X";
const NAMES: &str = "Look for court cases under the former name of Company X";

pub(crate) fn asked(session: &str, question: &str, pattern: &str) -> AgentRequest {
    AgentRequest {
        question: question.into(),
        session_id: session.into(),
        pattern: pattern.into(),
        collection: "dossiers".into(),
        ..AgentRequest::default()
    }
}

/// An answer with one search behind it.
fn searched(request: &AgentRequest, answer: &str) -> Option<String> {
    if done(request) == 0 {
        return Some(act("I need the \"sources\".", "search", "company-x"));
    }
    Some(format!("Thought: enough is known\nFinal Answer: {answer}"))
}

/// Routed by the model; one of two subagents fails, and a second round is asked for.
fn supervisor() -> Trace {
    let mut fleet = Fleet::new(|operation, request: &AgentRequest| match operation {
        Operation::ClassifyTaskType => Some(choice("risk-assessment", "risk profile")),
        Operation::SelectPattern => Some(choice("supervisor", "independent dimensions")),
        Operation::Decompose => Some(goals("Two sides can be looked at apart.", &[MONEY, LAW])),
        Operation::React if request.subagent_goal == LAW => None,
        Operation::React => searched(request, "## Finance\n\nConfidence: 0.8\n\nSolid."),
        Operation::Review if request.control.rounds < 2 => Some(review("investigate", &[NAMES])),
        Operation::Review => Some(review("answer", &[])),
        Operation::Synthesise => Some(
            "## Finance\n\n**Confidence:** 80%\n\nSolid.\n\n## Legal\n\nConfidence: 0.35\n\nThin."
                .into(),
        ),
        _ => None,
    });
    let mut request = asked("0190c1de-0000-7000-8000-00000000000a", QUESTION, "");
    request.conversation_id = "talk with/odd <id>".into();
    fleet.ask(&request)?;
    fleet.told()
}

/// An unknown tool, a search with sources, a failing search, an unreadable reply, then the answer.
fn react() -> Trace {
    let mut fleet = Fleet::new(|operation, request: &AgentRequest| {
        match operation {
        Operation::ClassifyTaskType => Some(choice("summarisation", "summarise")),
        Operation::React => Some(match done(request) {
            0 => act("guess a name", "serch-all", "x"),
            1 => act("look it up", "search", "company x"),
            2 => act("look again", "search", "offline"),
            3 => "Thought: hm\nI would rather not say.".into(),
            _ => "Thought: done\nFinal Answer: Company X makes \"pumps\" (urn:dossier:annual-report).\n\nAnd valves.".into(),
        }),
        _ => None,
    }
    });
    let mut request = asked("react-1", "Summarise what Company X does", "");
    request.conversation_id = "talk".into();
    request.control.conversation = vec![Exchange {
        session: "react-0".into(),
        question: "Who is Company X?".into(),
        answer: "A maker of pumps.".into(),
    }];
    fleet.ask(&request)?;
    fleet.told()
}

/// A history that has no room in the model's window: shortened, summarised, and read back.
struct Long;

impl Script for Long {
    fn reply(&self, _: Operation, request: &AgentRequest) -> Option<String> {
        Some(match request.step {
            0..=7 => act("read on", "search", &format!("part {}", request.step + 1)),
            8 => "Thought: what was it?\nAction: read-back\nArgs: {\"which\": \"1\"}".into(),
            _ => "Thought: done\nFinal Answer: All parts are alike.".into(),
        })
    }

    fn tool(&self, tool_use: &ToolUse) -> ToolOutcome {
        let part = tool_use.arguments.values().next();
        ToolOutcome {
            content: format!("{part:?} says:{}", " much of the same".repeat(30)),
            ..ToolOutcome::default()
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = config();
        let profile = ModelProfile {
            context_window: Some(1_500),
            ..ModelProfile::default()
        };
        snapshot.profiles.insert("default".into(), profile);
        let tool = ToolItem {
            name: "read-back".into(),
            kind: tool_kind::READ_BACK.into(),
            ..ToolItem::default()
        };
        snapshot.tools.insert("read-back".into(), tool);
        snapshot
    }
}

fn long() -> Trace {
    let mut fleet = Fleet::new(Long);
    fleet.ask(&asked("long-1", "Read all parts of the report", "react"))?;
    fleet.told()
}

/// One of three subagents is not taken up before the join deadline, and comes late.
struct Slow;

impl Script for Slow {
    fn reply(&self, operation: Operation, request: &AgentRequest) -> Option<String> {
        match operation {
            Operation::Decompose => Some(goals("Three sides.", &[MONEY, LAW, NAMES])),
            Operation::React => searched(request, "Known.\n\nConfidence: 0.5"),
            Operation::Review => Some(review("answer", &[])),
            Operation::Synthesise => Some("Confidence: 0.5\n\nMostly known.".into()),
            _ => None,
        }
    }

    fn fate(&self, request: &AgentRequest) -> Fate {
        if request.subagent_goal == NAMES {
            Fate::Hold
        } else {
            Fate::Work
        }
    }

    fn attempt(&self, request: &AgentRequest) -> u32 {
        if request.control.fan_in_step.is_some() {
            2
        } else {
            1
        }
    }
}

fn deadline() -> Trace {
    let mut fleet = Fleet::new(Slow);
    fleet.ask(&asked("deadline-1", QUESTION, "supervisor"))?;
    fleet.deadline()?;
    fleet.release()?;
    fleet.told()
}

/// A subagent that is itself a supervisor.
fn nested() -> Trace {
    let mut fleet = Fleet::new(|operation, request: &AgentRequest| match operation {
        Operation::Decompose if request.is_subagent() => Some(goals(
            "Two years.",
            &["Read the report of 2024", "Read the report of 2025"],
        )),
        Operation::Decompose => Some(
            r#"{"thought": "Two sides.", "goals": [
                {"goal": "Read the annual reports", "pattern": "supervisor", "context": "PDF"},
                {"goal": "Read the news", "pattern": "react", "context": ""}]}"#
                .into(),
        ),
        Operation::React => searched(request, "Read."),
        Operation::Review => Some(review("answer", &[])),
        Operation::Synthesise => Some("Both are good. Confidence: 0.9".into()),
        _ => None,
    });
    fleet.ask(&asked("nested-1", QUESTION, "supervisor"))?;
    fleet.told()
}

/// The iteration limit ends a run in a partial answer, and a budget the subagents of another.
fn limits() -> Trace {
    let mut fleet = Fleet::new(|operation, request: &AgentRequest| match operation {
        Operation::Decompose => Some(goals("Two sides.", &[MONEY, LAW])),
        Operation::Synthesise => Some("As far as it goes: solid.".into()),
        Operation::React => Some(act(
            "once more",
            "search",
            &format!("page {}", done(request)),
        )),
        _ => None,
    });
    let mut request = asked("limits-1", "Read everything", "react");
    request.limits.max_iterations = Some(3);
    fleet.ask(&request)?;
    let mut request = asked("limits-2", QUESTION, "supervisor");
    request.limits.max_model_calls = Some(6);
    fleet.ask(&request)?;
    fleet.told()
}

/// One goal needs no fan-out.
fn alone() -> Trace {
    let mut fleet = Fleet::new(|operation, request: &AgentRequest| match operation {
        Operation::Decompose => Some(goals("There is but one side.", &[MONEY])),
        Operation::React => searched(request, "Solid."),
        _ => None,
    });
    fleet.ask(&asked("alone-1", QUESTION, "supervisor"))?;
    fleet.told()
}

/// Ended from outside: at its first step, before it was routed, and between two steps.
struct Ended;

impl Script for Ended {
    fn reply(&self, operation: Operation, request: &AgentRequest) -> Option<String> {
        match operation {
            Operation::ClassifyTaskType => Some(choice("general", "nothing special")),
            Operation::SelectPattern => Some(choice("supervisor", "breadth")),
            Operation::Decompose => Some(goals("Two sides.", &[MONEY, LAW])),
            Operation::React => searched(request, "Solid."),
            _ => None,
        }
    }

    fn fate(&self, request: &AgentRequest) -> Fate {
        match request.session_id.as_str() {
            "cancelled-unrouted" => Fate::Cancel,
            "cancelled-later" if request.step == 1 => Fate::Cancel,
            "cut-off" if request.step == 1 => Fate::CancelInCall,
            "expired" if request.step == 2 => Fate::Expire,
            _ => Fate::Work,
        }
    }
}

fn cancelled() -> Trace {
    let mut fleet = Fleet::new(Ended);
    for session in ["cancelled-unrouted", "cancelled-later", "expired"] {
        fleet.ask(&asked(session, QUESTION, ""))?;
    }
    fleet.told()
}

/// Ended from outside while a call was made.
fn cut_off() -> Trace {
    let mut fleet = Fleet::new(Ended);
    fleet.ask(&asked("cut-off", QUESTION, "react"))?;
    fleet.told()
}

/// Requests that cannot be worked, and a model that fails for good.
fn refused() -> Trace {
    let mut fleet = Fleet::new(|_, _: &AgentRequest| None);
    fleet.ask(&asked("refused-empty", "  ", ""))?;
    fleet.ask(&asked("refused-pattern", QUESTION, "astrology"))?;
    fleet.ask(&asked("failed-routing", QUESTION, ""))?;
    fleet.ask(&asked("failed-react", QUESTION, "react"))?;
    fleet.ask(&asked("failed-supervisor", QUESTION, "supervisor"))?;
    fleet.told()
}

/// A subagent whose message kills its workers: nobody answers, and the run still ends.
struct Deadly;

impl Script for Deadly {
    fn reply(&self, operation: Operation, request: &AgentRequest) -> Option<String> {
        match operation {
            Operation::Decompose => Some(goals("Two sides.", &[MONEY, LAW])),
            Operation::React if request.subagent_goal == LAW => searched(request, "Solid."),
            _ => None,
        }
    }

    fn fate(&self, request: &AgentRequest) -> Fate {
        let deadly = request.subagent_goal == MONEY || request.step == 1;
        if request.is_subagent() && deadly {
            Fate::DeadLetter
        } else {
            Fate::Work
        }
    }
}

fn dead_letter() -> Trace {
    let mut fleet = Fleet::new(Deadly);
    fleet.ask(&asked("dead-1", QUESTION, "supervisor"))?;
    fleet.told()
}
