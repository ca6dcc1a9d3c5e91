//! What a run carries from call to call, and a conversation from run to run: values that tools gave, and where
//! a tool policy stands.

use crate::place::{Place, Ran};
use crate::tools::Service;
use serde_json::json;

const CONTACT: &str = r#"{"id": "c-1", "email": "ana@customer.example"}"#;

/// A customer's data: `find` gives an id and an address, which the others need and the model forgets.
fn put_contacts(place: &Place, base: &str) {
    let find = json!({"name": "contact.find", "type": "http", "url": format!("{base}/find"),
        "arguments": [{"name": "query"}],
        "outputs": {"contact_id": "/id", "contact_email": "/email", "not-there": "/x"}});
    let create = json!({"name": "project.create", "type": "http", "url": format!("{base}/project"),
        "method": "POST", "arguments": [{"name": "title"}, {"name": "contact"}],
        "aliases": {"contact": ["contact_id"]}});
    let send = json!({"name": "mail.send", "type": "http", "url": format!("{base}/mail"), "method": "POST",
        "parameters": {"type": "object", "required": ["to", "subject"], "properties": {
            "to": {"type": "string", "format": "email"}, "subject": {"type": "string"}}}});
    for item in [find, create, send] {
        put(place, "tool", &item).well();
    }
}

fn put(place: &Place, item_type: &str, item: &serde_json::Value) -> Ran {
    let key = item["name"].as_str().unwrap();
    let file = place.write(&format!("{key}.json"), &item.to_string());
    place.run(&["config", "put", item_type, key, &file])
}

fn ask(place: &Place, script: &str, question: &str, more: &[&str]) -> Ran {
    let model = format!("scripted:{}", place.write("script.json", script));
    let args = ["ask", question, "--pattern", "react", "--model", &model];
    place.run(&[&args, more].concat())
}

fn explained(place: &Place, session: &str) -> String {
    for command in ["replay", "verify"] {
        place.run(&[command, session]).well();
    }
    let text = place.run(&["explain", session]).well().out;
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_id_that_the_model_forgets_is_filled_in_and_stays_with_the_conversation() {
    let place = Place::new();
    let service = Service::start(0, CONTACT);
    put_contacts(&place, &service.base);
    let script = r#"{"rules": [
        {"operation": "agent-react", "steps": 0, "contains": "Task:\nAnd send a mail, too",
         "text": "Thought: go\nAction: mail.send\nArgs: {\"subject\": \"Your roof\"}"},
        {"operation": "agent-react", "steps": 0, "contains": "Task:\nPlan a roof",
         "text": "Thought: whose\nAction: contact.find\nArgs: {\"query\": \"Ana\"}"},
        {"operation": "agent-react", "steps": 1, "contains": ["Task:\nPlan a roof", "contact_id = c-1 (from contact.find)"],
         "text": "Thought: go\nAction: project.create\nArgs: {\"title\": \"Roof\"}"},
        {"operation": "agent-react", "text": "Thought: t\nFinal Answer: done"}
    ]}"#;
    let talk = ["--conversation", "roofs"];
    ask(&place, script, "Plan a roof for Ana", &talk).well();
    ask(&place, script, "And send a mail, too", &talk).well();
    let asked = service.asked();
    assert_eq!(
        asked,
        [
            "GET /find?query=Ana",
            r#"POST /project {"title":"Roof","contact":"c-1"}"#,
            r#"POST /mail {"to":"ana@customer.example","subject":"Your roof"}"#,
        ]
    );
    let [mailed, planned] = &place.sessions(&["--conversation", "roofs"])[..] else {
        panic!("two runs");
    };
    let told = explained(&place, planned);
    let filled = "`contact` was missing, and is `c-1`: `contact_id` of `contact.find`";
    assert!(told.contains(filled), "{told}");
    let told = explained(&place, mailed);
    assert!(told.contains("`to` was missing"), "{told}");
    // A fork of the second run begins with what the first one knew.
    let model = format!("scripted:{}", place.write("script.json", script));
    let fork = ["fork", mailed, "--at", "0", "--model", &model];
    place.run(&fork).well();
    assert_eq!(service.asked()[3], asked[2]);
    // Elsewhere nothing is known: the model is told what it lacks.
    ask(&place, script, "And send a mail, too", &[]).well();
    assert_eq!(service.asked().len(), 4);
}

