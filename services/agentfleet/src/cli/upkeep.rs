//! What there is to type about what a fleet has: documents, settings of agents, messages, backups.

use super::Output;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Files and folders: Markdown, text, HTML, PDF, Word, RST, CSV, Turtle, N-Triples, N-Quads, TriG, RDF/XML, JSON-LD.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Collection to load into.
    #[arg(long, default_value = "default")]
    pub collection: String,
    /// Remove documents of these folders whose files are gone.
    #[arg(long)]
    pub prune: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Items in force
    #[command(after_help = "Example:\n  agentfleet config list tool")]
    List {
        /// Only this type, such as `tool` or `agent-pattern`.
        item_type: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// One item
    #[command(
        disable_version_flag = true,
        after_help = "Example:\n  agentfleet config get prompt agent-react --version 3"
    )]
    Get {
        /// Its type, such as `prompt`.
        item_type: String,
        /// Its key, such as `agent-react`.
        key: String,
        /// As it was put at this version; `config history` lists them.
        #[arg(long)]
        version: Option<u64>,
    },
    /// A tool policy as a drawing: its steps, their tools, and what leads from one to the next
    #[command(after_help = "Example:\n  agentfleet config explain tool-policy research")]
    Explain {
        /// `tool-policy`.
        item_type: String,
        /// Its key, such as `research`.
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Every version of one item
    #[command(after_help = "Example:\n  agentfleet config history prompt agent-react")]
    History {
        item_type: String,
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Store an item: from a file, or `-` for standard input
    #[command(
        after_help = "The file holds JSON; a prompt may be Markdown and a query SPARQL, as in seed-config.\n\n\
                      Types: agent-pattern, agent-task-type, intent, mcp-server, model-profile, prompt, query, role, specialist, tenant, tool, tool-policy, tool-service.\n\n\
                      Examples:\n  agentfleet config put tool document-search search.json\n  \
                      agentfleet config put prompt agent-react agent-react.md"
    )]
    Put {
        /// Its type, such as `tool` or `agent-pattern`.
        item_type: String,
        /// Its key, such as `agent-react`.
        key: String,
        /// JSON, or Markdown for a prompt, or SPARQL for a query; `-` reads standard input.
        file: PathBuf,
        /// Who changes it; default: the user of this system.
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// Bring back an item as it was put at a version
    #[command(
        disable_version_flag = true,
        after_help = "Example:\n  agentfleet config restore prompt agent-react 3"
    )]
    Restore {
        item_type: String,
        key: String,
        /// One of those that `config history` lists.
        version: u64,
        /// Who changes it; default: the user of this system.
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// Bring back an item as it comes with the program
    #[command(after_help = "Example:\n  agentfleet config reset prompt agent-react")]
    Reset { item_type: String, key: String },
    /// Remove an item
    #[command(after_help = "Example:\n  agentfleet config delete tool text-completion")]
    Delete {
        item_type: String,
        key: String,
        /// Who changes it; default: the user of this system.
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// Put the items that come with the program, or those of a directory
    #[command(
        after_help = "Examples:\n  agentfleet config seed\n  agentfleet config seed my-config/"
    )]
    Seed {
        /// Folders by type with a file for each item. What a person put or deleted stays as it is.
        directory: Option<PathBuf>,
        /// Who seeds the directory; default: the user of this system.
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// What models cost: show the prices of all model profiles, or set those of one
    #[command(
        after_help = "Prices are of a million tokens, in any one currency; 0 says that they are free. `--max-cost` needs them.\n\n\
                      Examples:\n  agentfleet config prices\n  \
                      agentfleet config prices default --input 0.25 --output 2\n  \
                      agentfleet config prices large --model gpt-5 --input 1.25 --output 10"
    )]
    Prices {
        /// The model profile, such as `default`; the other settings in it stay.
        #[arg(requires_all = ["input", "output"])]
        key: Option<String>,
        /// The model that the profile names.
        #[arg(long, requires = "key")]
        model: Option<String>,
        /// Price of a million input tokens.
        #[arg(long, requires = "key", value_parser = price)]
        input: Option<f64>,
        /// Price of a million output tokens.
        #[arg(long, requires = "key", value_parser = price)]
        output: Option<f64>,
        /// Who changes it; default: the user of this system.
        #[arg(long = "as", value_name = "NAME", requires = "key")]
        by: Option<String>,
    },
}

