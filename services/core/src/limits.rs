//! The bounds of a run: what the caller asked for, else the task type's, else the pattern's, else
//! the fleet's; and how a fan-out splits them.

use crate::history::Room;
use crate::patterns;
use agentfleet_schema::config::Snapshot;
pub use agentfleet_schema::records::FleetLimits;
use agentfleet_schema::{
    AgentRequest, LONGEST_MS, Millis, Money, QuotaLeft, RunLimits, Spent, later,
};

/// The bounds in force for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_iterations: u32,
    pub max_subagents: u32,
    pub max_depth: u32,
    pub max_sessions: u32,
    /// Fan-outs of one session: `max_iterations` of a pattern that fans out, else that of the
    /// `supervisor` pattern.
    pub max_rounds: u32,
    /// Revisions of a plan.
    pub max_replan_depth: u32,
    /// Times that a critique may send an agent back.
    pub max_reflections: u32,
    pub budget: Budget,
    pub subagent_timeout_ms: u64,
    pub run_timeout_ms: u64,
    pub max_observation_bytes: usize,
    pub max_retries: u32,
    /// Tool calls in a row that may fail.
    pub max_failures: Option<u32>,
}

impl Limits {
    /// Resolves the bounds of a request under a config.
    pub fn of(request: &AgentRequest, snapshot: &Snapshot, fleet: &FleetLimits) -> Self {
        let own = &request.limits;
        let task_type = snapshot.task_types.get(&request.task_type);
        let task = task_type.map(|t| &t.limits);
        let pattern = snapshot.patterns.get(&request.pattern).map(|p| &p.limits);
        let layers = [Some(own), task, pattern];
        let supervisor = snapshot.patterns.get("supervisor").map(|p| &p.limits);
        let named = patterns::by_name(&request.pattern);
        let rounds = if named.is_some_and(patterns::Pattern::fans_out) {
            pick(&layers, |l| l.max_iterations)
        } else {
            supervisor.and_then(|l| l.max_iterations)
        };
        let of_type = task_type.map(|t| Both::Least.of_limits(&fleet.most, &t.most));
        let most = of_type.as_ref().unwrap_or(&fleet.most);
        let at_most = |value: u32, most: Option<u32>| most.map_or(value, |most| value.min(most));
        let at_most_ms =
            |value: u64, most: Option<u64>| value.min(most.unwrap_or(LONGEST_MS).min(LONGEST_MS));
        let wait = pick(&layers, |l| l.subagent_timeout_ms).unwrap_or(fleet.subagent_timeout_ms);
        let whole = pick(&layers, |l| l.run_timeout_ms).unwrap_or(fleet.run_timeout_ms);
        let iterations = pick(&layers, |l| l.max_iterations).unwrap_or(fleet.max_iterations);
        let subagents = pick(&layers, |l| l.max_subagents).unwrap_or(fleet.max_subagents);
        let replans = pick(&layers, |l| l.max_replan_depth).unwrap_or(fleet.max_replan_depth);
        let reflections = pick(&layers, |l| l.max_reflections).unwrap_or(fleet.max_reflections);
        // What travels for a whole tree comes from the request alone once it is set: a child's
        // allotment must not be widened by its own task type.
        let depth = own
            .max_depth
            .unwrap_or_else(|| pick(&layers, |l| l.max_depth).unwrap_or(fleet.max_depth));
        let sessions = own
            .max_sessions
            .unwrap_or_else(|| pick(&layers, |l| l.max_sessions).unwrap_or(fleet.max_sessions));
        Self {
            max_iterations: at_most(iterations, most.max_iterations).max(1),
            max_subagents: at_most(subagents, most.max_subagents).max(1),
            max_depth: at_most(depth, most.max_depth),
            max_sessions: at_most(sessions, most.max_sessions),
            max_rounds: at_most(rounds.unwrap_or(fleet.max_rounds), most.max_iterations).max(1),
            max_replan_depth: at_most(replans, most.max_replan_depth),
            max_reflections: at_most(reflections, most.max_reflections),
            budget: Budget::of(&layers, most).within(request.control.quota.as_ref()),
            subagent_timeout_ms: at_most_ms(wait, most.subagent_timeout_ms),
            run_timeout_ms: at_most_ms(whole, most.run_timeout_ms),
            max_failures: task_type.and_then(|t| t.termination.max_failures),
            max_observation_bytes: Room::of(request, snapshot, fleet)
                .map_or(usize::MAX, Room::observation)
                .min(fleet.max_observation_bytes),
            max_retries: fleet.max_retries,
        }
    }

