//! Every setting once: its key in the settings file, its environment variable, its flag.
//!
//! Precedence: flag, then environment (`AGENTFLEET_...`), then the settings file, then the default.
//! An unknown key or variable is an error that names the nearest one.

mod file;
mod sensible;
mod value;

pub(crate) use file::left_alone;
pub use value::{Place, Secret, Value};

use crate::error::Failure;
use agentfleet_graph::QueryOptions;
use agentfleet_schema::{Millis, Money, RunLimits, millis, redacted};
use file::{File, default_data, default_files, read_file};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty = $default:expr;)+) => {
        /// Flags, one for each setting.
        #[derive(Clone, Debug, Default, clap::Args)]
        pub struct Flags {
            /// Settings file (TOML); default `agentfleet.toml` in the data directory, then in the user's config directory.
            #[arg(long, global = true, value_name = "FILE", hide = true)]
            pub settings: Option<PathBuf>,
            $(
                $(#[doc = $doc])+
                #[arg(long, global = true, value_name = "VALUE", hide = true)]
                pub $name: Option<String>,
            )+
        }

        /// The settings in force.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $kind,)+
            /// Where each value came from.
            pub sources: BTreeMap<&'static str, Source>,
            /// What was given, by name; the rest is at its default.
            pub given: BTreeMap<&'static str, String>,
            /// The settings file that was read.
            pub file: Option<PathBuf>,
        }

        /// Names of all settings.
        pub const NAMES: &[&str] = &[$(stringify!($name)),+];

        /// Every setting with what it is for and its default.
        pub(crate) fn described() -> Vec<Described> {
            vec![$({
                let default: $kind = $default;
                Described {
                    name: stringify!($name),
                    about: concat!($($doc),+).trim(),
                    default: default.show(),
                }
            }),+]
        }

        impl Settings {
            /// What is in force, by name, without credentials.
            pub(crate) fn in_force(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), redacted(&self.$name.show()).into_owned())),+]
            }

            fn from_layers(flags: &Flags, env: &BTreeMap<String, String>, file: &File) -> Result<Self, Failure> {
                let (mut sources, mut given) = (BTreeMap::new(), BTreeMap::new());
                $(let $name: $kind = {
                    let name = stringify!($name);
                    let variable = variable(name);
                    let (text, source) = if let Some(text) = &flags.$name {
                        (Some(text.clone()), Source::Flag)
                    } else if let Some(text) = env.get(&variable) {
                        (Some(text.clone()), Source::Environment)
                    } else if let Some(text) = file.values.get(name) {
                        (Some(text.clone()), Source::File)
                    } else {
                        (None, Source::Default)
                    };
                    sources.insert(name, source);
                    given.extend(text.clone().map(|text| (name, text)));
                    match text {
                        None => $default,
                        Some(text) => <$kind as Value>::read(&text).ok_or_else(|| {
                            bad_value(name, &text, source, <$kind as Value>::EXPECTED)
                        })?,
                    }
                };)+
                let settings = Self { $($name,)+ sources, given, file: file.path.clone() };
                settings.sensible()?;
                Ok(settings)
            }
        }
    };
}

