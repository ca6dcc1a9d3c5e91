//! What items must be to each other.

use super::{nearest, tool_policy, unknown};
use crate::error::Problem;
use crate::prompts;
use agentfleet_schema::Operation;
use agentfleet_schema::config::{
    DEFAULT_PROFILE, NamedParam, Snapshot, ToolItem, ToolService, item_type, portable_name,
    tool_kind,
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is wrong between the items of a set: references without their end.
pub(crate) fn together(set: &Snapshot) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |item_type: &str, key: &str, field: String, reason: String| {
        let (item_type, key) = (item_type.to_owned(), key.to_owned());
        problems.push(Problem {
            item_type,
            key,
            field,
            reason,
        });
    };
    for (key, task_type) in set.task_types.iter().chain(&set.proposals) {
        for (index, name) in task_type.valid_patterns.iter().enumerate() {
            if !set.patterns.contains_key(name) {
                let reason = unknown("pattern", name, set.patterns.keys());
                problem(
                    item_type::AGENT_TASK_TYPE,
                    key,
                    format!("/valid_patterns/{index}"),
                    reason,
                );
            }
        }
    }
    let mut named: Vec<(&str, &str, String, &str)> = Vec::new();
    for (key, pattern) in &set.patterns {
        for (index, reasoner) in pattern.reasoners.iter().enumerate() {
            let at = |field: &str| format!("/reasoners/{index}/{field}");
            if !reasoner.pattern.is_empty() && !set.patterns.contains_key(&reasoner.pattern) {
                let reason = unknown("pattern", &reasoner.pattern, set.patterns.keys());
                problem(item_type::AGENT_PATTERN, key, at("pattern"), reason);
            }
            named.push((
                item_type::AGENT_PATTERN,
                key,
                at("profile"),
                &reasoner.profile,
            ));
        }
    }
    for (key, task_type) in &set.task_types {
        for (pattern, profile) in &task_type.profiles {
            let field = format!("/profiles/{pattern}");
            if !set.patterns.contains_key(pattern) {
                let reason = unknown("pattern", pattern, set.patterns.keys());
                problem(item_type::AGENT_TASK_TYPE, key, field.clone(), reason);
            }
            named.push((item_type::AGENT_TASK_TYPE, key, field, profile));
        }
        for (operation, prompt) in &task_type.prompts {
            let field = format!("/prompts/{operation}");
            let reason = match set.prompts.get(prompt) {
                None => unknown("prompt", prompt, set.prompts.keys()),
                // It is given what that operation's own prompt is given.
                Some(item) => match [&item.prompt, &item.system]
                    .into_iter()
                    .find_map(|source| prompts::check(operation, source).err())
                {
                    None => continue,
                    Some((line, reason)) => format!("prompt `{prompt}`, line {line}: {reason}"),
                },
            };
            problem(item_type::AGENT_TASK_TYPE, key, field, reason);
        }
    }
    for (key, specialist) in &set.specialists {
        let field = "/profile".to_owned();
        named.push((item_type::SPECIALIST, key, field, &specialist.profile));
    }
    for (item_type, key, field, profile) in &named {
        if !profile.is_empty() && !set.profiles.contains_key(*profile) {
            let reason = unknown("model profile", profile, set.profiles.keys());
            problem(item_type, key, field.clone(), reason);
        }
    }
    let named: BTreeSet<&str> = named.iter().map(|(.., profile)| *profile).collect();
    for (key, meant) in misnamed_profiles(set, &named) {
        let reason = format!("unknown operation or prompt `{key}`: did you mean `{meant}`?");
        problem(item_type::MODEL_PROFILE, key, String::new(), reason);
    }
    tools(set, &mut problem);
    tool_policy::policies(set, &mut problem);
    problems
}

/// What tools must be to each other, and what they name.
fn tools(set: &Snapshot, problem: &mut impl FnMut(&str, &str, String, String)) {
    let mut shown: BTreeMap<String, &str> = BTreeMap::new();
    for (key, tool) in &set.tools {
        // Providers are told a name without dots.
        if let Some(other) = shown.insert(portable_name(key), key) {
            let reason = format!("models know `{key}` and `{other}` by one name: rename one");
            problem(item_type::TOOL, key, "/name".to_owned(), reason);
        }
        if let Some(pattern) = &tool.pattern
            && !set.patterns.contains_key(pattern)
        {
            let reason = unknown("pattern", pattern, set.patterns.keys());
            problem(item_type::TOOL, key, "/pattern".to_owned(), reason);
        }
        if let Some(specialist) = &tool.specialist
            && !set.specialists.contains_key(specialist)
        {
            let reason = unknown("specialist", specialist, set.specialists.keys());
            problem(item_type::TOOL, key, "/specialist".to_owned(), reason);
        }
        if let (tool_kind::PROMPT, Some(template)) = (tool.kind.as_str(), &tool.template)
            && !set.prompts.contains_key(template)
        {
            let reason = unknown("prompt", template, set.prompts.keys());
            problem(item_type::TOOL, key, "/template".to_owned(), reason);
        }
        if let (tool_kind::MCP, Some(server)) = (tool.kind.as_str(), &tool.server)
            && !set.mcp_servers.contains_key(server)
        {
            let reason = unknown("MCP server", server, set.mcp_servers.keys());
            problem(item_type::TOOL, key, "/server".to_owned(), reason);
        }
        if let (tool_kind::TOOL_SERVICE, Some(name)) = (tool.kind.as_str(), &tool.service) {
            let found = match set.tool_services.get(name) {
                Some(service) => given(tool, name, service),
                None => {
                    let reason = unknown("service", name, set.tool_services.keys());
                    vec![("service".to_owned(), reason)]
                }
            };
            for (field, reason) in found {
                problem(item_type::TOOL, key, format!("/{field}"), reason);
            }
        }
    }
}

/// What is wrong with what a tool gives its service, by field.
fn given(tool: &ToolItem, name: &str, service: &ToolService) -> Vec<(String, String)> {
    // A parameter may have the name of any field. Plain data: writing it as JSON cannot fail.
    let item = serde_json::to_value(tool).unwrap_or_default();
    let params = || service.config_params.iter().map(NamedParam::name);
    let unknown = tool
        .extra
        .keys()
        .filter(|field| !params().any(|one| one == *field));
    let unknown = unknown.map(|field| (field.clone(), nearest("field", field, params())));
    let required = service.config_params.iter().filter(|one| one.is_required());
    let missing = required.filter(|one| item[one.name()].is_null());
    let missing = missing.map(|one| {
        let reason = format!("service `{name}` needs it");
        (one.name().to_owned(), reason)
    });
    unknown.chain(missing).collect()
}

/// Profiles that nothing would ever read, with what was probably meant. A name of its own is for other items
/// to name; one letter beside an operation's is a slip.
fn misnamed_profiles<'s>(
    set: &'s Snapshot,
    named: &BTreeSet<&str>,
) -> impl Iterator<Item = (&'s str, &'s str)> {
    let own: BTreeSet<&str> = [DEFAULT_PROFILE]
        .into_iter()
        .chain(Operation::ALL.map(Operation::as_str))
        .chain(set.prompts.keys().map(String::as_str))
        .collect();
    let keys = set.profiles.keys().map(String::as_str);
    let unread = keys.filter(|key| !own.contains(key) && !named.contains(key));
    let unread: Vec<&str> = unread.collect();
    unread.into_iter().filter_map(move |key| {
        let meant = own.iter().find(|one| strsim::osa_distance(key, one) <= 2);
        meant.map(|meant| (key, *meant))
    })
}
