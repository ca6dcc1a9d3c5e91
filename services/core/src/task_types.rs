//! What a task type settles for its runs, and what it leaves to callers.

use crate::conductor;
use crate::error::{Code, Rejection};
use crate::say;
use agentfleet_schema::config::{AgentTaskType, Snapshot, choice};
use agentfleet_schema::records::Decision;
use agentfleet_schema::{AgentRequest, Operation};

/// The framing of a run: the caller's or the type's, and when the task is done.
pub fn framing(item: Option<&AgentTaskType>, asked: &str) -> String {
    let Some(item) = item else {
        return asked.to_owned();
    };
    let own = asked.is_empty() || is_fixed(item, choice::FRAMING);
    let framing = if own { &item.framing_prompt } else { asked };
    let done_when = item.termination.done_when.trim();
    if done_when.is_empty() {
        return framing.to_owned();
    }
    let both = format!("{framing}\n\nThe task is done when: {done_when}");
    both.trim().to_owned()
}

/// Frames a run whose pattern was given with its task type: no router does.
pub fn frame(request: &mut AgentRequest, snapshot: &Snapshot) {
    let is_fork = request.control.forked_from.is_some();
    if request.step > 0 || request.is_subagent() || is_fork || request.pattern.is_empty() {
        return;
    }
    if let Some(item) = snapshot.task_types.get(&request.task_type) {
        request.framing = framing(Some(item), &request.framing);
    }
}

pub fn is_fixed(item: &AgentTaskType, what: &str) -> bool {
    item.fixed.iter().any(|fixed| fixed == what)
}

/// What a request chooses although its task type does not leave it to callers.
pub fn overstepped(request: &AgentRequest, item: &AgentTaskType) -> Vec<&'static str> {
    let chosen = [
        (choice::JOIN, request.join.is_some()),
        (choice::MODEL, !request.model.is_empty()),
        (choice::FRAMING, !request.framing.is_empty()),
        (choice::GROUP, request.group.is_some()),
    ];
    let chosen = chosen.into_iter().filter(|(_, is_chosen)| *is_chosen);
    chosen
        .map(|(what, _)| what)
        .filter(|what| is_fixed(item, what))
        .collect()
}

/// Takes back what a request chooses and may not.
pub fn hold(request: &mut AgentRequest, overstepped: &[&str]) {
    for what in overstepped {
        match *what {
            choice::JOIN => request.join = None,
            choice::MODEL => request.model.clear(),
            choice::GROUP => request.group = None,
            // The framing is settled by `framing`.
            _ => {}
        }
    }
}

/// Refuses a new run that names its task type and chooses what that does not leave to callers.
pub fn check(request: &AgentRequest, snapshot: &Snapshot) -> Result<(), Rejection> {
    // A fork was taken in once, as what it goes on from.
    let is_fork = request.control.forked_from.is_some();
    if request.step > 0 || request.is_subagent() || is_fork {
        return Ok(());
    }
    if let Some(what) = conductor::unknown(request, snapshot) {
        let hint = "name one of the config; a conversation keeps its policy until another is named";
        return Err(Rejection::invalid(Code::InvalidRequest, what, hint));
    }
    let Some(item) = snapshot.task_types.get(&request.task_type) else {
        return Ok(());
    };
    let valid = &item.valid_patterns;
    if !request.pattern.is_empty() && !valid.is_empty() && !valid.contains(&request.pattern) {
        let valid: Vec<String> = valid.iter().map(|name| format!("`{name}`")).collect();
        return Err(Rejection::invalid(
            Code::InvalidRequest,
            format!(
                "task type `{}` does not allow pattern `{}`",
                request.task_type, request.pattern
            ),
            format!(
                "ask with {}, leave the pattern out, or choose another task type",
                valid.join(" or ")
            ),
        ));
    }
    match overstepped(request, item).first() {
        None => Ok(()),
        Some(what) => Err(Rejection::invalid(
            Code::InvalidRequest,
            format!(
                "task type `{}` does not let callers choose `{what}`",
                request.task_type
            ),
            format!("leave `{what}` out, or choose another task type"),
        )),
    }
}

/// The task type that a new run names and that is not configured, if so.
pub(crate) fn unknown<'a>(request: &'a AgentRequest, snapshot: &Snapshot) -> Option<&'a str> {
    let is_fork = request.control.forked_from.is_some();
    let is_new = request.step == 0 && !request.is_subagent() && !is_fork;
    let named = request.task_type.as_str();
    (is_new && !named.is_empty() && !snapshot.task_types.contains_key(named)).then_some(named)
}

/// Takes back the task type of a new run that is not configured, and tells so: a run that comes over the
/// queue was not refused at a door.
pub fn settle(request: &mut AgentRequest, snapshot: &Snapshot) -> Option<Decision> {
    let signal = format!(
        "the request names task type `{}`, which is not configured",
        unknown(request, snapshot)?
    );
    request.task_type.clear();
    let chosen = if request.pattern.is_empty() {
        "router"
    } else {
        "none"
    };
    Some(say::only(
        "override-task-type",
        chosen,
        format!(
            "the {} configured task types, version {}",
            snapshot.task_types.len(),
            snapshot.version
        ),
        signal,
    ))
}

/// Why a fork may not be made, if its task type does not allow what is to be otherwise: another `pattern`,
/// or another `model`.
pub fn check_fork(
    request: &AgentRequest,
    pattern: Option<&str>,
    model: bool,
    snapshot: &Snapshot,
) -> Result<(), String> {
    let named = &request.task_type;
    let Some(item) = snapshot.task_types.get(named) else {
        return Ok(());
    };
    if let Some(pattern) = pattern
        && !item.valid_patterns.is_empty()
        && !item.valid_patterns.iter().any(|valid| valid == pattern)
    {
        return Err(format!(
            "task type `{named}` does not allow pattern `{pattern}`"
        ));
    }
    if model && is_fixed(item, choice::MODEL) {
        return Err(format!(
            "task type `{named}` does not let callers choose `{}`",
            choice::MODEL
        ));
    }
    Ok(())
}

