//! Rendering prompts: templates in a sandbox.
//!
//! A template sees its variables and nothing else: no files, no other templates, no clock. What it
//! may spend is bounded. A variable that is not there is an error and never an empty text, because
//! a model would answer a prompt with a hole in it. Templates are compiled once and kept.

use crate::Error;
use agentfleet_schema::Operation;
use agentfleet_schema::config::PromptItem;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value as JinjaValue};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Instructions one template may run.
const FUEL: u64 = 2_000_000;
/// Bytes one template may render to: well below what a model takes.
const MAX_BYTES: u64 = 4 << 20;
/// Compiled templates kept.
const KEPT: usize = 256;
/// The name every template has in its own environment.
const NAME: &str = "prompt";

/// A prompt with its variables filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// May be empty: then there is no system message.
    pub system: String,
    pub prompt: String,
}

/// Renders a prompt item; `id` names it in errors.
pub fn render(id: &str, item: &PromptItem, variables: &Value) -> Result<Rendered, Error> {
    // Both parts see the same variables, which may hold a long history: converted once.
    let given = JinjaValue::from(Serde(variables));
    Ok(Rendered {
        system: part(id, "system", &item.system, variables, &given)?,
        prompt: part(id, "prompt", &item.prompt, variables, &given)?,
    })
}

/// The variables an operation's prompt may use; `None` where they are the caller's own.
pub fn variables(operation: Operation) -> Option<impl Iterator<Item = &'static str>> {
    let names = match operation {
        Operation::ClassifyTaskType => "question task_types fault",
        Operation::SelectPattern => "question task_type framing patterns fault",
        Operation::React => {
            "question framing goal parent_context tools history critiques dispatched iterations_left native last"
        }
        Operation::Decompose => "question framing max_subagents tools patterns groups fault",
        Operation::Review => {
            "question framing results missing rounds_left tools patterns groups fault"
        }
        Operation::Synthesise => "question framing results missing max_words",
        Operation::PlanCreate => "question framing parent_context tools max_steps fault",
        Operation::PlanRevise => {
            "question framing parent_context tools max_steps fault steps next_index reason"
        }
        Operation::PlanStep => {
            "question framing index goal tool_hint previous_results tools native faults"
        }
        Operation::PlanAssess => {
            "question framing goal action arguments observation is_error open_steps"
        }
        Operation::PlanSynthesise => "question framing steps missing",
        Operation::Critique => {
            "question goal framing thought critiques options action arguments observation is_error answer"
        }
        Operation::Compare => "question round answers",
        Operation::Judge => "question framing answers agreed positions disagreements missing",
        Operation::Gate => "question tools entities fault",
        Operation::ClassifyIntent => {
            "message tenant_type active_services recent_topics intents specialists fault"
        }
        Operation::Complete => "question",
        Operation::Prompt => return None,
    };
    Some(names.split(' ').chain(["conversation", "known", "policy"]))
}

/// Why a template cannot be used, if it cannot: a line and a reason.
pub(crate) fn check(id: &str, source: &str) -> Result<(), (usize, String)> {
    let environment = compiled(source).map_err(|error| (line(&error), reason(&error)))?;
    let operation = Operation::ALL
        .into_iter()
        .find(|operation| operation.as_str() == id);
    let Some(known) = operation.and_then(variables) else {
        return Ok(());
    };
    let known: Vec<&str> = known.collect();
    let mut used = used(&environment).into_iter();
    let Some(name) = used.find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let at = source
        .lines()
        .position(|line| line.contains(name.as_str()))
        .unwrap_or(0)
        + 1;
    Err((
        at,
        format!(
            "there is no variable `{name}` (there are {})",
            quoted(&known)
        ),
    ))
}

fn part(
    id: &str,
    part: &'static str,
    source: &str,
    variables: &Value,
    given: &JinjaValue,
) -> Result<String, Error> {
    if !source.contains(['{', '}']) {
        return Ok(source.to_owned());
    }
    let prompt = || id.to_owned();
    let template = |error: &minijinja::Error| Error::Template {
        prompt: prompt(),
        part,
        line: line(error),
        reason: reason(error),
    };
    let environment = compiled(source).map_err(|error| template(&error))?;
    let mut out = Bounded(Vec::new());
    let rendered = environment.get_template(NAME).and_then(|template| {
        template
            .render_captured_to(given.clone(), &mut out)
            .map(drop)
    });
    match rendered {
        Ok(()) => Ok(String::from_utf8_lossy(&out.0).trim_end().to_owned()),
        Err(error) => Err(match error.kind() {
            ErrorKind::UndefinedError => {
                let names = missing(&environment, variables);
                if names.is_empty() {
                    template(&error)
                } else {
                    let mut given: Vec<&String> = variables
                        .as_object()
                        .map(|map| map.keys().collect())
                        .unwrap_or_default();
                    given.sort();
                    Error::MissingVariable {
                        prompt: prompt(),
                        part,
                        names: quoted(&names),
                        given: quoted(&given),
                    }
                }
            }
            ErrorKind::OutOfFuel => Error::TooMuch {
                prompt: prompt(),
                part,
                what: "its work",
                most: FUEL,
            },
            ErrorKind::WriteFailure => Error::TooMuch {
                prompt: prompt(),
                part,
                what: "its length",
                most: MAX_BYTES,
            },
            _ => template(&error),
        }),
    }
}

/// Variables the template uses and nobody gave.
fn missing(environment: &Environment<'_>, variables: &Value) -> Vec<String> {
    let mut names = used(environment);
    names.retain(|name| variables.get(name).is_none());
    names
}

