//! From what the core asks to what a model is sent: rendered prompt, native transcript, tools,
//! profile and bounds.

use crate::Options;
use agentfleet_core::bounds;
use agentfleet_core::limits::{FleetLimits, Left, Limits};
use agentfleet_core::prices::{prices, profile};
use agentfleet_core::{AfterCut, ModelAsk, Reply, task_types};
use agentfleet_models::{Kind, Message, ModelReply, ModelRequest, ToolSpec, Tried, tokens_in};
use agentfleet_schema::config::{Fallbacks, Snapshot};
use agentfleet_schema::records::{FailedTry, Trouble, Usage};
use agentfleet_schema::tolerant::text_of;
use agentfleet_schema::{AgentRequest, AgentStep, Operation, Spent, StepKind};
use agentfleet_tools::Tools;
use serde_json::{Value, json};

/// Builds the call that a request's turn asks for. `Err` says which prompt could not be rendered, and
/// why.
pub(crate) fn request(
    ask: &ModelAsk,
    of: &AgentRequest,
    snapshot: &Snapshot,
    options: &Options,
    tools: &dyn Tools,
) -> Result<ModelRequest, String> {
    let profile = profile(snapshot, of, ask.operation);
    Ok(ModelRequest {
        operation: ask.operation,
        messages: messages(ask, of, snapshot, &options.default_prompts)?,
        tools: ask
            .tools
            .iter()
            .map(|tool| ToolSpec {
                name: tool.name.clone(),
                description: tool.description.clone(),
                parameters: tools.parameters(tool),
            })
            .collect(),
        schema: ask.schema.clone(),
        inputs: ask.variables.clone(),
        fallbacks: snapshot.fallbacks(&profile, fallbacks(of, snapshot, &options.limits)),
        model: named(profile.model, &of.model),
        temperature: profile.temperature,
        max_tokens: profile.max_tokens,
        timeout: options.model_timeout,
    })
}

/// What the model reads: the rendered prompt, then the native transcript.
pub(crate) fn messages(
    ask: &ModelAsk,
    of: &AgentRequest,
    snapshot: &Snapshot,
    defaults: &Snapshot,
) -> Result<Vec<Message>, String> {
    let id = task_types::prompt_of(of, snapshot, ask.operation);
    let rendered = {
        let from = if snapshot.prompts.contains_key(id) {
            snapshot
        } else {
            defaults
        };
        let Some(item) = from.prompts.get(id) else {
            return Err(format!("there is no prompt `{id}`: seed the config"));
        };
        agentfleet_config::prompts::render(id, item, &ask.variables)
            .map_err(|error| error.to_string())?
    };
    let mut messages = Vec::new();
    if !rendered.system.is_empty() {
        messages.push(Message::System(rendered.system));
    }
    messages.push(Message::User(rendered.prompt));
    for (step, n) in ask.transcript.iter().zip(1..) {
        shown(step, n, &mut messages);
    }
    match &ask.cut {
        None => {}
        Some(AfterCut::GoOn(text)) => {
            messages.push(Message::Assistant(text.clone()));
            messages.push(Message::User(GO_ON.to_owned()));
        }
        Some(AfterCut::Anew) => told_beside(&mut messages, ANEW),
        Some(AfterCut::Silence) => told_beside(&mut messages, SILENCE),
    }
    Ok(messages)
}

/// Adds what is wrong with the last reply to what is asked.
fn told_beside(messages: &mut Vec<Message>, note: &str) {
    match messages.last_mut() {
        // Not every model takes two in a row.
        Some(Message::User(text)) => text.push_str(&format!("\n\n{note}")),
        _ => messages.push(Message::User(note.to_owned())),
    }
}

/// What a model is told whose text was cut.
const GO_ON: &str = "Your reply was cut at the limit of its length. Go on exactly where it ends: repeat \
                     nothing of it, and add no introduction.";
/// What a model is told whose object was cut.
const ANEW: &str = "Your last reply was cut at the limit of its length before its JSON was complete. \
                    Reply again from the beginning, and shorter.";

/// What a model is told that said nothing.
const SILENCE: &str = "Your last reply was empty: it had no text and called no tool. Reply to this now, in the form \
                       that is asked for.";

