//! Posts on social media.

use crate::call::{Answer, Call, Refusal, number_of};
use serde_json::{Value, json};

pub(super) fn platforms(call: &Call<'_>) -> Answer {
    let platforms = call.rows(
        "SELECT name, handle, is_connected AS 'is_connected?', max_chars, timezone FROM platforms
         WHERE tenant = :tenant ORDER BY is_connected DESC, name",
        json!({}),
    )?;
    Ok(json!({"platforms": platforms}))
}

pub(super) fn list(call: &Call<'_>) -> Answer {
    let status = call.one_of("status", &["scheduled", "published", "cancelled", "all"])?;
    let status = status.unwrap_or_else(|| "scheduled".to_owned());
    let values = json!({
        "status": status, "platform": call.maybe("platform")?, "limit": call.page(20)?.0,
        "from": call.day("from")?.map(|day| day.to_string()), "to": call.day("to")?.map(|day| day.to_string()),
    });
    let scheduled = call.rows(
        "SELECT 'schedule-' || n AS id, platform, text, publish_at, status, 'post-' || post AS post_id FROM schedule
         WHERE tenant = :tenant AND (:status = 'all' OR status = :status)
           AND (:platform IS NULL OR platform = lower(:platform))
           AND (:from IS NULL OR substr(publish_at, 1, 10) >= :from) AND (:to IS NULL OR substr(publish_at, 1, 10) <= :to)
         ORDER BY publish_at LIMIT :limit",
        values,
    )?;
    Ok(json!({"scheduled": scheduled}))
}

fn get(call: &Call<'_>, id: &str) -> Answer {
    call.found(
        "schedule",
        "SELECT 'schedule-' || n AS id, platform, text, publish_at, status, 'post-' || post AS post_id FROM schedule
         WHERE tenant = :tenant AND n = :id",
        id,
    )
}

/// Whether a text may go to a platform.
fn fits(call: &Call<'_>, platform: &str, text: &str) -> Result<(), Refusal> {
    let known = platforms(call)?;
    let known = known["platforms"].as_array().cloned().unwrap_or_default();
    let connected: Vec<&str> = known
        .iter()
        .filter(|one| one["is_connected"] == true)
        .filter_map(|one| one["name"].as_str())
        .collect();
    if !connected.contains(&platform) {
        let says = format!(
            "must be one that is connected ({}), not `{platform}`",
            connected.join(", ")
        );
        return Err(Refusal::Bad("platform", says));
    }
    let found = known.iter().find(|one| one["name"] == platform);
    let most = found
        .and_then(|one| one["max_chars"].as_u64())
        .unwrap_or_default();
    let has = text.chars().count() as u64;
    if has > most {
        let says = format!("has {has} characters, and {platform} takes {most}");
        return Err(Refusal::Bad("text", says));
    }
    Ok(())
}

pub(super) fn create(call: &Call<'_>) -> Answer {
    let (platform, text) = (call.text("platform")?.to_lowercase(), call.text("text")?);
    call.text("publish_at")?;
    fits(call, &platform, &text)?;
    let post = call.maybe("post_id")?;
    if let Some(id) = &post {
        call.found(
            "post",
            "SELECT n FROM posts WHERE tenant = :tenant AND n = :id",
            id,
        )?;
    }
    let made = call.row(
        "INSERT INTO schedule(tenant, platform, text, publish_at, status, post)
         VALUES (:tenant, :platform, :text, :at, 'scheduled', :post)
         RETURNING 'schedule-' || n AS id, platform, text, publish_at, status",
        json!({"platform": platform, "text": text, "at": call.moment("publish_at")?,
            "post": post.as_deref().map(|id| number_of("post", id))}),
    )?;
    Ok(made.unwrap_or_default())
}

/// One that can still be changed.
fn open(call: &Call<'_>) -> Result<(String, Value), Refusal> {
    let id = call.text("schedule_id")?;
    let found = get(call, &id)?;
    if found["status"] == "scheduled" {
        return Ok((id, found));
    }
    let status = found["status"].as_str().unwrap_or_default();
    Err(Refusal::Conflict(format!("`{id}` is {status} already")))
}

pub(super) fn update(call: &Call<'_>) -> Answer {
    let (id, found) = open(call)?;
    let (text, at) = (call.maybe("text")?, call.moment("publish_at")?);
    if text.is_none() && at.is_none() {
        let says = "or `publish_at` is needed: nothing would change";
        return Err(Refusal::Bad("text", says.to_owned()));
    }
    if let Some(text) = &text {
        fits(call, found["platform"].as_str().unwrap_or_default(), text)?;
    }
    call.rows(
        "UPDATE schedule SET text = coalesce(:text, text), publish_at = coalesce(:at, publish_at)
         WHERE tenant = :tenant AND n = :id",
        json!({"id": number_of("schedule", &id), "text": text, "at": at}),
    )?;
    get(call, &id)
}

pub(super) fn cancel(call: &Call<'_>) -> Answer {
    let (id, _) = open(call)?;
    call.rows(
        "UPDATE schedule SET status = 'cancelled' WHERE tenant = :tenant AND n = :id",
        json!({"id": number_of("schedule", &id)}),
    )?;
    get(call, &id)
}

pub(super) fn engagement(call: &Call<'_>) -> Answer {
    let mut values = super::period(call, 30)?;
    values["platform"] = json!(call.maybe("platform")?);
    const PUBLISHED: &str = "FROM schedule WHERE tenant = :tenant AND status = 'published'
        AND (:platform IS NULL OR platform = lower(:platform)) AND substr(publish_at, 1, 10) BETWEEN :from AND :to";
    const SUMS: &str = "count(*) AS posts, sum(impressions) AS impressions, sum(likes) AS likes,
        sum(comments) AS comments, sum(shares) AS shares, sum(clicks) AS clicks,
        round(100.0 * sum(likes + comments + shares + clicks) / max(sum(impressions), 1), 2) AS engagement_percent";
    let by = |what: &str, order: &str| {
        let sql = format!("SELECT {what}, {SUMS} {PUBLISHED} GROUP BY 1 ORDER BY {order} DESC");
        call.rows(&sql, values.clone())
    };
    Ok(json!({
        "from": values["from"], "to": values["to"],
        "by_platform": by("platform", "impressions")?,
        "by_time": by("substr(publish_at, 12, 5) AS time", "engagement_percent")?,
    }))
}
