//! The bounds of a run: what the caller asked for, else the task type's, else the pattern's, else
//! the fleet's; and how a fan-out splits them.

use crate::patterns::Implemented;
use agentfleet_schema::config::Snapshot;
pub use agentfleet_schema::records::FleetLimits;
use agentfleet_schema::{AgentRequest, Millis, RunLimits};

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
    pub max_tokens: Option<u64>,
    pub subagent_timeout_ms: u64,
    pub run_timeout_ms: u64,
    pub max_observation_bytes: usize,
    pub max_retries: u32,
}

impl Limits {
    /// Resolves the bounds of a request under a config.
    pub fn of(request: &AgentRequest, snapshot: &Snapshot, fleet: &FleetLimits) -> Self {
        let own = &request.limits;
        let task = snapshot
            .task_types
            .get(&request.task_type)
            .map(|t| &t.limits);
        let pattern = snapshot.patterns.get(&request.pattern).map(|p| &p.limits);
        let layers = [Some(own), task, pattern];
        let supervisor = snapshot.patterns.get("supervisor").map(|p| &p.limits);
        let named = Implemented::by_name(&request.pattern);
        let rounds = if named.is_some_and(Implemented::fans_out) {
            pick(&layers, |l| l.max_iterations)
        } else {
            supervisor.and_then(|l| l.max_iterations)
        };
        let most = &fleet.most;
        let at_most = |value: u32, most: Option<u32>| most.map_or(value, |most| value.min(most));
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
            max_tokens: pick(&layers, |l| l.max_tokens),
            subagent_timeout_ms: pick(&layers, |l| l.subagent_timeout_ms)
                .unwrap_or(fleet.subagent_timeout_ms),
            run_timeout_ms: pick(&layers, |l| l.run_timeout_ms).unwrap_or(fleet.run_timeout_ms),
            max_observation_bytes: fleet.max_observation_bytes,
            max_retries: fleet.max_retries,
        }
    }

    /// Whether the session has spent what it may.
    pub fn tokens_exhausted(&self, spent: u64) -> bool {
        self.max_tokens.is_some_and(|max| spent >= max)
    }

    /// The most subagents that one fan-out may have.
    pub fn width(&self) -> u32 {
        self.max_subagents.min(self.max_sessions)
    }

    /// Splits what is left among `children`, keeping a reserve for the synthesis.
    ///
    /// `None` where a fan-out of that width may not start.
    pub fn allot(&self, children: u32, tokens_spent: u64) -> Option<RunLimits> {
        if children == 0 || self.max_depth == 0 || children > self.width() {
            return None;
        }
        let max_tokens = match self.max_tokens {
            None => None,
            Some(max) => {
                let left = max.saturating_sub(tokens_spent);
                // A fifth stays for the synthesis.
                let each = (left - left / 5) / u64::from(children);
                if each == 0 {
                    return None;
                }
                Some(each)
            }
        };
        Some(RunLimits {
            max_depth: Some(self.max_depth - 1),
            max_sessions: Some((self.max_sessions - children) / children),
            max_tokens,
            ..RunLimits::default()
        })
    }

    /// When a fan-out that starts `now` stops waiting: its own timeout, but a reserve before
    /// `hard_deadline` (0 means none). `None` where no time is left to wait.
    pub fn join_deadline(&self, now: Millis, hard_deadline: Millis) -> Option<Millis> {
        let own = now.saturating_add(self.subagent_timeout_ms as Millis);
        if hard_deadline == 0 {
            return Some(own);
        }
        let left = hard_deadline - now;
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
        request.control.hard_deadline = came_at + limits.run_timeout_ms as Millis;
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
    fn a_fan_out_never_allots_more_than_there_is() {
        let mut limits = limits();
        limits.max_tokens = Some(1_000);
        let each = limits
            .allot(4, 200)
            .and_then(|l| l.max_tokens)
            .unwrap_or_default();
        assert!(each * 4 <= 800 - 160, "{each}");
        assert_eq!(limits.allot(4, 1_000), None);
        limits.max_tokens = None;
        limits.max_depth = 0;
        assert_eq!(limits.allot(2, 0), None);
        assert_eq!(limits.allot(0, 0), None);
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
