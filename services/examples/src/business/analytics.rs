//! Figures, computed from the daily ones. A period is compared with the one of the same length before it.

use crate::call::{Answer, Call, Refusal, number_of};
use chrono::{Duration, NaiveDate};
use serde_json::{Value, json};

/// A week is told as a change if it is this far from the four weeks before it.
const NOTABLE_PERCENT: f64 = 20.0;
/// Weeks that a week is compared with.
const USUAL_WEEKS: i64 = 4;

/// The views of a period and of the one before it, with whatever else is asked for, in groups.
fn compared(call: &Call<'_>, group: &str, values: &Value) -> Result<Vec<Value>, Refusal> {
    let sql = format!(
        "WITH sums AS (SELECT {group} AS name, sum(v.views) FILTER (WHERE day >= :from) AS views,
             sum(v.views) FILTER (WHERE day < :from) AS views_before,
             sum(v.comments) FILTER (WHERE day >= :from) AS comments, sum(v.shares) FILTER (WHERE day >= :from) AS shares
           FROM views v JOIN posts ON n = v.post
           WHERE v.tenant = :tenant AND day BETWEEN :before AND :to GROUP BY 1)
         SELECT *, round(100.0 * (views - views_before) / views_before, 1) AS change_percent FROM sums
         ORDER BY views DESC LIMIT 20"
    );
    call.rows(&sql, values.clone())
}

/// How many posts came out in a period and in the one before it.
fn published(call: &Call<'_>, values: &Value) -> Result<Value, Refusal> {
    let row = call.row(
        "SELECT count(*) FILTER (WHERE substr(publish_at, 1, 10) BETWEEN :from AND :to) AS posts_published,
           count(*) FILTER (WHERE substr(publish_at, 1, 10) BETWEEN :before AND :until) AS posts_published_before,
           max(substr(publish_at, 1, 10)) AS newest_post_on
         FROM posts WHERE tenant = :tenant AND status = 'published'",
        values.clone(),
    )?;
    Ok(row.unwrap_or_default())
}

fn first(rows: Vec<Value>) -> Value {
    rows.into_iter().next().unwrap_or_else(|| json!({}))
}

pub(super) fn blog_overview(call: &Call<'_>) -> Answer {
    let values = super::period(call, 7)?;
    Ok(json!({
        "from": values["from"], "to": values["to"],
        "all": first(compared(call, "'blog'", &values)?),
        "posts": published(call, &values)?,
        "by_category": compared(call, "posts.category", &values)?,
        "by_source": compared(call, "v.source", &values)?,
        "by_post": compared(call, "posts.title", &values)?,
    }))
}

pub(super) fn post_performance(call: &Call<'_>) -> Answer {
    let id = call.text("post_id")?;
    let post = call.found(
        "post",
        "SELECT 'post-' || n AS id, title, category, kind, publish_at FROM posts WHERE tenant = :tenant AND n = :id",
        &id,
    )?;
    let mut values = super::period(call, 14)?;
    values["id"] = json!(number_of("post", &id));
    let daily = call.rows(
        "SELECT day, sum(views) AS views, sum(views) FILTER (WHERE source = 'search') AS search,
           sum(views) FILTER (WHERE source = 'social') AS social, sum(views) FILTER (WHERE source = 'direct') AS direct
         FROM views WHERE tenant = :tenant AND post = :id AND day BETWEEN :from AND :to GROUP BY day ORDER BY day",
        values.clone(),
    )?;
    let sources = call.rows(
        "SELECT source, sum(views) FILTER (WHERE day >= :from) AS views, sum(views) FILTER (WHERE day < :from) AS views_before,
           round(100.0 * (sum(views) FILTER (WHERE day >= :from) - sum(views) FILTER (WHERE day < :from))
             / sum(views) FILTER (WHERE day < :from), 1) AS change_percent
         FROM views WHERE tenant = :tenant AND post = :id AND day BETWEEN :before AND :to GROUP BY source ORDER BY views DESC",
        values.clone(),
    )?;
    Ok(
        json!({"post": post, "from": values["from"], "to": values["to"], "daily": daily, "by_source": sources}),
    )
}

