//! `crm`: the customers of a small company, their projects and tasks, and mail that goes no further than a table.

use crate::Example;
use crate::call::Endpoint;

mod contacts;
mod mails;
mod work;

pub(crate) static EXAMPLE: Example = Example {
    name: "crm",
    about: "customers, projects, tasks and mail of a small company, in Slovak",
    port: 8742,
    tries: &[
        "ask \"Vytvor projekt Strecha pre Janu Novákovú a priprav jej email, iba draft\" --task-type crm",
        "chat --task-type crm",
    ],
    schema: include_str!("crm/schema.sql"),
    sample: include_str!("crm/sample.sql"),
    endpoints: ENDPOINTS,
};

#[rustfmt::skip]
const ENDPOINTS: &[Endpoint] = &[
    Endpoint { method: "GET", path: "/contacts", act: contacts::find, takes: &["query"] },
    Endpoint { method: "POST", path: "/contacts", act: contacts::create, takes: contacts::FIELDS },
    Endpoint { method: "PATCH", path: "/contacts/{contact_id}", act: contacts::update, takes: contacts::FIELDS },
    Endpoint { method: "GET", path: "/projects", act: work::find_project, takes: &["query"] },
    Endpoint { method: "POST", path: "/projects", act: work::create_project, takes: work::PROJECT },
    Endpoint { method: "PATCH", path: "/projects/{project_id}", act: work::update_project, takes: work::PROJECT },
    Endpoint { method: "GET", path: "/tasks", act: work::find_tasks, takes: &["query", "status"] },
    Endpoint { method: "POST", path: "/tasks", act: work::create_task, takes: work::TASK },
    Endpoint { method: "PATCH", path: "/tasks/{task_id}", act: work::update_task, takes: work::TASK },
    Endpoint { method: "GET", path: "/mails", act: mails::list, takes: &["kind", "limit"] },
    Endpoint { method: "POST", path: "/mails/drafts", act: mails::draft, takes: mails::FIELDS },
    Endpoint { method: "POST", path: "/mails/sent", act: mails::send, takes: mails::FIELDS },
];
