//! Roles as processes of their own. With an instant model each is this program again: the shipped
//! composition, its seams counted, the model and the tool replaced. Idle ones are the binary itself.

use crate::Result;
use crate::counted::{Counter, Tally};
use crate::instant::make_instant;
use agentfleet::engine::Engine;
use agentfleet::fleet::{Fleet, Roles};
use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The names of the roles, as commands.
pub(crate) const NAMES: [&str; 3] = ["orchestrator", "aggregator", "graph-writer"];

/// What a role says of itself when asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) tally: Tally,
    pub(crate) usage: Usage,
}

/// What a process used so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    pid: u32,
    pub(crate) resident_kib: u64,
    /// Of that, what no other process has too.
    own_kib: u64,
    pub(crate) peak_kib: u64,
    /// Processor time, in milliseconds.
    pub(crate) cpu_ms: u64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Ok(Self {
            pid,
            resident_kib: field("VmRSS").unwrap_or(0),
            own_kib: field("RssAnon").unwrap_or(0),
            peak_kib: field("VmHWM").unwrap_or(0),
            // User and system, in hundredths of a second on Linux.
            cpu_ms: ticks(pid, [11, 12])? * 10,
        })
    }

    /// Of a server that may have children, as PostgreSQL has one for each connection: those that it has
    /// and, of their processor time, those that it had. Of their memory what is not shared counts.
    pub(crate) fn of_server(pid: u32) -> Result<Self> {
        let mut all = Self::of(pid)?;
        all.cpu_ms += ticks(pid, [13, 14])? * 10;
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        for child in children.split_whitespace().filter_map(|it| it.parse().ok()) {
            // It may have ended meanwhile.
            if let Ok(used) = Self::of(child) {
                all.cpu_ms += used.cpu_ms;
                all.resident_kib += used.own_kib;
            }
        }
        Ok(all)
    }

    /// Processor time of the process since then, in milliseconds.
    pub(crate) fn since(self) -> Result<u64> {
        Ok(Self::of(self.pid)?.cpu_ms - self.cpu_ms)
    }
}

/// The sum of two fields of a process's `stat`, counted from its state.
fn ticks(pid: u32, fields: [usize; 2]) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in brackets, may have spaces.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let after: Vec<&str> = after.split_whitespace().collect();
    let read = |at: &usize| after.get(*at).and_then(|field| field.parse::<u64>().ok());
    Ok(fields.iter().filter_map(read).sum())
}

/// A role that works until this is dropped.
#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) name: &'static str,
    child: Child,
    asks: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Role {
    /// Starts this program as a role, and returns once it works. It ends when its input does.
    pub(crate) fn start(name: &'static str, settings: &[(&str, &str)]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([crate::AS_ROLE, name])
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(asks), Some(says)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a role has no pipes".into());
        };
        let mut role = Self {
            name,
            child,
            asks,
            says: BufReader::new(says),
        };
        role.line()?;
        Ok(role)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.says.read_line(&mut line)? == 0 {
            return Err(format!("the {} ended by itself", self.name).into());
        }
        Ok(line)
    }

    pub(crate) fn report(&mut self) -> Result<Report> {
        writeln!(self.asks)?;
        let mut report: Report = serde_json::from_str(&self.line()?)?;
        report.usage = Usage::of(self.child.id())?;
        Ok(report)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Is a role: works what comes, and answers each line of its input with a report.
pub(crate) async fn be(name: &str) -> Result<()> {
    let roles = match name {
        "orchestrator" => Roles::Orchestrator,
        "aggregator" => Roles::Aggregator,
        "graph-writer" => Roles::GraphWriter,
        _ => return Err(format!("no role `{name}`: choose from {}", NAMES.join(", ")).into()),
    };
    let settings = Settings::load(&Flags::default())?;
    let store = Store::open(&settings).await?;
    store.prepare(&settings).await?;
    let mut engine = Engine::open(store, &settings, &|_, _| {}).await?;
    make_instant(&mut engine);
    let counter = Counter::default();
    counter.watch(&mut engine);
    let _fleet = Fleet::start(&engine, &settings, roles).await?;
    println!("working");
    tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lines() {
            line?;
            let report = Report {
                tally: counter.tally(),
                usage: Usage::default(),
            };
            println!("{}", serde_json::to_string(&report)?);
        }
        Result::Ok(())
    })
    .await?
}

/// The shipped binary as a role.
#[derive(Debug)]
pub(crate) struct Shipped(Child);

impl Shipped {
    /// Returns once the role says that it works.
    pub(crate) fn start(name: &str) -> Result<Self> {
        let binary = std::env::current_exe()?.with_file_name("agentfleet");
        let mut child = Command::new(&binary)
            .arg(name)
            .env("AGENTFLEET_MODEL", "offline")
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let started = Self(child);
        if line.is_empty() {
            return Err(format!("the binary did not start as {name}").into());
        }
        Ok(started)
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.0.id())
    }
}

impl Drop for Shipped {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