/// Traffic by week or day, what changed in it, and where the newest change lies.
pub(super) fn traffic_trends(call: &Call<'_>) -> Answer {
    let granularity = call.one_of("granularity", &["daily", "weekly"])?;
    let weeks = call.number("weeks", 2.0, 52.0)?.unwrap_or(8.0) as i64;
    let mut values = super::period(call, 7)?;
    values["weeks"] = json!(weeks + USUAL_WEEKS);
    let by_week = call.rows(
        "SELECT CAST((julianday(:to) - julianday(day)) / 7 AS INTEGER) AS weeks_ago, min(day) AS 'from', max(day) AS 'to',
           sum(views) AS views, count(DISTINCT day) AS days FROM views
         WHERE tenant = :tenant AND day <= :to AND julianday(:to) - julianday(day) < 7 * :weeks
         GROUP BY 1 HAVING days = 7 ORDER BY 1",
        values.clone(),
    )?;
    let views = |week: &Value| week["views"].as_f64().unwrap_or_default();
    let mut changes = Vec::new();
    for (at, week) in by_week.iter().enumerate().take(weeks as usize) {
        let usual: Vec<f64> = by_week
            .iter()
            .skip(at + 1)
            .take(USUAL_WEEKS as usize)
            .map(views)
            .collect();
        if usual.len() < 2 {
            continue;
        }
        let usual = usual.iter().sum::<f64>() / usual.len() as f64;
        let percent = 100.0 * (views(week) - usual) / usual.max(1.0);
        if percent.abs() >= NOTABLE_PERCENT {
            changes.push(json!({
                "from": week["from"], "to": week["to"], "views": week["views"], "usual_views": usual.round(),
                "change_percent": (percent * 10.0).round() / 10.0, "is": if percent < 0.0 { "drop" } else { "rise" },
            }));
        }
    }
    let newest = changes
        .first()
        .map(|change| causes(call, change))
        .transpose()?;
    let series = match granularity.as_deref() {
        Some("daily") => call.rows(
            "SELECT day, sum(views) AS views FROM views
             WHERE tenant = :tenant AND day <= :to AND julianday(:to) - julianday(day) < 7 * (:weeks - 4)
             GROUP BY day ORDER BY day",
            values.clone(),
        )?,
        _ => by_week.into_iter().take(weeks as usize).rev().collect(),
    };
    Ok(json!({
        "to": values["to"], "series": series, "changes": changes, "newest_change": newest,
        "compared_with": "the mean of the four weeks before each week",
    }))
}

/// Where a change of a week lies: posts and sources that moved most, and how often something was published.
fn causes(call: &Call<'_>, change: &Value) -> Answer {
    let day = |name: &str| {
        let text = change[name].as_str().unwrap_or_default();
        NaiveDate::parse_from_str(text, "%Y-%m-%d").unwrap_or_default()
    };
    let (from, to) = (day("from"), day("to"));
    let before = from - Duration::days(7 * USUAL_WEEKS);
    let values = json!({"from": from.to_string(), "to": to.to_string(), "before": before.to_string(),
        "until": (from - Duration::days(1)).to_string(), "weeks": USUAL_WEEKS});
    let moved = |group: &str| {
        let sql = format!(
            "WITH sums AS (SELECT {group} AS name, coalesce(sum(v.views) FILTER (WHERE day >= :from), 0) AS views,
                 round(coalesce(sum(v.views) FILTER (WHERE day < :from), 0) * 1.0 / :weeks, 1) AS usual_views
               FROM views v JOIN posts ON n = v.post
               WHERE v.tenant = :tenant AND day BETWEEN :before AND :to GROUP BY 1)
             SELECT *, round(views - usual_views, 1) AS difference FROM sums ORDER BY abs(views - usual_views) DESC LIMIT 5"
        );
        call.rows(&sql, values.clone())
    };
    let posts = published(call, &values)?;
    Ok(json!({
        "from": values["from"], "to": values["to"], "by_post": moved("posts.title")?,
        "by_source": moved("v.source")?, "by_category": moved("posts.category")?,
        "posts_published_in_it": posts["posts_published"],
        "posts_published_in_the_four_weeks_before": posts["posts_published_before"],
        "newest_post_on": posts["newest_post_on"],
    }))
}

