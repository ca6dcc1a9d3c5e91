//! How an MCP server is reached: its item, with secrets in place.

use crate::Secrets;
use crate::kinds::http_address::check;
use crate::secrets::Used;
use agentfleet_schema::config::McpServer;
use reqwest::Url;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a server may take until it has answered for the first time. Some programs are fetched first.
const HTTP_PATIENCE: Duration = Duration::from_secs(15);
const PROGRAM_PATIENCE: Duration = Duration::from_secs(60);

/// What differs in anything, be it a secret, is another connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Http {
        url: Url,
        headers: BTreeMap<String, String>,
    },
    Program {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
    },
}

impl Way {
    /// Refuses what this process may not reach or start.
    pub(crate) fn of(
        server: &McpServer,
        secrets: &Secrets,
        programs: &[String],
        used: &mut Used,
    ) -> Result<Self, String> {
        let name = &server.name;
        let mut filled = |texts: &BTreeMap<String, String>| {
            let texts = texts.iter();
            texts
                .map(|(name, text)| Ok((name.clone(), secrets.fill(text, used)?)))
                .collect::<Result<BTreeMap<_, _>, String>>()
        };
        match (&server.url, &server.command) {
            (Some(url), None) => {
                let url = Url::parse(url).map_err(|error| {
                    format!("MCP server `{name}` has the bad `url` `{url}`: {error}")
                })?;
                check(&url)?;
                let headers = filled(&server.headers)?;
                Ok(Self::Http { url, headers })
            }
            (None, Some(command)) if programs.contains(command) => Ok(Self::Program {
                command: command.clone(),
                args: server.args.clone(),
                env: filled(&server.env)?,
            }),
            (None, Some(command)) => Err(format!(
                "MCP server `{name}` is the program `{command}`, which this process may not start: \
                 the setting `mcp_commands` has to name it"
            )),
            (None, None) | (Some(_), Some(_)) => Err(format!(
                "MCP server `{name}` must have either `url` or `command`"
            )),
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        match self {
            Self::Http { .. } => HTTP_PATIENCE,
            Self::Program { .. } => PROGRAM_PATIENCE,
        }
    }
}
