//! What the simulated model says.

use crate::scenario::{Kind, Scenario, Use, question};
use agentfleet_models::ModelRequest;
use agentfleet_schema::Operation;
use agentfleet_schema::config::JoinPolicy;
use serde_json::{Value, json};

/// Equal for two attempts at the same step.
pub fn same(name: &str, request: &ModelRequest) -> String {
    format!(
        "{name} {} {} {}",
        request.operation.as_str(),
        done(request),
        rounds_left(request)
    )
}

/// Iterations in the history.
fn done(request: &ModelRequest) -> usize {
    let history = request.inputs["history"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let stands_for = |step: &Value| match step["action"].as_str() {
        Some("decompose" | "aggregate") => 0,
        Some("summary") => {
            let counted = step["arguments"]["iterations"].as_str();
            counted.and_then(|n| n.parse().ok()).unwrap_or_default()
        }
        _ => 1,
    };
    history.iter().map(stands_for).sum()
}

fn rounds_left(request: &ModelRequest) -> u64 {
    request.inputs["rounds_left"].as_u64().unwrap_or_default()
}

/// The reply. `variation` is 0 unless an earlier attempt at the same step was answered, and the
/// model is one that does not say the same twice.
pub fn reply(scenario: &Scenario, name: &str, request: &ModelRequest, variation: u32) -> String {
    let kind = scenario
        .works
        .get(name)
        .map(|work| work.kind.clone())
        .unwrap_or_default();
    match request.operation {
        Operation::ClassifyTaskType => {
            let choice = match scenario.policy {
                JoinPolicy::All => "general",
                JoinPolicy::AtLeast(_) | JoinPolicy::Quorum | JoinPolicy::Deadline => "quorum",
            };
            json!({"choice": choice, "signal": "s", "rationale": "r"}).to_string()
        }
        Operation::SelectPattern => {
            json!({"choice": kind.pattern(), "signal": "s", "rationale": "r"}).to_string()
        }
        Operation::React => react(name, &kind, done(request), variation),
        Operation::Decompose => {
            let first = rounds(&kind).first().cloned().unwrap_or_default();
            json!({"thought": format!("why {variation}"), "goals": goals(scenario, first, variation)})
                .to_string()
        }
        Operation::Review => {
            let round = u64::from(scenario.max_rounds).saturating_sub(rounds_left(request));
            let next = rounds(&kind)
                .get(round as usize)
                .cloned()
                .unwrap_or_default();
            if next.is_empty() || variation % 2 == 1 {
                json!({"decision": "answer", "signal": "s", "rationale": "r"}).to_string()
            } else {
                let goals = goals(scenario, next, variation);
                json!({"decision": "investigate", "signal": "s", "rationale": "r", "goals": goals})
                    .to_string()
            }
        }
        Operation::Synthesise => {
            let count = request.inputs["results"].as_array().map_or(0, Vec::len);
            format!("Synthesis of {name} from {count} results, wording {variation}.")
        }
        Operation::PlanCreate => {
            let Kind::Plan(steps) = &kind else {
                return String::new();
            };
            let mut steps: Vec<Value> = steps
                .iter()
                .map(|(name, after)| json!({"goal": question(name), "depends_on": after}))
                .collect();
            // Another attempt may plan less; every third plan cannot be carried out at first.
            if variation % 2 == 1 {
                steps.truncate(1);
            }
            let faulty = request.inputs["fault"] == "" && name.ends_with('1');
            if let Some(first) = steps.first_mut().filter(|_| faulty) {
                first["depends_on"] = json!([0]);
            }
            json!({"thought": format!("plan {variation}"), "steps": steps}).to_string()
        }
        Operation::PlanRevise => {
            let next = request.inputs["next_index"].as_u64().unwrap_or_default();
            let goal = question(&format!("{name}.again{next}"));
            let steps = if variation % 2 == 1 {
                json!([])
            } else {
                json!([{"goal": goal, "depends_on": []}])
            };
            json!({"thought": format!("otherwise {variation}"), "steps": steps}).to_string()
        }
        Operation::PlanStep => react(name, &kind, 0, variation),
        Operation::PlanAssess => {
            let status = match (request.inputs["is_error"].as_bool(), variation % 2) {
                (Some(true), _) => "failed",
                (_, 1) => "surprising",
                _ => "complete",
            };
            json!({"status": status, "reason": "r", "result": format!("of {name}, {variation}")})
                .to_string()
        }
        Operation::PlanSynthesise => format!("Answer of {name} by a plan, wording {variation}."),
        Operation::Critique => {
            let first = request.inputs["critiques"]
                .as_array()
                .is_none_or(Vec::is_empty);
            let back = request.inputs["answer"] != "" || (first && variation % 2 == 1);
            let decision = if back { "go-back" } else { "go-on" };
            json!({"decision": decision, "wrong": "w", "next": "n"}).to_string()
        }
        Operation::Compare => {
            let Kind::Debate(agree_in) = kind else {
                return String::new();
            };
            let round = request.inputs["round"].as_u64().unwrap_or_default();
            let agreed = round + u64::from(variation % 2) >= u64::from(agree_in);
            json!({
                "agreement": if agreed { "agree" } else { "disagree" },
                "reason": "r",
                "positions": [{"reasoner": "ada", "position": "yes"}],
                "disagreements": if agreed { json!([]) } else { json!(["d"]) },
            })
            .to_string()
        }
        Operation::Gate => json!({"intent": "TASK", "confidence": 1, "reason": "r", "goal": request.inputs["question"]})
            .to_string(),
        Operation::Judge => format!("Judgement of {name}, wording {variation}."),
        Operation::ClassifyIntent => {
            let Kind::Router(names) = &kind else {
                return String::new();
            };
            let steps = names.iter().enumerate().map(|(at, name)| {
                let after = if at == 0 {
                    json!([])
                } else {
                    json!([format!("step_{at}")])
                };
                json!({"specialist": "doer", "task": question(name), "depends_on": after})
            });
            json!({
                "intent": "work", "confidence": 0.9, "specialist": "doer",
                "multi_step": !names.is_empty(), "steps": steps.collect::<Vec<_>>(),
            })
            .to_string()
        }
        Operation::Complete | Operation::Prompt => String::new(),
    }
}

fn rounds(kind: &Kind) -> &[Vec<String>] {
    match kind {
        Kind::Supervisor(rounds) => rounds,
        Kind::React(_) | Kind::Plan(_) | Kind::Reflexion(_) | Kind::Debate(_) | Kind::Router(_) => {
            &[]
        }
    }
}

fn goals(scenario: &Scenario, mut names: Vec<String>, variation: u32) -> Vec<Value> {
    if variation > 0 && !names.is_empty() {
        let by = variation as usize % names.len();
        names.rotate_left(by);
        if variation % 2 == 1 && names.len() > 2 {
            names.pop();
        }
    }
    names
        .iter()
        .map(|name| {
            let kind = scenario.works.get(name).map(|work| &work.kind);
            let pattern = kind.map_or("react", Kind::pattern);
            let goal = question(name) + &"x".repeat(scenario.padding);
            json!({"goal": goal, "pattern": pattern, "context": ""})
        })
        .collect()
}

fn react(name: &str, kind: &Kind, done: usize, variation: u32) -> String {
    let uses = kind.uses();
    let thought = format!("Thought: step {done} of {name}, wording {variation}\n");
    let finish = || format!("{thought}Final Answer: the answer of {name}, wording {variation}");
    let Some(planned) = uses.get(done) else {
        return finish();
    };
    // Two calls in a row are equal, so that an equal call is met where the first's end is unknown.
    let item = if variation == 0 {
        format!("{name}-{}", done / 2)
    } else {
        format!("{name}-{done}-{variation}")
    };
    let call = |tool: &str| format!("{thought}Action: {tool}\nArgs: {}", json!({"item": item}));
    match (variation % 4, planned) {
        // Another attempt may see no need for a call at all.
        (2, _) => finish(),
        (3, Use::Write) | (_, Use::Read) => call("read"),
        (_, Use::Write) => call("write"),
        (_, Use::Pay) => call("pay"),
        (_, Use::Peek) => call("peek"),
        (_, Use::Agent) => {
            let asked = json!({"question": question(&format!("{name}.a{done}"))});
            format!("{thought}Action: agent\nArgs: {asked}")
        }
        (_, Use::Unknown) => call("ask-the-oracle"),
        (_, Use::Garbage) => "Action:".to_owned(),
    }
}
