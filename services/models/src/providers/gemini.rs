//! Gemini's `generateContent`.

use super::failure::Fault;
use super::messages::{Turn, parameters, system_text};
use super::protocol::Outgoing;
use super::reply::{Piece, Reply, tokens};
use agentfleet_schema::config::portable_name;
use serde_json::{Value, json};

/// Stands for the signed thinking that Gemini 3 wants with the first call of a turn, and that no step
/// carries: https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The model is part of the path, and a request may name one: it must not lead elsewhere.
pub(super) fn url(base_url: &str, call: &Outgoing<'_>) -> Result<String, String> {
    let model = call.model;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@');
    if !model.chars().all(plain)
        || model
            .split('/')
            .any(|part| part.trim_matches('.').is_empty())
    {
        return Err(format!(
            "`{}` is no name of a model",
            super::bounds::name(model)
        ));
    }
    Ok(if call.streaming {
        format!("{base_url}models/{model}:streamGenerateContent?alt=sse")
    } else {
        format!("{base_url}models/{model}:generateContent")
    })
}

pub(super) fn body(call: &Outgoing<'_>) -> Value {
    let mut body = json!({});
    let system = system_text(call.turns);
    if !system.is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": system}]});
    }
    if !call.tools.is_empty() {
        let declared: Value = call
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": portable_name(&tool.name), "description": tool.description,
                    "parametersJsonSchema": parameters(tool),
                })
            })
            .collect();
        body["tools"] = json!([{"functionDeclarations": declared}]);
    }
    let signs = call.model.contains("gemini-3");
    body["contents"] = call
        .turns
        .iter()
        .filter_map(|turn| content(turn, signs))
        .collect();
    let mut config = json!({});
    if let Some((_, schema)) = call.schema {
        config["responseMimeType"] = json!("application/json");
        config["responseJsonSchema"] = schema.clone();
    }
    if let Some(temperature) = call.temperature {
        config["temperature"] = json!(temperature);
    }
    if let Some(max) = call.max_tokens {
        config["maxOutputTokens"] = json!(max);
    }
    if config != json!({}) {
        body["generationConfig"] = config;
    }
    body
}

fn content(turn: &Turn, signs: bool) -> Option<Value> {
    match turn {
        // Goes apart.
        Turn::System(_) => None,
        Turn::User(text) => Some(json!({"role": "user", "parts": [{"text": text}]})),
        Turn::Assistant { text, calls } => {
            let said = (!text.is_empty()).then(|| json!({"text": text}));
            let called = calls.iter().zip(0..).map(|(call, n)| {
                let mut part = json!({"functionCall": {
                    "id": call.id, "name": call.name, "args": call.arguments,
                }});
                if signs && n == 0 {
                    part["thoughtSignature"] = json!(NO_SIGNATURE);
                }
                part
            });
            let parts: Vec<Value> = said.into_iter().chain(called).collect();
            (!parts.is_empty()).then(|| json!({"role": "model", "parts": parts}))
        }
        Turn::Results(results) => {
            let parts: Value = results
                .iter()
                .map(|result| {
                    json!({"functionResponse": {
                        "id": result.id, "name": result.name,
                        "response": {"name": result.name, "content": result.content},
                    }})
                })
                .collect();
            Some(json!({"role": "user", "parts": parts}))
        }
    }
}

/// A chunk of a stream is a whole reply with less in it.
pub(super) fn take(told: &Value, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.is_by(told.get("modelVersion"));
    if let Some(usage) = told.get("usageMetadata") {
        read_usage(usage, reply);
    }
    if let Some(reason) = told.pointer("/promptFeedback/blockReason") {
        reply.refused = true;
        reply.stops(Some(reason));
    }
    let parts = told.pointer("/candidates/0/content/parts");
    for part in parts.and_then(Value::as_array).into_iter().flatten() {
        // What a model thinks by itself is not part of its reply.
        if part.get("thought") != Some(&Value::Bool(true)) {
            reply.say(part.get("text"))?;
        }
        if let Some(call) = part.get("functionCall") {
            let text = |field: &str| call.get(field).and_then(Value::as_str).unwrap_or_default();
            reply.call(Piece {
                index: None,
                id: text("id"),
                name: text("name"),
                arguments: call.get("args"),
            })?;
        }
    }
    reply.stops(told.pointer("/candidates/0/finishReason"));
    Ok(())
}

/// Thinking is not among the tokens of the candidates, and what tools read is not among the prompt's.
fn read_usage(usage: &Value, reply: &mut Reply<'_>) {
    let sum = |fields: [&str; 2]| {
        let told = fields.map(|field| tokens(usage.get(field)));
        told.iter()
            .any(Option::is_some)
            .then(|| told.iter().flatten().sum())
    };
    if let Some(input) = sum(["promptTokenCount", "toolUsePromptTokenCount"]) {
        reply.usage.input_tokens = input;
    }
    if let Some(output) = sum(["candidatesTokenCount", "thoughtsTokenCount"]) {
        reply.usage.output_tokens = output;
    }
}
