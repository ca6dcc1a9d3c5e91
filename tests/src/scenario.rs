//! What a simulated fleet is asked, and how the simulated model answers: a tree of work.
//!
//! Each piece of work has a name such as `r0.1`, which stands in brackets in every question and goal
//! about it. The model finds its part by that name, so it needs no memory and no session.

use agentfleet_schema::RunLimits;
use agentfleet_schema::config::JoinPolicy;
use std::collections::BTreeMap;

/// Everything that is asked of the fleet in one run.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub roots: Vec<Root>,
    pub works: BTreeMap<String, Work>,
    /// Whether another attempt at a step may be answered otherwise, as models do.
    pub fickle: bool,
    /// Bytes added to every goal.
    pub padding: usize,
    pub policy: JoinPolicy,
    /// Whether steps of a plan that do not depend on each other go to subagents.
    pub parallel: bool,
    /// Fleet limits.
    pub max_iterations: u32,
    pub max_depth: u32,
    pub max_rounds: u32,
    pub subagent_timeout_ms: u64,
    pub run_timeout_ms: u64,
    pub max_attempts: u32,
    /// How long a person may take to approve a call.
    pub approval_ms: u64,
    /// Tokens of the model's window; 0 bounds no history.
    pub context_window: u32,
    /// Bytes added to everything that a tool returns.
    pub result_bytes: usize,
    /// Whether siblings are counted in a dataset of their own.
    pub coordination: bool,
}

/// One request from outside.
#[derive(Clone, Debug)]
pub struct Root {
    pub work: String,
    pub identity: Identity,
    /// Empty lets the fleet route it.
    pub pattern: String,
    pub streaming: bool,
    pub limits: RunLimits,
    /// Somebody cancels it after this many scheduling steps.
    pub cancel_after: Option<u64>,
}

/// What a producer says of who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A session id.
    Session,
    /// The caller's `id` property.
    Id,
    /// Neither.
    Nothing,
}

/// One piece of work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub kind: Kind,
    pub trouble: Trouble,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Calls of tools, then an answer.
    React(Vec<Use>),
    /// Names of the subagents' work, by round.
    Supervisor(Vec<Vec<String>>),
    /// The work of each step, and the steps it needs.
    Plan(Vec<(String, Vec<u32>)>),
    /// Calls of tools with a critique of each, then an answer that is sent back once.
    Reflexion(Vec<Use>),
    /// The round in which the reasoners agree.
    Debate(u32),
    /// The work of each specialist, one after the other; none is a single specialist's in the same
    /// session.
    Router(Vec<String>),
}

impl Kind {
    /// The pattern it is work for.
    pub fn pattern(&self) -> &'static str {
        match self {
            Self::React(_) => "react",
            Self::Supervisor(_) => "supervisor",
            Self::Plan(_) => "plan-then-execute",
            Self::Reflexion(_) => "reflexion",
            Self::Debate(_) => "debate",
            Self::Router(_) => "router",
        }
    }

    /// The calls of tools it makes itself.
    pub fn uses(&self) -> &[Use] {
        match self {
            Self::React(uses) | Self::Reflexion(uses) => uses,
            Self::Supervisor(_) | Self::Plan(_) | Self::Debate(_) | Self::Router(_) => &[],
        }
    }
}

impl Default for Kind {
    fn default() -> Self {
        Self::React(Vec::new())
    }
}

/// One reply of the model before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A tool without side effects.
    Read,
    /// A tool with side effects.
    Write,
    /// A tool with side effects that a person must approve; it is denied if nobody does.
    Pay,
    /// A tool without side effects that a person must approve; it is approved if nobody does.
    Peek,
    /// Another agent.
    Agent,
    /// A tool that does not exist.
    Unknown,
    /// Something that cannot be read.
    Garbage,
}

/// What is wrong with a piece of work, besides the faults of the seams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    #[default]
    None,
    /// Its model call never returns.
    Stuck,
    /// Its model call kills the process, each time.
    Poison,
    /// The first look at it kills the process, each time.
    Deadly,
    /// The model refuses it for good.
    Refused,
    /// The model is never available for it.
    Unavailable,
}

impl Scenario {
    /// Work that goes well.
    pub fn new() -> Self {
        Self {
            max_iterations: 6,
            max_depth: 3,
            max_rounds: 2,
            subagent_timeout_ms: 60_000,
            run_timeout_ms: 600_000,
            max_attempts: 3,
            approval_ms: 120_000,
            ..Self::default()
        }
    }

    /// A root that calls tools and answers.
    #[must_use]
    pub fn react(mut self, name: &str, uses: &[Use]) -> Self {
        self.works.insert(
            name.to_owned(),
            Work {
                kind: Kind::React(uses.to_vec()),
                ..Work::default()
            },
        );
        self.root(name)
    }

    /// A root that fans out to this many subagents, which answer at once.
    #[must_use]
    pub fn supervisor(mut self, name: &str, children: usize) -> Self {
        let names: Vec<String> = (0..children).map(|n| format!("{name}.{n}")).collect();
        for child in &names {
            self.works.insert(child.clone(), Work::default());
        }
        let kind = Kind::Supervisor(vec![names]);
        self.works.insert(
            name.to_owned(),
            Work {
                kind,
                ..Work::default()
            },
        );
        self.root(name)
    }

    fn root(mut self, name: &str) -> Self {
        let pattern = self.works[name].kind.pattern();
        self.roots.push(Root {
            work: name.to_owned(),
            identity: Identity::Id,
            pattern: pattern.to_owned(),
            streaming: false,
            limits: RunLimits::default(),
            cancel_after: None,
        });
        self
    }

    /// A root whose work is described by [`Scenario::work`] or is none.
    #[must_use]
    pub fn of(self, name: &str, kind: Kind) -> Self {
        self.work(name, kind).root(name)
    }

    #[must_use]
    pub fn work(mut self, name: &str, kind: Kind) -> Self {
        self.works.entry(name.to_owned()).or_default().kind = kind;
        self
    }

    #[must_use]
    pub fn trouble(mut self, name: &str, trouble: Trouble) -> Self {
        self.works.entry(name.to_owned()).or_default().trouble = trouble;
        self
    }

    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The work that a text is about.
    pub fn find<'a>(&self, text: &'a str) -> Option<(&'a str, &Work)> {
        let name = named_in(text)?;
        self.works.get(name).map(|work| (name, work))
    }

    pub fn trouble_of(&self, name: &str) -> Trouble {
        self.works
            .get(name)
            .map_or(Trouble::None, |work| work.trouble)
    }
}

/// The question that asks for a piece of work.
pub fn question(name: &str) -> String {
    format!("[{name}] Do this piece of work.")
}

/// The name in brackets.
pub fn named_in(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('[')?;
    rest.split_once(']').map(|(name, _)| name)
}
