//! Contacts, and how anything is found by what people call it.

use crate::call::{Answer, Call, Refusal, number_of};
use serde_json::{Value, json};

pub(super) const FIELDS: &[&str] = &["name", "company", "email", "phone", "note"];
/// Most rows that are told where several fit.
const MOST_TOLD: usize = 10;
const CONTACT: &str =
    "SELECT 'contact-' || n AS id, 'contact-' || n AS contact_id, name, company, email, phone, note
    FROM contacts WHERE tenant = :tenant";

/// The one row that a text means: by its id, else by its name, else by all of its words. Several are told as a list
/// without an id, so that nobody takes the first of them for the one that was meant.
pub(super) fn meant(what: &str, rows: Vec<Value>, query: &str) -> Answer {
    let wanted = plain(query);
    let named = |row: &&Value| {
        let says = |field: &str| row[field].as_str().map(plain).unwrap_or_default();
        says("id") == wanted || says("name") == wanted || says("title") == wanted
    };
    let has_words = |row: &&Value| {
        let fields = row.as_object().into_iter().flat_map(|row| row.values());
        let text = fields
            .filter_map(Value::as_str)
            .map(plain)
            .collect::<Vec<_>>()
            .join(" ");
        wanted.split_whitespace().all(|word| text.contains(word))
    };
    let exact: Vec<&Value> = rows.iter().filter(named).collect();
    let found = if exact.is_empty() {
        rows.iter().filter(has_words).collect()
    } else {
        exact
    };
    match found.as_slice() {
        [] => Err(Refusal::Missing(format!("there is no {what} `{query}`"))),
        [one] => Ok((*one).clone()),
        several => {
            let told = &several[..several.len().min(MOST_TOLD)];
            Ok(
                json!({"matches": told, "found": several.len(), "says": format!("several fit; say which {what} is meant")}),
            )
        }
    }
}

/// A text without case and Slovak accents.
fn plain(text: &str) -> String {
    const ACCENTED: &str = "áäčďéíĺľňóôŕšťúýž";
    const WITHOUT: &str = "aacdeillnoorstuyz";
    let plain = |letter: char| {
        let at = ACCENTED.chars().position(|one| one == letter);
        at.and_then(|at| WITHOUT.chars().nth(at)).unwrap_or(letter)
    };
    text.trim().to_lowercase().chars().map(plain).collect()
}

pub(super) fn find(call: &Call<'_>) -> Answer {
    let query = call.text("query")?;
    meant("contact", call.rows(CONTACT, json!({}))?, &query)
}

pub(super) fn get(call: &Call<'_>, id: &str) -> Answer {
    call.found("contact", &format!("{CONTACT} AND n = :id"), id)
}

fn fields(call: &Call<'_>) -> Answer {
    let email = call.maybe("email")?;
    if let Some(email) = &email {
        address("email", email)?;
    }
    Ok(
        json!({"name": call.maybe("name")?, "company": call.maybe("company")?, "email": email,
        "phone": call.maybe("phone")?, "note": call.maybe("note")?}),
    )
}

/// Whether a text can be an address.
pub(super) fn address(field: &'static str, text: &str) -> Result<(), Refusal> {
    let parts = text.split_once('@');
    let is_one = parts
        .is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains('@'));
    if is_one && !text.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(Refusal::Bad(
        field,
        format!("must be an address such as jana@firma.sk, not `{text}`"),
    ))
}

pub(super) fn create(call: &Call<'_>) -> Answer {
    call.text("name")?;
    let values = fields(call)?;
    let same = format!("{CONTACT} AND lower(email) = lower(:email)");
    if let Some(known) = call.row(&same, values.clone())? {
        let says = format!(
            "{} has this address already: `{}`",
            known["name"].as_str().unwrap_or_default(),
            known["id"].as_str().unwrap_or_default()
        );
        return Err(Refusal::Conflict(says));
    }
    let made = call.row(
        "INSERT INTO contacts(tenant, name, company, email, phone, note)
         VALUES (:tenant, :name, :company, :email, :phone, :note) RETURNING n",
        values,
    )?;
    get(call, &made.unwrap_or_default()["n"].to_string())
}

pub(super) fn update(call: &Call<'_>) -> Answer {
    let id = call.text("contact_id")?;
    get(call, &id)?;
    let mut values = fields(call)?;
    some(&values, "name")?;
    values["id"] = json!(number_of("contact", &id));
    call.rows(
        "UPDATE contacts SET name = coalesce(:name, name), company = coalesce(:company, company),
           email = coalesce(:email, email), phone = coalesce(:phone, phone), note = coalesce(:note, note)
         WHERE tenant = :tenant AND n = :id",
        values,
    )?;
    get(call, &id)
}

/// Whether anything is to change.
pub(super) fn some(values: &Value, first: &'static str) -> Result<(), Refusal> {
    if values
        .as_object()
        .is_some_and(|all| all.values().all(Value::is_null))
    {
        let says = "or another field is needed: nothing would change";
        return Err(Refusal::Bad(first, says.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_is_meant_is_found_without_accents_and_never_guessed() {
        let rows = || {
            vec![
                json!({"id": "contact-1", "name": "Jana Nováková", "company": "Stavby"}),
                json!({"id": "contact-2", "name": "Peter Kováč"}),
                json!({"id": "contact-3", "name": "Peter Malý", "company": "Hotel Lipa"}),
            ]
        };
        for (query, id) in [
            ("jana novakova", "contact-1"),
            ("stavby", "contact-1"),
            ("Maly Peter", "contact-3"),
            ("contact-2", "contact-2"),
        ] {
            assert_eq!(
                meant("contact", rows(), query).unwrap()["id"],
                id,
                "{query}"
            );
        }
        let several = meant("contact", rows(), "Peter").unwrap();
        assert!(
            several["id"].is_null() && several["found"] == 2,
            "{several}"
        );
        assert!(meant("contact", rows(), "Eva").is_err());
    }
}
