//! Sample runs of the other patterns: plans, critiques, debates, specialists.

use crate::fleet::{Fleet, Trace};
use crate::runs::{QUESTION, asked};
use crate::script::{Script, act, done};
use agentfleet_core::approval::Verdict;
use agentfleet_schema::config::{Approval, Intent, Reasoner, Snapshot, Specialist, ToolItem};
use agentfleet_schema::records::{ApprovalAnswer, PauseRecord};
use agentfleet_schema::{AgentRequest, Operation};
use serde_json::{Value, json};

/// What the model says in a run, with another config than the samples' common one.
struct Told<F> {
    says: F,
    config: fn(&mut Snapshot),
}

impl<F: Fn(Operation, &AgentRequest) -> Option<String>> Script for Told<F> {
    fn reply(&self, operation: Operation, request: &AgentRequest) -> Option<String> {
        (self.says)(operation, request)
    }

    fn snapshot(&self) -> Snapshot {
        let mut config = crate::script::config();
        (self.config)(&mut config);
        config
    }
}

fn planned(steps: &[(&str, &[u32])]) -> String {
    let steps: Vec<Value> = steps
        .iter()
        .map(|(goal, after)| json!({"goal": goal, "tool_hint": "search", "depends_on": after}))
        .collect();
    json!({"thought": "One after the other.", "steps": steps}).to_string()
}

fn assessed(status: &str, reason: &str) -> String {
    json!({"status": status, "reason": reason, "result": "Company X owns two mills."}).to_string()
}

fn executed(request: &AgentRequest) -> usize {
    let steps = request.history.iter();
    steps.filter(|step| step.step_type == "execute").count()
}

/// A plan whose second step fails, a revision that surprises too, one step without a call, and a third
/// trouble for which no revision is left.
pub(crate) fn plan() -> Trace {
    let mut fleet = Fleet::new(|operation, request: &AgentRequest| match operation {
        Operation::PlanCreate => Some(planned(&[
            ("Find the owner", &[]),
            ("Read the register", &[0]),
            ("Compare with the press", &[0, 1]),
        ])),
        Operation::PlanRevise if request.control.state.plan().replans < 2 => Some(planned(&[
            ("Search the register of another year", &[0]),
            ("Look at the owner's other firms", &[0, 3]),
        ])),
        Operation::PlanRevise => Some(planned(&[("Think it over", &[0]), ("Ask again", &[5])])),
        Operation::PlanStep => Some(match executed(request) {
            3 => "Thought: nothing to look up\nFinal Answer: It fits together.".into(),
            1 | 4 => act("this may fail", "search", "offline"),
            _ => act("look it up", "search", "company-x"),
        }),
        Operation::PlanAssess => Some(match executed(request) {
            1 | 4 => assessed("failed", "the index is away"),
            2 => assessed("surprising", "the owner changed"),
            _ => assessed("complete", "the owner is named"),
        }),
        Operation::PlanSynthesise => Some("## Owner\nConfidence: 0.7\n\nTwo mills.".into()),
        _ => None,
    });
    fleet.ask(&asked("plan-1", QUESTION, "plan-then-execute"))?;
    fleet.told()
}

/// Two steps at once, one of which fails, then one that needs the other.
pub(crate) fn plan_in_parallel() -> Trace {
    let mut fleet = Fleet::new(Told {
        says: |operation, request: &AgentRequest| match operation {
            Operation::PlanCreate => Some(planned(&[
                ("Look at the money", &[]),
                ("Look at the law", &[]),
                ("Bring it together", &[0]),
            ])),
            Operation::PlanRevise => Some(json!({"thought": "enough", "steps": []}).to_string()),
            Operation::React if request.subagent_goal.contains("law") => None,
            Operation::React if done(request) == 0 => Some(act("look", "search", "company-x")),
            Operation::React => Some("Thought: done\nFinal Answer: Solid.".into()),
            Operation::PlanStep => Some("Thought: none\nFinal Answer: Together solid.".into()),
            Operation::PlanSynthesise => Some("Solid, as far as it goes.".into()),
            _ => None,
        },
        config: |config| {
            if let Some(pattern) = config.patterns.get_mut("plan-then-execute") {
                pattern.parallel = true;
            }
        },
    });
    fleet.ask(&asked("plan-2", QUESTION, "plan-then-execute"))?;
    fleet.told()
}