/// A step of the history as a native call and its result; what was no call, as plain turns.
fn shown(step: &AgentStep, n: usize, messages: &mut Vec<Message>) {
    let is_call = step.is(StepKind::React) && !step.action.starts_with("__");
    if is_call {
        let id = format!("call-{n}");
        messages.push(Message::ToolCall {
            id: id.clone(),
            name: step.action.clone(),
            arguments: json!(step.arguments),
            thought: step.thought.clone(),
        });
        messages.push(Message::ToolResult {
            id,
            name: step.action.clone(),
            content: step.observation.clone(),
        });
    } else {
        if !step.thought.is_empty() {
            messages.push(Message::Assistant(step.thought.clone()));
        }
        if !step.observation.is_empty() {
            messages.push(Message::User(step.observation.clone()));
        }
    }
}

/// The model of a call: the request's where it names one, else the profile's.
fn named(of_the_profile: String, of_the_request: &str) -> String {
    if of_the_request.is_empty() {
        of_the_profile
    } else {
        of_the_request.to_owned()
    }
}

/// Where calls of a request, and of its tools, may go if their model is away: nowhere if its caller named the
/// model, and where the run is bounded in money only to models that have a price.
pub(crate) fn fallbacks(of: &AgentRequest, snapshot: &Snapshot, fleet: &FleetLimits) -> Fallbacks {
    if !of.model.is_empty() {
        return Fallbacks::Nowhere;
    }
    let bounded = Limits::of(of, snapshot, fleet).budget.cost;
    bounded.map_or(Fallbacks::All, |_| Fallbacks::Priced)
}

/// Models that were to reply before, as records tell it.
pub(crate) fn tried(tried: &[Tried]) -> Vec<FailedTry> {
    let told = tried.iter().map(|one| FailedTry {
        of: one.of.clone(),
        why: match one.kind {
            _ if one.passed_over => Trouble::PassedOver,
            Kind::Timeout | Kind::ConnectTimeout => Trouble::Timeout,
            Kind::RateLimited => Trouble::RateLimited,
            _ => Trouble::Unavailable,
        },
        error: bounds::reason(&one.error).into_owned(),
    });
    told.collect()
}

/// Output tokens that a call is taken to come to where its profile sets no bound.
const UNBOUNDED_OUTPUT: u64 = 1_000;

/// Output tokens without which a reply is of no use.
const LEAST_OUTPUT: u64 = 64;
/// Where a budget has room for more output than this, a call is not bounded by it: models refuse bounds
/// that are above their own.
const MOST_OUTPUT: u64 = 4_096;

/// What one call may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounded {
    /// For as long as nobody knows what it came to.
    pub reserved: Spent,
    /// Its output tokens, where they are bounded.
    pub max_tokens: Option<u32>,
}

/// Bounds a call so that its session stays within what is left to it. `Err` says why it is not made at
/// all: its prompt and a short reply would cost more than that. `metered` says whether its model costs
/// anything.
pub(crate) fn bounded(
    snapshot: &Snapshot,
    of: &AgentRequest,
    operation: Operation,
    prompt: &str,
    left: Left,
    metered: bool,
) -> Result<Bounded, String> {
    let asked = profile(snapshot, of, operation).max_tokens;
    let prices = prices(snapshot, of, operation);
    let wanted = asked.map_or(UNBOUNDED_OUTPUT, u64::from);
    let costing = |output_tokens| {
        let usage = Usage {
            input_tokens: tokens_in(prompt.len()),
            output_tokens,
            ..Usage::default()
        };
        let usage = if metered { prices.priced(usage) } else { usage };
        Spent {
            model_calls: 1,
            ..usage.spent()
        }
    };
    let (nothing, least) = (costing(0), costing(LEAST_OUTPUT.min(wanted)));
    let left_of = left;
    let too_little = |left: String, needed: String| {
        let of = left_of.of();
        format!("{of} has {left} left, and the next model call needs at least {needed}")
    };
    let mut room = u64::MAX;
    if let Some(tokens) = left.tokens {
        if tokens < least.tokens {
            let needed = format!("{} tokens", least.tokens);
            return Err(too_little(format!("{tokens} tokens"), needed));
        }
        room = room.min(tokens - nothing.tokens);
    }
    if let Some(cost) = left.cost {
        if cost < least.cost {
            let needed = format!("{} in money", least.cost);
            return Err(too_little(format!("{cost} in money"), needed));
        }
        let rest = cost.as_millionths() - nothing.cost.as_millionths();
        let price = prices.output_price.unwrap_or_default();
        if price > 0.0 {
            // Prices are of a million tokens, and money is in millionths.
            room = room.min((rest as f64 / price) as u64);
        }
    }
    let bound = asked.map_or(MOST_OUTPUT, u64::from);
    Ok(Bounded {
        reserved: costing(wanted.min(room)),
        max_tokens: if room < bound {
            Some(room as u32)
        } else {
            asked
        },
    })
}