/// The variables of a template, by name.
fn used(environment: &Environment<'_>) -> Vec<String> {
    let Ok(template) = environment.get_template(NAME) else {
        return Vec::new();
    };
    let builtin = |name: &String| environment.globals().any(|(global, _)| global == name);
    let names = template.undeclared_variables(false).into_iter();
    let mut names: Vec<String> = names.collect();
    names.retain(|name| !builtin(name));
    names.sort();
    names
}

fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names
        .iter()
        .map(|name| format!("`{}`", name.as_ref()))
        .collect::<Vec<_>>()
        .join(", ")
}

fn line(error: &minijinja::Error) -> usize {
    error.line().unwrap_or(1)
}

fn reason(error: &minijinja::Error) -> String {
    match (error.detail(), error.kind()) {
        (Some(detail), _) => detail.to_owned(),
        (None, ErrorKind::UndefinedError) => "a value used here does not exist".to_owned(),
        (None, kind) => kind.to_string(),
    }
}

type Compiled = Arc<Environment<'static>>;

/// Templates by their text: the same in every version of the config that holds them.
static COMPILED: LazyLock<Mutex<HashMap<String, Compiled>>> = LazyLock::new(Mutex::default);

fn compiled(source: &str) -> Result<Compiled, minijinja::Error> {
    if let Some(known) = kept().get(source) {
        return Ok(Arc::clone(known));
    }
    let environment = Arc::new(compile(source)?);
    let mut kept = kept();
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(source.to_owned(), Arc::clone(&environment));
    Ok(environment)
}

fn kept() -> std::sync::MutexGuard<'static, HashMap<String, Compiled>> {
    COMPILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Each template has an environment of its own, so that it cannot reach another.
fn compile(source: &str) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    // The filter of the engine escapes for HTML; a model would copy the escapes.
    environment.add_filter("tojson", |value: JinjaValue| {
        serde_json::to_string(&value)
            .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))
    });
    // Variables are JSON, and so is what stands for nothing.
    environment.set_formatter(|out, state, value| {
        if value.is_none() {
            return Ok(out.write_str("null")?);
        }
        minijinja::escape_formatter(out, state, value)
    });
    environment.add_template_owned(NAME, source.to_owned())?;
    Ok(environment)
}

/// Takes bytes up to the limit.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > MAX_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn item(prompt: &str) -> PromptItem {
        PromptItem {
            prompt: prompt.to_owned(),
            ..PromptItem::default()
        }
    }

    fn error(prompt: &str, variables: &Value) -> String {
        render("p", &item(prompt), variables)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn both_parts_are_rendered_and_nothing_is_escaped() {
        let item = PromptItem {
            system: "Be {{ how }}, {{ how | tojson }}.".to_owned(),
            prompt: "{% for x in list %}\n- {{ x }}\n{% endfor %}\nEnd".to_owned(),
            response_type: String::new(),
        };
        let variables = json!({"how": "<b> & \"kind\"", "list": ["a", "b"]});
        let rendered = render("p", &item, &variables).unwrap();
        assert_eq!(
            rendered.system,
            "Be <b> & \"kind\", \"<b> & \\\"kind\\\"\"."
        );
        assert_eq!(rendered.prompt, "- a\n- b\nEnd");
    }

    #[test]
    fn a_missing_variable_names_itself_the_prompt_and_what_there_is() {
        assert_eq!(
            error(
                "{{ question }} {{ framing }} {{ tools }}",
                &json!({"question": "q", "goal": "g"})
            ),
            "prompt `p`, prompt: `framing`, `tools` are not given (given: `goal`, `question`)"
        );
        assert_eq!(
            error("{{ question }}", &json!({})),
            "prompt `p`, prompt: `question` is not given (given: none)"
        );
    }

    #[test]
    fn a_missing_field_names_its_line() {
        let text = error(
            "one\n{% for t in tools %}\n{{ t.nmae }}\n{% endfor %}",
            &json!({"tools": [{"name": "a"}]}),
        );
        assert!(text.contains("line 3"), "{text}");
    }

    #[test]
    fn a_variable_may_be_asked_for_with_is_defined() {
        let rendered = render(
            "p",
            &item("{% if x is defined %}{{ x }}{% endif %}."),
            &json!({}),
        );
        assert_eq!(rendered.unwrap().prompt, ".");
    }

    #[test]
    fn a_template_reaches_no_file_and_no_other_template() {
        for source in [
            "{% include '/etc/passwd' %}",
            "{% extends 'other' %}",
            "{% import 'other' as o %}",
        ] {
            assert!(check("custom", source).is_err(), "{source}");
        }
    }

    #[test]
    fn a_runaway_template_is_ended() {
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert!(
            error(endless, &json!({})).contains("its work"),
            "{}",
            error(endless, &json!({}))
        );
        let long = "{% for a in range(9999) %}{{ text }}{% endfor %}";
        assert!(error(long, &json!({"text": "x".repeat(10_000)})).contains("its length"));
    }

    #[test]
    fn a_wrong_template_of_an_operation_is_found_before_it_is_used() {
        assert_eq!(
            check("agent-react", "{{ question }}{% if last %}!{% endif %}"),
            Ok(())
        );
        let (line, reason) = check("agent-react", "x\n{{ questoin }}").unwrap_err();
        assert_eq!(line, 2);
        assert!(
            reason.contains("`questoin`") && reason.contains("`question`"),
            "{reason}"
        );
        let (line, _) = check("agent-react", "a\nb\n{% if %}").unwrap_err();
        assert_eq!(line, 3);
        // A prompt of one's own has variables of its own.
        assert_eq!(check("my-prompt", "{{ anything }}{{ range(3) }}"), Ok(()));
    }
}
