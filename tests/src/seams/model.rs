//! A model that answers by operation and inputs, may be unavailable, and may never return.

use super::{Seam, script};
use crate::effect::{Effect, Fault, Verb, When};
use crate::scenario::{Trouble, named_in};
use agentfleet_models::{Capabilities, ChatModel, Error, Kind, ModelReply, ModelRequest, TextSink};
use agentfleet_schema::records::Usage;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

fn failure(message: &str, retry_after: Option<Duration>) -> Error {
    match retry_after {
        Some(after) => Error::new(Kind::Unavailable, message).after(after),
        None => Error::new(Kind::Refused, message),
    }
}

#[async_trait]
impl ChatModel for Seam {
    fn describe(&self) -> String {
        "simulated".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            native_tools: false,
            reasons: true,
            metered: true,
        }
    }

    async fn chat(&self, request: ModelRequest, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        let mut about = ["goal", "question", "message"]
            .into_iter()
            .filter_map(|field| named_in(request.inputs[field].as_str()?));
        let name = about.next().unwrap_or_default().to_owned();
        let effect = Effect::new(
            Verb::Chat,
            format!("{} [{name}]", request.operation.as_str()),
        );
        self.pause(When::Before, &effect).await;
        let (fault, scenario, variation) = self.shared.with(|world| {
            let fault = world.strike(&effect);
            world.log(&effect, fault);
            world.on_start(&effect);
            world.on_chat(request.operation);
            let asked = world
                .asked
                .entry(script::same(&name, &request))
                .or_default();
            let before = *asked;
            *asked += 1;
            let scenario = Arc::clone(&world.scenario);
            let variation = if scenario.fickle { before } else { 0 };
            (fault, scenario, variation)
        });
        match (scenario.trouble_of(&name), fault) {
            (Trouble::Stuck, _) => {
                self.shared.with(|world| {
                    if let Some(task) = world.task() {
                        task.stuck = true;
                    }
                });
                std::future::pending::<()>().await;
            }
            (Trouble::Refused, _) | (_, Some(Fault::Permanent)) => {
                self.pause(When::After, &effect).await;
                return Err(failure("the model declined", None));
            }
            (Trouble::Unavailable, _) | (_, Some(Fault::Refused)) => {
                self.pause(When::After, &effect).await;
                return Err(failure(
                    "the model is overloaded",
                    Some(Duration::from_secs(2)),
                ));
            }
            (Trouble::None | Trouble::Poison | Trouble::Deadly, _) => {}
        }
        let text = script::reply(&scenario, &name, &request, variation);
        // In two pieces, with something happening in between.
        let (first, rest) = text.split_at(text.len() / 2);
        for piece in [first, rest] {
            sink.text(piece);
            self.pause(When::During, &effect).await;
        }
        self.pause(When::After, &effect).await;
        Ok(ModelReply {
            text,
            usage: Usage {
                input_tokens: 7,
                output_tokens: 5,
                cost: 0.0,
                unpriced_calls: 0,
            },
            model: "simulated".to_owned(),
            ..ModelReply::default()
        })
    }
}