/// The model twice makes a plan that cannot be carried out.
pub(crate) fn no_plan() -> Trace {
    let mut fleet = Fleet::new(|operation, _: &AgentRequest| match operation {
        Operation::PlanCreate => Some(planned(&[("First", &[1]), ("Second", &[0])])),
        _ => None,
    });
    fleet.ask(&asked("plan-3", QUESTION, "plan-then-execute"))?;
    fleet.told()
}

/// An action that is sent back, an unknown tool, and an answer that is sent back once.
pub(crate) fn reflexion() -> Trace {
    let mut fleet = Fleet::new(|operation, request: &AgentRequest| match operation {
        Operation::React => Some(match request.history.len() {
            0 => act("look it up", "search", "company-x"),
            2 => act("a slip", "serch-all", "x"),
            3 => act("look again", "search", "company-y"),
            _ => "Thought: enough\nFinal Answer: Company X makes pumps.".into(),
        }),
        Operation::Critique => {
            let back = request.history.is_empty()
                || request.control.state.react().reflections == 1 && request.history.len() > 4;
            Some(
                json!({"decision": if back { "go-back" } else { "go-on" },
                       "wrong": if back { "It names no source." } else { "" },
                       "next": "Name the source."})
                .to_string(),
            )
        }
        _ => None,
    });
    fleet.ask(&asked("reflexion-1", QUESTION, "reflexion"))?;
    fleet.told()
}

fn compared(agreement: &str, disagreements: &[&str]) -> String {
    json!({
        "agreement": agreement, "reason": "the risk of the lease",
        "positions": [
            {"reasoner": "advocate", "position": "partner"},
            {"reasoner": "sceptic", "position": if agreement == "agree" { "partner" } else { "wait" }},
        ],
        "disagreements": disagreements,
    })
    .to_string()
}

/// Three reasoners, one of whom fails in the first round; they disagree, then agree.
pub(crate) fn debate() -> Trace {
    let mut fleet = Fleet::new(Told {
        says: |operation, request: &AgentRequest| match operation {
            Operation::React if request.subagent_goal == "Answer as arbiter" => None,
            Operation::React => Some(format!("Final Answer: So says {}.", request.subagent_goal)),
            Operation::Compare if request.control.rounds == 1 => {
                Some(compared("disagree", &["whether the lease is a risk"]))
            }
            Operation::Compare => Some(compared("agree", &[])),
            Operation::Judge => Some("Partner, with a clause on the lease. Confidence: 0.6".into()),
            _ => None,
        },
        config: |config| {
            let reasoner = |name: &str| Reasoner {
                name: name.into(),
                stance: format!("You are the {name}."),
                ..Reasoner::default()
            };
            let reasoners = ["advocate", "sceptic", "arbiter"].map(reasoner).to_vec();
            if let Some(pattern) = config.patterns.get_mut("debate") {
                pattern.reasoners = reasoners;
            }
        },
    });
    fleet.ask(&asked("debate-1", QUESTION, "debate"))?;
    fleet.told()
}

fn specialists(config: &mut Snapshot) {
    for name in ["analytics_diagnosis", "general_chat"] {
        let intent = Intent {
            name: name.into(),
            description: String::new(),
        };
        config.intents.insert(name.into(), intent);
    }
    for name in ["analytics", "blog"] {
        let specialist = Specialist {
            name: name.into(),
            prompt: format!("You work on {name}."),
            tools: vec!["sea*".into()],
            context: vec!["entities".into()],
            ..Specialist::default()
        };
        config.specialists.insert(name.into(), specialist);
    }
}

