//! Tools that are services over Pulsar: one in Python on topics that keep nothing, as those of TrustGraph, and a
//! program behind `tools serve` on topics that keep all.

use agentfleet_tests::load::{Process, output, refused, said, session_of};
use agentfleet_tests::place::Place;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const ASKS: &str = "Thought: t\nAction: joke\nArgs: {\"topic\": \"cats\"}";
const ADDS: &str = "Thought: t\nAction: add\nArgs: {\"a\": 40, \"b\": 2}";

/// A model that has both tools called.
fn script(place: &Place) -> PathBuf {
    let rules = json!({"rules": [
        {"operation": "agent-react", "steps": 0, "text": ASKS},
        {"operation": "agent-react", "steps": 1, "contains": "A pun about cats", "text": ADDS},
        {"operation": "agent-react", "contains": "the sum is 42", "text": "Thought: t\nFinal Answer: Both came."},
        {"operation": "agent-react", "text": "Thought: t\nFinal Answer: Something else came."},
    ]});
    let path = place.path("script.json");
    std::fs::write(&path, rules.to_string()).unwrap();
    path
}

fn put(place: &Place, item_type: &str, key: &str, item: &Value) {
    let path = place.path(&format!("{item_type}-{key}.json"));
    std::fs::write(&path, item.to_string()).unwrap();
    let path = path.display().to_string();
    output(&mut place.command(&["config", "put", item_type, key, &path]));
}

/// Puts the tool that adds, whose calls may take so long.
fn put_add(place: &Place, timeout_ms: u64) {
    let argument = |name: &str| json!({"name": name, "type": "integer"});
    let tool = json!({
        "name": "add", "type": "tool-service", "service": "sums", "timeout-ms": timeout_ms,
        "arguments": [argument("a"), argument("b")],
    });
    put(place, "tool", "add", &tool);
}

/// The tenant and the namespaces of TrustGraph, as it makes them itself.
async fn tenant(place: &Place) {
    let client = reqwest::Client::new();
    let make = async |path: &str, body: Value| {
        let url = format!("{}/admin/v2/{path}", place.pulsar.admin());
        let made = client.put(url).json(&body).send().await.unwrap();
        assert!(made.status().is_success(), "{path}: {made:?}");
    };
    make("tenants/tg", json!({"allowedClusters": ["standalone"]})).await;
    for namespace in ["request", "response"] {
        make(&format!("namespaces/tg/{namespace}"), json!({})).await;
    }
}

/// The subscriptions of a topic.
async fn subscriptions(place: &Place, topic: &str) -> Vec<String> {
    let path = topic.replacen("://", "/", 1);
    let url = format!("{}/admin/v2/{path}/stats", place.pulsar.admin());
    let stats: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    let named = stats["subscriptions"].as_object().into_iter().flatten();
    named.map(|(name, _)| name.clone()).collect()
}

fn python() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let set_up = Command::new(folder.join("venv.sh")).output().unwrap();
    assert!(set_up.status.success(), "{set_up:?}");
    String::from_utf8(set_up.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_others_and_of_our_own_are_called_over_pulsar() {
    let place = Place::new();
    tenant(&place).await;
    let (requests, answers) = (
        "non-persistent://tg/request/joke",
        "non-persistent://tg/response/joke",
    );
    put(
        &place,
        "tool-service",
        "joke",
        &json!({
            "id": "joke", "request-queue": requests, "response-queue": "response:tg:joke",
            "config-params": [{"name": "style", "required": false}],
        }),
    );
    put(
        &place,
        "tool",
        "joke",
        &json!({
            "name": "joke", "type": "tool-service", "description": "Tells a joke", "service": "joke", "style": "pun",
            "arguments": [{"name": "topic", "type": "string", "description": "What it is about"}],
            "timeout-ms": 60_000,
        }),
    );
    let kept = |name: &str| format!("persistent://public/default/{name}");
    put(
        &place,
        "tool-service",
        "sums",
        &json!({
            "request-queue": kept("sums"), "response-queue": kept("sums-answers"),
        }),
    );
    put_add(&place, 60_000);
    let says = refused(&mut place.command(&["tools", "test", "joke"]));
    assert!(says.contains("1 tool cannot be called"), "{says}");

    let mut service = Command::new(python());
    service.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/service.py"));
    service.args([
        "--url",
        place.pulsar.address(),
        "--requests",
        requests,
        "--answers",
        answers,
    ]);
    let _service = Process::start("service.py", &mut service, "serving");
    let program = "cat >/dev/null; echo the sum is 42";
    let mut serve = place.command(&["tools", "serve", "sums", "--", "sh", "-c", program]);
    let mut serving = Process::start("tools serve", &mut serve, "Serving");
    let tested = said(&mut place.command(&["tools", "test", "joke", "add", "--json"]));
    assert!(
        tested
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["ok"] == true),
        "{tested}"
    );

    let script = script(&place);
    let mut up = place.start("up", &script);
    let ask = ["ask", "Call both", "--pattern", "react"];
    let told = output(&mut place.command(&ask));
    let told = String::from_utf8(told).unwrap();
    let session = session_of("Call both", || place.cli(&["sessions", "list", "--json"]));
    assert_eq!(
        told.trim(),
        "Both came.",
        "{}",
        String::from_utf8_lossy(&place.trace(&session))
    );
    let call = ["tools", "call", "joke", "--set", "topic=none", "--yes"];
    let says = refused(&mut place.command(&call));
    assert!(
        says.contains("(tool-service-error): there is no topic"),
        "{says}"
    );

    // What was killed leaves no subscription behind.
    let listening = async |topic: &str| {
        let all = subscriptions(&place, topic).await.into_iter();
        all.filter(|name| name.starts_with("agentfleet-reader"))
            .count()
    };
    assert_eq!(listening(answers).await, 1);
    up.kill();
    for topic in [answers, &kept("sums-answers")] {
        let gone = async {
            while listening(topic).await > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        let patience = std::time::Duration::from_secs(60);
        tokio::time::timeout(patience, gone)
            .await
            .expect("Pulsar forgets them");
    }

    // With nobody there the call ends, and a program that comes later is not asked what nobody waits for.
    serving.kill();
    put_add(&place, 2_000);
    let call = [
        "tools", "call", "add", "--set", "a=1", "--set", "b=2", "--yes",
    ];
    let says = refused(&mut place.command(&call));
    assert!(
        says.contains("service `sums` gave no whole answer"),
        "{says}"
    );
    // Clocks may differ by two seconds.
    let ended = std::time::Instant::now();
    while ended.elapsed() < std::time::Duration::from_secs(3) {
        place.cli(&["tools", "list", "--json"]);
    }
    let noted = place.path("noted");
    let program = format!("cat >>{0}; echo >>{0}; echo 3", noted.display());
    let mut serve = place.command(&["tools", "serve", "sums", "--", "sh", "-c", &program]);
    let _serving = Process::start("tools serve", &mut serve, "Serving");
    put_add(&place, 60_000);
    let sum = output(&mut place.command(&call));
    assert_eq!(String::from_utf8(sum).unwrap().trim(), "3");
    let asked = std::fs::read_to_string(noted).unwrap();
    assert_eq!(asked.lines().count(), 1, "{asked}");
}
