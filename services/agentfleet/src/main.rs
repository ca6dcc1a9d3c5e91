//! The one binary: every role and every command is a subcommand.

mod cli;
mod commands;
mod error;
mod fleet;
mod keeper;
mod settings;
mod ui;

use clap::Parser as _;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // One TLS provider for the whole process; reqwest panics without.
    rustls::crypto::ring::default_provider().install_default().ok();
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::from(error::Exit::Unavailable as u8);
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}

async fn run(cli: cli::Cli) -> Result<(), error::Failure> {
    let settings = settings::Settings::load(&cli.flags)?;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(&settings.log))
        .with_writer(std::io::stderr)
        .init();
    let ui = ui::Ui::new(cli.color);
    match cli.command {
        cli::Command::Ask(ask) => commands::ask::ask(ask, &settings).await,
        cli::Command::Load(load) => commands::library::load(load, &settings).await,
        cli::Command::Document(document) => commands::library::document(document, &settings).await,
        cli::Command::Config(config) => commands::config::run(config, &settings, ui).await,
        cli::Command::Sessions(command) => commands::sessions::run(command, &settings, ui).await,
        cli::Command::Purge(purge) => commands::upkeep::purge(purge, &settings).await,
        cli::Command::Backup(backup) => commands::upkeep::backup(&backup, &settings),
        cli::Command::Restore(restore) => commands::upkeep::restore(&restore, &settings),
        cli::Command::Doctor(doctor) => commands::upkeep::doctor(doctor, &settings).await,
        cli::Command::Dlq(dlq) => commands::dlq::run(dlq, &settings, ui).await,
        _ => Err(error::Failure::usage("not yet")),
    }
}