fn classified(specialist: &str, confidence: f64, steps: &Value) -> String {
    let multi = steps.as_array().is_some_and(|steps| !steps.is_empty());
    json!({
        "intent": "analytics_diagnosis", "confidence": confidence, "specialist": specialist,
        "services": ["blog"], "entities": ["traffic"], "time_scope": "recent",
        "action_required": false, "multi_step": multi, "steps": steps,
    })
    .to_string()
}

/// To one specialist, who looks something up.
pub(crate) fn router() -> Trace {
    let mut fleet = Fleet::new(Told {
        says: |operation, request: &AgentRequest| match operation {
            Operation::ClassifyIntent => Some(classified("analytics", 0.94, &json!([]))),
            Operation::React if done(request) == 0 => Some(act("look", "search", "traffic")),
            Operation::React => Some("Thought: seen\nFinal Answer: Fewer posts.".into()),
            _ => None,
        },
        config: specialists,
    });
    fleet.ask(&asked(
        "router-1",
        "Why did my blog traffic drop this week?",
        "router",
    ))?;
    fleet.told()
}

/// To two specialists, the second with what the first found.
pub(crate) fn router_in_steps() -> Trace {
    let mut fleet = Fleet::new(Told {
        says: |operation, request: &AgentRequest| match operation {
            Operation::ClassifyIntent => Some(classified(
                "analytics",
                0.9,
                &json!([
                    {"specialist": "analytics", "task": "analyse which topics do best"},
                    {"specialist": "blog", "task": "make a calendar", "depends_on": "step_1"},
                ]),
            )),
            Operation::React if request.control.specialist == "blog" => {
                let seen = request.control.context.contains("Recipes do best.");
                seen.then(|| "Final Answer: Recipes every week.".into())
            }
            Operation::React => Some("Final Answer: Recipes do best.".into()),
            Operation::PlanSynthesise => Some("Recipes every week, since they do best.".into()),
            _ => None,
        },
        config: specialists,
    });
    fleet.ask(&asked(
        "router-2",
        "Create a calendar and say what will do best",
        "router",
    ))?;
    fleet.told()
}

/// What a person says of each payment, by its iteration.
struct Paying;

impl Script for Paying {
    fn reply(&self, operation: Operation, request: &AgentRequest) -> Option<String> {
        match operation {
            Operation::React => Some(match done(request) {
                at @ 0..=3 => act("it is due", "pay", &format!("bill {at}")),
                _ => "Thought: done\nFinal Answer: Two of the bills are paid.".into(),
            }),
            _ => None,
        }
    }

    fn answer(&self, pause: &PauseRecord) -> Option<Verdict> {
        let verdict = |answer, reason: &str| Verdict {
            answer,
            by: "Ada Example".into(),
            reason: reason.into(),
            arguments: None,
        };
        match pause.asked.n {
            1 => Some(verdict(ApprovalAnswer::Approve, "the bill is right")),
            2 => Some(verdict(ApprovalAnswer::Deny, "it was \"paid\" before")),
            3 => Some(Verdict {
                arguments: Some([("query".to_owned(), "half of bill 2".to_owned())].into()),
                ..verdict(ApprovalAnswer::Edit, "")
            }),
            _ => None,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut config = crate::script::config();
        let pay = ToolItem {
            name: "pay".into(),
            approval: Some(Approval {
                reason: "it cannot be taken back".into(),
                ..Approval::default()
            }),
            ..config.tools["search"].clone()
        };
        config.tools.insert("pay".into(), pay);
        config
    }
}

/// Calls that wait for a person: approved, denied, edited, and left until the wait ends.
pub(crate) fn approvals() -> Trace {
    let mut fleet = Fleet::new(Paying);
    fleet.ask(&asked("approvals-1", "Pay what is due", "react"))?;
    fleet.told()
}
