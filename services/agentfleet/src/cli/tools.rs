//! What there is to type about tools.

use super::Output;
use clap::{Args, Subcommand};
use std::time::Duration;

/// What agents may call.
#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    /// List the tools, what they do outside, and who must agree
    #[command(after_help = "Example:\n  agentfleet tools list")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show all of one tool as JSON, with its parameters as models see them
    #[command(after_help = "Example:\n  agentfleet tools show document-search")]
    Show { name: String },
    /// Make tools of what others describe
    #[command(
        subcommand,
        after_help = "Example:\n  agentfleet tools import mcp --help"
    )]
    Import(ImportTools),
    /// Look whether tools could be called: what they reach is there, and so are their secrets
    ///
    /// Nothing is called. Exit code 1 says that one of them could not be.
    #[command(
        after_help = "Examples:\n  agentfleet tools test\n  agentfleet tools test 'blog.*' --json"
    )]
    Test {
        /// Names of tools, as globs in which `*` stands for any characters; all if left out.
        names: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Call a tool by hand, as an agent would
    ///
    /// Arguments are healed and checked. Exit code 4 says that its service is away.
    #[command(after_help = "Example:\n  agentfleet tools call document-search --set query=refunds")]
    Call(CallTool),
    /// Answer the requests to a tool service by a program, which is run for each
    ///
    /// Its standard input is a JSON object with `arguments` and `config`, and what it writes is the answer. An exit code
    /// other than 0 makes the call fail, with the last it wrote to standard error. The environment has
    /// AGENTFLEET_IDEMPOTENCY_KEY, the same where a request comes again.
    #[command(
        after_help = "Examples:\n  agentfleet tools serve sums -- ./sums.py\n  \
                      agentfleet tools serve sums --concurrency 8 --timeout 10s -- python3 sums.py --fast"
    )]
    Serve(ServeTool),
}

/// A program that is a tool service.
#[derive(Debug, Args)]
pub(crate) struct ServeTool {
    /// Key of its item, such as `sums`.
    pub service: String,
    /// How long the program may take for one.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub timeout: Duration,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok();
    let time = time.filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("`{text}` is no length of time, such as `10s`"))
}

/// What tools are made of.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportTools {
    /// A tool of each operation of an OpenAPI 3 description, in JSON or YAML
    #[command(
        after_help = "Example:\n  agentfleet tools import openapi https://blog.example/openapi.yaml --prefix blog. --dry-run"
    )]
    Openapi {
        /// A file, or an address.
        source: String,
        /// Put before each name, such as `blog.`.
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
        /// Address of the services, where the description has none of its own, or another is meant.
        #[arg(long, value_name = "URL")]
        base: Option<String>,
        #[command(flatten)]
        putting: Putting,
    },
    /// A tool of each tool of an MCP server, and one that reads its resources
    ///
    /// A server that is named for the first time needs `--server-url`, or its program behind `--`. Imported again,
    /// only what changed is put.
    #[command(
        after_help = "Examples:\n  agentfleet tools import mcp time --mcp-commands uvx -- uvx mcp-server-time\n  \
                      agentfleet tools import mcp blog --server-url https://blog.example/mcp --header 'authorization=Bearer ${BLOG_TOKEN}'"
    )]
    Mcp(Box<ImportMcp>),
}

/// A server of the Model Context Protocol.
#[derive(Debug, Args)]
pub(crate) struct ImportMcp {
    /// Key of its item, such as `time`.
    pub server: String,
    /// Its address, if it speaks the protocol over HTTP.
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub server_url: Option<String>,
    /// A header of each request, as NAME=VALUE, in which `${NAME}` is a secret; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = argument, requires = "server_url")]
    pub header: Vec<(String, String)>,
    /// Where it gets the token that the server wants (OAuth 2, client credentials).
    #[arg(long, value_name = "URL", requires_all = ["server_url", "oauth_client", "oauth_secret"])]
    pub oauth_token_url: Option<String>,
    /// The client's id there.
    #[arg(long, value_name = "ID", requires = "oauth_token_url")]
    pub oauth_client: Option<String>,
    /// Name of the secret that holds the client's secret.
    #[arg(long, value_name = "NAME", requires = "oauth_token_url")]
    pub oauth_secret: Option<String>,
    /// What the token is for, as the service names it.
    #[arg(long, value_name = "SCOPE", requires = "oauth_token_url")]
    pub oauth_scope: Option<String>,
    /// A variable of the program's environment, as NAME=VALUE, in which `${NAME}` is a secret; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = argument, requires = "command")]
    pub env: Vec<(String, String)>,
    /// Put before each name; the name of the server and a dot unless given.
    #[arg(long)]
    pub prefix: Option<String>,
    /// Delete the tools that the server no longer has.
    #[arg(long)]
    pub prune: bool,
    #[command(flatten)]
    pub putting: Putting,
    /// The program and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What becomes of the tools that were made.
#[derive(Debug, Args)]
pub(crate) struct Putting {
    /// Names to take, prefix included, as a glob in which `*` stands for any characters.
    #[arg(long, default_value = "*")]
    pub only: String,
    /// Group of the tools; may be repeated.
    #[arg(long, default_value = "default")]
    pub group: Vec<String>,
    /// Show the items, and put none.
    #[arg(long)]
    pub dry_run: bool,
    /// Whose change it is; the user of the system unless given.
    #[arg(long = "as", value_name = "NAME")]
    pub by: Option<String>,
}

/// A call by hand.
#[derive(Debug, Args)]
pub(crate) struct CallTool {
    pub name: String,
    /// An argument, as NAME=VALUE; may be repeated. What is no text is written as JSON.
    #[arg(long, value_name = "NAME=VALUE", value_parser = argument)]
    pub set: Vec<(String, String)>,
    /// Collection that the tool may see.
    #[arg(long, default_value = "default")]
    pub collection: String,
    /// Who asks.
    #[arg(long)]
    pub user: Option<String>,
    /// Do not ask before a call that changes something.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub output: Output,
}

fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}
