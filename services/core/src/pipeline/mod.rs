//! What a call passes between the model that wants it and the driver that makes it, in this order: its tool
//! is found, is it permitted, are its arguments healed, do they fit, must a person confirm it. Then the
//! driver limits its rate, makes it and makes it again where that is allowed, and the outcome is read.
//!
//! Every stage is a pure function. One that changes or stops a call tells so in a [`Decision`]; a call that is
//! stopped comes back to the model as an observation. That a person confirms is settled by
//! [`approval::gate`](crate::approval), behind which no pattern can reach.

mod heal;
mod outcome;
mod permit;
mod resolve;
mod took;
mod validate;

pub(crate) use heal::arguments as healed;
pub use outcome::words;
pub(crate) use outcome::{gave_up, passed_on, tried};
pub(crate) use took::took;
pub(crate) use validate::misused;

use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::Decision;
use std::collections::BTreeMap;

/// A call that may be made, with the arguments to make it with.
pub type Prepared = (ToolItem, BTreeMap<String, String>);

/// Why a call is not made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// What the model is told instead.
    pub text: String,
    /// Required arguments that it lacks, and that nothing known fills.
    pub missing: Vec<ToolArgument>,
}

impl From<String> for Stopped {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

/// Takes a call through the stages before a person is asked. `Err` is what the model is told instead;
/// `decided` gets what was changed or stopped.
pub fn prepare(
    request: &AgentRequest,
    snapshot: &Snapshot,
    visible: &[ToolItem],
    name: &str,
    arguments: &BTreeMap<String, String>,
    decided: &mut Vec<Decision>,
) -> Result<Prepared, Stopped> {
    let tool = resolve::tool(request, snapshot, visible, name, decided)?;
    permit::check(request, snapshot, tool, decided)?;
    let arguments = heal::arguments(tool, arguments, &request.control.known, decided);
    match misused(tool, &arguments) {
        Some(text) => Err(Stopped {
            text,
            missing: validate::missing(tool, &arguments),
        }),
        None => Ok((tool.clone(), arguments)),
    }
}

#[cfg(test)]
mod tests;
