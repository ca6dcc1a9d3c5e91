//! Money: a bound that nobody could keep is refused, and a cost that nobody knows is not told as one.

use crate::place::Place;
use serde_json::{Value, json};

const SCRIPT: &str = r#"{"rules": [
    {"text": "Thought: hm\nFinal Answer: It is so.", "usage": {"input_tokens": 1000, "output_tokens": 100}}
]}"#;

fn ask(place: &Place, more: &[&str]) -> crate::place::Ran {
    let script = place.write("script.json", SCRIPT);
    let model = format!("scripted:{script}");
    let asked = ["ask", "Is it so?", "--pattern", "react", "--model", &model];
    place.run(&[&asked, more].concat())
}

#[test]
fn a_bound_in_money_needs_prices_at_every_door() {
    let place = Place::new();
    let refused = ask(&place, &["--max-cost", "0.50"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    for part in ["bounded to 0.50 in money", "config prices default"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    // A task type bounds as well as its caller.
    let type_of =
        json!({"name": "dear", "description": "x", "valid_patterns": ["react"], "max_cost": 1});
    let put = [
        "config",
        "put",
        "agent-task-type",
        "dear",
        "-",
        "--as",
        "ada",
    ];
    place.fed(&put, &type_of.to_string()).well();
    let refused = ask(&place, &["--task-type", "dear", "--json"]);
    let end: Value = serde_json::from_str(refused.out.lines().last().unwrap()).unwrap();
    assert_eq!(end["error"]["code"], "no-prices", "{end}");
    // Who finds it on the queue answers so, and leaves nothing to redrive: `retry` begins it again.
    let detached = ["ask", "Is it so?", "--max-cost", "0.50", "--detach"];
    let session = place.run(&detached).well().out;
    let script = format!("scripted:{}", place.path("script.json").display());
    let worked = place.run(&["attach", session.trim(), "--model", &script]);
    assert!(
        worked.err.contains("bounded to 0.50 in money"),
        "{worked:?}"
    );
    assert_eq!(
        place.run(&["dlq", "list", "--json"]).well().json(),
        json!([])
    );
    place.run(&["replay", session.trim()]).well();
    // What is free needs none, and so does whoever sets no bound.
    let offline = place.run(&["ask", "Is it so?", "--max-cost", "0.50"]);
    assert_eq!(offline.code, 0, "{offline:?}");
    ask(&place, &[]).well();
    // Who starts a fleet so learns it before anybody asks.
    let bounded =
        |args: &[&str]| place.run(&[args, &["--model", &script, "--max-cost", "1"]].concat());
    let doctor = bounded(&["doctor"]).out;
    assert!(doctor.contains("no run can begin"), "{doctor}");
    let set = [
        "config", "prices", "default", "--input", "2", "--output", "10", "--as", "ada",
    ];
    place.run(&set).well();
    let listed = place.run(&["config", "prices"]).well().out;
    assert!(listed.contains("default"), "{listed}");
    let history = place.run(&["config", "history", "model-profile", "default", "--json"]);
    assert_eq!(history.well().json()[0]["author"], "ada");
    let doctor = bounded(&["doctor"]).out;
    assert!(!doctor.contains("no run can begin"), "{doctor}");
    let kept = ask(&place, &["--max-cost", "0.50"]).well();
    assert_eq!(kept.out.trim(), "It is so.");
    assert!(kept.err.contains("cost 0.003 "), "{}", kept.err);
}

#[test]
fn a_cost_that_nobody_knows_is_not_told_as_nothing() {
    let place = Place::new();
    let unpriced = ask(&place, &[]).well();
    assert!(unpriced.err.contains("cost unknown"), "{}", unpriced.err);
    let session = place.sessions(&[])[0].clone();
    let cost = place.run(&["cost", &session, "--json"]).well().json();
    assert_eq!(cost["total"]["cost"], Value::Null, "{cost}");
    assert_eq!(cost["groups"][0]["question"], "Is it so?");
    let table = place.run(&["cost", &session]).well().out;
    assert!(
        table.contains("unknown") && !table.contains("0.00"),
        "{table}"
    );
    let listed = ["sessions", "list", "--sort", "cost"];
    assert!(place.run(&listed).well().out.contains("unknown"));
    let listed = place
        .run(&[&listed[..], &["--json"]].concat())
        .well()
        .json();
    assert_eq!(listed[0]["took"]["cost"], Value::Null, "{listed}");
    let told = place.run(&["trace", &session]).well().out;
    assert!(told.contains("cost unknown"), "{told}");
    let traced = place.run(&["trace", &session, "--format", "json"]).well();
    let traced = traced.json();
    let spent = &traced["sessions"][0]["spent_in_tree"];
    assert_eq!(spent["cost"], Value::Null, "{traced}");
    // Part of a conversation has a price.
    let set = [
        "config", "prices", "default", "--input", "2", "--output", "10", "--as", "ada",
    ];
    place.run(&set).well();
    ask(&place, &[]).well();
    let all = place.run(&["cost", "--json"]).well().json();
    assert_eq!(all["total"]["cost"], Value::Null, "{all}");
    assert_eq!(all["total"]["cost_at_least"], 0.003, "{all}");
    assert!(place.run(&["cost"]).well().out.contains("at least 0.003"));
    let spend = place.run(&["query", "conversation-spend"]).well().out;
    assert!(
        spend.contains("unknown") && spend.contains("0.003"),
        "{spend}"
    );
    for session in place.sessions(&[]) {
        place.run(&["verify", &session]).well();
    }
}

#[test]
fn what_a_person_seeded_is_still_there_after_the_next_command() {
    let place = Place::new();
    place.run(&["config", "list"]).well();
    place.write("mine/prompt/question.md", "{{ question }}\n");
    place.write(
        "mine/model-profile/default.json",
        r#"{"model": "", "temperature": 0.5}"#,
    );
    let seeded = place.run(&["config", "seed", "mine", "--as", "ada"]).well();
    assert!(seeded.out.contains("updated"), "{seeded:?}");
    let profile = || {
        place
            .run(&["config", "get", "model-profile", "default"])
            .well()
            .json()
    };
    assert_eq!(profile()["temperature"], 0.5);
    assert_eq!(profile()["temperature"], 0.5, "the next command seeds too");
    // Prices leave the rest of a profile as it is.
    let set = [
        "config", "prices", "default", "--input", "0", "--output", "0", "--as", "ada",
    ];
    place.run(&set).well();
    assert_eq!(
        profile(),
        json!({"model": "", "temperature": 0.5, "input-price": 0.0, "output-price": 0.0})
    );
    let prompt = "{{ question }}\nAnswer.\n";
    place
        .fed(
            &["config", "put", "prompt", "own", "-", "--as", "ada"],
            prompt,
        )
        .well();
    let own = place.run(&["config", "get", "prompt", "own"]).well().json();
    assert_eq!(own["prompt"], prompt.trim());
}

#[test]
fn config_and_approvals_know_who_decides_by_one_rule() {
    let place = Place::new();
    let nobody = |args: &[&str]| {
        let mut command = place.command(args);
        for name in ["USER", "LOGNAME", "USERNAME"] {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    place.write("x.json", r#"{"model": "", "temperature": 0.5}"#);
    let config = nobody(&["config", "put", "model-profile", "default", "x.json"]);
    let approval = nobody(&["approvals", "approve", "none-such"]);
    let refuses = |said: &str| said.contains("nobody knows who decides");
    assert_eq!(refuses(&config), refuses(&approval), "{config}\n{approval}");
}