    /// The most subagents that one fan-out may have.
    pub fn width(&self) -> u32 {
        self.max_subagents.min(self.max_sessions)
    }

    /// Splits what is left among `children`, keeping a reserve for the synthesis. `Err` says why a
    /// fan-out of that width may not start.
    pub fn allot(&self, children: u32, spent: Spent) -> Result<RunLimits, String> {
        if self.max_depth == 0 {
            return Err("no depth is left for subagents".to_owned());
        }
        if self.width() == 0 {
            return Err("the limits leave no room for more subagents".to_owned());
        }
        if children == 0 || children > self.width() {
            return Err(format!(
                "the limits leave room for {} subagents, not for {children}",
                self.width()
            ));
        }
        Ok(RunLimits {
            max_depth: Some(self.max_depth - 1),
            max_sessions: Some(self.sessions_each(children)),
            ..self.budget.share(u64::from(children), spent)?
        })
    }

    /// How many subagents each of `children` may start in turn. As many as one of them may stay for later
    /// rounds of the session itself.
    fn sessions_each(&self, children: u32) -> u32 {
        self.max_sessions.saturating_sub(children) / (children + 1)
    }

    /// How many subagents the session may still start after a fan-out to `children`, so that those of a
    /// whole tree stay within the bound however many rounds there are.
    pub fn sessions_kept(&self, children: u32) -> u32 {
        let given = children.saturating_mul(1 + self.sessions_each(children));
        self.max_sessions.saturating_sub(given)
    }

    /// When a fan-out that starts `now` stops waiting: its own timeout, but a reserve before
    /// `hard_deadline` (0 means none). `None` where no time is left to wait.
    pub fn join_deadline(&self, now: Millis, hard_deadline: Millis) -> Option<Millis> {
        let own = later(now, self.subagent_timeout_ms);
        if hard_deadline == 0 {
            return Some(own);
        }
        let left = hard_deadline.saturating_sub(now);
        // The reserve is for synthesising what came back: a fifth of what is left, at most 30 s.
        let reserve = (left / 5).min(30_000);
        let latest = hard_deadline - reserve;
        (latest > now).then(|| own.min(latest))
    }
}

/// Sets what a root carries from its acceptance on.
pub fn accept(
    request: &mut AgentRequest,
    snapshot: &Snapshot,
    fleet: &FleetLimits,
    came_at: Millis,
) {
    let control = &mut request.control;
    if control.started_at == 0 {
        control.started_at = came_at;
    }
    control.config_version.get_or_insert(snapshot.version);
    if control.hard_deadline == 0 {
        let limits = Limits::of(request, snapshot, fleet);
        request.control.hard_deadline = later(came_at, limits.run_timeout_ms);
    }
}

/// Which of two bounds counts where both are there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Both {
    First,
    Least,
}

impl Both {
    fn of<T: Ord>(self, a: Option<T>, b: Option<T>) -> Option<T> {
        match (self, a, b) {
            (Self::Least, Some(a), Some(b)) => Some(a.min(b)),
            (_, a, b) => a.or(b),
        }
    }

