//! The command line: what there is to type.

use crate::settings::Flags;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// A worker fleet that runs LLM agents over a message queue.
#[derive(Debug, Parser)]
#[command(
    name = "agentfleet",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 the run ended in an error, 2 wrong usage, 3 not found, \
                  4 a store or model is unavailable, 5 left before the run ended.\n\n\
                  Examples:\n  agentfleet demo\n  agentfleet load docs/ --collection handbook\n  \
                  agentfleet ask \"How do refunds work?\" --collection handbook\n  \
                  agentfleet trace <SESSION> --format svg > trace.svg"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub flags: Flags,
    /// Colours: `auto`, `always` or `never`.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        hide_short_help = true
    )]
    pub color: Color,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask the worked example about the fictional dossier that comes with the program
    Demo(Demo),
    /// Ask a question and watch it being answered
    Ask(Ask),
    /// Run every role in this process and serve HTTP, until it is told to stop
    Up(Up),
    /// Run orchestrators only, beside other processes on the same data directory
    Orchestrator,
    /// Run the aggregator only: fan-in, deadlines, dead letters
    Aggregator,
    /// Run the graph-writer only
    GraphWriter,
    /// Watch a session that was asked before, or read how it ended
    Attach(Attach),
    /// End a run
    Cancel(Named),
    /// List and show runs
    #[command(subcommand)]
    Sessions(Sessions),
    /// Show who decided what, from which options, at what cost
    Trace(Trace),
    /// Print a text of the librarian by its URI
    Document(Document),
    /// Ask the provenance graph in SPARQL
    Query(Query),
    /// Bring folders of documents and RDF into a collection
    Load(Load),
    /// Read and change the config: patterns, task types, prompts, tools
    #[command(subcommand)]
    Config(Config),
    /// Messages that no worker could work
    #[command(subcommand)]
    Dlq(Dlq),
    /// Delete what old or named runs left behind
    Purge(Purge),
    /// Copy the whole data directory, consistently, while it is in use
    Backup(Backup),
    /// Put a backup into a new data directory
    Restore(Restore),
    /// Say what is configured, what can be reached, and what is wrong
    Doctor(Doctor),
    /// Print shell completions
    Completions(Completions),
}

/// How output is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Output {
    /// Write JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Ask {
    /// The question, in plain text; `-` reads it from standard input.
    pub question: String,
    /// Pattern to use instead of letting the router choose: react, supervisor.
    #[arg(long)]
    pub pattern: Option<String>,
    /// Task type to use instead of letting the router identify it.
    #[arg(long)]
    pub task_type: Option<String>,
    /// Framing to use instead of the task type's.
    #[arg(long)]
    pub framing: Option<String>,
    /// Tool group this run may use; may be repeated, `*` means all.
    #[arg(long)]
    pub group: Vec<String>,
    /// Collection whose documents and facts the tools may see.
    #[arg(long, default_value = "default")]
    pub collection: String,
    /// Tags the run as part of a conversation.
    #[arg(long)]
    pub conversation: Option<String>,
    /// Who asks.
    #[arg(long)]
    pub user: Option<String>,
    /// Asks once, however often it is sent with the same id.
    #[arg(long)]
    pub id: Option<String>,
    /// Most tokens the run may spend.
    #[arg(long)]
    pub max_tokens: Option<u64>,
    /// Publish the request, print its session, and leave.
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    pub session: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    pub session: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// Newest runs first
    List {
        /// Only runs of this collection.
        #[arg(long)]
        collection: Option<String>,
        /// Only runs of this conversation.
        #[arg(long)]
        conversation: Option<String>,
        /// Most runs to list.
        #[arg(long, default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        output: Output,
    },
    /// One run: its question, its steps, how it ended
    Show {
        session: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// A session id or a correlation id: either leads to the whole tree.
    pub id: String,
    #[arg(long, value_enum, default_value = "tree")]
    pub format: TraceFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    Tree,
    Mermaid,
    Svg,
    Turtle,
    Json,
    ProvJson,
}

#[derive(Debug, Args)]
pub(crate) struct Document {
    pub uri: String,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The query; `-` reads it from standard input.
    #[arg(required_unless_present = "file")]
    pub sparql: Option<String>,
    /// Read the query from a file.
    #[arg(long, conflicts_with = "sparql")]
    pub file: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "table")]
    pub format: RowFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowFormat {
    Table,
    Csv,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Files and folders: Markdown, text, HTML, CSV, Turtle, N-Triples, N-Quads, TriG, RDF/XML, JSON-LD.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    #[arg(long, default_value = "default")]
    pub collection: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Items in force
    List {
        /// Only this type: agent-pattern, agent-task-type, prompt, tool, model-profile.
        item_type: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// One item
    Get { item_type: String, key: String },
    /// Every version of one item
    History {
        item_type: String,
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Store an item: from a JSON file, or `-` for standard input
    Put {
        item_type: String,
        key: String,
        file: PathBuf,
    },
    /// Remove an item
    Delete { item_type: String, key: String },
    /// Put the items that come with the program, or those of a directory
    Seed { directory: Option<PathBuf> },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// Parked messages
    List {
        #[command(flatten)]
        output: Output,
    },
    /// One parked message, whole
    Show { id: String },
    /// Publish parked messages again: a root request as a new run
    Redrive {
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Purge {
    /// Runs that ended longer ago than this, such as `30d`.
    #[arg(long, group = "what")]
    pub older_than: Option<String>,
    #[arg(long, group = "what")]
    pub session: Option<String>,
    #[arg(long, group = "what")]
    pub conversation: Option<String>,
    /// Everything of a collection: its runs, documents and facts.
    #[arg(long, group = "what")]
    pub collection: Option<String>,
    /// Only say what would be deleted.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// File to write; must not exist.
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// File written by `backup`. Goes into the data directory, which must be empty.
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
