//! Posts of the blog.

use crate::call::{Answer, Call, Refusal, number_of};
use crate::day;
use serde_json::{Value, json};

const STATUSES: &[&str] = &["draft", "scheduled", "published"];
const KINDS: &[&str] = &["recipe", "seasonal", "tutorial", "story"];
/// What a post is made of.
pub(super) const FIELDS: &[&str] = &[
    "title",
    "category",
    "kind",
    "outline",
    "content",
    "tags",
    "meta_description",
];
const LONGEST_TITLE: usize = 200;

/// The post that a call is about, whole.
pub(super) fn get(call: &Call<'_>) -> Answer {
    let id = call.text("post_id")?;
    call.found(
        "post",
        "SELECT 'post-' || n AS id, title, category, kind, status, publish_at, outline, content, tags AS 'tags[]',
           meta_description, (SELECT sum(views) FROM views WHERE post = n) AS views,
           (SELECT sum(comments) FROM views WHERE post = n) AS comments
         FROM posts WHERE tenant = :tenant AND n = :id",
        &id,
    )
}

pub(super) fn list(call: &Call<'_>) -> Answer {
    let (limit, offset) = call.page(10)?;
    let status = call.one_of("status", &["draft", "published", "scheduled", "all"])?;
    let values = json!({
        "status": status.filter(|status| status != "all"), "category": call.maybe("category")?,
        "from": call.day("from")?.map(|day| day.to_string()), "to": call.day("to")?.map(|day| day.to_string()),
        "limit": limit, "offset": offset,
    });
    const CHOSEN: &str = "FROM posts WHERE tenant = :tenant AND (:status IS NULL OR status = :status)
        AND (:category IS NULL OR category = :category)
        AND (:from IS NULL OR substr(publish_at, 1, 10) >= :from) AND (:to IS NULL OR substr(publish_at, 1, 10) <= :to)";
    let posts = call.rows(
        &format!(
            "SELECT 'post-' || n AS id, title, category, kind, status, publish_at,
               (SELECT sum(views) FROM views WHERE post = n) AS views
             {CHOSEN} ORDER BY publish_at IS NULL DESC, publish_at DESC, n DESC LIMIT :limit OFFSET :offset"
        ),
        values.clone(),
    )?;
    let total = call.row(&format!("SELECT count(*) AS total {CHOSEN}"), values)?;
    let total = total.map(|row| row["total"].clone());
    Ok(json!({"posts": posts, "total": total, "limit": limit, "offset": offset}))
}

pub(super) fn analytics(call: &Call<'_>) -> Answer {
    let mut values = super::period(call, 30)?;
    values["limit"] = json!(call.page(20)?.0);
    let id = call.maybe("post_id")?;
    values["id"] = json!(id.as_deref().map(|id| number_of("post", id)));
    let posts = call.rows(
        "SELECT 'post-' || n AS id, title, category, sum(v.views) AS views, sum(v.comments) AS comments,
           sum(v.shares) AS shares, round(100.0 * sum(v.comments + v.shares) / max(sum(v.views), 1), 2) AS engagement_percent
         FROM posts JOIN views v ON v.post = n
         WHERE posts.tenant = :tenant AND day BETWEEN :from AND :to AND (:id IS NULL OR n = :id)
         GROUP BY n ORDER BY views DESC LIMIT :limit",
        values.clone(),
    )?;
    if let Some(id) = id.filter(|_| posts.is_empty()) {
        // One that is there and has no figures yet is told as such.
        call.found(
            "post",
            "SELECT n FROM posts WHERE tenant = :tenant AND n = :id",
            &id,
        )?;
    }
    Ok(json!({"from": values["from"], "to": values["to"], "posts": posts}))
}

/// The fields of a post, as far as they are given.
fn fields(call: &Call<'_>) -> Answer {
    let title = call.maybe("title")?;
    if title
        .as_ref()
        .is_some_and(|title| title.len() > LONGEST_TITLE)
    {
        let says = format!("must be at most {LONGEST_TITLE} bytes");
        return Err(Refusal::Bad("title", says));
    }
    Ok(json!({
        "title": title, "category": call.maybe("category")?, "kind": call.one_of("kind", KINDS)?,
        "outline": call.maybe("outline")?, "content": call.maybe("content")?, "tags": call.list("tags")?,
        "meta_description": call.maybe("meta_description")?,
    }))
}

