//! Every metric of the fleet: its name, what it counts, its labels. Labels have few values: no session,
//! no question, nothing a caller chose.
//!
//! Without a recorder (a command that only asks) all of this does nothing.

use crate::Disposition;
use agentfleet_schema::Millis;
use agentfleet_schema::records::{Call, StepRecord};
use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use std::time::Duration;

const STEPS: &str = "agentfleet_steps_total";
const STEP_OVERHEAD: &str = "agentfleet_step_overhead_seconds";
const REDELIVERIES: &str = "agentfleet_redeliveries_answered_total";
const ATTEMPTS_LOST: &str = "agentfleet_attempts_lost_total";
const MODEL_CALLS: &str = "agentfleet_model_call_seconds";
const MODEL_TOKENS: &str = "agentfleet_model_tokens_total";
const MODEL_COST: &str = "agentfleet_model_cost_total";
const MODEL_ERRORS: &str = "agentfleet_model_errors_total";
const TOOL_CALLS: &str = "agentfleet_tool_call_seconds";
const IN_FLIGHT: &str = "agentfleet_in_flight";
const DELIVERIES: &str = "agentfleet_deliveries_total";
const RECEIVE_FAILURES: &str = "agentfleet_receive_failures_total";
const FAN_INS: &str = "agentfleet_fan_ins_total";
const FAN_OUTS_OPEN: &str = "agentfleet_fan_outs_open";
const FAN_OUT_OLDEST: &str = "agentfleet_fan_out_oldest_seconds";
const APPROVALS_OPEN: &str = "agentfleet_approvals_open";
const APPROVAL_OLDEST: &str = "agentfleet_approval_oldest_seconds";
const GRAPH_LAG: &str = "agentfleet_graph_lag_seconds";
const GRAPH_MESSAGES: &str = "agentfleet_graph_messages_total";
const BACKLOG: &str = "agentfleet_backlog";
const BACKLOG_BY_STATE: &str = "agentfleet_backlog_by_state";
const BACKLOG_AGE: &str = "agentfleet_backlog_age_seconds";

/// Upper bounds of the histograms, in seconds.
pub const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0,
];

/// Says what each is, once a recorder is installed.
pub fn describe() {
    describe_counter!(STEPS, "steps committed, by pattern and outcome");
    describe_histogram!(
        STEP_OVERHEAD,
        Unit::Seconds,
        "time of a step apart from its model and tool calls, by pattern"
    );
    describe_counter!(
        REDELIVERIES,
        "deliveries of steps that were committed already, answered from the record"
    );
    describe_counter!(
        ATTEMPTS_LOST,
        "attempts whose step another one committed first"
    );
    describe_histogram!(MODEL_CALLS, Unit::Seconds, "time of model calls, by model");
    describe_counter!(MODEL_TOKENS, "tokens of committed steps, by model and kind");
    // It only grows, but a counter is whole and money is not.
    describe_gauge!(
        MODEL_COST,
        "cost of committed steps in the currency of the model profiles, by model"
    );
    describe_counter!(
        MODEL_ERRORS,
        "model calls that failed, each try by itself, by operation and kind of failure"
    );
    describe_histogram!(
        TOOL_CALLS,
        Unit::Seconds,
        "time of tool calls, by tool and whether they failed"
    );
    describe_gauge!(IN_FLIGHT, "deliveries being worked, by subscription");
    describe_counter!(
        DELIVERIES,
        "deliveries, by subscription and what became of them: settled, ack, retry or dead-letter"
    );
    describe_counter!(RECEIVE_FAILURES, "times receiving failed, by subscription");
    describe_counter!(FAN_INS, "fan-ins concluded, by cause");
    describe_gauge!(
        FAN_OUTS_OPEN,
        "fan-outs that wait for their siblings, as the graph has them; every aggregator tells the same"
    );
    describe_gauge!(
        FAN_OUT_OLDEST,
        Unit::Seconds,
        "how long the oldest of them has waited"
    );
    describe_gauge!(
        APPROVALS_OPEN,
        "calls that wait for a person; every aggregator tells the same"
    );
    describe_gauge!(
        APPROVAL_OLDEST,
        Unit::Seconds,
        "how long the oldest of those calls has waited"
    );
    describe_histogram!(
        GRAPH_LAG,
        Unit::Seconds,
        "time from publication to the graph, by message"
    );
    describe_counter!(
        GRAPH_MESSAGES,
        "explainability messages written to the graph"
    );
    describe_gauge!(BACKLOG, "messages waiting, delayed ones included, by queue");
    describe_gauge!(
        BACKLOG_BY_STATE,
        "the backlog by queue and state: ready to be worked, or delayed until some time"
    );
    describe_gauge!(
        BACKLOG_AGE,
        Unit::Seconds,
        "how old the numbers of the backlog are: the queue tells no others"
    );
}

