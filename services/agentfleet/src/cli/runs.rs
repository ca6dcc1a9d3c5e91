//! What there is to type about runs, and about what they left in the graph.

use super::Output;
use agentfleet_console::trace::Format;
use agentfleet_schema::records::RunState;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

fn run_state() -> impl TypedValueParser<Value = RunState> {
    PossibleValuesParser::new(RunState::ALL.map(RunState::as_str))
        .map(|name| RunState::named(&name).unwrap_or_default())
}

/// How a trace is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TraceFormat {
    Drawn(Format),
    /// Its statements, as Turtle.
    Turtle,
}

fn trace_format() -> impl TypedValueParser<Value = TraceFormat> {
    let names = Format::ALL.map(Format::as_str).into_iter();
    PossibleValuesParser::new(names.chain(["turtle"]))
        .map(|name| Format::named(&name).map_or(TraceFormat::Turtle, TraceFormat::Drawn))
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its id, or the first 6 or more characters of it.
    pub session: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// Newest runs first
    #[command(
        after_help = "Examples:\n  agentfleet sessions list --collection handbook\n  agentfleet sessions list --state failed --newer-than 2d\n  agentfleet sessions list refund --sort cost"
    )]
    List(ListSessions),
    /// One run: its question, its steps, how it ended
    #[command(after_help = "Example:\n  agentfleet sessions show 7c9fa540")]
    Show {
        /// Its id, or the first 6 or more characters of it.
        session: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListSessions {
    /// Only runs whose question has this text in it, in capitals or not.
    #[arg(value_name = "TEXT", conflicts_with = "text")]
    pub words: Option<String>,
    #[command(flatten)]
    pub which: Which,
    /// What to sort by: `started`, the newest first; `cost`, `time` and `steps`, the most first, subagents
    /// included, and told beside each run.
    #[arg(long, value_enum, default_value = "started")]
    pub sort: SortBy,
    /// Most runs to list, up to 10000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub limit: u64,
    #[command(flatten)]
    pub output: Output,
}

/// Runs by what they are.
#[derive(Debug, Default, Args)]
pub(crate) struct Which {
    /// Only runs whose question has this text in it, in capitals or not.
    #[arg(long)]
    pub text: Option<String>,
    /// Only runs of this collection.
    #[arg(long)]
    pub collection: Option<String>,
    /// Only runs of this conversation.
    #[arg(long)]
    pub conversation: Option<String>,
    /// Only runs in this state.
    #[arg(long, value_parser = run_state())]
    pub state: Option<RunState>,
    /// Only runs that were given this pattern.
    #[arg(long)]
    pub pattern: Option<String>,
    /// Only runs of this task type.
    #[arg(long)]
    pub task_type: Option<String>,
    /// Only runs that began longer ago than this, such as `2h` or `30d`.
    #[arg(long, value_name = "AGE")]
    pub older_than: Option<String>,
    /// Only runs that began within this time, such as `2h` or `30d`.
    #[arg(long, value_name = "AGE")]
    pub newer_than: Option<String>,
}

impl Which {
    /// Whether it says anything.
    pub(crate) fn is_given(&self) -> bool {
        let texts = [
            &self.text,
            &self.collection,
            &self.conversation,
            &self.pattern,
            &self.task_type,
            &self.older_than,
            &self.newer_than,
        ];
        self.state.is_some() || texts.into_iter().any(Option::is_some)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    #[default]
    Started,
    /// By money, and where that is the same by tokens
    Cost,
    /// From the beginning to the end, or until now
    Time,
    Steps,
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// A session id, the first 6 or more characters of one, or a correlation id: each leads to the whole tree.
    pub id: String,
    #[arg(long, value_parser = trace_format(), default_value = "tree")]
    pub format: TraceFormat,
    /// With `--raw`: of this step of the session; `sessions show` lists them.
    #[arg(long, value_name = "N", requires = "raw")]
    pub step: Option<u32>,
    /// Every call of a step as it was recorded: what a model was sent and what it replied, what a tool was
    /// given and what it returned. As text, or with `--format json`.
    #[arg(long, requires = "step")]
    pub raw: bool,
}

/// Every step of a run, or one of them.
#[derive(Debug, Args)]
pub(crate) struct Steps {
    /// Its id, or the first 6 or more characters of it.
    pub session: String,
    /// Only this step of it.
    #[arg(long)]
    pub step: Option<u32>,
    /// Only this session, without the subagents below it.
    #[arg(long)]
    pub only: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Ids, or the first 6 or more characters of each.
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Only this step, of one session.
    #[arg(long)]
    pub step: Option<u32>,
    /// Only these sessions, without the subagents below them.
    #[arg(long)]
    pub only: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Fork {
    /// Its id, or the first 6 or more characters of it; a subagent's becomes a run of its own.
    pub session: String,
    /// Step to work anew, from 0; `sessions show` lists them.
    #[arg(long)]
    pub at: u32,
    /// Pattern to go on with.
    #[arg(long)]
    pub pattern: Option<String>,
    /// Question to go on with.
    #[arg(long)]
    pub question: Option<String>,
    /// Task type to go on with; its framing comes with it.
    #[arg(long)]
    pub task_type: Option<String>,
    /// Config version to work under; default: the newest.
    #[arg(long)]
    pub config_version: Option<u64>,
    /// Publish the request, print its session, and leave.
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// Its id, or the first 6 or more characters of it.
    pub session: Option<String>,
    #[command(flatten)]
    pub which: Which,
    /// Most runs to begin again, the newest first, up to 1000.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub limit: u64,
    /// With `--state`: only show which runs it would be.
    #[arg(long)]
    pub dry_run: bool,
    /// With `--state`: do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Publish the request, print its session, and leave; so it is with `--state`.
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// A session: its id, or the first 6 or more characters of it.
    pub a: String,
    /// The session to compare it with.
    pub b: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Ids, or the first 6 or more characters of each; subagents are checked with their runs.
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Write the heads of one session's chains to a file, to be kept where nobody can change it.
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Check one session against heads that were exported before.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Discover {
    #[command(subcommand)]
    pub command: Option<DiscoverCommand>,
    /// Runs that a group needs to be proposed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..))]
    pub min_runs: u32,
    /// Only runs that ended since: a date, an instant, or an age such as `30d`.
    #[arg(long)]
    pub since: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DiscoverCommand {
    /// What was proposed so far, with its runs and who decided on it
    #[command(after_help = "Example:\n  agentfleet discover list --json")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Bring a proposal into force: the router offers it from then on
    #[command(after_help = "Example:\n  agentfleet discover approve pump-seal --as Ada")]
    Approve(Decide),
    /// Turn a proposal down: the like of it is not proposed again
    #[command(after_help = "Example:\n  agentfleet discover reject pump-seal --as Ada")]
    Reject(Decide),
}

#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// Its key, as `discover list` shows it.
    pub key: String,
    /// Who decides; default: the user of this system.
    #[arg(long = "as", value_name = "NAME")]
    pub by: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Cost {
    /// Only this session and its subagents: its id, or the first 6 or more characters of it. A correlation id
    /// names the whole tree.
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub id: Option<String>,
    /// The same.
    #[arg(long)]
    pub session: Option<String>,
    /// Only runs of this conversation.
    #[arg(long)]
    pub conversation: Option<String>,
    /// Only runs of this collection.
    #[arg(long)]
    pub collection: Option<String>,
    /// Only steps committed since: `2026-11-21`, `2026-11-21T06:30:00Z`, or an age such as `7d`.
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// What to sum by; `tree` unless given, and `agent` of one session.
    #[arg(long, value_enum)]
    pub by: Option<CostBy>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CostBy {
    Step,
    /// A session, whether root or subagent
    Agent,
    /// A root session with all its subagents
    Tree,
    Conversation,
    TaskType,
    Pattern,
    Model,
}

#[derive(Debug, Args)]
pub(crate) struct Document {
    /// As a trace or a quotation names it.
    pub uri: String,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The name of a saved query, or a query; `-` reads one from standard input.
    #[arg(value_name = "NAME|SPARQL", required_unless_present_any = ["file", "list"])]
    pub sparql: Option<String>,
    /// Read the query from a file.
    #[arg(long, conflicts_with = "sparql")]
    pub file: Option<PathBuf>,
    /// List the saved queries, with their parameters.
    #[arg(long, conflicts_with_all = ["sparql", "file", "param"])]
    pub list: bool,
    /// A parameter of the saved query, as `NAME=VALUE`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", requires = "sparql")]
    pub param: Vec<String>,
    /// Default: `table` for SELECT and ASK, `turtle` for CONSTRUCT and DESCRIBE.
    #[arg(long, value_enum)]
    pub format: Option<QueryFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueryFormat {
    Table,
    Csv,
    Tsv,
    /// SPARQL 1.1 Query Results JSON
    Json,
    /// SPARQL Query Results XML
    Xml,
    Turtle,
    #[value(name = "n-triples")]
    NTriples,
    #[value(name = "n-quads")]
    NQuads,
    Trig,
    #[value(name = "json-ld")]
    JsonLd,
    #[value(name = "rdf+xml")]
    RdfXml,
}

impl QueryFormat {
    pub(crate) const TABLES: [Self; 5] = [Self::Table, Self::Csv, Self::Tsv, Self::Json, Self::Xml];
    pub(crate) const GRAPHS: [Self; 6] = [
        Self::Turtle,
        Self::NTriples,
        Self::NQuads,
        Self::Trig,
        Self::JsonLd,
        Self::RdfXml,
    ];

    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}
