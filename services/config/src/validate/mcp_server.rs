//! What is wrong with an `mcp-server` item.

use super::Check;
use agentfleet_schema::config::{McpServer, OAuth};
use agentfleet_schema::names::is_loopback;

/// Whether an address without TLS is on this machine.
fn is_here(url: &str) -> bool {
    let authority = url.strip_prefix("http://").unwrap_or_default();
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let port = authority.rsplit_once(':');
    let port = port.filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    // Of an IPv6 address without a port the last part is within its brackets, and no number.
    is_loopback(port.map_or(authority, |(host, _)| host))
}

impl Check<'_> {
    /// What is wrong with the way to a token.
    pub(super) fn oauth<'h>(
        &mut self,
        oauth: Option<&OAuth>,
        mut headers: impl Iterator<Item = &'h String>,
    ) {
        let Some(oauth) = oauth else {
            return;
        };
        if headers.any(|name| name.eq_ignore_ascii_case("authorization")) {
            let says = "leave it out: the token of `oauth` is sent in it";
            self.problem("/headers/authorization", says);
        }
        let url = &oauth.token_url;
        if !url.starts_with("https://") && !is_here(url) {
            let says = "must begin with `https://`, or be on the loopback interface: a secret is sent there";
            self.problem("/oauth/token-url", says);
        }
        if oauth.client_id.trim().is_empty() {
            self.problem("/oauth/client-id", "must not be empty");
        }
        let secret = oauth.client_secret.strip_prefix("${");
        if !secret.is_some_and(|rest| rest.ends_with('}')) {
            let says = "must be `${NAME}`, the name of a secret: the config is no place for the secret itself";
            self.problem("/oauth/client-secret", says);
        }
    }

    pub(super) fn mcp_server(&mut self, server: &McpServer) {
        self.named(&server.name);
        match (&server.url, &server.command) {
            (Some(url), None) => {
                if !url.starts_with("https://") && !url.starts_with("http://") {
                    self.problem("/url", "must begin with `https://` or `http://`");
                }
                self.oauth(server.oauth.as_ref(), server.headers.keys());
                if !server.args.is_empty() || !server.env.is_empty() {
                    self.problem("", "`args` and `env` are for a server with `command`");
                }
            }
            (None, Some(command)) => {
                if command.trim().is_empty() {
                    self.problem("/command", "must name a program");
                }
                if server.oauth.is_some() {
                    self.problem("/oauth", "is for a server with `url`");
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
