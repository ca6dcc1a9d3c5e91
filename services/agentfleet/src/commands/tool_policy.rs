//! `config explain`: a tool policy, drawn as its steps and what leads from one to the next.

use agentfleet_schema::config::{PolicyStep, ToolPolicy, condition_type};

/// The policy in lines: the step where a run begins first, then the others in their order.
pub(super) fn drawn(policy: &ToolPolicy) -> String {
    let mut text = format!("Tool policy `{}`", policy.name);
    if !policy.description.is_empty() {
        text.push_str(&format!(": {}", policy.description));
    }
    text.push('\n');
    let first = policy.first();
    let others = policy.steps.iter().filter(|step| Some(*step) != first);
    for step in first.into_iter().chain(others) {
        let begins = if Some(step) == first { "▶" } else { " " };
        text.push_str(&format!("\n{begins} {}", step.name));
        if !step.description.is_empty() {
            text.push_str(&format!(": {}", step.description));
        }
        text.push_str(&format!("\n  │ {}\n", tools(step)));
        let ways = policy.steps.iter().filter_map(|to| way(policy, step, to));
        let ways: Vec<String> = ways.collect();
        for way in &ways {
            text.push_str(&format!("  ├─ {way}\n"));
        }
        if ways.is_empty() {
            text.push_str("  └─ a run stays here\n");
        }
    }
    text
}

fn quoted(names: &[String], between: &str) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(between)
}

/// What may be called in a step.
fn tools(step: &PolicyStep) -> String {
    let available = &step.available_tools;
    let mut lists = match &available.allowed {
        None => "all tools".to_owned(),
        Some(allowed) if allowed.is_empty() => "no tool".to_owned(),
        Some(allowed) => quoted(allowed, ", "),
    };
    if !available.denied.is_empty() {
        lists.push_str(&format!(" but {}", quoted(&available.denied, ", ")));
    }
    if step.sequence.is_empty() {
        return format!("may call {lists}");
    }
    format!(
        "must call {}, then may call {lists}",
        quoted(&step.sequence, " → ")
    )
}

/// What leads from one step to another, if something can.
fn way(policy: &ToolPolicy, from: &PolicyStep, to: &PolicyStep) -> Option<String> {
    let calls = |tool: &String| from.sequence.contains(tool) || from.available_tools.allow(tool);
    let mut met = Vec::new();
    for condition in &to.conditions {
        met.push(match condition.kind.as_str() {
            condition_type::TOOL_USED if calls(&condition.value) => {
                format!("`{}` was used", condition.value)
            }
            condition_type::SEQUENCE_MATCH => {
                let of = policy.sequence_of(to, condition)?;
                of.sequence.last().filter(|last| calls(last))?;
                format!("{} were used", quoted(&of.sequence, " → "))
            }
            _ => return None,
        });
    }
    (!met.is_empty()).then(|| format!("{} ──▶ {}", met.join(" and "), to.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_drawn_by_its_steps() {
        let policy: ToolPolicy = serde_json::from_value(serde_json::json!({
            "name": "research", "description": "search before thought", "steps": [
            {"name": "think", "description": "as it was found",
             "conditions": [{"type": "tool_used", "value": "search"}],
             "sequence": ["think", "reflect"], "availableTools": {"denied": ["send"]}},
            {"name": "write", "conditions": [{"type": "sequence_match", "value": "think"}],
             "availableTools": {"allowed": ["write"]}},
            {"name": "start", "isDefault": true, "availableTools": {"allowed": ["search"]}},
        ]}))
        .unwrap_or_default();
        assert_eq!(
            drawn(&policy),
            "Tool policy `research`: search before thought\n\
             \n▶ start\n  │ may call `search`\n  ├─ `search` was used ──▶ think\n\
             \n  think: as it was found\n  │ must call `think` → `reflect`, then may call all tools but `send`\n  \
             ├─ `search` was used ──▶ think\n  ├─ `think` → `reflect` were used ──▶ write\n\
             \n  write\n  │ may call `write`\n  └─ a run stays here\n"
        );
    }
}
