//! Projects of contacts, and tasks.

use super::contacts::{self, meant, some};
use crate::call::{Answer, Call, Refusal, number_of};
use serde_json::{Value, json};

pub(super) const PROJECT: &[&str] = &[
    "name",
    "contact_id",
    "status",
    "description",
    "budget",
    "due_date",
];
pub(super) const TASK: &[&str] = &[
    "title",
    "contact_id",
    "project_id",
    "due_date",
    "note",
    "status",
];
const FOUND_PROJECT: &str = "SELECT 'project-' || p.n AS id, 'project-' || p.n AS project_id, p.name, p.status, p.description,
    p.budget, p.due_date, 'contact-' || c.n AS contact_id, c.name AS contact_name, c.email AS contact_email
    FROM projects p JOIN contacts c ON c.n = p.contact WHERE p.tenant = :tenant";
const FOUND_TASK: &str = "SELECT 'task-' || t.n AS id, 'task-' || t.n AS task_id, t.title, t.status, t.due_date, t.note,
    'contact-' || c.n AS contact_id, c.name AS contact_name, 'project-' || p.n AS project_id, p.name AS project_name
    FROM tasks t JOIN contacts c ON c.n = t.contact LEFT JOIN projects p ON p.n = t.project WHERE t.tenant = :tenant";

fn project(call: &Call<'_>, id: &str) -> Answer {
    call.found("project", &format!("{FOUND_PROJECT} AND p.n = :id"), id)
}

fn task(call: &Call<'_>, id: &str) -> Answer {
    call.found("task", &format!("{FOUND_TASK} AND t.n = :id"), id)
}

pub(super) fn find_project(call: &Call<'_>) -> Answer {
    let query = call.text("query")?;
    meant("project", call.rows(FOUND_PROJECT, json!({}))?, &query)
}

fn project_fields(call: &Call<'_>) -> Answer {
    Ok(json!({
        "name": call.maybe("name")?, "status": call.one_of("status", &["open", "won", "lost", "done"])?,
        "description": call.maybe("description")?, "budget": call.number("budget", 0.0, 1e9)?,
        "due_date": call.day("due_date")?.map(|day| day.to_string()),
        "contact": known_contact(call)?,
    }))
}

/// The number of the contact that a call names, if it names one.
fn known_contact(call: &Call<'_>) -> Result<Value, Refusal> {
    let Some(id) = call.maybe("contact_id")? else {
        return Ok(Value::Null);
    };
    contacts::get(call, &id)?;
    Ok(json!(number_of("contact", &id)))
}

pub(super) fn create_project(call: &Call<'_>) -> Answer {
    call.text("name")?;
    call.text("contact_id")?;
    let made = call.row(
        "INSERT INTO projects(tenant, contact, name, status, description, budget, due_date)
         VALUES (:tenant, :contact, :name, coalesce(:status, 'open'), :description, :budget, :due_date) RETURNING n",
        project_fields(call)?,
    )?;
    project(call, &made.unwrap_or_default()["n"].to_string())
}

pub(super) fn update_project(call: &Call<'_>) -> Answer {
    let id = call.text("project_id")?;
    project(call, &id)?;
    let mut values = project_fields(call)?;
    some(&values, "name")?;
    values["id"] = json!(number_of("project", &id));
    call.rows(
        "UPDATE projects SET name = coalesce(:name, name), status = coalesce(:status, status),
           description = coalesce(:description, description), budget = coalesce(:budget, budget),
           due_date = coalesce(:due_date, due_date), contact = coalesce(:contact, contact)
         WHERE tenant = :tenant AND n = :id",
        values,
    )?;
    project(call, &id)
}

/// The tasks that a text names, of a contact or a project, too.
pub(super) fn find_tasks(call: &Call<'_>) -> Answer {
    let status = call.one_of("status", &["open", "done"])?;
    let rows = call.rows(
        &format!("{FOUND_TASK} AND (:status IS NULL OR t.status = :status) ORDER BY t.due_date"),
        json!({"status": status}),
    )?;
    meant("task", rows, &call.text("query")?)
}

fn task_fields(call: &Call<'_>) -> Answer {
    let of = call.maybe("project_id")?;
    let of = of.map(|id| project(call, &id)).transpose()?;
    let contact = match (known_contact(call)?, &of) {
        (Value::Null, Some(of)) => json!(number_of(
            "contact",
            of["contact_id"].as_str().unwrap_or_default()
        )),
        (given, _) => given,
    };
    Ok(json!({
        "title": call.maybe("title")?, "due_date": call.day("due_date")?.map(|day| day.to_string()),
        "note": call.maybe("note")?, "status": call.one_of("status", &["open", "done"])?, "contact": contact,
        "project": of.map(|of| number_of("project", of["id"].as_str().unwrap_or_default())),
    }))
}

pub(super) fn create_task(call: &Call<'_>) -> Answer {
    call.text("title")?;
    let values = task_fields(call)?;
    if values["contact"].is_null() {
        let says = "or `project_id` is needed: a task is of a contact or of a project";
        return Err(Refusal::Bad("contact_id", says.to_owned()));
    }
    let made = call.row(
        "INSERT INTO tasks(tenant, contact, project, title, due_date, note, status)
         VALUES (:tenant, :contact, :project, :title, :due_date, :note, coalesce(:status, 'open')) RETURNING n",
        values,
    )?;
    task(call, &made.unwrap_or_default()["n"].to_string())
}

pub(super) fn update_task(call: &Call<'_>) -> Answer {
    let id = call.text("task_id")?;
    task(call, &id)?;
    let mut values = task_fields(call)?;
    some(&values, "title")?;
    values["id"] = json!(number_of("task", &id));
    call.rows(
        "UPDATE tasks SET title = coalesce(:title, title), due_date = coalesce(:due_date, due_date),
           note = coalesce(:note, note), status = coalesce(:status, status), contact = coalesce(:contact, contact),
           project = coalesce(:project, project) WHERE tenant = :tenant AND n = :id",
        values,
    )?;
    task(call, &id)
}