/// The reply as the core reads it.
pub(crate) fn reply(reply: &ModelReply, usage: Usage, ms: u64) -> Reply {
    Reply {
        text: reply.text.clone(),
        tool_calls: reply
            .tool_calls
            .iter()
            .map(|call| {
                let arguments = match &call.arguments {
                    Value::Object(map) => map
                        .iter()
                        .map(|(name, value)| (name.clone(), text_of(value.clone())))
                        .collect(),
                    _ => std::collections::BTreeMap::new(),
                };
                (call.name.clone(), arguments)
            })
            .collect(),
        usage,
        ms,
        cut: reply.cut,
        tried: tried(&reply.tried),
        earlier: 0,
    }
}

/// The rendered messages as the record keeps them.
pub(crate) fn prompt_text(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        let (role, content) = match message {
            Message::System(content) => ("system", content.clone()),
            Message::User(content) => ("user", content.clone()),
            Message::Assistant(content) => ("assistant", content.clone()),
            Message::ToolCall {
                name,
                arguments,
                thought,
                ..
            } => ("tool call", format!("{thought}\n{name} {arguments}")),
            Message::ToolResult { name, content, .. } => {
                ("tool result", format!("{name}\n{content}"))
            }
        };
        text.push_str(&format!("[{role}]\n{content}\n\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

/// The reply as the record keeps it.
pub(crate) fn reply_text(reply: &ModelReply) -> String {
    if reply.tool_calls.is_empty() {
        return reply.text.clone();
    }
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .map(|call| json!({"name": call.name, "arguments": call.arguments}))
        .collect();
    json!({"text": reply.text, "tool_calls": calls}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::config::ModelProfile;

    #[test]
    fn a_model_of_the_request_overrides_the_profile() {
        assert_eq!(named("large".into(), ""), "large");
        assert_eq!(named("large".into(), "small"), "small");
    }

    #[test]
    fn a_call_is_bounded_by_what_is_left_and_not_made_where_that_is_too_little() {
        use agentfleet_schema::Money;
        let bounded_by = |left: Left, max_tokens: Option<u32>| {
            let mut snapshot = Snapshot::default();
            let profile = ModelProfile {
                max_tokens,
                input_price: Some(10.0),
                output_price: Some(20.0),
                ..ModelProfile::default()
            };
            snapshot.profiles.insert("default".into(), profile);
            // A hundred tokens.
            let prompt = "word".repeat(100);
            let of = AgentRequest::default();
            bounded(&snapshot, &of, Operation::React, &prompt, left, true)
        };
        let tokens = |tokens| Left {
            tokens: Some(tokens),
            ..Left::default()
        };
        let money = |millionths| Left {
            cost: Some(Money::millionths(millionths)),
            ..Left::default()
        };
        for (left, asked, expected) in [
            (Left::default(), None, Some((1_100, None))),
            (Left::default(), Some(300), Some((400, Some(300)))),
            // Far from its end, a budget bounds nothing.
            (tokens(100_000), None, Some((1_100, None))),
            (tokens(2_000), None, Some((1_100, Some(1_900)))),
            (tokens(500), None, Some((500, Some(400)))),
            (tokens(500), Some(300), Some((400, Some(300)))),
            (tokens(300), Some(300), Some((300, Some(200)))),
            (tokens(164), None, Some((164, Some(64)))),
            (tokens(163), None, None),
            // A short bound of the profile's own is no obstacle.
            (tokens(120), Some(20), Some((120, Some(20)))),
            // The prompt costs 1,000 millionths, and each token of the reply 20.
            (money(5_000), None, Some((300, Some(200)))),
            (money(2_280), None, Some((164, Some(64)))),
            (money(2_279), None, None),
        ] {
            let told = bounded_by(left, asked);
            let found = told.as_ref().ok();
            let found = found.map(|bounded| (bounded.reserved.tokens, bounded.max_tokens));
            assert_eq!(found, expected, "{left:?} {asked:?}: {told:?}");
        }
        let why = bounded_by(money(2_279), None).err();
        let expected = "the budget has 0.002279 in money left, and the next model call needs at least \
                        0.00228 in money";
        assert_eq!(why.as_deref(), Some(expected));
    }
}