settings! {
    /// Data directory: messages, records, documents, provenance and config lie here.
    data: PathBuf = default_data();
    /// Queue: `embedded`, or Apache Pulsar's address such as `pulsar://HOST:6650` or `pulsar+ssl://HOST:6651`.
    broker: Place = Place::Embedded;
    /// URL of Pulsar's admin API, which sets how long responses are kept, such as `http://HOST:8080`.
    broker_admin: Option<String> = None;
    /// Tenant of the fleet's topics.
    broker_tenant: String = "public".to_owned();
    /// Namespace of the fleet's topics.
    broker_namespace: String = "default".to_owned();
    /// Names of topics that differ from ours: `agent-request=requests,agent-response=answers`.
    broker_topics: Option<String> = None;
    /// Topics that callers may name in the property `reply-to`: names by comma, `*` for any characters; none by default.
    reply_to: Option<String> = None;
    /// Token for Pulsar, or `file:PATH` to read it from.
    broker_token: Option<Secret> = None;
    /// PEM file of the authorities that Pulsar's certificate may come from.
    broker_certificates: Option<PathBuf> = None;
    /// Graph: `embedded`, or the URL of a SPARQL 1.1 dataset such as `http://HOST:3030/ds`; beside an embedded queue that of the `up` of this data directory.
    graph: Place = Place::Embedded;
    /// Where its queries go, if the server has that elsewhere than usual.
    graph_query: Option<String> = None;
    /// Where its updates go, if the server has that elsewhere than usual.
    graph_update: Option<String> = None;
    /// User of the SPARQL server.
    graph_user: Option<String> = None;
    /// Password of that user.
    graph_password: Option<Secret> = None;
    /// Bearer token for the SPARQL server, instead of user and password.
    graph_token: Option<Secret> = None;
    /// Where the siblings of open fan-outs are counted, if not in the graph: the URL of a SPARQL 1.1 dataset of its own, with the credentials of the graph.
    coordination: Option<String> = None;
    /// Records, texts and config: `embedded`, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE` (or the password in PGPASSWORD).
    records: Place = Place::Embedded;
    /// Model: `auto`, `offline`, `scripted:FILE` (answers by rules), or `PROVIDER:NAME` (openai, anthropic, gemini, ollama).
    model: String = "auto".to_owned();
    /// Base URL of the model's API, for servers that speak a provider's protocol.
    base_url: Option<String> = None;
    /// Steps that an orchestrator, or requests that `tools serve`, works at the same time.
    concurrency: usize = 16;
    /// How long a fan-out waits for its subagents.
    subagent_timeout: Duration = Duration::from_secs(300);
    /// How long a whole run may take.
    run_timeout: Duration = Duration::from_secs(3_600);
    /// Most iterations of one agent before it must answer, whatever request and config say, and as many where they say nothing; as a flag of `ask`, of that run.
    max_iterations: Option<u32> = None;
    /// Most subagents of one fan-out, whatever request and config say, and as many where they say nothing.
    max_subagents: Option<u32> = None;
    /// Most levels of fan-out below a request, whatever request and config say, and as many where they say nothing.
    max_depth: Option<u32> = None;
    /// Most subagents in one tree, whatever request and config say, and as many where they say nothing.
    max_sessions: Option<u32> = None;
    /// Most tokens of one run, whatever request and config say; as a flag of `ask`, of that run.
    max_tokens: Option<u64> = None;
    /// Most money of one run, in the currency of the model profiles' prices; as a flag of `ask`, of that run.
    max_cost: Option<Money> = None;
    /// Most model calls of one run, whatever request and config say; as a flag of `ask`, of that run.
    max_model_calls: Option<u64> = None;
    /// Most tool calls of one run, whatever request and config say; as a flag of `ask`, of that run.
    max_tool_calls: Option<u64> = None;
    /// Most revisions of one plan, whatever request and config say, and as many where they say nothing; as a flag of `ask`, of that run.
    replan_depth: Option<u32> = None;
    /// Most times a critique may send an agent back, whatever request and config say, and as many where they say nothing.
    max_reflections: Option<u32> = None;
    /// Tokens of the model's window, where its profile does not say (`context-window`): longer histories are compressed.
    context_window: u32 = 128_000;
    /// Tries at a step before it ends as failed.
    max_attempts: u32 = 5;
    /// Longest a model call may take.
    model_timeout: Duration = Duration::from_secs(300);
    /// Longest a step waits for a model that is away, within the time of its run; then the run ends.
    model_wait: Duration = Duration::from_hours(24);
    /// Longest a tool call may take, unless the tool says otherwise.
    tool_timeout: Duration = Duration::from_secs(10);
    /// Programs that this process may start as MCP servers, by comma, each as `command` of an item names it; none by default, since whoever writes config chooses their arguments.
    mcp_commands: Option<String> = None;
    /// How long a message is held without a sign of life before another worker gets it.
    lease: Duration = Duration::from_secs(30);
    /// Longest a message may be worked: past it the process ends, and others get the message.
    wall_limit: Duration = Duration::from_secs(1_800);
    /// Address `up` serves on.
    listen: String = "127.0.0.1:8700".to_owned();
    /// PEM file of the certificate with which `up` speaks HTTPS and nothing else: the server's own first, then its issuers'. Read again when it changes. Needs `tls_key`.
    tls_certificate: Option<PathBuf> = None;
    /// PEM file of that certificate's private key, without a password.
    tls_key: Option<PathBuf> = None;
    /// Names by which clients may address `up` beside `localhost` and addresses, by comma, with or without a port; `*` is any.
    allowed_hosts: Option<String> = None;
    /// Token that callers of `up` send; unless given, that in the file `http-token` of the data directory, which `up` makes.
    http_token: Option<Secret> = None;
    /// Whether `up` asks callers for no token, and whoever reaches it may read, ask and approve: `yes` or `no`.
    open: bool = false;
    /// Most requests a minute of one principal whose API key says nothing of its own, at each gateway.
    requests_per_minute: u32 = 600;
    /// OpenID Connect issuer whose tokens callers of `up` may send, as its tokens have it in `iss`, such as `https://id.example/realms/fleet`.
    oidc_issuer: Option<String> = None;
    /// What such a token must name in `aud`: one of these, by comma.
    oidc_audience: Option<String> = None;
    /// Where the issuer's keys are, if its `/.well-known/openid-configuration` does not say it.
    oidc_jwks_url: Option<String> = None;
    /// PEM file of the authorities that the issuer's certificate may come from, beside those of the system.
    oidc_certificates: Option<PathBuf> = None;
    /// Claim with the name of the principal; dots lead into objects.
    oidc_name_claim: String = "sub".to_owned();
    /// Claim with the tenant.
    oidc_tenant_claim: String = "tenant".to_owned();
    /// Claim with the roles, such as `realm_access.roles`.
    oidc_roles_claim: String = "roles".to_owned();
    /// Claim with the permissions for tools, as globs.
    oidc_permissions_claim: String = "permissions".to_owned();
    /// Tenant of tokens that say none; without it they are refused.
    oidc_tenant: Option<String> = None;
    /// Secret of at least 32 characters that all processes of a fleet on Pulsar share, or `file:PATH`: they sign their own requests with it.
    fleet_secret: Option<Secret> = None;
    /// Whether requests that others publish to Pulsar must carry a token of the issuer in the property `claim`: `yes` or `no`.
    require_claims: bool = false;
    /// How long such a token may have expired when its message is worked.
    claim_grace: Duration = Duration::from_secs(3_600);
    /// Address where a single role serves its health and metrics, such as `0.0.0.0:9464`; `up` has them beside its API.
    health: Option<String> = None;
    /// Longest a query may take.
    query_timeout: Duration = Duration::from_secs(30);
    /// How long a stopping process waits for what is in flight.
    grace: Duration = Duration::from_secs(20);
    /// How long after its end a run is kept before a running fleet deletes it; `never` deletes none.
    keep_runs: Option<Duration> = Some(Duration::from_secs(90 * 24 * 3_600));
    /// Bucket that finished runs of a fleet on servers are archived to, `s3://BUCKET/PREFIX` (endpoint, region and credentials in `AWS_...` variables); the same for every role.
    archive: Option<String> = None;
    /// How long after its end, and after its hard deadline, a run is archived.
    archive_after: Duration = Duration::from_secs(24 * 3_600);
    /// How long responses are kept for readers that come late.
    retention: Duration = Duration::from_secs(7 * 24 * 3_600);
    /// Most quads of the embedded graph; none means as many as the machine's memory suggests.
    max_quads: Option<u64> = None;
    /// What is logged: `error`, `warn`, `info`, `debug`, or a filter such as `info,agentfleet_broker=debug`.
    log: String = "warn".to_owned();
    /// URL of an OpenTelemetry collector for traces (OTLP over HTTP), such as `http://127.0.0.1:4318`; without it OTEL_EXPORTER_OTLP_ENDPOINT, or none.
    otlp: Option<String> = None;
    /// Whether traces carry what people, models and tools said: `yes` or `no`.
    otlp_content: bool = false;
    /// How it is logged: `text` or `json`.
    log_format: String = "text".to_owned();
}

