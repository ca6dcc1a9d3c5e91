//! What a tenant may use in a month, and what it used. A run is given what is left where it begins, and ends
//! like one whose own budget is used up.

use crate::error::{Code, body};
use crate::provenance::date_time;
use crate::say;
use agentfleet_schema::config::TenantItem;
use agentfleet_schema::records::{Decision, EndedBy, StepRecord, Used};
use agentfleet_schema::{AgentRequest, ErrorBody, Millis, Money, QuotaLeft, Spent, keys};

/// Subject of the decision.
const SUBJECT: &str = "tenant-quota";

/// The calendar month of an instant, in UTC, as `2026-11`.
pub fn month_of(at: Millis) -> String {
    date_time(at).chars().take("2026-11".len()).collect()
}

/// When the month after this one begins.
fn next_month(month: &str) -> String {
    let (year, number) = month.split_once('-').unwrap_or_default();
    let (year, number): (u32, u32) = (
        year.parse().unwrap_or_default(),
        number.parse().unwrap_or(12),
    );
    if number >= 12 {
        format!("{:04}-01-01", year + 1)
    } else {
        format!("{year:04}-{:02}-01", number + 1)
    }
}

/// Whether what is left has to be known before a request is worked: it begins a run of a tenant.
pub fn is_asked(request: &AgentRequest) -> bool {
    request.step == 0 && !request.is_subagent() && !request.tenant().is_empty()
}

/// What is left in a month of which so much was used.
pub fn left(item: &TenantItem, used: &Used, month: &str) -> QuotaLeft {
    let rest = |most: Option<u64>, used: u64| most.map(|most| most.saturating_sub(used));
    let cost = item.cost_per_month.map(Money::as_millionths);
    QuotaLeft {
        month: month.to_owned(),
        runs: rest(item.runs_per_month, used.runs),
        tokens: rest(item.tokens_per_month, used.tokens),
        cost: rest(cost, used.cost.as_millionths()).map(Money::millionths),
    }
}

/// Why a tenant may begin no run, if so.
pub fn refusal(tenant: &str, left: &QuotaLeft) -> Option<ErrorBody> {
    let what = left.used_up()?;
    let month = &left.month;
    Some(body(
        Code::QuotaUsedUp,
        format!(
            "You've hit your limit for this month: `{tenant}` used up its quota of {what} for {month}."
        ),
        format!(
            "it begins anew on {} UTC; who runs the fleet can raise it",
            next_month(month)
        ),
    ))
}

/// That a run may begin, and with what.
pub(crate) fn settle(request: &AgentRequest) -> Option<Decision> {
    let left = request.control.quota.as_ref();
    let left = left.filter(|_| is_asked(request))?;
    let told = [
        left.runs.map(|n| format!("{n} runs")),
        left.tokens.map(|n| format!("{n} tokens")),
        left.cost.map(|n| format!("{n} in money")),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    Some(say::only(
        SUBJECT,
        "begin",
        format!("the quota of `{}` for {}", request.tenant(), left.month),
        format!("left of it: {}", told.join(", ")),
    ))
}

fn was_refused(record: &StepRecord) -> bool {
    let ended = record.worked.ended.as_ref();
    ended.is_some_and(|ended| ended.by == EndedBy::Refused)
}

/// Key and body of what a step used, where somebody counts that.
pub(crate) fn object(record: &StepRecord) -> Option<(String, Vec<u8>)> {
    if record.tenant.is_empty() {
        return None;
    }
    let spent = record
        .calls
        .iter()
        .map(agentfleet_schema::records::Call::spent);
    let spent = spent.sum::<Spent>() + record.wasted;
    let used = Used {
        // What was refused did not run.
        runs: u64::from(record.step == 0 && record.parent.is_none() && !was_refused(record)),
        tokens: spent.tokens,
        cost: spent.cost,
    };
    if used == Used::default() {
        return None;
    }
    let at = record.committed_at;
    let key = keys::used_at(
        &record.tenant,
        &month_of(at),
        at,
        &record.session,
        record.step,
    );
    // Plain data: writing it as JSON cannot fail.
    Some((key, serde_json::to_vec(&used).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn months_follow_each_other() {
        assert_eq!(month_of(1_795_000_000_000), "2026-11");
        for (month, next) in [("2026-11", "2026-12-01"), ("2026-12", "2027-01-01")] {
            assert_eq!(next_month(month), next);
        }
    }

    #[test]
    fn what_is_used_up_refuses_and_what_is_left_bounds() {
        let item = TenantItem {
            runs_per_month: Some(3),
            tokens_per_month: Some(10_000),
            ..TenantItem::default()
        };
        let used = |runs, tokens| Used {
            runs,
            tokens,
            cost: Money::default(),
        };
        let left = |runs, tokens| super::left(&item, &used(runs, tokens), "2026-11");
        assert_eq!(refusal("acme", &left(2, 9_000)), None);
        let some = left(2, 6_000);
        assert_eq!(
            (some.runs, some.tokens, some.cost),
            (Some(1), Some(4_000), None)
        );
        for (left, what) in [
            (left(3, 0), "runs"),
            (left(9, 0), "runs"),
            (left(0, 9_001), "tokens"),
        ] {
            let error = refusal("acme", &left).unwrap();
            assert_eq!(error.code, "quota-used-up");
            assert!(error.message.contains(what), "{}", error.message);
            assert!(error.hint.unwrap().contains("2026-12-01"));
        }
    }
}