    /// Of two sets of bounds.
    pub(crate) fn of_limits(self, a: &RunLimits, b: &RunLimits) -> RunLimits {
        RunLimits {
            max_iterations: self.of(a.max_iterations, b.max_iterations),
            max_subagents: self.of(a.max_subagents, b.max_subagents),
            max_depth: self.of(a.max_depth, b.max_depth),
            max_sessions: self.of(a.max_sessions, b.max_sessions),
            max_tokens: self.of(a.max_tokens, b.max_tokens),
            max_cost: self.of(a.max_cost, b.max_cost),
            max_model_calls: self.of(a.max_model_calls, b.max_model_calls),
            max_tool_calls: self.of(a.max_tool_calls, b.max_tool_calls),
            max_replan_depth: self.of(a.max_replan_depth, b.max_replan_depth),
            max_reflections: self.of(a.max_reflections, b.max_reflections),
            subagent_timeout_ms: self.of(a.subagent_timeout_ms, b.subagent_timeout_ms),
            run_timeout_ms: self.of(a.run_timeout_ms, b.run_timeout_ms),
        }
    }
}

/// Bytes of text that a token is taken for, where nothing was counted.
const BYTES_PER_TOKEN: u64 = 4;

/// What a session and all below it may spend. Absent means without bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    pub tokens: Option<u64>,
    pub cost: Option<Money>,
    pub model_calls: Option<u64>,
    pub tool_calls: Option<u64>,
    /// Whether tokens or money are what is left of a tenant's quota.
    pub is_quota: bool,
}

/// What bounds a run.
fn named(is_quota: bool) -> &'static str {
    if is_quota {
        "the tenant's quota for this month"
    } else {
        "the budget"
    }
}

/// What is left of a budget that bounds what a model call may come to. Absent means without bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub tokens: Option<u64>,
    pub cost: Option<Money>,
    pub is_quota: bool,
}

impl Left {
    /// What it is left of.
    pub fn of(&self) -> &'static str {
        named(self.is_quota)
    }

    pub fn is_unbounded(&self) -> bool {
        *self == Self::default()
    }
}

impl Budget {
    /// What is left of it for model calls.
    pub fn left(&self, spent: Spent) -> Left {
        let cost = |max: Money| {
            let left = max
                .as_millionths()
                .saturating_sub(spent.cost.as_millionths());
            Money::millionths(left)
        };
        Left {
            tokens: self.tokens.map(|max| max.saturating_sub(spent.tokens)),
            cost: self.cost.map(cost),
            is_quota: self.is_quota,
        }
    }

    fn of(layers: &[Option<&RunLimits>], most: &RunLimits) -> Self {
        // An operator's bound holds where nobody asks for one, too.
        let least = Both::Least;
        Self {
            tokens: least.of(pick(layers, |l| l.max_tokens), most.max_tokens),
            cost: least.of(pick(layers, |l| l.max_cost), most.max_cost),
            model_calls: least.of(pick(layers, |l| l.max_model_calls), most.max_model_calls),
            tool_calls: least.of(pick(layers, |l| l.max_tool_calls), most.max_tool_calls),
            is_quota: false,
        }
    }

    /// And no more than what is left of a quota.
    fn within(self, quota: Option<&QuotaLeft>) -> Self {
        let Some(quota) = quota else {
            return self;
        };
        let tokens = Both::Least.of(self.tokens, quota.tokens);
        let cost = Both::Least.of(self.cost, quota.cost);
        Self {
            tokens,
            cost,
            is_quota: tokens != self.tokens || cost != self.cost,
            ..self
        }
    }

    pub fn is_unbounded(&self) -> bool {
        *self == Self::default()
    }

    /// Why no model is asked any more, if so.
    pub fn refuses_model(&self, spent: Spent) -> Option<String> {
        let full = |max: Option<u64>, spent: u64| max.filter(|max| spent >= *max);
        if let Some(max) = full(self.tokens, spent.tokens) {
            let of = named(self.is_quota);
            let spent = spent.tokens;
            return Some(format!("{of} of {max} tokens is used up ({spent})"));
        }
        if let Some(max) = self.cost.filter(|max| spent.cost >= *max) {
            let of = named(self.is_quota);
            let spent = spent.cost;
            return Some(format!("{of} of {max} in money is used up ({spent})"));
        }
        full(self.model_calls, spent.model_calls)
            .map(|max| format!("the budget of {max} model calls is used up"))
    }

