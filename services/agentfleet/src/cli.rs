//! The command line: what there is to type.

use crate::settings::{self, Flags};
use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::RunState;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// A worker fleet that runs LLM agents over a message queue.
#[derive(Debug, Parser)]
#[command(
    name = "agentfleet",
    version,
    propagate_version = true,
    after_help = "Settings, such as --data, --model and --listen: agentfleet help settings\n\n\
                  Exit codes: 0 done, 1 the run ended in an error, 2 wrong usage, 3 not found, \
                  4 a store or model is unavailable, 5 left before the run ended, \
                  6 a message hung and the process is to be started again, \
                  7 `verify` or `replay` found something that is not as it was committed.\n\n\
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

impl Cli {
    /// The command line with what is only known when it is asked for.
    pub(crate) fn whole() -> clap::Command {
        Self::command().mut_subcommand("settings", |command| command.after_help(settings::help()))
    }

    pub(crate) fn read() -> Self {
        let mut matches = Self::whole().get_matches();
        Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit())
    }
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
    #[command(after_help = "Example:\n  agentfleet demo")]
    Demo(Demo),
    /// Ask a question and watch it being answered
    #[command(
        after_help = "Bounds of this run: --max-iterations, --max-subagents, --max-depth, --max-sessions, --max-tokens,\n--max-cost, --max-model-calls, --max-tool-calls, --max-reflections, --replan-depth,\n--run-timeout, --subagent-timeout. --model chooses the model. All are told in `agentfleet help settings`.\n\nExamples:\n  agentfleet ask \"How do refunds work?\" --collection handbook\n  agentfleet ask \"Compare cost and safety of the two plants\" --pattern supervisor\n  agentfleet ask - --json < question.txt\n  agentfleet ask \"...\" --model openai:gpt-4o --subagent-timeout 2m"
    )]
    Ask(Ask),
    /// Run every role in this process and serve HTTP, until it is told to stop
    #[command(
        after_help = "Examples:\n  agentfleet up\n  agentfleet up --listen 127.0.0.1:9000 --keep-runs 30d"
    )]
    Up(Up),
    /// Run orchestrators only, beside other processes on the same data directory
    #[command(after_help = "Example:\n  agentfleet orchestrator --concurrency 64")]
    Orchestrator,
    /// Run the aggregator only: fan-in, deadlines, dead letters
    #[command(after_help = "Example:\n  agentfleet aggregator")]
    Aggregator,
    /// Run the graph-writer only
    #[command(after_help = "Example:\n  agentfleet graph-writer")]
    GraphWriter,
    /// Watch a session that was asked before, or read how it ended
    #[command(after_help = "Example:\n  agentfleet attach 7c9fa540")]
    Attach(Attach),
    /// End a run
    #[command(after_help = "Example:\n  agentfleet cancel 7c9fa540")]
    Cancel(Named),
    /// Calls that wait for a person: list, approve, deny or edit them
    #[command(
        after_help = "Examples:\n  agentfleet approvals list\n  agentfleet approvals approve 3f2b9c1a --reason \"checked\"\n  agentfleet approvals edit 3f2b9c1a --set amount=5"
    )]
    #[command(subcommand)]
    Approvals(Approvals),
    /// List and show runs
    #[command(
        after_help = "Examples:\n  agentfleet sessions list --limit 50\n  agentfleet sessions show 7c9fa540"
    )]
    #[command(subcommand)]
    Sessions(Sessions),
    /// Show who decided what, from which options, at what cost
    #[command(
        after_help = "Examples:\n  agentfleet trace 7c9fa540\n  agentfleet trace 7c9fa540 --format svg > trace.svg\n  agentfleet trace 7c9fa540 --step 1 --raw"
    )]
    Trace(Trace),
    /// Work a run again from its records, and name what differs
    #[command(
        after_help = "Nothing is called: models, tools, graph and texts answer as recorded.\n\nExamples:\n  agentfleet replay 7c9fa540\n  agentfleet replay 7c9fa540 --step 2 --json"
    )]
    Replay(Replay),
    /// Go on from a step of a run another way, in a new run
    #[command(
        after_help = "Examples:\n  agentfleet fork 7c9fa540 --at 0 --pattern react\n  agentfleet fork 7c9fa540 --at 3 --model openai:gpt-4o --detach"
    )]
    Fork(Fork),
    /// Go on from the last good step of a run that failed, or of many
    #[command(
        after_help = "Examples:\n  agentfleet retry 7c9fa540\n  agentfleet retry --state failed --newer-than 2h --dry-run\n  agentfleet retry --state failed --newer-than 2h --yes"
    )]
    Retry(Retry),
    /// Compare two runs step by step
    #[command(after_help = "Example:\n  agentfleet diff 7c9fa540 b21e04c9")]
    Diff(Diff),
    /// Print a text of the librarian by its URI
    #[command(
        after_help = "Example:\n  agentfleet document urn:agentfleet:document:dossier:press-review.md"
    )]
    Document(Document),
    /// Explain each decision of a run: what else was open, and what it would have meant
    #[command(
        after_help = "Examples:\n  agentfleet explain 7c9fa540\n  agentfleet explain 7c9fa540 --step 2"
    )]
    Explain(Explain),
    /// Check that what is stored of a run is what was committed
    #[command(
        after_help = "Exit code 7 says that something is not: each finding names the record, triple or document.\n\n\
                      Examples:\n  agentfleet verify 7c9fa540 --export head.json\n  \
                      agentfleet verify 7c9fa540 --against head.json"
    )]
    Verify(Verify),
    /// Sum tokens, calls, seconds and money of runs
    #[command(
        after_help = "Examples:\n  agentfleet cost --since 7d --by conversation\n  \
                      agentfleet cost 7c9fa540 --by step\n  \
                      agentfleet cost --collection handbook --by model --json"
    )]
    Cost(Cost),
    /// Propose task types and framings from past runs, for a person to approve
    #[command(
        after_help = "Examples:\n  agentfleet discover --min-runs 5 --since 30d\n  agentfleet discover list\n  \
                      agentfleet discover approve pump-seal --as Ada"
    )]
    Discover(Discover),
    /// Ask the provenance graph: in SPARQL, or a saved query by its name
    #[command(
        after_help = "Examples:\n  agentfleet query --list\n  agentfleet query slowest-steps --param since=1d\n  agentfleet query 'SELECT ?s FROM <urn:graph:retrieval> WHERE { ?s a tg:AgentQuestion }'\n  agentfleet query --file query.rq --format json"
    )]
    Query(Query),
    /// Bring folders of documents and RDF into a collection
    #[command(after_help = "Example:\n  agentfleet load ~/handbook --collection handbook")]
    Load(Load),
    /// Read and change the config: patterns, task types, prompts, tools
    #[command(
        after_help = "Examples:\n  agentfleet config list prompt\n  agentfleet config put prompt agent-react agent-react.md"
    )]
    #[command(subcommand)]
    Config(Config),
    /// Messages that no worker could work
    #[command(after_help = "Examples:\n  agentfleet dlq list\n  agentfleet dlq redrive --all")]
    #[command(subcommand)]
    Dlq(Dlq),
    /// Delete what old or named runs left behind
    #[command(
        after_help = "Examples:\n  agentfleet purge --older-than 30d --dry-run\n  agentfleet purge --session 7c9fa540 --yes"
    )]
    Purge(Purge),
    /// Copy the whole fleet into one file, consistently, while it works
    #[command(after_help = "Example:\n  agentfleet backup fleet.backup")]
    Backup(Backup),
    /// Put a backup into a new data directory, or onto the servers of the settings
    #[command(after_help = "Example:\n  agentfleet restore fleet.backup --data /srv/fleet")]
    Restore(Restore),
    /// Move a data directory to servers, with its runs in progress
    #[command(
        after_help = "Example:\n  agentfleet migrate --broker pulsar://HOST:6650 --documents s3://BUCKET/fleet --graph http://HOST:3030/ds\n\nThe data directory (`--data`) must not be worked meanwhile. A migration that was cut off is\nstarted anew. Afterwards the data directory refuses to be worked without the servers."
    )]
    Migrate,
    /// Say what is configured, what can be reached, and what is wrong
    #[command(after_help = "Example:\n  agentfleet doctor")]
    Doctor(Doctor),
    /// Show the settings in force, and where each was given
    Settings(ShowSettings),
    /// Print shell completions
    #[command(
        after_help = "Example:\n  agentfleet completions bash > ~/.local/share/bash-completion/completions/agentfleet"
    )]
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
    /// Pattern to use instead of letting the router choose: debate, plan-then-execute, react, reflexion,
    /// router, supervisor, or one of `config list agent-pattern`.
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
    /// When fan-outs conclude: `all`, `quorum`, `deadline` or `at-least=K`.
    #[arg(long, value_parser = join)]
    pub join: Option<JoinPolicy>,
    /// State the tools begin in; left out, it is `undefined`.
    #[arg(long)]
    pub state: Option<String>,
    /// What kind of customer asks, for the pattern `router`, such as `food_bakery`.
    #[arg(long)]
    pub tenant_type: Option<String>,
    /// A service the customer has, for the pattern `router`; may be repeated.
    #[arg(long)]
    pub active_service: Vec<String>,
    /// What was talked about before, for the pattern `router`; may be repeated.
    #[arg(long)]
    pub recent_topic: Vec<String>,
    /// Publish the request, print its session, and leave.
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub output: Output,
}

