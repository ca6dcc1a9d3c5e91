//! The command line: what there is to type.

mod access;
mod example;
mod runs;
mod tools;
mod upkeep;

pub(crate) use access::*;
pub(crate) use example::*;
pub(crate) use runs::*;
pub(crate) use tools::*;
pub(crate) use upkeep::*;

use crate::settings::{self, Flags};
use agentfleet_schema::config::JoinPolicy;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

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
                  7 `verify`, `audit verify` or `replay` found something that is not as it was committed.\n\n\
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
    Demo(Output),
    /// Services with data to try the fleet on: a bakery's copilot, and a CRM
    #[command(
        after_help = "Examples:\n  agentfleet example list\n  agentfleet example business start\n  agentfleet example crm start --port 9000"
    )]
    #[command(subcommand)]
    Example(Examples),
    /// Ask a question and watch it being answered
    #[command(
        after_help = "Bounds of this run: --max-iterations, --max-subagents, --max-depth, --max-sessions, --max-tokens,\n--max-cost, --max-model-calls, --max-tool-calls, --max-reflections, --replan-depth,\n--run-timeout, --subagent-timeout. --model chooses the model. All are told in `agentfleet help settings`.\n\nExamples:\n  agentfleet ask \"How do refunds work?\" --collection handbook\n  agentfleet ask \"Compare cost and safety of the two plants\" --pattern supervisor\n  agentfleet ask - --json < question.txt\n  agentfleet ask \"...\" --model openai:gpt-4o --subagent-timeout 2m"
    )]
    Ask(Ask),
    /// Talk: each line is a run that is shown what was said before
    #[command(
        after_help = "Commands within: /trace, /cost, /history, /new, /help, /quit. Ctrl-C ends the run at work.\n\nExamples:\n  agentfleet chat --collection handbook\n  agentfleet chat --conversation chat-1f0c7a2e"
    )]
    Chat(Chat),
    /// Run every role in this process and serve HTTP, until it is told to stop
    #[command(
        after_help = "Examples:\n  agentfleet up\n  agentfleet up --listen 127.0.0.1:9000 --keep-runs 30d"
    )]
    Up(Output),
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
    Attach(Named),
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
    /// Work runs again from their records, and name what differs
    #[command(
        after_help = "Nothing is called: models, tools, graph and texts answer as recorded.\n\nExamples:\n  agentfleet replay 7c9fa540\n  agentfleet replay 7c9fa540 --step 2 --json\n  agentfleet replay 7c9fa540 b21e04c9"
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
    Explain(Steps),
    /// Check that what is stored of runs is what was committed
    #[command(
        after_help = "Exit code 7 says that something is not: each finding names the record, triple or document.\n\n\
                      Examples:\n  agentfleet verify 7c9fa540 --export head.json\n  \
                      agentfleet verify 7c9fa540 --against head.json\n  \
                      agentfleet verify 7c9fa540 b21e04c9 --json"
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
    /// What agents may call, on which terms; call one by hand
    #[command(
        after_help = "Examples:\n  agentfleet tools list\n  agentfleet tools show document-search\n  agentfleet tools call document-search --set query=refunds --collection handbook"
    )]
    #[command(subcommand)]
    Tools(Tools),
    /// What is remembered for users and tenants beyond a run
    #[command(
        after_help = "Examples:\n  agentfleet memory set tone friendly --user ada\n  agentfleet memory list --user ada\n  agentfleet memory erase --user ada --yes"
    )]
    #[command(subcommand)]
    Memory(Memory),
    /// API keys for the HTTP door: make, list and revoke them
    #[command(
        after_help = "Examples:\n  agentfleet keys create billing --tenant acme --role producer\n  agentfleet keys list"
    )]
    #[command(subcommand)]
    Keys(Keys),
    /// What tenants used in a month, beside their quota
    #[command(
        after_help = "A config item `tenant/NAME` sets the quota of a tenant, `tenant/*` that of every other.\n\nExamples:\n  agentfleet usage\n  agentfleet usage --tenant acme --month 2026-11 --json"
    )]
    Usage(UsageOf),
    /// The audit log: what was refused, answered and changed, and by whom
    #[command(
        after_help = "Examples:\n  agentfleet audit list --since 1d\n  agentfleet audit verify"
    )]
    #[command(subcommand)]
    Audit(Audit),
    /// Messages that no worker could work
    #[command(after_help = "Examples:\n  agentfleet dlq list\n  agentfleet dlq redrive --all")]
    #[command(subcommand)]
    Dlq(Dlq),
    /// Delete what old or named runs left behind
    #[command(
        after_help = "Examples:\n  agentfleet purge --older-than 30d --dry-run\n  agentfleet purge --session 7c9fa540 --yes"
    )]
    Purge(Purge),
    /// Copy a data directory into one file, consistently, while it is worked
    #[command(after_help = "Example:\n  agentfleet backup fleet.backup")]
    Backup(Backup),
    /// Put a backup into a new data directory, or onto the servers of the settings
    #[command(
        after_help = "Examples:\n  agentfleet restore fleet.backup --data /srv/fleet\n  agentfleet restore    # after pg_restore: runs in progress go on"
    )]
    Restore(Restore),
    /// Move a data directory to servers, with its runs in progress
    #[command(
        after_help = "Example:\n  agentfleet migrate --broker pulsar://HOST:6650 --records postgres://USER@HOST/DATABASE --graph http://HOST:3030/ds\n\nThe data directory (`--data`) must not be worked meanwhile. A migration that was cut off is\nstarted anew. Afterwards the data directory refuses to be worked without the servers."
    )]
    Migrate,
    /// Say what is configured, what can be reached, and what is wrong
    #[command(after_help = "Example:\n  agentfleet doctor")]
    Doctor(Output),
    /// Show the settings in force, and where each was given
    Settings(Output),
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
    /// Key of the tool policy that says in which order tools may be used; a conversation keeps it.
    #[arg(long, value_name = "KEY")]
    pub tool_policy: Option<String>,
    /// Framing to use instead of the task type's.
    #[arg(long)]
    pub framing: Option<String>,
    /// Tool group this run may use; may be repeated, `*` means all.
    #[arg(long)]
    pub group: Vec<String>,
    /// Collection whose documents and facts the tools may see.
    #[arg(long, default_value = "default")]
    pub collection: String,
    /// Conversation that the run goes on with: it is shown what was asked and answered before.
    #[arg(long, value_name = "ID")]
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

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// Conversation to go on with; left out, a new one begins.
    #[arg(long, value_name = "ID")]
    pub conversation: Option<String>,
    /// Collection whose documents and facts the tools may see.
    #[arg(long, default_value = "default")]
    pub collection: String,
    /// Pattern to use instead of letting the router choose for each question.
    #[arg(long)]
    pub pattern: Option<String>,
    /// Task type to use instead of letting the router identify it.
    #[arg(long)]
    pub task_type: Option<String>,
    /// Key of the tool policy that says in which order tools may be used; a conversation keeps it.
    #[arg(long, value_name = "KEY")]
    pub tool_policy: Option<String>,
    /// Who asks.
    #[arg(long)]
    pub user: Option<String>,
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