/// Id of the prompt of an operation: the task type's own, if it has one.
pub fn prompt_of<'a>(
    request: &AgentRequest,
    snapshot: &'a Snapshot,
    operation: Operation,
) -> &'a str {
    let item = snapshot.task_types.get(&request.task_type);
    let own = item.and_then(|item| item.prompts.get(operation.as_str()));
    own.map_or(operation.as_str(), String::as_str)
}

/// Key of the model profile that a task type gives the pattern of a request; empty if none.
pub fn profile_of<'a>(request: &AgentRequest, snapshot: &'a Snapshot) -> &'a str {
    let item = snapshot.task_types.get(&request.task_type);
    let own = item.and_then(|item| item.profiles.get(&request.pattern));
    own.map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use agentfleet_schema::config::{JoinPolicy, TerminationCriteria};

    fn item(fixed: &[&str]) -> AgentTaskType {
        AgentTaskType {
            framing_prompt: "By dimension.".into(),
            termination: TerminationCriteria {
                done_when: "each has a source".into(),
                max_failures: None,
            },
            fixed: fixed.iter().map(|what| (*what).to_owned()).collect(),
            ..AgentTaskType::default()
        }
    }

    #[test]
    fn a_run_whose_pattern_is_given_is_framed_and_a_fork_is_held_to_what_is_fixed() {
        let mut snapshot = Snapshot::default();
        let mut item = item(&[choice::MODEL]);
        item.valid_patterns = vec!["react".into()];
        snapshot.task_types.insert("risk".into(), item);
        let given = AgentRequest {
            pattern: "react".into(),
            task_type: "risk".into(),
            ..AgentRequest::default()
        };
        let mut framed = given.clone();
        frame(&mut framed, &snapshot);
        assert!(
            framed.framing.starts_with("By dimension."),
            "{}",
            framed.framing
        );
        let mut later = AgentRequest {
            step: 1,
            ..given.clone()
        };
        frame(&mut later, &snapshot);
        assert_eq!(later.framing, "");
        for (pattern, model, expected) in [
            (None, false, None),
            (Some("react"), false, None),
            (
                Some("debate"),
                false,
                Some("does not allow pattern `debate`"),
            ),
            (None, true, Some("does not let callers choose `model`")),
        ] {
            let refused = check_fork(&given, pattern, model, &snapshot).err();
            match expected {
                None => assert_eq!(refused, None),
                Some(why) => assert!(refused.unwrap_or_default().contains(why)),
            }
        }
    }

    #[test]
    fn the_framing_says_when_the_task_is_done_whoever_gave_it() {
        let done = "\n\nThe task is done when: each has a source";
        for (fixed, asked, expected) in [
            (&[][..], "", format!("By dimension.{done}")),
            (&[], "Mine.", format!("Mine.{done}")),
            (&["framing"], "Mine.", format!("By dimension.{done}")),
        ] {
            assert_eq!(framing(Some(&item(fixed)), asked), expected);
        }
        assert_eq!(framing(None, "Mine."), "Mine.");
        assert_eq!(framing(Some(&AgentTaskType::default()), ""), "");
    }

    #[test]
    fn a_pattern_that_a_type_does_not_list_is_refused_with_those_it_does() {
        let checked = |valid: &[&str], pattern: &str| {
            let mut snapshot = Snapshot::default();
            let item = AgentTaskType {
                valid_patterns: valid.iter().map(|name| (*name).to_owned()).collect(),
                ..AgentTaskType::default()
            };
            snapshot.task_types.insert("risk".into(), item);
            let request = AgentRequest {
                task_type: "risk".into(),
                pattern: pattern.into(),
                ..AgentRequest::default()
            };
            check(&request, &snapshot)
        };
        for (valid, pattern) in [
            (&[][..], "supervisor"),
            (&["react"], ""),
            (&["react", "debate"], "debate"),
        ] {
            assert_eq!(checked(valid, pattern), Ok(()), "{valid:?} {pattern}");
        }
        let refused = format!("{:?}", checked(&["react", "debate"], "supervisor"));
        for part in [
            "`risk` does not allow pattern `supervisor`",
            "`react` or `debate`",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }

    #[test]
    fn what_a_type_fixes_is_refused_by_name_and_what_it_does_not_is_the_callers() {
        let request = AgentRequest {
            task_type: "risk".into(),
            model: "large".into(),
            join: Some(JoinPolicy::Quorum),
            ..AgentRequest::default()
        };
        let checked = |fixed: &[&str], request: &AgentRequest| {
            let mut snapshot = Snapshot::default();
            snapshot.task_types.insert("risk".into(), item(fixed));
            check(request, &snapshot)
        };
        assert_eq!(checked(&[], &request), Ok(()));
        assert_eq!(checked(&["group", "framing"], &request), Ok(()));
        let Err(Rejection::Invalid(error)) = checked(&["model"], &request) else {
            panic!("it was taken")
        };
        assert!(error.message.contains("`model`"), "{}", error.message);
        // Later steps and subagents were told before, or are not the caller's.
        let later = AgentRequest {
            step: 1,
            ..request.clone()
        };
        assert_eq!(checked(&["model"], &later), Ok(()));
        let mut held = request;
        hold(&mut held, &["model", "join"]);
        assert_eq!((held.model.as_str(), held.join), ("", None));
    }
}
