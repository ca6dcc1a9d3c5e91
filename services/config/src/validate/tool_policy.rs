//! What is wrong with a `tool-policy` item, by itself and beside the tools that there are.

use super::{Check, nearest};
use agentfleet_schema::config::{
    PolicyStep, Snapshot, ToolPolicy, condition_type, fits, item_type, tool_kind,
};
use std::collections::BTreeSet;

/// Steps of one policy.
const MOST_STEPS: usize = 50;
/// Tools of one sequence: a run remembers more calls than that.
const LONGEST_SEQUENCE: usize = 32;

impl Check<'_> {
    pub(super) fn tool_policy(&mut self, policy: &ToolPolicy) {
        self.named(&policy.name);
        if policy.steps.is_empty() || policy.steps.len() > MOST_STEPS {
            self.problem("/steps", format!("must be 1 to {MOST_STEPS} steps"));
        }
        let defaults = policy.steps.iter().filter(|step| step.is_default).count();
        if defaults != 1 {
            let says =
                format!("just one step must have `isDefault`, where a run begins; {defaults} have");
            self.problem("/steps", says);
        }
        let mut names = BTreeSet::new();
        for (index, step) in policy.steps.iter().enumerate() {
            let at = |field: &str| format!("/steps/{index}/{field}");
            if step.name.trim().is_empty() || !names.insert(&step.name) {
                self.problem(at("name"), "each step must have a name of its own");
            }
            if !step.is_default && step.conditions.is_empty() {
                let says =
                    "a step that is not the default needs a condition, or it would never be active";
                self.problem(at("conditions"), says);
            }
            if step.sequence.len() > LONGEST_SEQUENCE {
                let says = format!("must be at most {LONGEST_SEQUENCE} tools");
                self.problem(at("sequence"), says);
            }
            for (n, condition) in step.conditions.iter().enumerate() {
                let field = at(&format!("conditions/{n}"));
                self.among(
                    &format!("{field}/type"),
                    &condition.kind,
                    condition_type::ALL,
                );
                let newest = step.conditions.iter().filter(|one| {
                    one.kind == condition_type::TOOL_USED && one.value != condition.value
                });
                if condition.kind == condition_type::TOOL_USED && newest.count() > 0 {
                    let says = "the newest call is of one tool: two conditions `tool_used` are never both met";
                    self.problem(field.clone(), says);
                }
                if condition.kind == condition_type::TOOL_USED && condition.value.is_empty() {
                    self.problem(format!("{field}/value"), "must name a tool");
                }
                if condition.kind == condition_type::SEQUENCE_MATCH {
                    let of = policy.sequence_of(step, condition);
                    self.has_sequence(policy, of, format!("{field}/value"), &condition.value);
                }
            }
        }
    }

    /// Whether the step that a condition is about is there, and has a sequence.
    fn has_sequence(
        &mut self,
        policy: &ToolPolicy,
        of: Option<&PolicyStep>,
        field: String,
        name: &str,
    ) {
        match of {
            None => {
                let known = policy.steps.iter().map(|step| step.name.as_str());
                self.problem(field, nearest("step", name, known));
            }
            Some(step) if step.sequence.is_empty() => {
                let says = format!("step `{}` has no sequence that could match", step.name);
                self.problem(field, says);
            }
            Some(_) => {}
        }
    }
}