/// How long ago, as a flag says it.
pub(crate) fn age(flag: &str, text: &str) -> Result<Millis, Failure> {
    Value::read(text).map(millis).ok_or_else(|| {
        Failure::usage(format!(
            "`{flag}` is `{text}`, expected a time such as `2h` or `30d`, of at most 36500 days"
        ))
    })
}

/// A setting, for people.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub name: &'static str,
    pub about: &'static str,
    pub default: String,
}

/// The list of all settings, for the help of the command that shows them.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Each is a flag of every command, an environment variable, and a key of the settings file, in \
         that order of precedence. The file is `--settings FILE`, `AGENTFLEET_SETTINGS`, \
         `agentfleet.toml` in the data directory, or `agentfleet/agentfleet.toml` in the user's config \
         directory. One in the working directory is not read: whoever wrote the files there could send \
         your keys elsewhere.\n",
    );
    for Described {
        name,
        about,
        default,
    } in described()
    {
        let flag = name.replace('_', "-");
        let default = if default.is_empty() { "none" } else { &default };
        text.push_str(&format!(
            "\n  --{flag} VALUE   {}   {name} = ...\n      {about}\n      Default: {default}\n",
            variable(name)
        ));
    }
    text.push_str("\nExamples:\n  agentfleet settings\n  agentfleet ask \"...\" --model offline\n");
    text.push_str("  AGENTFLEET_DATA=/srv/fleet agentfleet up");
    text
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    File,
    Default,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "settings file",
            Self::Default => "default",
        }
    }

    /// A setting as it is spelled there.
    pub(crate) fn of(self, name: &str) -> String {
        match self {
            Self::Flag => format!("flag `--{}`", name.replace('_', "-")),
            Self::Environment => format!("environment variable `{}`", variable(name)),
            Self::File | Self::Default => format!("key `{name}` of the settings file"),
        }
    }
}

