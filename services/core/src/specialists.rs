//! Specialists: who works a session, with which prompt, tools, context and model profile. A
//! specialist is a config item; a new one needs no code.

use crate::memories;
use crate::tools;
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::{Snapshot, Specialist, ToolItem, fits};
use serde_json::Value;

/// The specialist for what no other is meant for. It never has tools.
pub const GENERAL: &str = "general";

/// Makes a specialist work a request: its prompt comes before the framing, its profile before those
/// of the operations. Its tools are narrowed by [`allows`].
pub fn engage(request: &mut AgentRequest, name: &str, snapshot: &Snapshot) {
    name.clone_into(&mut request.control.specialist);
    let Some(item) = snapshot.specialists.get(name) else {
        return;
    };
    if !item.prompt.is_empty() {
        let framing = std::mem::take(&mut request.framing);
        let both = format!("{}\n\n{framing}", item.prompt);
        both.trim().clone_into(&mut request.framing);
    }
    if !item.profile.is_empty() {
        request.control.profile.clone_from(&item.profile);
    }
}

/// Whether the specialist of a request may see a tool.
pub fn allows(request: &AgentRequest, snapshot: &Snapshot, tool: &ToolItem) -> bool {
    let name = &request.control.specialist;
    if name.is_empty() {
        return true;
    }
    let item = snapshot.specialists.get(name);
    name != GENERAL
        && item.is_some_and(|item: &Specialist| item.tools.iter().any(|g| fits(g, &tool.name)))
}

/// What a specialist is to have tools for, and finds none among those that a request sees.
pub fn lacks<'a>(item: &'a Specialist, visible: &[&ToolItem]) -> Vec<&'a str> {
    let globs = item.tools.iter().map(String::as_str);
    globs
        .filter(|glob| !visible.iter().any(|tool| fits(glob, &tool.name)))
        .collect()
}

/// The specialists a request can be given to beside [`GENERAL`], and of the others what each needs. Who is
/// to have tools and finds none could only say so.
pub fn able(request: &AgentRequest, snapshot: &Snapshot) -> (Vec<String>, Vec<String>) {
    let visible = tools::granted(request, snapshot);
    let (mut able, mut unable) = (Vec::new(), Vec::new());
    for (name, item) in snapshot.specialists.iter().filter(|(n, _)| *n != GENERAL) {
        let lacks = lacks(item, &visible);
        if lacks.is_empty() || lacks.len() < item.tools.len() {
            able.push(name.clone());
        } else {
            unable.push(format!("`{name}`: no tool matches {}", either(&lacks)));
        }
    }
    (able, unable)
}

/// Names in words: `` `a` or `b` ``.
pub fn either(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(" or ")
}

/// The sections of context that a specialist asks for: of what the caller told, and of what was
/// found out about the message.
pub fn context(request: &AgentRequest, snapshot: &Snapshot, classified: &Value) -> String {
    let Some(item) = snapshot.specialists.get(&request.control.specialist) else {
        return request.control.context.clone();
    };
    let known = &request.routing;
    let mut sections = vec![request.control.context.clone()];
    for name in &item.context {
        let text = match name.as_str() {
            "tenant_type" => known.tenant_type.clone(),
            "active_services" => known.active_services.join(", "),
            "recent_topics" => known.recent_topics.join(", "),
            memories::MEMORIES => memories::listed(request),
            other => match classified.get(other) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Array(list)) => {
                    let texts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                    texts.join(", ")
                }
                Some(Value::Bool(yes)) => yes.to_string(),
                Some(Value::Number(number)) => number.to_string(),
                Some(Value::Null | Value::Object(_)) | None => String::new(),
            },
        };
        if !text.is_empty() {
            sections.push(format!("{}: {text}", name.replace('_', " ")));
        }
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_names_of_tools() {
        for (glob, name, expected) in [
            ("blog.*", "blog.get_post", true),
            ("blog.*", "blog.", true),
            ("blog.*", "weblog.get_post", false),
            ("*", "anything", true),
            ("blog.get_*", "blog.get_post", true),
            ("blog.get_*", "blog.list_posts", false),
            ("*.get_*", "content.get_engagement", true),
            ("search", "search", true),
            ("search", "search2", false),
            ("", "search", false),
        ] {
            assert_eq!(fits(glob, name), expected, "{glob} {name}");
        }
    }
}
