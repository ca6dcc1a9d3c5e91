//! Which model profile serves a call, whose prices count, and runs that are bounded in money although
//! nobody knows what their model costs.

use crate::error::{Code, body};
use crate::limits::{FleetLimits, Limits};
use crate::task_types;
use agentfleet_schema::config::{DEFAULT_PROFILE, ModelProfile, Snapshot};
use agentfleet_schema::{AgentRequest, ErrorBody, Operation};

/// The keys of the profiles that may serve an operation, the first that is configured before the others:
/// what the request names, what its task type gives its pattern, the operation's own, the fleet's.
fn keys<'a>(of: &'a AgentRequest, snapshot: &'a Snapshot, operation: Operation) -> [&'a str; 4] {
    let of_type = task_types::profile_of(of, snapshot);
    let own = operation.as_str();
    [&of.control.profile, of_type, own, DEFAULT_PROFILE]
}

/// The profile that serves an operation; an empty one where none does.
pub fn profile(snapshot: &Snapshot, of: &AgentRequest, operation: Operation) -> ModelProfile {
    snapshot.profile(&keys(of, snapshot, operation))
}

/// The profile whose prices count for an operation.
pub fn prices(snapshot: &Snapshot, of: &AgentRequest, operation: Operation) -> ModelProfile {
    snapshot.prices(profile(snapshot, of, operation), &of.model)
}

/// Why a run that begins is refused, if it is bounded in money and some of its model calls may have no
/// price: a bound that cannot be kept would be none. It is for models that cost something.
pub fn missing(
    request: &AgentRequest,
    snapshot: &Snapshot,
    fleet: &FleetLimits,
) -> Option<ErrorBody> {
    // A router may choose a task type that bounds money: the step after it is the first that knows.
    if request.step > 1 {
        return None;
    }
    let bound = Limits::of(request, snapshot, fleet).budget.cost?;
    let mut all = Operation::ALL.into_iter();
    let operation = all.find(|one| !prices(snapshot, request, *one).has_prices())?;
    let keys = keys(request, snapshot, operation);
    let mut profiles = snapshot.profiles.iter();
    let names_it =
        profiles.find(|(_, one)| !request.model.is_empty() && one.model == request.model);
    let mut serving = keys
        .into_iter()
        .filter(|key| snapshot.profiles.contains_key(*key));
    let key = names_it
        .map(|(key, _)| key.as_str())
        .or_else(|| serving.next())
        .unwrap_or(DEFAULT_PROFILE);
    Some(body(
        Code::NoPrices,
        format!(
            "the run is bounded to {bound} in money, and nobody knows what it would cost: model profile \
             `{key}` has no prices"
        ),
        format!(
            "set the prices of a million tokens, 0 if they are free: `agentfleet config prices {key} \
             --input PRICE --output PRICE`; or leave `max_cost` out"
        ),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::config::AgentTaskType;
    use agentfleet_schema::{Money, RunLimits};

    fn priced(model: &str, input: Option<f64>, output: Option<f64>) -> ModelProfile {
        ModelProfile {
            model: model.to_owned(),
            input_price: input,
            output_price: output,
            ..ModelProfile::default()
        }
    }

    fn bounded() -> RunLimits {
        RunLimits {
            max_cost: Some(Money::of(0.5)),
            ..RunLimits::default()
        }
    }

    #[test]
    fn a_bound_in_money_needs_a_price_for_every_call_that_may_be_made() {
        let both = |model| priced(model, Some(1.0), Some(2.0));
        let free = priced("", Some(0.0), Some(0.0));
        let cases: [(&[(&str, ModelProfile)], &str, Option<&str>); 9] = [
            (&[], "", Some("`default`")),
            (
                &[("default", priced("", None, None))],
                "",
                Some("`default`"),
            ),
            // Half a price is none.
            (
                &[("default", priced("", Some(1.0), None))],
                "",
                Some("`default`"),
            ),
            (&[("default", both(""))], "", None),
            (&[("default", free)], "", None),
            // A profile of its own without prices has those of its model.
            (
                &[
                    ("default", both("")),
                    ("agent-react", priced("", None, None)),
                ],
                "",
                None,
            ),
            (
                &[
                    ("default", both("")),
                    ("agent-react", priced("x", None, None)),
                ],
                "",
                Some("`agent-react`"),
            ),
            (&[("default", both("")), ("x", both("x"))], "x", None),
            (
                &[("default", both("")), ("x", priced("x", None, None))],
                "x",
                Some("`x`"),
            ),
        ];
        for (profiles, model, expected) in cases {
            let named = profiles.iter();
            let snapshot = Snapshot {
                profiles: named.map(|(k, p)| ((*k).to_owned(), p.clone())).collect(),
                ..Snapshot::default()
            };
            let mut request = AgentRequest {
                model: model.to_owned(),
                limits: bounded(),
                ..AgentRequest::default()
            };
            let fleet = FleetLimits::default();
            let found = missing(&request, &snapshot, &fleet);
            assert_eq!(found.is_some(), expected.is_some(), "{profiles:?} {model}");
            if let (Some(found), Some(expected)) = (found, expected) {
                assert_eq!(found.code, "no-prices");
                assert!(found.message.contains(expected), "{found:?}");
                assert!(found.hint.unwrap().contains("config prices"));
            }
            // Who bounds no money needs no prices, and no run is stopped on its way.
            request.step = 2;
            assert_eq!(missing(&request, &snapshot, &fleet), None);
            (request.step, request.limits) = (0, RunLimits::default());
            assert_eq!(missing(&request, &snapshot, &fleet), None);
        }
    }

    #[test]
    fn a_task_type_and_the_operator_bound_money_too() {
        let mut snapshot = Snapshot::default();
        let task_type = AgentTaskType {
            limits: bounded(),
            ..AgentTaskType::default()
        };
        snapshot.task_types.insert("dear".into(), task_type);
        let request = AgentRequest {
            task_type: "dear".into(),
            step: 1,
            ..AgentRequest::default()
        };
        assert!(missing(&request, &snapshot, &FleetLimits::default()).is_some());
        let fleet = FleetLimits {
            most: bounded(),
            ..FleetLimits::default()
        };
        assert!(missing(&AgentRequest::default(), &snapshot, &fleet).is_some());
    }

    #[test]
    fn a_model_of_the_request_costs_what_the_profile_says_that_names_it() {
        let mut snapshot = Snapshot::default();
        for (key, model, price) in [("default", "small", 1.0), ("agent-react", "large", 5.0)] {
            let profile = priced(model, Some(price), Some(price));
            snapshot.profiles.insert(key.to_owned(), profile);
        }
        for (asked, price) in [("", 5.0), ("small", 1.0), ("unheard-of", 5.0)] {
            let of = AgentRequest {
                model: asked.to_owned(),
                ..AgentRequest::default()
            };
            let prices = prices(&snapshot, &of, Operation::React);
            assert_eq!(prices.input_price, Some(price), "{asked}");
        }
    }
}