impl Settings {
    /// Resolves the settings of this process.
    pub fn load(flags: &Flags) -> Result<Self, Failure> {
        let env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .collect();
        Self::resolve(flags, &env)
    }

    fn resolve(flags: &Flags, env: &BTreeMap<String, String>) -> Result<Self, Failure> {
        for name in env.keys() {
            let known = ALSO_READ.contains(&name.as_str())
                || name.starts_with(agentfleet_tools::SECRET_VARIABLE)
                || NAMES.iter().any(|setting| variable(setting) == *name);
            if !known {
                let all: Vec<String> = NAMES.iter().map(|setting| variable(setting)).collect();
                return Err(unknown("environment variable", name, &all));
            }
        }
        let path = flags
            .settings
            .clone()
            .or_else(|| env.get("AGENTFLEET_SETTINGS").map(PathBuf::from));
        let file = match path {
            Some(path) => read_file(&path)?,
            None => {
                let data = flags
                    .data
                    .clone()
                    .or_else(|| env.get("AGENTFLEET_DATA").cloned());
                let data = data.map_or_else(default_data, PathBuf::from);
                let mut files = default_files(&data).into_iter();
                match files.find(|path| path.is_file()) {
                    Some(path) => read_file(&path)?,
                    None => File::default(),
                }
            }
        };
        Self::from_layers(flags, env, &file)
    }

    pub(crate) fn source(&self, name: &str) -> Source {
        self.sources.get(name).copied().unwrap_or(Source::Default)
    }

    /// Whether the fleet is on servers, which any number of processes work.
    pub(crate) fn on_servers(&self) -> bool {
        self.broker != Place::Embedded
    }

    /// How long a command may ask the graph.
    pub(crate) fn query_options(&self) -> QueryOptions {
        QueryOptions {
            timeout: self.query_timeout,
            ..QueryOptions::default()
        }
    }