pub(super) fn create(call: &Call<'_>) -> Answer {
    call.text("title")?;
    let made = call.row(
        "INSERT INTO posts(tenant, title, category, kind, status, outline, content, tags, meta_description)
         VALUES (:tenant, :title, coalesce(:category, 'news'), coalesce(:kind, 'story'), 'draft', :outline, :content,
           coalesce(:tags, '[]'), :meta_description)
         RETURNING 'post-' || n AS id, title, category, kind, status",
        fields(call)?,
    )?;
    Ok(made.unwrap_or_default())
}

pub(super) fn update(call: &Call<'_>) -> Answer {
    get(call)?;
    let mut values = fields(call)?;
    if values
        .as_object()
        .is_some_and(|all| all.values().all(Value::is_null))
    {
        let says = "or another field is needed: nothing would change";
        return Err(Refusal::Bad("title", says.to_owned()));
    }
    values["id"] = json!(number_of("post", &call.text("post_id")?));
    call.rows(
        "UPDATE posts SET title = coalesce(:title, title), category = coalesce(:category, category),
           kind = coalesce(:kind, kind), outline = coalesce(:outline, outline), content = coalesce(:content, content),
           tags = coalesce(:tags, tags), meta_description = coalesce(:meta_description, meta_description)
         WHERE tenant = :tenant AND n = :id",
        values,
    )?;
    get(call)
}

pub(super) fn schedule(call: &Call<'_>) -> Answer {
    let post = get(call)?;
    call.text("publish_at")?;
    let at = call.moment("publish_at")?;
    if post["status"] == "published" {
        let says = format!(
            "`{}` is published already",
            post["title"].as_str().unwrap_or_default()
        );
        return Err(Refusal::Conflict(says));
    }
    let values = json!({"id": number_of("post", &call.text("post_id")?), "at": at});
    call.rows(
        "UPDATE posts SET status = 'scheduled', publish_at = :at WHERE tenant = :tenant AND n = :id",
        values,
    )?;
    get(call)
}

pub(super) fn delete(call: &Call<'_>) -> Answer {
    let post = get(call)?;
    let values = json!({"id": number_of("post", &call.text("post_id")?)});
    call.rows(
        "DELETE FROM posts WHERE tenant = :tenant AND n = :id",
        values,
    )?;
    Ok(json!({"deleted": post["id"], "title": post["title"]}))
}

/// Changes all of some posts, or none of them.
pub(super) fn bulk(call: &Call<'_>) -> Answer {
    let ids = call.list("post_ids")?.unwrap_or_default();
    if ids.is_empty() {
        return Err(Refusal::Bad(
            "post_ids",
            "is needed: a list of ids".to_owned(),
        ));
    }
    let status = call.one_of("status", STATUSES)?;
    let (category, tags) = (call.maybe("category")?, call.list("tags")?);
    if status.is_none() && category.is_none() && tags.is_none() {
        let says = "or `category` or `tags` is needed: nothing would change";
        return Err(Refusal::Bad("status", says.to_owned()));
    }
    let now = day::now();
    let mut changed = Vec::new();
    for id in &ids {
        call.found(
            "post",
            "SELECT n FROM posts WHERE tenant = :tenant AND n = :id",
            id,
        )?;
        let values = json!({"id": number_of("post", id), "status": status, "category": category, "tags": tags, "now": now});
        changed.extend(call.row(
            "UPDATE posts SET status = coalesce(:status, status), category = coalesce(:category, category),
               tags = coalesce(:tags, tags), publish_at = CASE :status WHEN 'published' THEN min(coalesce(publish_at, :now), :now)
                 WHEN 'draft' THEN NULL ELSE publish_at END
             WHERE tenant = :tenant AND n = :id AND (:status IS NOT 'scheduled' OR publish_at > :now)
             RETURNING 'post-' || n AS id, title, category, status",
            values,
        )?);
        if changed
            .last()
            .is_none_or(|post| post["id"] != format!("post-{}", number_of("post", id)))
        {
            let says = format!("`{id}` has no moment in the future to be scheduled for");
            return Err(Refusal::Conflict(says));
        }
    }
    Ok(json!({"changed": changed}))
}