    /// Why no tool is called any more, if so.
    pub fn refuses_tool(&self, spent: Spent) -> Option<String> {
        let max = self.tool_calls.filter(|max| spent.tool_calls >= *max);
        max.map(|max| format!("the budget of {max} tool calls is used up"))
            // A tool may ask a model, and its result is of use to one.
            .or_else(|| self.refuses_model(spent))
    }

    /// Whether tools cannot be called any more, whatever else may be done.
    pub fn is_without_tools(&self, spent: Spent) -> bool {
        self.tool_calls.is_some_and(|max| spent.tool_calls >= max)
    }

    /// Why what is left is for the answer, if so: it pays for one more model call, but hardly for another
    /// one after it. A call is taken to come to half as much again as calls came to so far, because
    /// histories grow, and to no less than the prompt at hand, of `bytes`.
    pub fn last_call(&self, spent: Spent, bytes: usize) -> Option<String> {
        if self.is_unbounded() || self.refuses_model(spent).is_some() {
            return None;
        }
        if let Some(max) = self
            .model_calls
            .filter(|max| spent.model_calls.saturating_add(1) >= *max)
        {
            return Some(format!("the budget of {max} model calls has one left"));
        }
        let on_average = spent.tokens.checked_div(spent.model_calls).unwrap_or(0);
        let call = (on_average / 2)
            .saturating_add(on_average)
            .max(bytes as u64 / BYTES_PER_TOKEN);
        let left = self.left(spent);
        if let (Some(max), Some(left)) = (self.tokens, left.tokens)
            && left / 2 < call
        {
            return Some(format!(
                "what is left of the budget of {max} tokens ({left}) pays for one more model call"
            ));
        }
        let paid = spent.cost.as_millionths();
        let price = call
            .saturating_mul(paid)
            .checked_div(spent.tokens)
            .unwrap_or(0);
        if let (Some(max), Some(left)) = (self.cost, left.cost)
            && left.as_millionths() / 2 < price
        {
            return Some(format!(
                "what is left of the budget of {max} in money ({left}) pays for one more model call"
            ));
        }
        None
    }

    /// What each of `children` may spend of what is left. A fifth stays for the synthesis, and at
    /// least one model call, or what two came to so far. Who gets less than a call came to so far could do nothing with it.
    fn share(&self, children: u64, spent: Spent) -> Result<RunLimits, String> {
        let share = |max: Option<u64>,
                     spent: u64,
                     kept: u64,
                     least: u64,
                     show: fn(u64) -> String| {
            let Some(max) = max else { return Ok(None) };
            let left = max.saturating_sub(spent);
            let each = left.saturating_sub((left / 5).max(kept)) / children;
            if each < least.max(1) {
                return Err(format!(
                    "what is left of a budget of {} ({}) is too little for {children} subagents and a \
                     synthesis",
                    show(max),
                    show(left)
                ));
            }
            Ok(Some(each))
        };
        let a_call = |spent_on_all: u64| spent_on_all.checked_div(spent.model_calls).unwrap_or(0);
        let in_tokens = |n| format!("{n} tokens");
        let in_money = |amount| format!("{} in money", Money::millionths(amount));
        let max_cost = self.cost.map(Money::as_millionths);
        let paid = spent.cost.as_millionths();
        // A synthesis reads what all of them found: it comes to more than calls did so far.
        let of_synthesis = |spent_on_all| a_call(spent_on_all).saturating_mul(2);
        let cost = share(max_cost, paid, of_synthesis(paid), a_call(paid), in_money)?;
        let tokens = share(
            self.tokens,
            spent.tokens,
            of_synthesis(spent.tokens),
            a_call(spent.tokens),
            in_tokens,
        )?;
        let (calls, used) = (self.model_calls, spent.model_calls);
        Ok(RunLimits {
            max_tokens: tokens,
            max_cost: cost.map(Money::millionths),
            max_model_calls: share(calls, used, 1, 1, |n| format!("{n} model calls"))?,
            max_tool_calls: share(self.tool_calls, spent.tool_calls, 0, 1, |n| {
                format!("{n} tool calls")
            })?,
            ..RunLimits::default()
        })
    }
}

