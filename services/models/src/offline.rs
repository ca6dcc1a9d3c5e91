//! The model used where there is none: no language model, and it says so.
//!
//! It searches once with each tool that searches, and quotes the passages that the search ranked first,
//! each with its source. It takes the simplest task type and pattern, and splits a task along the parts
//! that are written down. It reads [`ModelRequest::inputs`]; the rendered prompt is for models that read
//! prose.
//!
//! Invariants: the same request gives the same reply; every statement about the matter is a quotation;
//! where nothing was found it says so; it never claims to have reasoned.

use crate::error::Error;
use crate::{Capabilities, ChatModel, ModelReply, ModelRequest, TextSink};
use agentfleet_schema::Operation;
use async_trait::async_trait;
use serde_json::json;

mod decompose;
mod goal;
mod inputs;
mod judgement;
mod observation;
mod parts;
mod plan;
mod quotes;
mod react;
mod route;
mod synthesise;
mod unable;

/// Words sent before others get a turn.
const WORDS_AT_A_TIME: usize = 16;

/// What there is to say where free text was asked for.
const CANNOT_WRITE: &str = "No language model is configured, so nothing can be written here: the offline \
     model only searches and quotes.";

/// The offline model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offline;

impl Offline {
    pub fn new() -> Self {
        Self
    }

    /// The reply to a request; a pure function of it.
    fn reply(request: &ModelRequest) -> String {
        let inputs = &request.inputs;
        match request.operation {
            Operation::ClassifyTaskType => route::task_type(inputs).to_string(),
            Operation::SelectPattern => unable::told(route::pattern(inputs), inputs).to_string(),
            Operation::Decompose => decompose::goals(inputs).to_string(),
            Operation::React => react::turn(inputs),
            Operation::Review => review(),
            Operation::Synthesise => synthesise::answer(inputs),
            Operation::PlanCreate => plan::steps(inputs).to_string(),
            Operation::PlanRevise => plan::revised().to_string(),
            // One search for the step, or what can be said without one.
            Operation::PlanStep => react::turn(inputs),
            Operation::PlanAssess => plan::assessed(inputs).to_string(),
            Operation::PlanSynthesise => plan::answer(inputs),
            Operation::Critique => judgement::critique().to_string(),
            Operation::Compare => judgement::comparison(inputs).to_string(),
            Operation::Judge => judgement::verdict(inputs),
            Operation::ClassifyIntent => judgement::intent(inputs).to_string(),
            Operation::Gate => judgement::gate(inputs).to_string(),
            Operation::Complete | Operation::Prompt => CANNOT_WRITE.to_owned(),
        }
    }
}

/// Whether more should be found out is a judgement, so the answer is always: no.
fn review() -> String {
    json!({
        "decision": "answer",
        "signal": "no language model is at work, and gaps cannot be judged by counting",
        "rationale": "The results are put together as they are; what is missing is named.",
        "goals": [],
    })
    .to_string()
}

#[async_trait]
impl ChatModel for Offline {
    fn describe(&self) -> String {
        "offline".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            native_tools: false,
            reasons: false,
            metered: false,
        }
    }

    async fn chat(&self, request: ModelRequest, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        let text = Self::reply(&request);
        // Word by word, and letting others speak in between: lanes are seen working side by side.
        for (count, word) in text.split_inclusive(char::is_whitespace).enumerate() {
            sink.text(word);
            if count % WORDS_AT_A_TIME == WORDS_AT_A_TIME - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(ModelReply {
            text,
            model: "offline".to_owned(),
            ..ModelReply::default()
        })
    }
}

#[cfg(test)]
mod tests;