pub(super) fn content_comparison(call: &Call<'_>) -> Answer {
    let by = call.one_of("by", &["kind", "category", "source"])?;
    let group = match by.as_deref() {
        Some("category") => "posts.category",
        Some("source") => "v.source",
        _ => "posts.kind",
    };
    let values = super::period(call, 30)?;
    let sql = format!(
        "WITH sums AS (SELECT {group} AS name, count(DISTINCT n) AS posts, sum(v.views) AS views,
             1.0 * sum(v.views) / count(DISTINCT n) AS per_post
           FROM views v JOIN posts ON n = v.post WHERE v.tenant = :tenant AND day BETWEEN :from AND :to GROUP BY 1)
         SELECT name, posts, views, round(per_post) AS views_per_post,
           round(per_post / (SELECT min(per_post) FROM sums), 1) AS times_the_weakest FROM sums ORDER BY per_post DESC"
    );
    let groups = call.rows(&sql, values.clone())?;
    Ok(
        json!({"from": values["from"], "to": values["to"], "by": by.unwrap_or_else(|| "kind".into()), "groups": groups}),
    )
}

pub(super) fn chat_overview(call: &Call<'_>) -> Answer {
    let values = super::period(call, 30)?;
    let by = |group: &str| {
        let sql = format!(
            "SELECT {group} AS name, count(*) FILTER (WHERE day >= :from) AS conversations,
               count(*) FILTER (WHERE day < :from) AS conversations_before,
               round(100.0 * count(*) FILTER (WHERE day >= :from AND is_resolved) / max(count(*) FILTER (WHERE day >= :from), 1), 1)
                 AS resolved_percent,
               round(avg(messages) FILTER (WHERE day >= :from), 1) AS messages_on_average
             FROM conversations WHERE tenant = :tenant AND day BETWEEN :before AND :to GROUP BY 1 ORDER BY 2 DESC"
        );
        call.rows(&sql, values.clone())
    };
    let unanswered = call.row(
        "SELECT count(*) AS questions, sum(asked) AS asked FROM unanswered WHERE tenant = :tenant AND last_on >= :from",
        values.clone(),
    )?;
    Ok(json!({
        "from": values["from"], "to": values["to"], "all": first(by("'chat'")?),
        "by_topic": by("topic")?, "by_channel": by("channel")?, "unanswered": unanswered,
    }))
}

pub(super) fn cross_product(call: &Call<'_>) -> Answer {
    let values = super::period(call, 30)?;
    let social = call.row(
        "SELECT sum(impressions) FILTER (WHERE substr(publish_at, 1, 10) >= :from) AS impressions,
           sum(impressions) FILTER (WHERE substr(publish_at, 1, 10) < :from) AS impressions_before,
           sum(clicks) FILTER (WHERE substr(publish_at, 1, 10) >= :from) AS clicks,
           sum(clicks) FILTER (WHERE substr(publish_at, 1, 10) < :from) AS clicks_before
         FROM schedule WHERE tenant = :tenant AND status = 'published' AND substr(publish_at, 1, 10) BETWEEN :before AND :to",
        values.clone(),
    )?;
    let leads = call.row(
        "SELECT count(*) FILTER (WHERE captured_on >= :from) AS leads, count(*) FILTER (WHERE captured_on < :from) AS leads_before
         FROM leads WHERE tenant = :tenant AND captured_on BETWEEN :before AND :to",
        values.clone(),
    )?;
    Ok(json!({
        "from": values["from"], "to": values["to"],
        "blog": first(compared(call, "'blog'", &values)?), "posts": published(call, &values)?,
        "content": social, "chat": chat_overview(call)?["all"], "leads": leads,
    }))
}