fn run_state() -> impl TypedValueParser<Value = RunState> {
    PossibleValuesParser::new(RunState::ALL.map(RunState::as_str))
        .map(|name| RunState::named(&name).unwrap_or_default())
}

fn join(text: &str) -> Result<JoinPolicy, String> {
    match text.split_once('=') {
        None if text == "all" => Ok(JoinPolicy::All),
        None if text == "quorum" => Ok(JoinPolicy::Quorum),
        None if text == "deadline" => Ok(JoinPolicy::Deadline),
        Some(("at-least", count)) => match count.parse() {
            Ok(count) if count > 0 => Ok(JoinPolicy::AtLeast(count)),
            _ => Err(format!("`{count}` is no number of subagents: 1 or more")),
        },
        _ => Err("there are `all`, `quorum`, `deadline` and `at-least=K`".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// Its id, or the first 6 or more characters of it.
    pub session: String,
    #[command(flatten)]
    pub output: Output,
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
#[derive(Debug, Args)]
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
    #[arg(long, value_enum, default_value = "tree")]
    pub format: TraceFormat,
    /// With `--raw`: of this step of the session; `sessions show` lists them.
    #[arg(long, value_name = "N", requires = "raw")]
    pub step: Option<u32>,
    /// Every call of a step as it was recorded: what a model was sent and what it replied, what a tool was
    /// given and what it returned. As text, or with `--format json`.
    #[arg(long, requires = "step")]
    pub raw: bool,
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
pub(crate) struct Replay {
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
pub(crate) struct Explain {
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
pub(crate) struct Verify {
    /// Its id, or the first 6 or more characters of it; its subagents are checked with it.
    pub session: String,
    /// Write the heads of its chains to a file, to be kept where nobody can change it.
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Check them against heads that were exported before.
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
                      Types: agent-pattern, agent-task-type, intent, model-profile, prompt, query, specialist, tool.\n\n\
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
    /// File written by `backup`. Goes into the data directory, which must be empty.
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct ShowSettings {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
