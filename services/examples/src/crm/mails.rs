//! Mail. Nothing leaves this machine: drafts and sent mails are rows that can be read.

use super::contacts::address;
use crate::call::{Answer, Call};
use serde_json::json;

pub(super) const FIELDS: &[&str] = &["to", "subject", "body"];

/// The newest first.
pub(super) fn list(call: &Call<'_>) -> Answer {
    let values =
        json!({"kind": call.one_of("kind", &["draft", "sent"])?, "limit": call.page(20)?.0});
    let mails = call.rows(
        "SELECT 'mail-' || n AS id, kind, recipient AS 'to', subject, body, at FROM mails
         WHERE tenant = :tenant AND (:kind IS NULL OR kind = :kind) ORDER BY n DESC LIMIT :limit",
        values,
    )?;
    Ok(json!({"mails": mails}))
}

pub(super) fn draft(call: &Call<'_>) -> Answer {
    keep(call, "draft")
}

pub(super) fn send(call: &Call<'_>) -> Answer {
    keep(call, "sent")
}

fn keep(call: &Call<'_>, kind: &str) -> Answer {
    let to = call.text("to")?;
    address("to", &to)?;
    let made = call.row(
        "INSERT INTO mails(tenant, kind, recipient, subject, body, at)
         VALUES (:tenant, :kind, :to, :subject, :body, :now)
         RETURNING 'mail-' || n AS id, kind, recipient AS 'to', subject",
        json!({"kind": kind, "to": to, "subject": call.text("subject")?, "body": call.text("body")?,
            "now": crate::day::now()}),
    )?;
    Ok(made.unwrap_or_default())
}