    /// The bounds that travel with a request: those of the command line, and what may be spent wherever
    /// that is set, since another fleet may work the request and such a bound only narrows its own.
    pub(crate) fn limits(&self) -> RunLimits {
        let flag = |name| self.source(name) == Source::Flag;
        let wait = |name, time: Duration| flag(name).then_some(millis(time).unsigned_abs());
        let most = |name, number: Option<u32>| number.filter(|_| flag(name));
        RunLimits {
            max_iterations: most("max_iterations", self.max_iterations),
            max_subagents: most("max_subagents", self.max_subagents),
            max_depth: most("max_depth", self.max_depth),
            max_sessions: most("max_sessions", self.max_sessions),
            max_tokens: self.max_tokens,
            max_cost: self.max_cost,
            max_model_calls: self.max_model_calls,
            max_tool_calls: self.max_tool_calls,
            max_replan_depth: most("replan_depth", self.replan_depth),
            max_reflections: most("max_reflections", self.max_reflections),
            subagent_timeout_ms: wait("subagent_timeout", self.subagent_timeout),
            run_timeout_ms: wait("run_timeout", self.run_timeout),
        }
    }

    /// Variables with bounds that only count where a fleet is started.
    pub(crate) fn bounds_of_fleets(&self) -> Vec<String> {
        let bounds = [
            "max_iterations",
            "max_subagents",
            "max_depth",
            "max_sessions",
            "replan_depth",
            "max_reflections",
            "subagent_timeout",
            "run_timeout",
        ];
        let is_set = |name: &&str| self.source(name) == Source::Environment;
        bounds.into_iter().filter(is_set).map(variable).collect()
    }

    /// How to call this program so that it finds the same data, for commands to copy.
    pub(crate) fn program(&self) -> String {
        let name = called();
        if self.source("data") == Source::Flag {
            let data = self.data.display().to_string();
            return format!("{name} --data {}", crate::ui::shell_word(&data));
        }
        name
    }
}

/// This program as it was called, where its name alone would not find it.
pub(crate) fn called() -> String {
    const NAME: &str = "agentfleet";
    let called = std::env::args().next().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(NAME).is_file());
    if found || !called.contains('/') {
        NAME.to_owned()
    } else {
        crate::ui::shell_word(&called)
    }
}

const PREFIX: &str = "AGENTFLEET_";
/// Variables that are no settings: the settings file itself, and those of tests and tools.
const ALSO_READ: &[&str] = &[
    "AGENTFLEET_SETTINGS",
    "AGENTFLEET_SEED",
    "AGENTFLEET_SIM_RUNS",
    "AGENTFLEET_CACHE",
    "AGENTFLEET_KILL_SECONDS",
    "AGENTFLEET_STORM_SECONDS",
    "AGENTFLEET_STORM_KILLS",
    "AGENTFLEET_STORM_WAVE",
    "AGENTFLEET_STORM_TRACES",
];

fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase())
}

fn unknown(what: &str, name: &str, all: &[String]) -> Failure {
    let nearest = all
        .iter()
        .map(|known| {
            (
                strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase()),
                known,
            )
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((score, known)) if score > 0.8 => {
            Failure::usage(format!("unknown {what} `{name}`: did you mean `{known}`?"))
        }
        _ => Failure::usage(format!(
            "unknown {what} `{name}` (known: {})",
            all.join(", ")
        )),
    }
}

