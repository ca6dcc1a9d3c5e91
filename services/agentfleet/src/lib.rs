//! The one binary, as a library: settings, composition, commands. Tests and benchmarks compose
//! fleets with it; `main.rs` only calls [`run`].

#[macro_use]
mod ui;
mod agreed;
mod cli;
mod clock;
mod commands;
pub mod engine;
pub mod error;
pub mod evidence;
pub mod fleet;
mod issuer;
pub mod lock;
mod log;
mod notices;
mod relocation;
pub mod settings;
mod signals;
mod standby;
pub mod store;
mod tls;
mod token;

use error::{Exit, Failure};
use fleet::Roles;
use settings::Settings;
use std::process::ExitCode;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    install_tls();
    let cli = cli::Cli::read();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            errln!("error: cannot start: {error}");
            return ExitCode::from(Exit::Unavailable as u8);
        }
    };
    match runtime.block_on(command(cli)) {
        Ok(()) if ui::answer_is_lost() => ExitCode::from(error::Exit::Unavailable as u8),
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                errln!("error: {failure}");
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// One TLS provider for the whole process; the HTTP client panics without.
pub fn install_tls() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
}

async fn command(cli: cli::Cli) -> Result<(), Failure> {
    use cli::Command;
    let settings = Settings::load(&cli.flags)?;
    log::start(&settings)?;
    if let Some(file) = settings::left_alone(&settings) {
        errln!("`{file}` here is not read: `--settings {file}` does, if you know who wrote it.");
    }
    let ui = ui::Ui::new(cli.color);
    match cli.command {
        Command::Demo(demo) => commands::ask::demo(demo, &settings, ui).await,
        Command::Example(command) => Box::pin(commands::example::run(command, &settings, ui)).await,
        Command::Ask(ask) => commands::ask::ask(ask, &settings, ui).await,
        Command::Chat(chat) => Box::pin(commands::chat::chat(chat, &settings, ui)).await,
        Command::Attach(attach) => commands::ask::attach(attach, &settings, ui).await,
        Command::Cancel(named) => Box::pin(commands::ask::cancel(named, &settings)).await,
        Command::Approvals(command) => {
            Box::pin(commands::approvals::run(command, &settings, ui)).await
        }
        Command::Load(load) => commands::library::load(load, &settings).await,
        Command::Document(document) => commands::library::document(document, &settings).await,
        Command::Config(config) => commands::config::run(config, &settings, ui).await,
        Command::Tools(command) => commands::tools::run(command, &settings, ui).await,
        Command::Memory(command) => commands::memory::run(command, &settings, ui).await,
        Command::Keys(command) => commands::keys::run(command, &settings, ui).await,
        Command::Usage(of) => commands::usage::run(of, &settings, ui).await,
        Command::Audit(command) => commands::audit::run(command, &settings, ui).await,
        Command::Dlq(dlq) => commands::dlq::run(dlq, &settings, ui).await,
        Command::Sessions(command) => commands::sessions::run(command, &settings, ui).await,
        Command::Query(query) => commands::query::run(query, &settings, ui).await,
        Command::Explain(explain) => commands::explain::run(explain, &settings, ui).await,
        Command::Verify(verify) => commands::verify::run(verify, &settings).await,
        Command::Cost(cost) => commands::cost::run(cost, &settings, ui).await,
        Command::Discover(args) => commands::discover::run(args, &settings, ui).await,
        Command::Purge(purge) => commands::purge::purge(purge, &settings).await,
        Command::Backup(backup) => commands::upkeep::backup(&backup, &settings),
        Command::Restore(restore) => commands::upkeep::restore(&restore, &settings).await,
        Command::Migrate => commands::migrate::migrate(&settings).await,
        Command::Doctor(doctor) => commands::doctor::doctor(doctor, &settings).await,
        Command::Settings(show) => commands::in_force::settings(show, &settings, ui),
        Command::Completions(completions) => {
            let mut command = cli::Cli::whole();
            let mut script = Vec::new();
            clap_complete::generate(completions.shell, &mut command, "agentfleet", &mut script);
            out!("{}", String::from_utf8_lossy(&script));
            Ok(())
        }
        Command::Replay(replay) => commands::replay::run(replay, &settings).await,
        Command::Fork(fork) => commands::fork::fork(fork, &settings, ui).await,
        Command::Retry(retry) => commands::retry::retry(retry, &settings, ui).await,
        Command::Diff(diff) => commands::diff::run(diff, &settings, ui).await,
        Command::Trace(trace) => commands::trace::run(trace, &settings, ui).await,
        Command::Up(up) => commands::up::up(up, &settings).await,
        Command::Orchestrator => commands::up::role(Roles::Orchestrator, &settings).await,
        Command::Aggregator => commands::up::role(Roles::Aggregator, &settings).await,
        Command::GraphWriter => commands::up::role(Roles::GraphWriter, &settings).await,
    }
}
