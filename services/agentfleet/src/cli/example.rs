//! What there is to type about the examples.

use super::Output;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Examples {
    /// The examples there are, with what to ask them
    #[command(after_help = "Example:\n  agentfleet example list")]
    List(Output),
    /// A bakery's copilot: blog, social media, chatbot and figures
    #[command(
        after_help = "Examples:\n  agentfleet example business start\n  agentfleet ask \"Why did my blog traffic drop this week?\" --task-type business\n  agentfleet example business reset"
    )]
    Business {
        #[command(subcommand)]
        doing: ExampleDoing,
    },
    /// A CRM in Slovak: customers, projects, tasks and mail
    #[command(
        after_help = "Examples:\n  agentfleet example crm start\n  agentfleet ask \"Vytvor projekt Strecha pre Janu Novákovú\" --task-type crm\n  agentfleet example crm reset"
    )]
    Crm {
        #[command(subcommand)]
        doing: ExampleDoing,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExampleDoing {
    /// Put its items into the config, and serve it until it is told to stop
    ///
    /// Items that a person put or deleted stay as they are. Its database is a SQLite file below `examples` in the data
    /// directory.
    #[command(
        after_help = "Examples:\n  agentfleet example business start\n  agentfleet example crm start --port 9000"
    )]
    Start(StartExample),
    /// Put its data back to what it was at first, also while it runs
    #[command(after_help = "Example:\n  agentfleet example business reset")]
    Reset,
    /// Take its items out of the config again
    ///
    /// Those that come with the program are as they come again. What a person put stays.
    #[command(after_help = "Example:\n  agentfleet example business unload")]
    Unload,
}

#[derive(Debug, Args)]
pub(crate) struct StartExample {
    /// Port on the loopback interface; its own if left out, any free one if 0.
    #[arg(long)]
    pub port: Option<u16>,
    #[command(flatten)]
    pub output: Output,
}