/// A step was committed after `took` in all.
pub fn step(record: &StepRecord, pattern: &str, took: Duration) {
    let mut calls = Duration::ZERO;
    for call in &record.calls {
        match call {
            Call::Model {
                model, usage, ms, ..
            } => {
                calls += Duration::from_millis(*ms);
                let model = model.clone();
                histogram!(MODEL_CALLS, "model" => model.clone()).record(seconds(*ms));
                counter!(MODEL_TOKENS, "model" => model.clone(), "kind" => "input")
                    .increment(usage.input_tokens);
                counter!(MODEL_TOKENS, "model" => model.clone(), "kind" => "output")
                    .increment(usage.output_tokens);
                // What has no price has no cost of 0.
                if usage.unpriced_calls == 0 {
                    gauge!(MODEL_COST, "model" => model).increment(usage.cost);
                }
            }
            Call::Tool {
                name, is_error, ms, ..
            } => {
                calls += Duration::from_millis(*ms);
                let failed = if *is_error { "true" } else { "false" };
                histogram!(TOOL_CALLS, "tool" => name.clone(), "failed" => failed)
                    .record(seconds(*ms));
            }
            Call::Document { .. } => {}
        }
    }
    let pattern = pattern_of(pattern).to_owned();
    counter!(STEPS, "pattern" => pattern.clone(), "outcome" => record.outcome.as_str())
        .increment(1);
    histogram!(STEP_OVERHEAD, "pattern" => pattern).record(took.saturating_sub(calls));
}

/// The pattern as labels name it: a step that chose none yet is the router's.
pub(crate) fn pattern_of(pattern: &str) -> &str {
    if pattern.is_empty() {
        "router"
    } else {
        pattern
    }
}

/// A model call failed, whatever becomes of the step.
pub fn model_failed(operation: &'static str, kind: &'static str) {
    counter!(MODEL_ERRORS, "operation" => operation, "kind" => kind).increment(1);
}

/// A delivery of what was committed already.
pub fn redelivery() {
    counter!(REDELIVERIES).increment(1);
}

/// An attempt came second.
pub fn attempt_lost() {
    counter!(ATTEMPTS_LOST).increment(1);
}

pub fn fan_in(cause: &'static str) {
    counter!(FAN_INS, "cause" => cause).increment(1);
}

/// How many fan-outs wait, and for how long the oldest of them has.
pub fn fan_outs_open(count: u64, oldest: Duration) {
    gauge!(FAN_OUTS_OPEN).set(count as f64);
    gauge!(FAN_OUT_OLDEST).set(oldest.as_secs_f64());
}

/// How many calls wait for a person, and for how long the oldest of them has.
pub fn approvals_open(count: u64, oldest: Duration) {
    gauge!(APPROVALS_OPEN).set(count as f64);
    gauge!(APPROVAL_OLDEST).set(oldest.as_secs_f64());
}

/// A message reached the graph.
pub fn written(published_at: Millis, now: Millis) {
    counter!(GRAPH_MESSAGES).increment(1);
    histogram!(GRAPH_LAG).record(seconds((now - published_at).max(0).unsigned_abs()));
}

/// What waits in a queue.
pub fn backlog(queue: &str, ready: u64, delayed: u64) {
    let queue = queue.to_owned();
    gauge!(BACKLOG, "queue" => queue.clone()).set((ready + delayed) as f64);
    gauge!(BACKLOG_BY_STATE, "queue" => queue.clone(), "state" => "ready").set(ready as f64);
    gauge!(BACKLOG_BY_STATE, "queue" => queue, "state" => "delayed").set(delayed as f64);
}

/// How long ago the queue told what waits.
pub fn backlog_age(age: Duration) {
    gauge!(BACKLOG_AGE).set(age.as_secs_f64());
}

pub(crate) fn in_flight(subscription: &str, change: f64) {
    gauge!(IN_FLIGHT, "subscription" => subscription.to_owned()).increment(change);
}

pub(crate) fn receive_failed(subscription: &str) {
    counter!(RECEIVE_FAILURES, "subscription" => subscription.to_owned()).increment(1);
}

pub(crate) fn delivered(subscription: &str, disposition: &Disposition) {
    let became = match disposition {
        Disposition::Settled => "settled",
        Disposition::Ack => "ack",
        Disposition::RetryAfter(_) => "retry",
        Disposition::DeadLetter(_) => "dead-letter",
    };
    counter!(DELIVERIES, "subscription" => subscription.to_owned(), "became" => became)
        .increment(1);
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
