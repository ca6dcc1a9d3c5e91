//! The chatbot of the bakery: how it speaks, what it knows, and whom it talked to.

use crate::call::{Answer, Call, Refusal, number_of};
use crate::day;
use serde_json::{Value, json};

const KINDS: &[&str] = &["url", "pdf", "qa"];
/// What can be set of the chatbot.
pub(super) const SETTINGS: &[&str] = &["persona", "greeting", "temperature", "model", "language"];

pub(super) fn config(call: &Call<'_>) -> Answer {
    let found = call.row(
        "SELECT persona, greeting, temperature, model, language FROM settings WHERE tenant = :tenant",
        json!({}),
    )?;
    found.ok_or_else(|| Refusal::Missing("the chatbot is not set up".to_owned()))
}

pub(super) fn update_config(call: &Call<'_>) -> Answer {
    let before = config(call)?;
    let values = json!({
        "persona": call.maybe("persona")?, "greeting": call.maybe("greeting")?,
        "temperature": call.number("temperature", 0.0, 1.0)?, "model": call.one_of("model", &["small", "large"])?,
        "language": call.one_of("language", &["en", "sk", "de"])?,
    });
    if values
        .as_object()
        .is_some_and(|all| all.values().all(Value::is_null))
    {
        let says = "or another setting is needed: nothing would change";
        return Err(Refusal::Bad("persona", says.to_owned()));
    }
    call.rows(
        "UPDATE settings SET persona = coalesce(:persona, persona), greeting = coalesce(:greeting, greeting),
           temperature = coalesce(:temperature, temperature), model = coalesce(:model, model),
           language = coalesce(:language, language) WHERE tenant = :tenant",
        values,
    )?;
    Ok(json!({"before": before, "now": config(call)?}))
}

pub(super) fn knowledge(call: &Call<'_>) -> Answer {
    let values = json!({"kind": call.one_of("kind", KINDS)?, "limit": call.page(20)?.0});
    let documents = call.rows(
        "SELECT 'knowledge-' || n AS id, kind, title, url, question, answer, added_on FROM knowledge
         WHERE tenant = :tenant AND (:kind IS NULL OR kind = :kind) ORDER BY n LIMIT :limit",
        values,
    )?;
    Ok(json!({"documents": documents}))
}

pub(super) fn add_knowledge(call: &Call<'_>) -> Answer {
    call.text("kind")?;
    let kind = call.one_of("kind", KINDS)?.unwrap_or_default();
    let needed: &[&'static str] = match kind.as_str() {
        "qa" => &["question", "answer"],
        _ => &["url"],
    };
    for name in needed {
        call.text(name)?;
    }
    let url = call.maybe("url")?;
    if url
        .as_ref()
        .is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://"))
    {
        return Err(Refusal::Bad(
            "url",
            "must begin with `https://` or `http://`".to_owned(),
        ));
    }
    let made = call.row(
        "INSERT INTO knowledge(tenant, kind, title, url, question, answer, added_on)
         VALUES (:tenant, :kind, :title, :url, :question, :answer, :today)
         RETURNING 'knowledge-' || n AS id, kind, title",
        json!({"kind": kind, "title": call.text("title")?, "url": url, "question": call.maybe("question")?,
            "answer": call.maybe("answer")?, "today": day::today().to_string()}),
    )?;
    Ok(made.unwrap_or_default())
}

pub(super) fn remove_knowledge(call: &Call<'_>) -> Answer {
    let id = call.text("knowledge_id")?;
    let sql = "SELECT title FROM knowledge WHERE tenant = :tenant AND n = :id";
    let found = call.found("knowledge", sql, &id)?;
    let sql = "DELETE FROM knowledge WHERE tenant = :tenant AND n = :id";
    call.rows(sql, json!({"id": number_of("knowledge", &id)}))?;
    Ok(json!({"removed": id, "title": found["title"]}))
}

/// The newest first. Customers are told by their first letters: who reads this needs no names.
pub(super) fn conversations(call: &Call<'_>) -> Answer {
    let (limit, offset) = call.page(10)?;
    let resolved = call.one_of("resolved", &["true", "false"]);
    let resolved = match call.given.get("resolved") {
        Some(Value::Bool(yes)) => Some(*yes),
        _ => resolved?.map(|text| text == "true"),
    };
    let values = json!({"topic": call.maybe("topic")?, "resolved": resolved, "limit": limit, "offset": offset});
    let conversations = call.rows(
        "SELECT 'conversation-' || n AS id, substr(customer, 1, 1) || '. ' || substr(customer, instr(customer, ' ') + 1, 1)
             || '.' AS customer, channel, topic, day, messages, is_resolved AS 'is_resolved?' FROM conversations
         WHERE tenant = :tenant AND (:topic IS NULL OR topic = lower(:topic))
           AND (:resolved IS NULL OR is_resolved = :resolved)
         ORDER BY day DESC, n LIMIT :limit OFFSET :offset",
        values,
    )?;
    Ok(json!({"conversations": conversations}))
}

pub(super) fn unanswered(call: &Call<'_>) -> Answer {
    let questions = call.rows(
        "SELECT question, asked, last_on FROM unanswered WHERE tenant = :tenant ORDER BY asked DESC LIMIT :limit",
        json!({"limit": call.page(20)?.0}),
    )?;
    Ok(json!({"questions": questions}))
}

pub(super) fn leads(call: &Call<'_>) -> Answer {
    let values = json!({"status": call.one_of("status", &["new", "contacted", "closed"])?, "limit": call.page(20)?.0});
    let leads = call.rows(
        "SELECT 'lead-' || n AS id, name, email, interest, channel, captured_on, status FROM leads
         WHERE tenant = :tenant AND (:status IS NULL OR status = :status) ORDER BY captured_on DESC LIMIT :limit",
        values,
    )?;
    Ok(json!({"leads": leads}))
}
