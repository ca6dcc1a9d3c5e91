//! Examples that run as a service of a user would: HTTP on a loopback port, over a SQLite file of their own.
//!
//! An [`Example`] is a table of endpoints, a schema, data to begin with, and the config items by which a fleet
//! uses it. It knows nothing of the fleet: what reaches it are HTTP requests, as any service gets them.

use std::path::PathBuf;

mod answers;
mod business;
mod call;
mod crm;
mod data;
mod day;
mod service;

pub use data::reset;
pub use service::Service;

use call::Endpoint;

/// A service to try the fleet on.
#[derive(Debug)]
pub struct Example {
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// The port that its config items name.
    pub port: u16,
    /// Arguments of the program for things to try, the first before the others.
    pub tries: &'static [&'static str],
    /// Tables; run whenever the file is opened.
    schema: &'static str,
    /// What a tenant begins with; run once for each.
    sample: &'static str,
    endpoints: &'static [Endpoint],
}

/// A config item as a file: its type, its name and its text.
pub type ItemFile = (&'static str, &'static str, String);

/// Example, type, file name and text.
const FILES: &[(&str, &str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/items.rs"));

/// All there are, by name.
pub const ALL: [&Example; 2] = [&business::EXAMPLE, &crm::EXAMPLE];

pub const BUSINESS: &Example = &business::EXAMPLE;
pub const CRM: &Example = &crm::EXAMPLE;

impl Example {
    /// Its config items, for a service that listens at a port.
    pub fn items(&self, port: u16) -> Vec<ItemFile> {
        let (usual, here) = (self.address(self.port), self.address(port));
        let own = FILES.iter().filter(|(example, ..)| *example == self.name);
        own.map(|(_, item_type, name, text)| (*item_type, *name, text.replace(&usual, &here)))
            .collect()
    }

    /// Where it is at a port.
    pub fn address(&self, port: u16) -> String {
        format!("http://127.0.0.1:{port}")
    }
}

/// What keeps an example from running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot open the database `{}`: {reason}", path.display())]
    Open { path: PathBuf, reason: String },
    #[error("the database cannot be used: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("the service stopped: {0}")]
    Served(#[from] std::io::Error),
}