/// The price of a million tokens.
fn price(given: &str) -> Result<f64, String> {
    let number = given.parse::<f64>().ok();
    number
        .filter(|price| price.is_finite() && *price >= 0.0)
        .ok_or_else(|| "a price is a number that is not negative, such as 0.25".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// Parked messages
    #[command(after_help = "Example:\n  agentfleet dlq list")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// One parked message, whole
    #[command(after_help = "Example:\n  agentfleet dlq show m-42")]
    Show { id: String },
    /// Publish parked messages again: a root request as a new run
    #[command(
        after_help = "Examples:\n  agentfleet dlq redrive m-42\n  agentfleet dlq redrive --all"
    )]
    Redrive {
        /// Ids of `dlq list`.
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// All that can be sent; the rest is named and stays.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Approvals {
    /// What waits for a person, the oldest first
    #[command(after_help = "Example:\n  agentfleet approvals list --session 7c9fa540")]
    List {
        /// Only of this run: its id, or the first 6 or more characters of it.
        #[arg(long)]
        session: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// One call that waits, or waited, with what became of it
    #[command(after_help = "Example:\n  agentfleet approvals show 3f2b9c1a")]
    Show {
        /// Its id, or the first 6 or more characters of it.
        id: String,
        #[command(flatten)]
        output: Output,
    },
    /// Let the call be made as it stands
    #[command(after_help = "Example:\n  agentfleet approvals approve 3f2b9c1a --as ada")]
    Approve(Answering),
    /// Keep the call from being made; the agent is told why
    #[command(after_help = "Example:\n  agentfleet approvals deny 3f2b9c1a --reason \"too much\"")]
    Deny(Answering),
    /// Let the call be made with other arguments
    #[command(
        after_help = "Examples:\n  agentfleet approvals edit 3f2b9c1a --set amount=5\n  agentfleet approvals edit 3f2b9c1a --arguments '{\"amount\": \"5\"}'"
    )]
    Edit {
        #[command(flatten)]
        answering: Answering,
        /// One argument and its new value; the others stay.
        #[arg(long, value_name = "NAME=VALUE", required_unless_present = "arguments")]
        set: Vec<String>,
        /// All arguments, as a JSON object.
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
    },
}

/// Who answers what.
#[derive(Debug, Args)]
pub(crate) struct Answering {
    /// Id of the approval, or the first 6 or more characters of it.
    pub id: String,
    /// Who decides; the user of the system unless given.
    #[arg(long = "as", value_name = "NAME")]
    pub by: Option<String>,
    /// Why: it stands in the record, and the agent is told where the call is denied.
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Purge {
    /// Runs that ended longer ago than this, such as `30d`.
    #[arg(long, group = "what")]
    pub older_than: Option<String>,
    /// One run: its id, or the first 6 or more characters of it.
    #[arg(long, group = "what")]
    pub session: Option<String>,
    /// All runs of a conversation.
    #[arg(long, group = "what")]
    pub conversation: Option<String>,
    /// Everything of a collection: its runs, documents and facts.
    #[arg(long, group = "what")]
    pub collection: Option<String>,
    /// One loaded document, by its URI.
    #[arg(long, group = "what", value_name = "URI")]
    pub document: Option<String>,
    /// Only say what would be deleted.
    #[arg(long)]
    pub dry_run: bool,
    /// Delete it without asking.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// File to write; must not exist.
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// File written by `backup`. Goes into the data directory, which must be empty. Without it the servers are those
    /// that were restored by their own tools, and their runs in progress go on.
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Whose memories.
#[derive(Clone, Debug, Args)]
pub(crate) struct Whose {
    /// Whose; left out, what all of the tenant share.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub user: String,
    /// Of which tenant; left out, of runs that were asked for without a key.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub tenant: String,
}

/// What is remembered beyond a run.
#[derive(Debug, Subcommand)]
pub(crate) enum Memory {
    /// List what is remembered
    #[command(after_help = "Example:\n  agentfleet memory list --user ada")]
    List {
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        output: Output,
    },
    /// Remember a value under a name
    #[command(after_help = "Example:\n  agentfleet memory set tone friendly --user ada --keep 90d")]
    Set {
        name: String,
        value: String,
        /// For how long, such as `30d`; for ever if left out.
        #[arg(long)]
        keep: Option<String>,
        #[command(flatten)]
        whose: Whose,
    },
    /// Forget a name
    #[command(after_help = "Example:\n  agentfleet memory forget tone --user ada")]
    Forget {
        name: String,
        #[command(flatten)]
        whose: Whose,
    },
    /// Forget everything of a user, or what a tenant shares
    #[command(after_help = "Example:\n  agentfleet memory erase --user ada --yes")]
    Erase {
        #[command(flatten)]
        whose: Whose,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}
