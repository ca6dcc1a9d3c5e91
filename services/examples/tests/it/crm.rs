//! The CRM: people are found as they are called, and mail goes into a table.

use crate::place::{Running, tools_are_endpoints};
use agentfleet_examples::CRM;
use serde_json::{Value, json};

#[tokio::test]
async fn its_tools_are_endpoints_with_the_same_arguments() {
    assert_eq!(tools_are_endpoints(CRM).await, 11);
}

#[tokio::test]
async fn a_project_grows_from_its_contact_and_mail_stays_here() {
    let crm = Running::start(CRM).await;
    let jana = crm.get("/contacts?query=novakova").await;
    assert_eq!(
        (&jana["contact_id"], &jana["name"]),
        (&json!("contact-1"), &json!("Jana Nováková"))
    );
    let project = json!({"name": "Strecha", "contact_id": "contact-1", "budget": 12000, "due_date": "2199-03-15"});
    let project = crm.well("POST", "/projects", project).await;
    assert_eq!(project["contact_email"], jana["email"], "{project}");
    let id = project["project_id"].as_str().unwrap();
    let task = json!({"title": "Zamerať strechu", "project_id": id, "due_date": "zajtra"});
    let task = crm.well("POST", "/tasks", task).await;
    assert_eq!(
        (&task["contact_name"], &task["project_name"]),
        (&json!("Jana Nováková"), &json!("Strecha"))
    );
    let path = format!("/tasks/{}", task["id"].as_str().unwrap());
    assert_eq!(
        crm.well("PATCH", &path, json!({"status": "done"})).await["status"],
        "done"
    );
    let found = crm.get("/tasks?query=zamerat&status=open").await;
    assert_eq!(found["title"], "Zamerať kuchyňu", "{found}");
    let path = format!("/projects/{id}");
    assert_eq!(
        crm.well("PATCH", &path, json!({"status": "won"})).await["status"],
        "won"
    );
    assert_eq!(crm.get("/projects?query=strecha").await["budget"], 12000.0);
    let mail = json!({"to": jana["email"], "subject": "Strecha", "body": "Dobrý deň"});
    crm.well("POST", "/mails/drafts", mail.clone()).await;
    crm.well("POST", "/mails/sent", mail).await;
    let mails = crm.get("/mails").await;
    let kinds: Vec<_> = mails["mails"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].clone())
        .collect();
    assert_eq!(kinds, ["sent", "draft"]);
    assert_eq!(
        crm.get("/mails?kind=draft").await["mails"][0]["to"],
        jana["email"]
    );
}

#[tokio::test]
async fn who_is_not_known_or_not_one_is_told() {
    let crm = Running::start(CRM).await;
    let several = crm.get("/contacts?query=Peter").await;
    assert_eq!(several["found"], 2, "{several}");
    assert!(several["id"].is_null() && several["contact_id"].is_null());
    for (method, path, body, status, says) in [
        (
            "GET",
            "/contacts?query=Eva",
            Value::Null,
            404,
            "there is no contact `Eva`",
        ),
        ("GET", "/contacts", Value::Null, 400, "`query` is needed"),
        (
            "POST",
            "/contacts",
            json!({"name": "J", "email": "JANA@stavby-novakova.example"}),
            409,
            "Jana Nováková has this address",
        ),
        (
            "POST",
            "/contacts",
            json!({"name": "J", "email": "nowhere"}),
            400,
            "`email` must be an address",
        ),
        (
            "POST",
            "/projects",
            json!({"name": "S", "contact_id": "contact-99"}),
            404,
            "there is no contact `contact-99`",
        ),
        (
            "POST",
            "/projects",
            json!({"name": "S", "contact_id": "contact-1", "due_date": "raz"}),
            400,
            "`due_date` must be a day",
        ),
        (
            "POST",
            "/tasks",
            json!({"title": "T"}),
            400,
            "`contact_id` or `project_id` is needed",
        ),
        (
            "PATCH",
            "/tasks/task-1",
            json!({"status": "lost"}),
            400,
            "`status` must be one of open, done",
        ),
        (
            "POST",
            "/mails/sent",
            json!({"to": "jana", "subject": "s", "body": "b"}),
            400,
            "`to` must be an address",
        ),
        (
            "POST",
            "/mails/sent",
            json!({"to": "a@b.sk", "subject": "s"}),
            400,
            "`body` is needed",
        ),
    ] {
        crm.refuses((method, path), body, status, says).await;
    }
    let contact = json!({"name": "Eva Nová", "email": "eva@nova.example"});
    let made = crm.well("POST", "/contacts", contact).await;
    let path = format!("/contacts/{}", made["id"].as_str().unwrap());
    assert_eq!(
        crm.well("PATCH", &path, json!({"phone": "1"})).await["email"],
        "eva@nova.example"
    );
}
