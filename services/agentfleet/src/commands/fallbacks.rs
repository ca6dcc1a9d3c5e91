//! Whether the models that a profile names can take the place of the fleet's. One that takes tools another way
//! could not go on with a run, and would be found out only when the fleet's model is away.

use crate::engine::model_options;
use crate::error::Failure;
use crate::settings::Settings;
use agentfleet_config::{Item, Problem};
use agentfleet_models::{ModelOptions, native_tools};
use agentfleet_schema::config::{ModelProfile, item_type};
use std::time::Duration;

/// How long a server is asked what its model can do. One that is away says nothing of the item.
const PATIENCE: Duration = Duration::from_secs(5);

/// Refuses items with fallbacks that could never be used.
pub(super) async fn check(items: &[Item], settings: &Settings) -> Result<(), Failure> {
    for item in items {
        if item.item_type != item_type::MODEL_PROFILE {
            continue;
        }
        // One that is no profile is told by the store.
        let Ok(profile) = serde_json::from_value::<ModelProfile>(item.value.clone()) else {
            continue;
        };
        if let Some((at, reason)) = Box::pin(misfit(&profile.fallbacks, settings)).await {
            let problem = Problem {
                item_type: item.item_type.clone(),
                key: item.key.clone(),
                field: format!("/fallbacks/{at}"),
                reason,
            };
            return Err(Failure::usage(problem.to_string()).hint(
                "name models that take tools as the fleet's model does; `--model` names the fleet's, where it is \
                 another than that of the settings here",
            ));
        }
    }
    Ok(())
}

/// The first fallback that does not fit, and why. They are held against the fleet's model, or against each other
/// where the settings here do not say which that is.
async fn misfit(fallbacks: &[String], settings: &Settings) -> Option<(usize, String)> {
    if fallbacks.is_empty() {
        return None;
    }
    let fleet = model_options(settings);
    let named = fleet.model.clone().unwrap_or_else(|| "auto".to_owned());
    let own = takes(&fleet).await.ok().flatten();
    let mut first = own.map(|native| (format!("the fleet's model (`{named}`)"), native));
    for (at, name) in fallbacks.iter().enumerate() {
        // One without a model is told by the store.
        if name
            .split_once(':')
            .is_none_or(|(_, model)| model.is_empty())
        {
            continue;
        }
        let options = ModelOptions {
            model: Some(name.clone()),
            base_url: None,
            ..fleet.clone()
        };
        let native = match takes(&options).await {
            Ok(Some(native)) => native,
            Ok(None) => continue,
            Err(reason) => return Some((at, reason)),
        };
        match &first {
            None => first = Some((format!("`{name}`"), native)),
            Some((_, other)) if *other == native => {}
            Some((other, other_native)) => {
                let (this, that) = (way(native), way(*other_native));
                return Some((
                    at,
                    format!(
                        "`{name}` takes tools {this}, and {other} {that}: neither can go on for the other"
                    ),
                ));
            }
        }
    }
    None
}

async fn takes(options: &ModelOptions) -> Result<Option<bool>, String> {
    match tokio::time::timeout(PATIENCE, native_tools(options)).await {
        Ok(told) => told.map_err(|error| error.to_string()),
        Err(_) => Ok(None),
    }
}

fn way(native: bool) -> &'static str {
    if native {
        "as calls of its API"
    } else {
        "in its text"
    }
}