fn put_policy(place: &Place, base: &str) -> serde_json::Value {
    for name in ["search", "think", "reflect", "note"] {
        let tool = json!({"name": name, "type": "http", "url": format!("{base}/{name}"),
            "arguments": [{"name": "n", "required": false}], "repeatable": true});
        put(place, "tool", &tool).well();
    }
    let policy = json!({"name": "research", "description": "search before thought", "steps": [
        {"name": "find", "isDefault": true, "availableTools": {"allowed": ["sea*"]}},
        {"name": "weigh", "conditions": [{"type": "tool_used", "value": "search"}],
         "sequence": ["think", "reflect"]},
        {"name": "write", "conditions": [{"type": "sequence_match", "value": "weigh"}],
         "availableTools": {"denied": ["search"]}},
    ]});
    put(place, "tool-policy", &policy).well();
    policy
}

/// Calls one tool after the other, whatever it is told.
fn calls(tools: &[&str]) -> String {
    let rules: Vec<_> = (0..)
        .zip(tools)
        .map(|(steps, tool)| {
            json!({"operation": "agent-react", "steps": steps,
                "text": format!("Thought: go\nAction: {tool}\nArgs: {{}}")})
        })
        .chain([json!({"operation": "agent-react", "text": "Thought: t\nFinal Answer: done"})])
        .collect();
    json!({ "rules": rules }).to_string()
}

