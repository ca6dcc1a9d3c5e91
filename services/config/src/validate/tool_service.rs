//! What is wrong with a `tool-service` item.

use super::Check;
use agentfleet_schema::config::ToolService;
use agentfleet_schema::topics::Topic;
use std::collections::BTreeSet;

impl Check<'_> {
    pub(super) fn tool_service(&mut self, service: &ToolService) {
        if !service.id.is_empty() && service.id != self.item.key {
            let says = format!(
                "the id `{}` must equal the key `{}`",
                service.id, self.item.key
            );
            self.problem("/id", says);
        }
        let request = self.queue("/request-queue", &service.request_queue);
        let response = self.queue("/response-queue", &service.response_queue);
        if request.is_some() && request == response {
            let says =
                "must be another topic than `request-queue`: a service would get its own answers";
            self.problem("/response-queue", says);
        }
        let mut names = BTreeSet::new();
        for (index, param) in service.config_params.iter().enumerate() {
            if param.name().is_empty() || !names.insert(param.name()) {
                let says = "each parameter must have a name of its own";
                self.problem(format!("/config-params/{index}"), says);
            }
        }
    }

    /// The topic that a queue stands for.
    fn queue(&mut self, field: &str, queue: &str) -> Option<Topic> {
        match Topic::of_queue(queue) {
            Err(says) => self.problem(field, says),
            Ok(topic) if topic.is_of_fleet() => {
                let says = format!("`{topic}` is a topic of the fleet itself: name another");
                self.problem(field, says);
            }
            Ok(topic) => return Some(topic),
        }
        None
    }
}
