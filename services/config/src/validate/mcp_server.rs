//! What is wrong with an `mcp-server` item.

use super::Check;
use agentfleet_schema::config::McpServer;

impl Check<'_> {
    pub(super) fn mcp_server(&mut self, server: &McpServer) {
        self.named(&server.name);
        match (&server.url, &server.command) {
            (Some(url), None) => {
                if !url.starts_with("https://") && !url.starts_with("http://") {
                    self.problem("/url", "must begin with `https://` or `http://`");
                }
                if !server.args.is_empty() || !server.env.is_empty() {
                    self.problem("", "`args` and `env` are for a server with `command`");
                }
            }
            (None, Some(command)) => {
                if command.trim().is_empty() {
                    self.problem("/command", "must name a program");
                }
                if !server.headers.is_empty() {
                    self.problem("/headers", "are for a server with `url`");
                }
            }
            (None, None) | (Some(_), Some(_)) => {
                self.problem("", "must have either `url` or `command`");
            }
        }
        for name in server.env.keys() {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.problem(format!("/env/{name}"), "is no name of a variable");
            }
        }
    }
}