#[test]
fn a_policy_leaves_open_what_is_next_and_a_conversation_keeps_its_place() {
    let place = Place::new();
    let service = Service::start(0, "{}");
    put_policy(&place, &service.base);
    let drawn = place.run(&["config", "explain", "tool-policy", "research"]);
    let drawn = drawn.well().out;
    assert!(drawn.contains("`search` was used ──▶ weigh"), "{drawn}");
    let policy = ["--tool-policy", "research", "--conversation", "c"];
    let eager = calls(&["reflect", "search", "note", "think", "reflect", "note"]);
    ask(&place, &eager, "Find out", &policy).well();
    let paths = |service: &Service| -> Vec<String> {
        let asked = service.asked();
        asked.iter().map(|line| line[5..].to_owned()).collect()
    };
    assert_eq!(paths(&service), ["search", "think", "reflect", "note"]);
    let first = &place.sessions(&[])[0];
    let told = explained(&place, first);
    for part in [
        "the first step of policy `research` whose conditions are met",
        "`search` was used",
        "the sequence of step `weigh` was used",
        "tool `note` is closed by the tool policy now (available: `think`)",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // The next run of the conversation names no policy, and is in the step that the first one came to.
    let more = calls(&["search", "note"]);
    ask(&place, &more, "Go on", &["--conversation", "c"]).well();
    assert_eq!(paths(&service)[4..], ["note"]);
    explained(&place, &place.sessions(&[])[0]);
    // Elsewhere there is none.
    ask(&place, &more, "Go on", &[]).well();
    assert_eq!(paths(&service)[5..], ["search", "note"]);
    let unknown = ask(&place, &more, "Go on", &["--tool-policy", "reserch"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    let says = "tool policy `reserch` is not known (available: `research`)";
    assert!(unknown.err.contains(says), "{unknown:?}");
}

#[test]
fn a_policy_that_names_nothing_or_leads_nowhere_is_not_saved() {
    let place = Place::new();
    let policy = put_policy(&place, "http://127.0.0.1:1");
    let wrong = |change: &dyn Fn(&mut serde_json::Value), says: &str| {
        let mut policy = policy.clone();
        change(&mut policy["steps"]);
        let ran = put(&place, "tool-policy", &policy);
        assert!(ran.code != 0 && ran.err.contains(says), "{says}: {ran:?}");
    };
    wrong(
        &|steps| steps[1]["sequence"][0] = "thimk".into(),
        "unknown tool `thimk`: did you mean `think`?",
    );
    wrong(
        &|steps| steps[0]["isDefault"] = false.into(),
        "just one step must have `isDefault`",
    );
    wrong(
        &|steps| steps[2]["conditions"][0]["value"] = "find".into(),
        "step `find` has no sequence that could match",
    );
    wrong(
        &|steps| steps[0]["availableTools"]["denied"] = json!(["search"]),
        "leaves no tool that could be called",
    );
    wrong(
        &|steps| steps[1]["conditions"][0]["value"] = "note".into(),
        "can never be met",
    );
    wrong(
        &|steps| steps[1]["sequence"][0] = "thi*".into(),
        "unknown tool `thi*`",
    );
    wrong(
        &|steps| {
            steps[1]["conditions"] = json!([{"type": "tool_used", "value": "search"}, {"type": "tool_used", "value": "note"}]);
        },
        "never both met",
    );
    let gated = |constraint: serde_json::Value, says: &str| {
        let item = json!({"name": "gated", "gate": {"constraints": [constraint]}});
        let ran = put(&place, "agent-task-type", &item);
        assert!(ran.code != 0 && ran.err.contains(says), "{says}: {ran:?}");
    };
    gated(
        json!({"phrases": ["x"], "without": ["serch"]}),
        "did you mean `search`?",
    );
    gated(
        json!({"phrases": [" "], "without": ["search"]}),
        "none of them empty",
    );
    gated(
        json!({"phrases": ["x"], "without": []}),
        "must name the tools",
    );
    // Who lacks a tool of a sequence would stay in it.
    let specialist = json!({"name": "s", "tools": ["search", "think"], "tool_policy": "research"});
    let ran = put(&place, "specialist", &specialist);
    assert!(ran.err.contains("needs tool `reflect`"), "{ran:?}");
    // A tool that a policy needs is not removed.
    let ran = place.run(&["config", "delete", "tool", "reflect"]);
    assert!(ran.code != 0 && ran.err.contains("reflect"), "{ran:?}");
}

/// A task type with a gate, questions back, and a bound on calls of one tool.
fn put_task_type(place: &Place) {
    let item = json!({"name": "crm", "description": "customers", "valid_patterns": ["react"],
        "gate": {"constraints": [{"phrases": ["iba draft"], "without": ["mail.send"]}]},
        "ask_back": true, "same_tool": 2, "locale": "sk"});
    put(place, "agent-task-type", &item).well();
}

fn ask_crm(place: &Place, script: &str, question: &str, more: &[&str]) -> Ran {
    let model = format!("scripted:{}", place.write("script.json", script));
    let args = ["ask", question, "--task-type", "crm", "--model", &model];
    place.run(&[&args, more].concat())
}

fn brief(intent: &str, goal: &str) -> String {
    json!({"intent": intent, "confidence": 0.95, "reason": "a verb", "goal": goal, "entities": {},
        "constraints": [], "ambiguities": []})
    .to_string()
}

#[test]
fn a_message_passes_the_gate_as_a_brief_or_as_talk() {
    let place = Place::new();
    let service = Service::start(0, CONTACT);
    put_contacts(&place, &service.base);
    put_task_type(&place);
    let script = json!({"rules": [
        {"operation": "intent-gate", "contains": "Message:\nAhoj", "text": brief("CONVERSATION", "")},
        {"operation": "intent-gate", "contains": ["Question: Who is Ana?", "pošli mu aj email"],
         "text": brief("TASK", "Pošli Ane email, iba draft")},
        {"operation": "intent-gate", "contains": "Who is Ana?", "text": brief("TASK", "Nájdi Anu")},
        {"operation": "agent-react", "contains": ["Task:\nNájdi Anu"], "steps": 0,
         "text": "Thought: t\nAction: contact.find\nArgs: {\"query\": \"Ana\"}"},
        {"operation": "agent-react", "contains": ["Task:\nPošli Ane email"], "steps": 0,
         "text": "Thought: t\nAction: mail.send\nArgs: {\"subject\": \"x\"}"},
        {"operation": "agent-react", "contains": "There are no tools for this task", "text": "Thought: t\nFinal Answer: Ahoj!"},
        {"operation": "agent-react", "text": "Thought: t\nFinal Answer: done"}
    ]});
    let script = script.to_string();
    let talk = ["--conversation", "c"];
    ask_crm(&place, &script, "Who is Ana?", &talk).well();
    ask_crm(&place, &script, "a pošli mu aj email, iba draft", &talk).well();
    let told = ask_crm(&place, &script, "Ahoj", &talk).well().out;
    assert!(told.contains("Ahoj!"), "{told}");
    // The mail was forbidden by the message, whatever the model thought.
    assert_eq!(service.asked(), ["GET /find?query=Ana"]);
    let [talked, mailed, _] = &place.sessions(&["--conversation", "c"])[..] else {
        panic!("three runs");
    };
    let told = explained(&place, mailed);
    for part in ["the message says `iba draft`", "TASK", "a verb"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(explained(&place, talked).contains("CONVERSATION"));
    // No model was asked which task type or which pattern it is.
    let shown = place.run(&["sessions", "show", mailed]).well().out;
    assert!(!shown.contains("task-type-classify"), "{shown}");
}

#[test]
fn what_nobody_knows_is_asked_back_and_the_next_message_answers_it() {
    let place = Place::new();
    let service = Service::start(0, CONTACT);
    put_contacts(&place, &service.base);
    put_task_type(&place);
    let create = json!({"name": "project.create", "type": "http", "url": format!("{}/project", service.base),
        "method": "POST", "arguments": [{"name": "title", "description": "názov"}]});
    put(&place, "tool", &create).well();
    let script = json!({"rules": [
        {"operation": "intent-gate", "contains": ["potrebujem: **názov**", "Message:\nStrecha"],
         "text": brief("TASK", "Vytvor projekt Strecha")},
        {"operation": "intent-gate", "text": brief("TASK", "Vytvor projekt")},
        {"operation": "agent-react", "contains": ["Task:\nVytvor projekt Strecha", "mail.send"],
         "text": "Thought: t\nFinal Answer: Mail is open."},
        {"operation": "agent-react", "contains": "Task:\nVytvor projekt Strecha", "steps": 0,
         "text": "Thought: t\nAction: project.create\nArgs: {\"title\": \"Strecha\"}"},
        {"operation": "agent-react", "contains": "Task:\nVytvor projekt Strecha",
         "text": "Thought: t\nFinal Answer: Hotovo."},
        {"operation": "agent-react", "text": "Thought: t\nAction: project.create\nArgs: {}"}
    ]});
    let script = script.to_string();
    let talk = ["--conversation", "c"];
    let asked = ask_crm(&place, &script, "Vytvor projekt, iba draft", &talk)
        .well()
        .out;
    let says = "Aby som mohol pokračovať, potrebujem: názov. Môžete mi to upresniť?";
    assert!(asked.replace("**", "").contains(says), "{asked}");
    assert!(service.asked().is_empty());
    let session = &place.sessions(&[])[0];
    explained(&place, session);
    let listed = place.run(&["sessions", "show", session]).well().out;
    assert!(listed.contains("needs-clarification"), "{listed}");
    let told = ask_crm(&place, &script, "Strecha", &talk).well().out;
    assert!(
        told.contains("Hotovo."),
        "the demand of the message that is answered holds: {told}"
    );
    explained(&place, &place.sessions(&[])[0]);
    assert_eq!(service.asked(), [r#"POST /project {"title":"Strecha"}"#]);
}

#[test]
fn one_tool_again_and_again_is_questioned_and_then_left_to_a_person() {
    let place = Place::new();
    let service = Service::start(0, CONTACT);
    put_contacts(&place, &service.base);
    put_task_type(&place);
    let mut rules = vec![json!({"operation": "intent-gate", "text": brief("TASK", "Find them")})];
    rules.extend((0..20).map(|n| {
        json!({"operation": "agent-react", "steps": n,
            "text": format!("Thought: t\nAction: contact.find\nArgs: {{\"query\": \"{n}\"}}")})
    }));
    let script = json!({ "rules": rules }).to_string();
    let told = ask_crm(&place, &script, "Find them", &[]).out;
    // Two calls, a question, one more call after each of three questions, and then the end.
    let says = "nástroj contact.find sa volal stále dookola";
    assert!(told.replace('`', "").contains(says), "{told}");
    assert_eq!(service.asked().len(), 5, "{:?}", service.asked());
    let told = explained(&place, &place.sessions(&[])[0]);
    assert!(
        told.contains("this tool was called 2 times in a row"),
        "{told}"
    );
}