fn bad_value(name: &str, text: &str, source: Source, expected: &str) -> Failure {
    let (at, text) = (source.of(name), value::masked(text));
    Failure::usage(format!("{at} is `{text}`, expected {expected}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::file::parse_file;
    use super::*;
    use agentfleet_schema::LONGEST_MS;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let file = parse_file(
            "concurrency = 3\nmax-cost = 0.5\nsubagent-timeout = \"7s\"\nmodel = \"offline\"",
        )
        .unwrap();
        let flags = Flags {
            concurrency: Some("5".into()),
            ..Flags::default()
        };
        let env = env(&[
            ("AGENTFLEET_CONCURRENCY", "4"),
            ("AGENTFLEET_MODEL", "auto"),
        ]);
        let settings = Settings::from_layers(&flags, &env, &file).unwrap();
        assert_eq!(settings.concurrency, 5);
        assert_eq!(settings.model, "auto");
        assert_eq!(settings.subagent_timeout, Duration::from_secs(7));
        assert_eq!(settings.max_depth, None);
        assert_eq!(settings.sources["subagent_timeout"], Source::File);
        assert_eq!(settings.max_cost, Value::read("0.5"));
    }

    #[test]
    fn no_time_is_so_long_that_instants_wrap() {
        for (text, expected) in [
            ("36500d", Some(LONGEST_MS as Millis)),
            ("36501d", None),
            // As milliseconds these are negative, or 0, where they are cut to 64 bits.
            ("9223372036854775s 809ms", None),
            ("18446744073709551s 616ms", None),
            ("18446744073709551615s", None),
        ] {
            let read: Option<Duration> = Value::read(text);
            assert_eq!(read.map(millis), expected, "{text}");
            assert_eq!(age("--older-than", text).ok(), expected, "{text}");
            let env = env(&[("AGENTFLEET_KEEP_RUNS", text)]);
            let settings = Settings::from_layers(&Flags::default(), &env, &File::default());
            assert_eq!(settings.is_ok(), expected.is_some(), "{text}");
        }
        assert_eq!(millis(Duration::MAX), agentfleet_schema::FAR);
    }

    #[test]
    fn the_password_of_a_database_is_not_shown_and_not_taken_where_ps_shows_it() {
        let address = "postgres://fleet:hunter2@db.example/fleet";
        let others = [
            ("AGENTFLEET_BROKER", "pulsar://pulsar.example:6650"),
            ("AGENTFLEET_GRAPH", "http://graph.example:3030/ds"),
        ];
        let env = |more: &[(&str, &str)]| env(&[&others, more].concat());
        let given = env(&[("AGENTFLEET_RECORDS", address)]);
        let settings = Settings::from_layers(&Flags::default(), &given, &File::default()).unwrap();
        assert_eq!(settings.records, Place::At(address.to_owned()));
        let shown = format!("{:?} {}", settings.in_force(), settings.records);
        assert!(!shown.contains("hunter2"), "{shown}");
        let flag = |address: &str| {
            let records = Some(address.to_owned());
            let flags = Flags {
                records,
                ..Flags::default()
            };
            Settings::from_layers(&flags, &env(&[]), &File::default())
        };
        let refused = flag(address).unwrap_err().to_string();
        assert!(refused.contains("PGPASSWORD"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
        assert!(flag("postgres://fleet@db.example:5432/fleet").is_ok());
    }

    #[test]
    fn a_mixture_of_embedded_parts_and_servers_is_refused() {
        let (broker, graph) = ("pulsar://host:6650", "http://host:3030/ds");
        let (records, beside) = ("postgres://fleet@host/fleet", "http://127.0.0.1:8700");
        for (given, expected) in [
            (["embedded", "embedded", "embedded"], None),
            ([broker, records, graph], None),
            (["embedded", "embedded", beside], None),
            (
                ["embedded", "embedded", graph],
                Some("`graph` on a server and `broker` and `records` embedded"),
            ),
            (
                // A SPARQL server is none, wherever it is.
                ["embedded", "embedded", "http://127.0.0.1:3030/ds"],
                Some("`graph` on a server and `broker` and `records` embedded"),
            ),
            (
                [broker, "embedded", beside],
                Some("`broker` and `graph` on a server and `records` embedded"),
            ),
            (
                [broker, records, "embedded"],
                Some("`broker` and `records` on a server and `graph` embedded"),
            ),
            (
                [broker, "s3://bucket/fleet", graph],
                Some("`s3://bucket/fleet`, expected `postgres://"),
            ),
        ] {
            let names = [
                "AGENTFLEET_BROKER",
                "AGENTFLEET_RECORDS",
                "AGENTFLEET_GRAPH",
            ];
            let pairs: Vec<_> = names.into_iter().zip(given).collect();
            let read = Settings::from_layers(&Flags::default(), &env(&pairs), &File::default());
            let says = read.err().map(|failure| failure.to_string());
            assert_eq!(says.is_some(), expected.is_some(), "{given:?}: {says:?}");
            let says = says.unwrap_or_default();
            assert!(says.contains(expected.unwrap_or_default()), "{says}");
        }
    }

    #[test]
    fn siblings_are_counted_in_another_dataset_of_a_fleet_on_servers() {
        let servers = [
            ("AGENTFLEET_BROKER", "pulsar://host:6650"),
            ("AGENTFLEET_RECORDS", "postgres://fleet@host/fleet"),
            ("AGENTFLEET_GRAPH", "http://host:3030/ds"),
        ];
        for (others, dataset, expected) in [
            (&servers[..], "http://host:3030/coordination", None),
            (
                &servers[..],
                "http://host:3030/ds/",
                Some("another dataset than `graph`"),
            ),
            (
                &servers[..],
                "embedded",
                Some("is `embedded`, expected the URL of"),
            ),
            (
                &[],
                "http://host:3030/coordination",
                Some("for a fleet on servers"),
            ),
        ] {
            let given = env(&[others, &[("AGENTFLEET_COORDINATION", dataset)]].concat());
            let read = Settings::from_layers(&Flags::default(), &given, &File::default());
            let says = read.err().map(|failure| failure.to_string());
            assert_eq!(says.is_some(), expected.is_some(), "{dataset}: {says:?}");
            let says = says.unwrap_or_default();
            assert!(says.contains(expected.unwrap_or_default()), "{says}");
        }
    }

    #[test]
    fn an_archive_is_a_bucket_of_a_fleet_on_servers() {
        let servers = [
            ("AGENTFLEET_BROKER", "pulsar://host:6650"),
            ("AGENTFLEET_RECORDS", "postgres://fleet@host/fleet"),
            ("AGENTFLEET_GRAPH", "http://host:3030/ds"),
        ];
        for (bucket, after, on, expected) in [
            ("s3://cold/runs", "1h", &servers[..], ""),
            ("s3://", "1h", &servers, "expected `s3://BUCKET`"),
            ("/srv/cold", "1h", &servers, "expected `s3://BUCKET`"),
            ("s3://cold", "59m", &servers, "expected at least 1h"),
            ("s3://cold", "1h", &[], "is for a fleet on servers"),
        ] {
            let own = [
                ("AGENTFLEET_ARCHIVE", bucket),
                ("AGENTFLEET_ARCHIVE_AFTER", after),
            ];
            let given = env(&[&own, on].concat());
            let read = Settings::from_layers(&Flags::default(), &given, &File::default());
            let says = read
                .err()
                .map(|failure| failure.to_string())
                .unwrap_or_default();
            assert_eq!(says.is_empty(), expected.is_empty(), "{bucket}: {says}");
            assert!(says.contains(expected), "{says}");
        }
    }

    #[test]
    fn mistakes_are_named_with_what_would_be_right() {
        let flags = Flags {
            concurrency: Some("many".into()),
            ..Flags::default()
        };
        let early = env(&[("AGENTFLEET_ARCHIVE_AFTER", "59m")]);
        for (failure, expected) in [
            (
                parse_file("concurency = 3").unwrap_err(),
                "did you mean `concurrency`?",
            ),
            (parse_file("zzz = 3").unwrap_err(), "known: data"),
            (
                parse_file("concurrency = true").unwrap_err(),
                "expected text or a number",
            ),
            (
                Settings::resolve(&Flags::default(), &env(&[("AGENTFLEET_MODLE", "x")]))
                    .unwrap_err(),
                "did you mean `AGENTFLEET_MODEL`?",
            ),
            (
                Settings::from_layers(&Flags::default(), &early, &File::default()).unwrap_err(),
                "expected at least 1h",
            ),
            (
                Settings::from_layers(&flags, &env(&[]), &File::default()).unwrap_err(),
                "flag `--concurrency` is `many`, expected a whole number",
            ),
            (
                Settings::from_layers(
                    &Flags::default(),
                    &env(&[("AGENTFLEET_LEASE", "soon")]),
                    &File::default(),
                )
                .unwrap_err(),
                "environment variable `AGENTFLEET_LEASE` is `soon`, expected a time",
            ),
        ] {
            assert!(
                failure.to_string().contains(expected),
                "{failure} / {expected}"
            );
        }
    }
}