/// What is wrong with the policies of a set beside its tools, and with who works by them.
pub(super) fn policies(set: &Snapshot, problem: &mut impl FnMut(&str, &str, String, String)) {
    let tools: Vec<&str> = set
        .tools
        .iter()
        .filter(|(_, tool)| tool.kind != tool_kind::READ_BACK)
        .map(|(name, _)| name.as_str())
        .collect();
    for (key, policy) in &set.tool_policies {
        let mut is_whole = true;
        for (field, name) in named(policy) {
            // A sequence says which one comes next, so it names each in full.
            let is_exact = field.contains("/sequence/") || field.contains("/conditions/");
            let is_known = |tool: &&str| *tool == name || (!is_exact && fits(name, tool));
            if !tools.iter().any(is_known) {
                let reason = nearest("tool", name, tools.iter().copied());
                problem(item_type::TOOL_POLICY, key, field, reason);
                is_whole = false;
            }
        }
        if is_whole {
            for (field, reason) in dead_ends(policy, &tools) {
                problem(item_type::TOOL_POLICY, key, field, reason);
            }
        }
    }
    for (key, item) in &set.task_types {
        let constraints = item.gate.iter().flat_map(|gate| &gate.constraints);
        for (index, constraint) in constraints.enumerate() {
            for (n, glob) in constraint.without.iter().enumerate() {
                if !tools.iter().any(|tool| fits(glob, tool)) {
                    let field = format!("/gate/constraints/{index}/without/{n}");
                    let reason = nearest("tool", glob, tools.iter().copied());
                    problem(item_type::AGENT_TASK_TYPE, key, field, reason);
                }
            }
        }
    }
    let task_types = set.task_types.iter().map(|(key, item)| {
        let (policy, globs) = (&item.tool_policy, None);
        (item_type::AGENT_TASK_TYPE, key, policy, globs)
    });
    let specialists = set.specialists.iter().map(|(key, item)| {
        let (policy, globs) = (&item.tool_policy, Some(&item.tools));
        (item_type::SPECIALIST, key, policy, globs)
    });
    for (item_type, key, name, globs) in task_types.chain(specialists) {
        if name.is_empty() {
            continue;
        }
        let field = || "/tool_policy".to_owned();
        let Some(policy) = set.tool_policies.get(name) else {
            let known = set.tool_policies.keys().map(String::as_str);
            problem(item_type, key, field(), nearest("tool policy", name, known));
            continue;
        };
        let Some(globs) = globs else { continue };
        let sequences = policy.steps.iter().flat_map(|step| &step.sequence);
        for tool in sequences.collect::<BTreeSet<_>>() {
            if !globs.iter().any(|glob| fits(glob, tool)) {
                let reason = format!(
                    "a sequence of `{name}` needs tool `{tool}`, which `tools` does not give: the run would stay \
                     there"
                );
                problem(item_type, key, field(), reason);
            }
        }
    }
}

/// Every tool that a policy names, with its field; in lists it may be a glob.
fn named(policy: &ToolPolicy) -> Vec<(String, &str)> {
    let mut named = Vec::new();
    for (index, step) in policy.steps.iter().enumerate() {
        let available = &step.available_tools;
        let allowed = available.allowed.as_deref().unwrap_or_default();
        for (list, names) in [
            ("sequence", &step.sequence[..]),
            ("availableTools/allowed", allowed),
            ("availableTools/denied", &available.denied),
        ] {
            let fields = names.iter().enumerate();
            named.extend(fields.map(|(n, name)| (format!("/steps/{index}/{list}/{n}"), &**name)));
        }
        for (n, condition) in step.conditions.iter().enumerate() {
            if condition.kind == condition_type::TOOL_USED {
                let field = format!("/steps/{index}/conditions/{n}/value");
                named.push((field, &*condition.value));
            }
        }
    }
    named
}

/// The tools that can be called while a step is active.
fn callable<'a>(step: &PolicyStep, tools: &[&'a str]) -> BTreeSet<&'a str> {
    let is_open = |tool: &&&str| {
        step.available_tools.allow(tool) || step.sequence.iter().any(|next| next == **tool)
    };
    tools.iter().filter(is_open).copied().collect()
}

/// Steps in which no tool could be called, and those that could never become active.
fn dead_ends(policy: &ToolPolicy, tools: &[&str]) -> Vec<(String, String)> {
    let mut reached: BTreeSet<&str> = policy.first().map(|step| &*step.name).into_iter().collect();
    loop {
        let active = policy
            .steps
            .iter()
            .filter(|step| reached.contains(&*step.name));
        let used: BTreeSet<&str> = active.flat_map(|step| callable(step, tools)).collect();
        let is_met = |step: &&PolicyStep| {
            !step.conditions.is_empty()
                && step.conditions.iter().all(|condition| {
                    let of = policy.sequence_of(step, condition);
                    match condition.kind.as_str() {
                        condition_type::TOOL_USED => used.contains(&*condition.value),
                        _ => of.is_some_and(|of| of.sequence.iter().all(|t| used.contains(&**t))),
                    }
                })
        };
        let before = reached.len();
        reached.extend(policy.steps.iter().filter(is_met).map(|step| &*step.name));
        if reached.len() == before {
            break;
        }
    }
    let mut found = Vec::new();
    for (index, step) in policy.steps.iter().enumerate() {
        if callable(step, tools).is_empty() {
            let says = "leaves no tool that could be called: the run would stay in this step";
            found.push((format!("/steps/{index}/availableTools"), says.to_owned()));
        }
        if !reached.contains(&*step.name) {
            let says = "can never be met: no step before this one leaves those tools open";
            found.push((format!("/steps/{index}/conditions"), says.to_owned()));
        }
    }
    found
}
