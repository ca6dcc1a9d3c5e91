//! `business`: what a bakery's copilot works with: its blog, its social media, its chatbot, and figures of all three.

use crate::Example;
use crate::call::{Call, Endpoint, Refusal};
use crate::day;
use chrono::{Duration, NaiveDate};
use serde_json::{Value, json};

mod analytics;
mod blog;
mod chat;
mod content;

pub(crate) static EXAMPLE: Example = Example {
    name: "business",
    about: "a bakery's blog, social media, chatbot and figures",
    port: 8741,
    tries: &[
        "ask \"Why did my blog traffic drop this week?\" --task-type business --tenant-type food_bakery",
        "chat --task-type business",
    ],
    schema: include_str!("business/schema.sql"),
    sample: include_str!("business/sample.sql"),
    endpoints: ENDPOINTS,
};

/// Longest span of days that figures are asked for.
const MOST_DAYS: i64 = 366;
const SPAN: &[&str] = &["from", "to"];

#[rustfmt::skip]
const ENDPOINTS: &[Endpoint] = &[
    Endpoint { method: "GET", path: "/blog/posts", act: blog::list, takes: &["status", "category", "from", "to", "limit", "offset"] },
    Endpoint { method: "GET", path: "/blog/posts/{post_id}", act: blog::get, takes: &[] },
    Endpoint { method: "GET", path: "/blog/analytics", act: blog::analytics, takes: &["post_id", "from", "to", "limit"] },
    Endpoint { method: "POST", path: "/blog/posts", act: blog::create, takes: blog::FIELDS },
    Endpoint { method: "PATCH", path: "/blog/posts/{post_id}", act: blog::update, takes: blog::FIELDS },
    Endpoint { method: "POST", path: "/blog/posts/{post_id}/schedule", act: blog::schedule, takes: &["publish_at"] },
    Endpoint { method: "DELETE", path: "/blog/posts/{post_id}", act: blog::delete, takes: &[] },
    Endpoint { method: "POST", path: "/blog/bulk", act: blog::bulk, takes: &["post_ids", "status", "category", "tags"] },
    Endpoint { method: "GET", path: "/content/schedule", act: content::list, takes: &["platform", "status", "from", "to", "limit"] },
    Endpoint { method: "POST", path: "/content/schedule", act: content::create, takes: &["platform", "text", "publish_at", "post_id"] },
    Endpoint { method: "PATCH", path: "/content/schedule/{schedule_id}", act: content::update, takes: &["text", "publish_at"] },
    Endpoint { method: "DELETE", path: "/content/schedule/{schedule_id}", act: content::cancel, takes: &[] },
    Endpoint { method: "GET", path: "/content/engagement", act: content::engagement, takes: &["platform", "from", "to"] },
    Endpoint { method: "GET", path: "/content/platforms", act: content::platforms, takes: &[] },
    Endpoint { method: "GET", path: "/analytics/blog", act: analytics::blog_overview, takes: SPAN },
    Endpoint { method: "GET", path: "/analytics/posts/{post_id}", act: analytics::post_performance, takes: SPAN },
    Endpoint { method: "GET", path: "/analytics/traffic", act: analytics::traffic_trends, takes: &["granularity", "weeks"] },
    Endpoint { method: "GET", path: "/analytics/comparison", act: analytics::content_comparison, takes: &["by", "from", "to"] },
    Endpoint { method: "GET", path: "/analytics/chat", act: analytics::chat_overview, takes: SPAN },
    Endpoint { method: "GET", path: "/analytics/all", act: analytics::cross_product, takes: SPAN },
    Endpoint { method: "GET", path: "/chat/config", act: chat::config, takes: &[] },
    Endpoint { method: "PATCH", path: "/chat/config", act: chat::update_config, takes: chat::SETTINGS },
    Endpoint { method: "GET", path: "/chat/knowledge", act: chat::knowledge, takes: &["kind", "limit"] },
    Endpoint { method: "POST", path: "/chat/knowledge", act: chat::add_knowledge, takes: &["kind", "title", "url", "question", "answer"] },
    Endpoint { method: "DELETE", path: "/chat/knowledge/{knowledge_id}", act: chat::remove_knowledge, takes: &[] },
    Endpoint { method: "GET", path: "/chat/conversations", act: chat::conversations, takes: &["topic", "resolved", "limit", "offset"] },
    Endpoint { method: "GET", path: "/chat/unanswered", act: chat::unanswered, takes: &["limit"] },
    Endpoint { method: "GET", path: "/chat/leads", act: chat::leads, takes: &["status", "limit"] },
];

/// The days from `from` to `to`, and as many before them, as values of a statement. Where no end is given it is
/// the newest day that has figures.
fn period(call: &Call<'_>, usual: i64) -> Result<Value, Refusal> {
    let newest = call.row(
        "SELECT max(day) AS day FROM views WHERE tenant = :tenant",
        json!({}),
    )?;
    let newest =
        newest.and_then(|row| NaiveDate::parse_from_str(row["day"].as_str()?, "%Y-%m-%d").ok());
    let to = call.day("to")?.or(newest).unwrap_or_else(day::today);
    let from = call.day("from")?;
    let from = from.unwrap_or_else(|| to - Duration::days(usual - 1));
    let days = (to - from).num_days() + 1;
    if !(1..=MOST_DAYS).contains(&days) {
        let says = format!("must be 1 to {MOST_DAYS} days before `to`, which is {to}");
        return Err(Refusal::Bad("from", says));
    }
    let before = from - Duration::days(days);
    Ok(json!({
        "from": from.to_string(), "to": to.to_string(), "days": days,
        "before": before.to_string(), "until": (from - Duration::days(1)).to_string(),
    }))
}
