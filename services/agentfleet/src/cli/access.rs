//! What there is to type about who may come in, and what was written of it.

use super::Output;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make a key, and print its secret: once, and never again
    #[command(
        after_help = "Examples:\n  agentfleet keys create billing --tenant acme --role producer --expires 30d\n  agentfleet keys create ada --tenant acme --role analyst --role approver"
    )]
    Create(NewKey),
    /// All keys, without their secrets
    #[command(after_help = "Example:\n  agentfleet keys list")]
    List(Output),
    /// The roles there are, and what each allows
    #[command(
        after_help = "A config item `role/NAME` adds a role, or takes the place of one that is shipped.\n\nExample:\n  agentfleet keys roles"
    )]
    Roles(Output),
    /// Let a key count no more
    #[command(after_help = "Example:\n  agentfleet keys revoke 1f0c7a2e9b3d4f58")]
    Revoke {
        /// Its id, as `keys list` shows it.
        id: String,
        /// Who revokes it; default: the user of this system.
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// Let the processes of a fleet on servers agree on another `fleet_secret`, or on none
    ///
    /// Stop all of them first: those that run on go on with the one they have.
    #[command(after_help = "Example:\n  agentfleet keys forget-secret")]
    ForgetSecret {
        /// Who does it; default: the user of this system.
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewKey {
    /// Who it is given to: the name that stands in records and in the audit log.
    pub name: String,
    /// Whose data it sees, and nobody else's.
    #[arg(long)]
    pub tenant: String,
    /// What it may do, as `keys roles` lists; may be repeated.
    #[arg(long, required = true)]
    pub role: Vec<String>,
    /// A tool with a permission that its runs may call, as a glob; may be repeated.
    #[arg(long, value_name = "GLOB")]
    pub permission: Vec<String>,
    /// Most requests a minute; left out, it is the gateway's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub per_minute: Option<u32>,
    /// After which time it stops to count, such as `30d`; left out, never.
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Who makes it; default: the user of this system.
    #[arg(long = "as", value_name = "NAME")]
    pub by: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// Of which month and tenant.
#[derive(Debug, Args)]
pub(crate) struct UsageOf {
    /// This tenant only.
    #[arg(long)]
    pub tenant: Option<String>,
    /// The month, as `2026-11`; left out, the one that it is in UTC.
    #[arg(long, value_name = "YYYY-MM")]
    pub month: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// What was refused, answered and changed, the oldest first
    #[command(after_help = "Example:\n  agentfleet audit list --since 1d")]
    List {
        /// Only what is newer than this, such as `1d`.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Check that no entry was changed and none is missing
    #[command(
        after_help = "Exit code 7 says that something is not as it was written. What is cut off at the end shows only\nto who noted the newest hash elsewhere.\n\nExample:\n  agentfleet audit verify"
    )]
    Verify(Output),
}