/// What each child of a fan-out may have spent where nobody knows: all that it was allotted.
pub fn allotted(limits: &RunLimits) -> Spent {
    Spent {
        tokens: limits.max_tokens.unwrap_or_default(),
        cost: limits.max_cost.unwrap_or_default(),
        model_calls: limits.max_model_calls.unwrap_or_default(),
        tool_calls: limits.max_tool_calls.unwrap_or_default(),
        unpriced_calls: 0,
    }
}

fn pick<T: Copy>(
    layers: &[Option<&RunLimits>],
    field: impl Fn(&RunLimits) -> Option<T>,
) -> Option<T> {
    layers.iter().copied().flatten().find_map(field)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn limits() -> Limits {
        Limits::of(
            &AgentRequest::default(),
            &Snapshot::default(),
            &FleetLimits::default(),
        )
    }

    #[test]
    fn the_narrowest_setting_wins() {
        let mut request = AgentRequest {
            pattern: "react".into(),
            ..AgentRequest::default()
        };
        let mut snapshot = Snapshot::default();
        let mut pattern = agentfleet_schema::config::AgentPattern::default();
        pattern.limits.max_iterations = Some(7);
        snapshot.patterns.insert("react".into(), pattern);
        assert_eq!(
            Limits::of(&request, &snapshot, &FleetLimits::default()).max_iterations,
            7
        );
        request.limits.max_iterations = Some(2);
        assert_eq!(
            Limits::of(&request, &snapshot, &FleetLimits::default()).max_iterations,
            2
        );
    }

    #[test]
    fn the_longest_times_anybody_can_name_are_still_to_come() {
        let now = 1_800_000_000_000;
        for ms in [u64::MAX, i64::MAX as u64, i64::MAX as u64 + 1, LONGEST_MS] {
            let mut request = AgentRequest::default();
            request.limits.run_timeout_ms = Some(ms);
            request.limits.subagent_timeout_ms = Some(ms);
            let (snapshot, fleet) = (Snapshot::default(), FleetLimits::default());
            let limits = Limits::of(&request, &snapshot, &fleet);
            accept(&mut request, &snapshot, &fleet, now);
            let deadline = request.control.hard_deadline;
            assert!(deadline > now, "{ms}: {deadline}");
            assert!(
                limits.join_deadline(now, 0).is_some_and(|at| at > now),
                "{ms}"
            );
            assert!(
                later(now, ms) > now && later(now, ms) < Millis::MAX / 2,
                "{ms}"
            );
        }
    }

    #[test]
    fn however_many_rounds_a_tree_has_its_subagents_stay_within_the_bound() {
        /// The most that can come of a session and all below it.
        fn most(limits: &Limits) -> u32 {
            let widths = 1..=limits.width();
            let each = widths.map(|width| {
                let mut child = limits.clone();
                let allotted = limits.allot(width, Spent::default());
                child.max_sessions = allotted.unwrap().max_sessions.unwrap();
                child.max_depth -= 1;
                let below = if child.max_depth == 0 {
                    0
                } else {
                    most(&child)
                };
                let mut next = limits.clone();
                next.max_sessions = limits.sessions_kept(width);
                width + width * below + most(&next)
            });
            each.max().unwrap_or(0)
        }
        for bound in 0..15 {
            let mut limits = limits();
            (limits.max_depth, limits.max_subagents) = (3, 4);
            limits.max_sessions = bound;
            let most = most(&limits);
            assert!(most <= bound, "{most} of {bound}");
            // Whoever has room for one starts one.
            assert_eq!(most == 0, bound == 0);
        }
        let mut none = limits();
        none.max_sessions = 0;
        let refused = none.allot(2, Spent::default()).unwrap_err();
        assert!(refused.contains("no room for more"), "{refused}");
    }

    #[test]
    fn a_fan_out_never_allots_more_than_there_is() {
        let mut limits = limits();
        limits.budget = Budget {
            tokens: Some(1_000),
            cost: Some(Money::of(1.0)),
            model_calls: Some(9),
            tool_calls: Some(20),
            is_quota: false,
        };
        let spent = |tokens| Spent {
            tokens,
            cost: Money::of(0.2),
            model_calls: 2,
            tool_calls: 4,
            unpriced_calls: 0,
        };
        let each = allotted(&limits.allot(4, spent(200)).unwrap());
        // Two calls came to 200, which is more than a fifth: that much stays.
        assert_eq!((each.tokens, each.cost), (150, Money::of(0.15)));
        // One of the seven that are left is the synthesis's.
        assert_eq!((each.model_calls, each.tool_calls), (1, 3));
        assert!(
            limits
                .allot(4, spent(1_000))
                .unwrap_err()
                .contains("tokens")
        );
        // Each would get 80, and a call came to 300 so far.
        let useless = limits.allot(4, spent(600)).unwrap_err();
        assert!(useless.contains("(400 tokens)"), "{useless}");
        let tight = Spent {
            model_calls: 5,
            ..spent(0)
        };
        let refused = limits.allot(4, tight).unwrap_err();
        assert!(refused.contains("(4 model calls)"), "{refused}");
        limits.budget = Budget::default();
        assert!(limits.allot(0, spent(0)).is_err());
        limits.max_depth = 0;
        assert!(limits.allot(2, spent(0)).unwrap_err().contains("depth"));
    }

    #[test]
    fn the_last_call_that_a_budget_pays_for_is_known_before_it_is_made() {
        let budget = Budget {
            tokens: Some(1_000),
            cost: Some(Money::of(1.0)),
            model_calls: Some(10),
            tool_calls: None,
            is_quota: false,
        };
        let spent = |tokens, cost, model_calls| Spent {
            tokens,
            cost: Money::of(cost),
            model_calls,
            tool_calls: 0,
            unpriced_calls: 0,
        };
        let cases = [
            // Nothing is known yet of what a call comes to.
            (Spent::default(), 0, None),
            (Spent::default(), 1_000, None),
            (Spent::default(), 2_400, Some("(1000)")),
            (spent(300, 0.1, 8), 0, None),
            (spent(300, 0.1, 9), 0, Some("10 model calls has one left")),
            // A call came to 100, so the next two may come to 150 each.
            (spent(700, 0.1, 7), 0, None),
            (spent(701, 0.1, 7), 0, Some("1000 tokens (299)")),
            (spent(500, 0.1, 5), 1_000, None),
            (spent(500, 0.1, 5), 1_004, Some("1000 tokens (500)")),
            (spent(100, 0.7, 5), 0, Some("money (0.3")),
        ];
        for (spent, bytes, expected) in cases {
            let why = budget.last_call(spent, bytes);
            match expected {
                None => assert_eq!(why, None, "{spent:?} {bytes}"),
                Some(part) => {
                    let why = why.unwrap_or_default();
                    assert!(why.contains(part), "{why} at {spent:?} {bytes}");
                }
            }
        }
        let unbounded = Budget::default();
        assert_eq!(unbounded.last_call(spent(700, 0.9, 99), 1 << 20), None);
    }

    #[test]
    fn a_join_ends_before_the_hard_deadline_with_a_reserve() {
        let limits = limits();
        assert_eq!(limits.join_deadline(1_000, 0), Some(301_000));
        let join = limits.join_deadline(0, 100_000).unwrap_or_default();
        assert!(join <= 80_000, "{join}");
        assert_eq!(limits.join_deadline(100, 100), None);
        assert_eq!(limits.join_deadline(100, 50), None);
    }
}
