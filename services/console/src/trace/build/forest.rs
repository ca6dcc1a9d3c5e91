//! Sessions as trees, and the goals of fan-outs with the sessions that work on them.

use super::super::model::{Session, Step};
use super::spent::sum_up;
use agentfleet_schema::{CorrelationId, SessionId};
use std::collections::{BTreeMap, HashMap};

/// Levels of sessions below a root; what lies deeper becomes a root of its own. Runs have a handful,
/// and renderers recurse.
const MAX_DEPTH: u32 = 64;

/// Tells each goal which session works on it.
pub(super) fn link_goals(sessions: &mut [Session]) {
    let by_place: HashMap<(CorrelationId, u32), SessionId> = sessions
        .iter()
        .filter_map(|s| Some(((s.correlation.clone()?, s.index?), s.id.clone())))
        .collect();
    for session in sessions {
        for step in &mut session.steps {
            let Step::FanOut(fan_out) = step else {
                continue;
            };
            for goal in &mut fan_out.goals {
                let place = (fan_out.correlation.clone(), goal.index);
                goal.session = by_place
                    .get(&place)
                    .filter(|id| **id != session.id)
                    .cloned();
            }
        }
    }
}

/// Sessions as trees: each after its parent, siblings together and in order.
pub(super) fn as_trees(sessions: Vec<Session>) -> Vec<Session> {
    let mut all: BTreeMap<SessionId, Session> = BTreeMap::new();
    for session in sessions {
        all.entry(session.id.clone()).or_insert(session);
    }
    let below = children(&all);
    let is_root = |s: &&Session| {
        s.parent
            .as_ref()
            .is_none_or(|parent| !all.contains_key(parent))
    };
    let mut roots: Vec<SessionId> = all.values().filter(is_root).map(|s| s.id.clone()).collect();
    roots.sort_by_key(|id| (all[id].started_at.is_none(), all[id].started_at, id.clone()));
    // Sessions that are above themselves, or lie too deep, are reached from none of the roots.
    roots.extend(all.keys().cloned());

    let mut placed: Vec<Session> = Vec::with_capacity(all.len());
    for root in roots {
        let mut todo = vec![(root, 0)];
        while let Some((id, depth)) = todo.pop() {
            // Taken out once, so placed once.
            let Some(mut session) = all.remove(&id) else {
                continue;
            };
            session.depth = depth;
            if depth < MAX_DEPTH {
                let known = below.get(&id).into_iter().flatten();
                session.children = known
                    .filter(|child| all.contains_key(*child))
                    .cloned()
                    .collect();
                let next = session.children.iter().rev();
                todo.extend(next.map(|child| (child.clone(), depth + 1)));
            }
            placed.push(session);
        }
    }
    sum_up(&mut placed);
    placed
}

/// Children by parent: in the order of the parent's fan-outs, then of the siblings.
fn children(all: &BTreeMap<SessionId, Session>) -> BTreeMap<SessionId, Vec<SessionId>> {
    let mut below: BTreeMap<SessionId, Vec<SessionId>> = BTreeMap::new();
    for session in all.values() {
        if let Some(parent) = session
            .parent
            .clone()
            .filter(|parent| *parent != session.id)
        {
            below.entry(parent).or_default().push(session.id.clone());
        }
    }
    for (parent, ids) in &mut below {
        let fan_outs: Vec<&CorrelationId> = all
            .get(parent)
            .into_iter()
            .flat_map(Session::fan_outs)
            .map(|f| &f.correlation)
            .collect();
        let round = |session: &Session| {
            let correlation = session.correlation.as_ref();
            fan_outs
                .iter()
                .position(|known| Some(*known) == correlation)
                .unwrap_or(usize::MAX)
        };
        ids.sort_by_cached_key(|id| {
            all.get(id)
                .map(|s| (round(s), s.correlation.clone(), s.index, id.clone()))
        });
    }
    below
}
