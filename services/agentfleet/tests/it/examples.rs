//! The examples as a user runs them: the service in one process, runs in others, with models that say what they
//! were told to say where they were shown what the service really answered.

use crate::place::{Place, Ran, Running};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// An example that runs, and where.
struct Example {
    running: Running,
    url: String,
    told: Value,
}

fn start(place: &Place, name: &str) -> Example {
    let args = ["example", name, "start", "--port", "0", "--json"];
    let mut running = Running(place.command(&args).spawn().unwrap());
    let mut line = String::new();
    let mut out = BufReader::new(running.0.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    running.0.stdout = Some(out.into_inner());
    let url = told["url"].as_str().unwrap().to_owned();
    Example { running, url, told }
}

/// What the service itself has at a path.
fn at(example: &Example, path: &str) -> Value {
    let address = example.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn model(place: &Place, rules: Value) -> String {
    let script = json!({ "rules": rules }).to_string();
    format!("scripted:{}", place.write("script.json", &script))
}

fn ask(place: &Place, model: &str, question: &str, more: &[&str]) -> Ran {
    place.run(&[&["ask", question, "--model", model], more].concat())
}

/// What `explain` says of the newest run, after its records were worked again and checked.
fn explained(place: &Place) -> String {
    let session = &place.sessions(&[])[0];
    for command in ["replay", "verify"] {
        place.run(&[command, session]).well();
    }
    let text = place.run(&["explain", session]).well().out;
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A rule for an agent: what it has to be shown, after how many calls, and what it does then.
fn acts(shown: &[&str], steps: u32, tool: &str, arguments: Value) -> Value {
    json!({"operation": "agent-react", "contains": shown, "steps": steps,
        "text": format!("Thought: t\nAction: {tool}\nArgs: {arguments}")})
}

fn answers(shown: &[&str], text: &str) -> Value {
    json!({"operation": "agent-react", "contains": shown, "text": format!("Thought: t\nFinal Answer: {text}")})
}

fn classified(shown: &str, intent: &str, specialist: &str, steps: Value) -> Value {
    let is_multi = !steps.as_array().unwrap().is_empty();
    json!({"operation": "intent-classify", "contains": shown, "text": json!({
        "intent": intent, "confidence": 0.94, "specialist": specialist, "services": ["blog"],
        "entities": ["traffic"], "time_scope": "recent", "action_required": is_multi, "multi_step": is_multi,
        "steps": steps,
    }).to_string()})
}

const BUSINESS: [&str; 4] = ["--task-type", "business", "--tenant-type", "food_bakery"];

#[test]
fn the_bakery_learns_why_its_traffic_fell() {
    let place = Place::new();
    let bakery = start(&place, "business");
    assert_eq!(bakery.told["loaded"]["tool"], 28, "{}", bakery.told);
    let model = model(
        &place,
        json!([
            classified(
                "Business: food_bakery",
                "analytics_diagnosis",
                "analytics",
                json!([])
            ),
            acts(
                &["check several things", "- analytics.traffic_trends:"],
                0,
                "analytics.traffic_trends",
                json!({"weeks": 6})
            ),
            acts(
                &[
                    "\"is\":\"drop\"",
                    "Sourdough starter in seven days",
                    "posts_published_in_it"
                ],
                1,
                "analytics.post_performance",
                json!({"id": "post-1"})
            ),
            answers(
                &["\"by_source\":[{", "\"source\":\"search\""],
                "Search traffic of the sourdough post fell, and nothing was published."
            ),
        ]),
    );
    let ran = ask(
        &place,
        &model,
        "Why did my blog traffic drop this week?",
        &BUSINESS,
    )
    .well();
    assert!(
        ran.out
            .contains("Search traffic of the sourdough post fell"),
        "{ran:?}"
    );
    let told = explained(&place);
    for part in [
        "analytics_diagnosis",
        "specialist: analytics",
        "`id` is read as `post_id`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // The analyst reads the blog and changes nothing in it.
    let shown = place
        .run(&["trace", &place.sessions(&[])[0], "--step", "2", "--raw"])
        .well()
        .out;
    assert!(
        shown.contains("- blog.get_post:") && !shown.contains("- blog.delete_post:"),
        "{shown}"
    );
    // A person's change of an item stays when the example is started again, which is told.
    let mut item = place
        .run(&["config", "get", "specialist", "analytics"])
        .well()
        .json();
    item["description"] = json!("figures");
    let file = place.write("analytics.json", &item.to_string());
    place
        .run(&["config", "put", "specialist", "analytics", &file])
        .well();
    bakery.running.signal("TERM");
    let ended = bakery.running.ended();
    assert_eq!(ended.code, 0, "{ended:?}");
    let again = start(&place, "business");
    assert_eq!(again.told["config"]["edited"], 1, "{}", again.told);
    let kept = place
        .run(&["config", "get", "specialist", "analytics"])
        .well()
        .json();
    assert_eq!(kept["description"], "figures");
    let history = place
        .run(&["config", "history", "tool", "blog.list_posts", "--json"])
        .well()
        .json();
    assert_eq!(history[0]["author"], "seeded by example business");
    // Unloaded, the fleet is as it was, but for what that person put.
    let unloaded = place.run(&["example", "business", "unload"]).well();
    let says = "30 deleted, 4 as they come with the program, 1 left as changed by people";
    assert!(unloaded.out.contains(says), "{unloaded:?}");
    let needed = "model-profile capable stays: `specialist` item `analytics`";
    assert!(unloaded.err.contains(needed), "{unloaded:?}");
    assert!(
        !place
            .run(&["tools", "list"])
            .well()
            .out
            .contains("blog.list_posts")
    );
    let blog = place
        .run(&["config", "get", "specialist", "blog"])
        .well()
        .json();
    assert_eq!(
        blog["tools"],
        json!(["blog.*", "document-*", "knowledge-query"])
    );
    again.running.signal("INT");
    assert_eq!(again.running.ended().code, 0);
    let anew = start(&place, "business");
    let config = &anew.told["config"];
    let counts = ["added", "updated", "edited"].map(|count| config[count].as_u64().unwrap());
    assert_eq!(counts, [30, 4, 1], "{config}");
}

#[test]
fn a_calendar_is_made_from_what_the_analyst_found() {
    let place = Place::new();
    let bakery = start(&place, "business");
    let steps = json!([
        {"specialist": "analytics", "task": "rank the kinds of content", "depends_on": []},
        {"specialist": "blog", "task": "draft the posts of the month", "depends_on": ["step_1"]},
    ]);
    let outline =
        json!({"title": "Four weeks of recipes", "category": "recipes", "outline": "1. Brioche"});
    let model = model(
        &place,
        json!([
            classified("content calendar", "content_creation", "blog", steps),
            acts(&["draft the posts of the month", "Recipes lead with"], 0, "blog.create_draft", outline),
            answers(&["draft the posts of the month", "post-17"], "One draft, post-17."),
            acts(&["rank the kinds of content"], 0, "analytics.content_comparison", json!({})),
            answers(&["rank the kinds of content", "\"name\":\"recipe\"", "times_the_weakest"], "Recipes lead with the most views."),
            {"operation": "plan-synthesise", "contains": ["Recipes lead with", "post-17"], "text": "A calendar of recipes, since they lead."},
        ]),
    );
    let question =
        "Create a content calendar for next month and analyze which topics will perform best";
    let ran = ask(&place, &model, question, &BUSINESS).well();
    assert!(ran.out.contains("A calendar of recipes"), "{ran:?}");
    let post = at(&bakery, "/blog/posts/post-17");
    assert_eq!(
        (&post["status"], &post["outline"]),
        (&json!("draft"), &json!("1. Brioche"))
    );
    let told = explained(&place);
    assert!(told.contains("content_creation"), "{told}");
}

#[test]
fn what_cannot_be_undone_waits_for_a_person_and_happens_once() {
    let place = Place::new();
    let bakery = start(&place, "business");
    let model = model(
        &place,
        json!([
            classified("Delete", "action_execution", "blog", json!([])),
            acts(&[], 0, "blog.list_posts", json!({"status": "draft"})),
            acts(
                &["A stollen calendar"],
                1,
                "blog.delete_post",
                json!({"post_id": "post-15", "_confirmed": true})
            ),
            acts(
                &["_confirmed"],
                2,
                "blog.delete_post",
                json!({"post_id": "post-15"})
            ),
            answers(&["\"deleted\":\"post-15\""], "It is gone."),
        ]),
    );
    let args = [
        &["ask", "Delete the draft about stollen", "--model", &model][..],
        &BUSINESS,
    ]
    .concat();
    let mut asked = Running(place.command(&args).spawn().unwrap());
    asked.says("approvals approve");
    let open = place.run(&["approvals", "list", "--json"]).well().json();
    assert_eq!(open[0]["tool"], "blog.delete_post", "{open}");
    assert_eq!(at(&bakery, "/blog/posts")["total"], 16);
    let id = open[0]["id"].as_str().unwrap();
    place
        .run(&["approvals", "approve", id, "--as", "ada"])
        .well();
    let ran = asked.ended();
    assert!(ran.code == 0 && ran.out.contains("It is gone."), "{ran:?}");
    let posts = at(&bakery, "/blog/posts?limit=50");
    assert_eq!(posts["total"], 15);
    assert!(!posts.to_string().contains("stollen"), "{posts}");
    assert!(explained(&place).contains("ada"));
    let by_hand = place.run(&["tools", "call", "blog.get_post", "--set", "post_id=post-15"]);
    assert!(
        by_hand.code != 0 && by_hand.err.contains("there is no post `post-15`"),
        "{by_hand:?}"
    );
    // The data of the beginning is a command away, while the service runs.
    place.run(&["example", "business", "reset"]).well();
    assert_eq!(at(&bakery, "/blog/posts")["total"], 16);
}

#[test]
fn runs_of_a_tenant_reach_the_data_of_that_tenant() {
    let place = Place::new();
    let bakery = start(&place, "business");
    let model = model(
        &place,
        json!([
            classified("Write", "content_creation", "blog", json!([])),
            acts(
                &[],
                0,
                "blog.create_draft",
                json!({"title": "Bread of Acme"})
            ),
            answers(&["permission"], "Not allowed."),
            answers(&["Bread of Acme"], "Written."),
        ]),
    );
    let (up, address) = place.up(&["--model", &model]);
    let mut got: Vec<String> = Vec::new();
    for permission in ["blog.read", "blog.*"] {
        let name = format!("ada-{}", got.len());
        let make = [
            "keys",
            "create",
            &name,
            "--tenant",
            "acme",
            "--role",
            "producer",
            "--permission",
            permission,
            "--json",
        ];
        let key = place.run(&make).well().json()["key"]
            .as_str()
            .unwrap()
            .to_owned();
        let question = json!({"question": "Write about bread", "task_type": "business"});
        got.push(asked_by(&address, &key, &question));
    }
    assert_eq!(got, ["Not allowed.", "Written."]);
    drop(up);
    assert_eq!(at(&bakery, "/blog/posts")["total"], 16);
}

/// Asks for a principal, and waits for the end of the run.
fn asked_by(address: &str, key: &str, question: &Value) -> String {
    let accepted = sent(address, key, "POST /requests", &question.to_string());
    let session = accepted["session_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{accepted}"));
    let view = sent(
        address,
        key,
        &format!("GET /sessions/{session}?wait=60"),
        "",
    );
    assert_eq!(view["state"], "answered", "{view}");
    view["answer"].as_str().unwrap().to_owned()
}

fn sent(address: &str, key: &str, what: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{what} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn brief(goal: &str) -> Value {
    json!(json!({"intent": "TASK", "confidence": 0.95, "reason": "a verb", "goal": goal, "entities": {},
        "constraints": [], "ambiguities": []}).to_string())
}

fn gate(shown: &[&str], goal: &str) -> Value {
    json!({"operation": "intent-gate", "contains": shown, "text": brief(goal)})
}

#[test]
fn a_project_gets_the_id_that_the_model_forgot_and_a_mail_follows() {
    let place = Place::new();
    let crm = start(&place, "crm");
    assert_eq!(crm.told["loaded"]["tool"], 11, "{}", crm.told);
    let mail = json!({"subject": "Strecha", "body": "Dobrý deň, začíname v pondelok."});
    let model = model(
        &place,
        json!([
            gate(
                &["Question: Vytvor projekt", "pošli jej aj email"],
                "Pošli Jane Novákovej email o streche"
            ),
            gate(
                &["Vytvor projekt"],
                "Vytvor projekt Strecha pre Janu Novákovú a priprav email"
            ),
            acts(
                &["Task:\nVytvor projekt Strecha", "Answer in Slovak"],
                0,
                "db_fetch_contact",
                json!({"meno": "Jana Novakova"})
            ),
            acts(
                &["Task:\nVytvor projekt Strecha", "contact_id = contact-1"],
                1,
                "db_create_project",
                json!({"name": "Strecha", "deadline": "zajtra"})
            ),
            acts(
                &["Task:\nVytvor projekt Strecha", "project_id = project-3"],
                2,
                "gmail_create_draft",
                mail.clone()
            ),
            answers(
                &["Task:\nVytvor projekt Strecha", "\"kind\":\"draft\""],
                "Projekt Strecha je založený, email je pripravený."
            ),
            acts(
                &["Task:\nPošli Jane", "contact_email = jana@"],
                0,
                "gmail_send_email",
                mail
            ),
            answers(
                &["Task:\nPošli Jane", "\"kind\":\"sent\""],
                "Email pre Janu Novákovú je odoslaný."
            ),
        ]),
    );
    let talk = ["--task-type", "crm", "--conversation", "strecha"];
    let ran = ask(
        &place,
        &model,
        "Vytvor projekt Strecha pre Janu Novákovú a priprav jej email",
        &talk,
    )
    .well();
    assert!(ran.out.contains("Projekt Strecha je založený"), "{ran:?}");
    let project = at(&crm, "/projects?query=strecha");
    assert_eq!(project["contact_name"], "Jana Nováková", "{project}");
    assert!(project["due_date"].is_string(), "{project}");
    let told = explained(&place);
    for part in [
        "`contact_id` was missing, and is `contact-1`: `contact_id` of `db_fetch_contact`",
        "`to` was missing, and is `jana@stavby-novakova.example`",
        "`meno` is read as `query`",
        "TASK",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let ran = ask(&place, &model, "a pošli jej aj email", &talk).well();
    assert!(ran.out.contains("je odoslaný"), "{ran:?}");
    assert!(explained(&place).contains("`to` was missing"));
    let mails = at(&crm, "/mails");
    for (at, kind) in ["sent", "draft"].into_iter().enumerate() {
        let mail = &mails["mails"][at];
        assert_eq!(
            (&mail["kind"], &mail["to"]),
            (&json!(kind), &json!("jana@stavby-novakova.example"))
        );
    }
}

#[test]
fn a_draft_only_is_no_mail_and_what_is_missing_is_asked_for() {
    let place = Place::new();
    let crm = start(&place, "crm");
    let mail =
        json!({"to": "jana@stavby-novakova.example", "subject": "Ponuka", "body": "Dobrý deň."});
    let model = model(
        &place,
        json!([
            gate(&["iba draft"], "Priprav email pre Janu"),
            gate(&["potrebujem: **názov**", "Message:\nZavolať"], "Vytvor úlohu Zavolať pre Petra Kováča"),
            gate(&["Vytvor úlohu"], "Vytvor úlohu pre Petra Kováča"),
            acts(&["Task:\nPriprav email"], 0, "gmail_send_email", mail.clone()),
            acts(&["Task:\nPriprav email"], 1, "gmail_create_draft", mail),
            answers(&["Task:\nPriprav email"], "Koncept je pripravený, nič nebolo odoslané."),
            acts(&["Task:\nVytvor úlohu Zavolať"], 0, "db_create_task", json!({"title": "Zavolať", "due": "v piatok"})),
            answers(&["Task:\nVytvor úlohu Zavolať"], "Úloha Zavolať pre Petra Kováča je vytvorená."),
            acts(&["Task:\nVytvor úlohu pre"], 0, "db_fetch_contact", json!({"query": "Peter Kováč"})),
            {"operation": "agent-react", "contains": "Task:\nVytvor úlohu pre", "text": "Thought: t\nAction: db_create_task\nArgs: {}"},
        ]),
    );
    let crm_only = ["--task-type", "crm"];
    ask(
        &place,
        &model,
        "Priprav email pre Janu, iba draft",
        &crm_only,
    )
    .well();
    let mails = at(&crm, "/mails");
    assert_eq!(mails["mails"].as_array().unwrap().len(), 1, "{mails}");
    assert_eq!(mails["mails"][0]["kind"], "draft");
    let told = explained(&place);
    assert!(told.contains("the message says `iba draft`"), "{told}");
    let talk = ["--task-type", "crm", "--conversation", "uloha"];
    let asked = ask(&place, &model, "Vytvor úlohu pre Petra Kováča", &talk)
        .well()
        .out;
    assert!(
        asked.contains("potrebujem") && asked.contains("názov"),
        "{asked}"
    );
    explained(&place);
    assert_eq!(
        at(&crm, "/tasks?query=zavolat")["error"],
        "there is no task `zavolat`"
    );
    ask(&place, &model, "Zavolať", &talk).well();
    let task = at(&crm, "/tasks?query=zavolat");
    assert_eq!(task["contact_name"], "Peter Kováč", "{task}");
    explained(&place);
}

#[test]
fn examples_are_listed_and_say_what_keeps_them_from_running() {
    let place = Place::new();
    let nothing = place.run(&["example", "crm", "reset"]);
    assert_eq!(nothing.code, 3, "{nothing:?}");
    assert!(
        nothing.err.contains("has no data in this data directory"),
        "{nothing:?}"
    );
    let listed = place.run(&["example", "list"]).well().out;
    assert!(
        listed.contains("business") && listed.contains("8742"),
        "{listed}"
    );
    let listed = place.run(&["example", "list", "--json"]).well().json();
    assert_eq!(listed[0]["items"]["tool"], 28, "{listed}");
    let crm = start(&place, "crm");
    let port = crm.url.rsplit_once(':').unwrap().1;
    let taken = place.run(&["example", "crm", "start", "--port", port]);
    assert_eq!(taken.code, 4, "{taken:?}");
    assert!(
        taken.err.contains("choose another port with `--port`"),
        "{taken:?}"
    );
    // What is loaded fits what is served: nothing is called, and all could be.
    place.run(&["tools", "test", "db_*"]).well();
    place.run(&["tools", "test", "gmail_*"]).well();
    // The same items are a directory to seed from, which names the port that is its own.
    let items = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../seed-config/examples/crm"
    );
    let seeded = place
        .run(&["config", "seed", items, "--as", "ada"])
        .well()
        .out;
    assert!(
        seeded.contains("0 added, 11 updated, 2 unchanged"),
        "{seeded}"
    );
    let help = place.run(&["example", "--help"]).well().out;
    assert!(help.contains("agentfleet example business start"), "{help}");
}
