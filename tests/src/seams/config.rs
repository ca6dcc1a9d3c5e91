//! Config in two versions. The second takes a tool away, so that a run that is not pinned shows.

use super::Seam;
use crate::effect::{Effect, Verb};
use agentfleet_config::{ConfigStore, Error, Item, ItemVersion, SeedReport, Seeder};
use agentfleet_schema::Operation;
use agentfleet_schema::config::{
    AgentPattern, AgentTaskType, Approval, DefaultAnswer, Intent, JoinPolicy, PromptItem, Reasoner,
    Snapshot, Specialist, ToolItem, tool_kind,
};
use async_trait::async_trait;
use std::sync::Arc;

/// The versions there are, oldest first.
pub fn snapshots(policy: JoinPolicy, parallel: bool, approval_ms: u64) -> Vec<Arc<Snapshot>> {
    let mut first = Snapshot {
        version: 1,
        ..Snapshot::default()
    };
    for name in [
        "react",
        "supervisor",
        "plan-then-execute",
        "reflexion",
        "debate",
        "router",
    ] {
        let reasoners = ["ada", "ben", "cy"].map(|name| Reasoner {
            name: name.into(),
            stance: format!("You are {name}."),
            ..Reasoner::default()
        });
        let pattern = AgentPattern {
            name: name.into(),
            parallel,
            reasoners: if name == "debate" {
                reasoners.to_vec()
            } else {
                Vec::new()
            },
            ..AgentPattern::default()
        };
        first.patterns.insert(name.into(), pattern);
    }
    first.intents.insert("work".into(), Intent::default());
    let doer = Specialist {
        name: "doer".into(),
        tools: vec!["*".into()],
        ..Specialist::default()
    };
    first.specialists.insert("doer".into(), doer);
    for (name, join) in [("general", JoinPolicy::All), ("quorum", policy)] {
        let task_type = AgentTaskType {
            name: name.into(),
            join,
            ..AgentTaskType::default()
        };
        first.task_types.insert(name.into(), task_type);
    }
    for (name, side_effects) in [("read", false), ("write", true)] {
        let tool = ToolItem {
            name: name.into(),
            kind: "http".into(),
            side_effects,
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            timeout_ms: Some(20_000),
            ..ToolItem::default()
        };
        first.tools.insert(name.into(), tool);
    }
    for (name, side_effects, default) in [
        ("pay", true, DefaultAnswer::Deny),
        ("peek", false, DefaultAnswer::Approve),
    ] {
        let tool = ToolItem {
            name: name.into(),
            effect: side_effects.then_some(agentfleet_schema::config::Effect::Destructive),
            approval: Some(Approval {
                timeout_ms: approval_ms,
                default,
                reason: "it costs".into(),
            }),
            ..first.tools["read"].clone()
        };
        first.tools.insert(name.into(), tool);
    }
    let agent = ToolItem {
        name: "agent".into(),
        kind: tool_kind::AGENT.into(),
        timeout_ms: None,
        ..first.tools["read"].clone()
    };
    first.tools.insert("agent".into(), agent);
    let back = ToolItem {
        name: "back".into(),
        kind: tool_kind::READ_BACK.into(),
        ..ToolItem::default()
    };
    first.tools.insert("back".into(), back);
    for operation in Operation::ALL {
        let prompt = PromptItem {
            prompt: if operation == Operation::ClassifyIntent {
                "{{ message }}".into()
            } else {
                "{{ question }}".into()
            },
            ..PromptItem::default()
        };
        first.prompts.insert(operation.as_str().into(), prompt);
    }
    let mut second = Snapshot {
        version: 2,
        ..first.clone()
    };
    second.tools.remove("write");
    vec![Arc::new(first), Arc::new(second)]
}

#[async_trait]
impl ConfigStore for Seam {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.act(Effect::new(Verb::Config, "newest"), |world, _| {
            Ok(Arc::clone(&world.configs[world.config]))
        })
        .await
    }

    async fn snapshot_at(&self, version: u64) -> Result<Arc<Snapshot>, Error> {
        self.act(
            Effect::new(Verb::Config, version.to_string()),
            |world, _| {
                let found = world
                    .configs
                    .iter()
                    .find(|config| config.version == version);
                Ok(Arc::clone(found.unwrap_or(&world.configs[0])))
            },
        )
        .await
    }

    async fn get(&self, _: &str, _: &str) -> Result<Option<ItemVersion>, Error> {
        Ok(None)
    }

    async fn list(&self, _: Option<&str>) -> Result<Vec<ItemVersion>, Error> {
        Ok(Vec::new())
    }

    async fn history(&self, _: &str, _: &str) -> Result<Vec<ItemVersion>, Error> {
        Ok(Vec::new())
    }

    async fn put(&self, _: Vec<Item>, _: &str) -> Result<u64, Error> {
        Ok(1)
    }

    async fn seed(&self, _: Vec<Item>, _: &Seeder) -> Result<SeedReport, Error> {
        Ok(SeedReport::default())
    }

    async fn delete(&self, _: &str, _: &str, _: &str) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}
