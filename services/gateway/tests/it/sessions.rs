//! Sessions: what became of them, lists, cancelling, traces, documents.

use crate::client::Client;
use crate::fleet::{Fleet, options};
use agentfleet_gateway::{Gateway, Parts};
use agentfleet_graph::{Answer, Batch, EmbeddedGraph, Error, Graph, QueryOptions};
use agentfleet_schema::Term;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// A graph that does not know in which order sessions began, with the queries that it was asked.
#[derive(Clone)]
struct Unordered(EmbeddedGraph, Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Graph for Unordered {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), Error> {
        self.0.insert(batches).await
    }

    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Answer, Error> {
        self.1.lock().unwrap().push(sparql.to_owned());
        self.0.query(sparql, bindings, options).await
    }
}

#[tokio::test]
async fn a_session_tells_how_it_is_until_it_has_ended() {
    let data = tempfile::TempDir::new().unwrap();
    let mut fleet = Fleet::idle(data.path(), options()).await;
    let client = fleet.client;
    let ask = json!({ "question": "hold it?", "session_id": "s-1", "user": "ada",
        "collection": "tea", "conversation_id": "talk-1", "streaming": true });
    client.start(&ask).await;
    let view = client.json("/sessions/s-1").await;
    assert_eq!(
        (&view["state"], &view["finished"]),
        (&json!("queued"), &json!(false))
    );
    assert_eq!(view["question"], "hold it?");
    assert!(view["accepted_at"].as_str().unwrap().ends_with('Z') && view["started_at"].is_null());

    fleet.work().await;
    client
        .events("/sessions/s-1/events", &[])
        .await
        .named("answer")
        .await;
    let view = client.json("/sessions/s-1").await;
    assert_eq!(
        (&view["state"], &view["steps"]),
        (&json!("running"), &json!(1))
    );
    fleet.gate.send_replace(true);

    let view = client.ended("s-1").await;
    assert_eq!(view["state"], "answered");
    assert_eq!(view["answer"], "You asked: hold it?\nThat is all.");
    assert_eq!(
        (&view["pattern"], &view["task_type"]),
        (&json!("react"), &json!("general"))
    );
    assert_eq!(
        (&view["user"], &view["collection"]),
        (&json!("ada"), &json!("tea"))
    );
    assert_eq!(
        (&view["conversation_id"], &view["model"]),
        (&json!("talk-1"), &json!("echo-1"))
    );
    assert_eq!((&view["steps"], &view["tokens"]), (&json!(2), &json!(60)));
    assert_eq!(view["termination"], "final-answer");
    let times = ["accepted_at", "started_at", "updated_at", "finished_at"];
    let times: Vec<&str> = times
        .iter()
        .map(|name| view[name].as_str().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let text = client.get(view["links"]["answer"].as_str().unwrap()).await;
    assert_eq!(text.text(), view["answer"].as_str().unwrap());
    let talk = client.json("/conversations/talk-1").await;
    let exchange = &talk["exchanges"][0];
    assert_eq!(exchange["session_id"], "s-1");
    assert_eq!(exchange["question"], "hold it?");
    assert_eq!(exchange["answer"], view["answer"]);
}

#[tokio::test]
async fn a_failure_is_told_with_its_code_and_hint() {
    let fleet = Fleet::start().await;
    let session = fleet.client.start(&json!({ "question": "fail now" })).await;
    let view = fleet.client.ended(&session).await;
    assert_eq!(view["state"], "failed");
    assert_eq!(view["answer"], Value::Null);
    assert_eq!(view["error"]["code"], "model-failed");
    assert_eq!(view["error"]["message"], "the model refuses");
    assert_eq!(view["error"]["hint"], "ask another one");
}

#[tokio::test]
async fn a_result_is_found_after_a_restart() {
    let fleet = Fleet::start().await;
    let session = fleet
        .client
        .start(&json!({ "question": "still there?" }))
        .await;
    let before = fleet.client.ended(&session).await;
    let data = fleet.shut_down().await.unwrap();
    let fleet = Fleet::on(data.path(), options()).await;
    assert_eq!(
        fleet.client.json(&format!("/sessions/{session}")).await,
        before
    );
}

#[tokio::test]
async fn subagents_are_told_with_their_status_and_each_has_its_own_page() {
    let fleet = Fleet::start().await;
    let ask = json!({ "question": "compare tea and coffee", "pattern": "supervisor" });
    let root = fleet.client.start(&ask).await;
    let view = fleet.client.ended(&root).await;
    assert_eq!(
        (&view["state"], &view["pattern"]),
        (&json!("answered"), &json!("supervisor"))
    );
    let subagents = view["subagents"].as_array().unwrap();
    let goals: BTreeSet<&str> = subagents
        .iter()
        .map(|s| s["goal"].as_str().unwrap())
        .collect();
    assert_eq!(goals, BTreeSet::from(["Look at tea.", "Look at coffee."]));
    for subagent in subagents {
        assert_eq!(subagent["status"], "answered");
        let own = fleet
            .client
            .json(subagent["location"].as_str().unwrap())
            .await;
        assert_eq!(own["root_session_id"], root);
        assert_eq!(own["parent_session_id"], root);
        assert_eq!(own["links"]["events"], format!("/sessions/{root}/events"));
        assert!(
            own["answer"]
                .as_str()
                .unwrap()
                .contains("You asked: Look at")
        );
    }
    assert_eq!(view["confidence"][0]["confidence"], 0.8);
}

#[tokio::test]
async fn a_wait_ends_with_its_time_and_no_later_than_allowed() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    let session = client
        .start(&json!({ "question": "hold me?", "streaming": true }))
        .await;
    let view = client.json(&format!("/sessions/{session}?wait=1")).await;
    assert_eq!(view["finished"], false);
    for wait in ["61", "-1", "soon"] {
        let reply = client
            .get(&format!("/sessions/{session}?wait={wait}"))
            .await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "invalid-parameter"),
            "{wait}"
        );
    }
}

#[tokio::test]
async fn a_run_is_cancelled_once_and_what_has_ended_stands() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    let session = client
        .start(&json!({ "question": "hold for ever?", "streaming": true }))
        .await;
    let path = format!("/sessions/{session}");
    client
        .events(&format!("{path}/events"), &[])
        .await
        .named("answer")
        .await;
    let cancelled = client
        .send("DELETE", &format!("{path}?by=ada"), &[], b"")
        .await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    assert_eq!(cancelled.json()["cancel"], "cancelled");
    let view = client.ended(&session).await;
    assert_eq!(
        (&view["state"], &view["error"]["code"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    assert!(
        view["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cancelled by ada")
    );
    fleet.gate.send_replace(true);
    let again = client.send("DELETE", &path, &[], b"").await.json();
    assert_eq!(
        (&again["cancel"], &again["state"]),
        (&json!("already-ended"), &json!("cancelled"))
    );

    let done = client.start(&json!({ "question": "done?" })).await;
    client.ended(&done).await;
    let late = client
        .send("DELETE", &format!("/sessions/{done}"), &[], b"")
        .await
        .json();
    assert_eq!(
        (&late["cancel"], &late["state"]),
        (&json!("already-ended"), &json!("answered"))
    );
    let unknown = client.send("DELETE", "/sessions/nobody", &[], b"").await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "unknown-session")
    );
}

#[tokio::test]
async fn a_request_nobody_has_taken_up_ends_when_it_is_cancelled() {
    let data = tempfile::TempDir::new().unwrap();
    let mut fleet = Fleet::idle(data.path(), options()).await;
    let client = fleet.client;
    client
        .start(&json!({ "question": "too late?", "session_id": "s-1" }))
        .await;
    let cancel = async || {
        let sent = client.send("DELETE", "/sessions/s-1", &[], b"");
        let told = sent.await.json();
        (told["cancel"].clone(), told["state"].clone())
    };
    assert_eq!(cancel().await, (json!("cancelled"), json!("cancelled")));
    assert_eq!(cancel().await, (json!("already-ended"), json!("cancelled")));
    // Its message still comes to a worker, who finds it ended.
    fleet.work().await;
    let view = client.ended("s-1").await;
    assert_eq!(
        (&view["state"], &view["steps"], &view["question"]),
        (&json!("cancelled"), &json!(1), &json!("too late?"))
    );
    client
        .start(&json!({ "question": "in time?", "session_id": "s-2" }))
        .await;
    assert_eq!(client.ended("s-2").await["state"], "answered");
    assert_eq!(client.json("/sessions/s-1").await["steps"], 1);
}

#[tokio::test]
async fn sessions_are_listed_newest_first_page_by_page() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    for n in 0..5 {
        let collection = if n % 2 == 0 { "even" } else { "odd" };
        let body = json!({ "question": format!("q{n}?"), "session_id": format!("s-{n}"),
            "collection": collection, "conversation_id": "it's \"one\" talk" });
        client.start(&body).await;
        client.ended(&format!("s-{n}")).await;
    }
    client
        .start(&json!({ "question": "fail", "session_id": "f-1" }))
        .await;
    client.ended("f-1").await;
    let ask =
        json!({ "question": "compare a and b", "pattern": "supervisor", "session_id": "c-1" });
    client.start(&ask).await;
    client.ended("c-1").await;

    let ids = |list: &Value| -> Vec<String> {
        let entries = list["sessions"].as_array().unwrap().iter();
        entries
            .map(|entry| entry["session_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = client.json("/sessions").await;
    let newest_first = ["c-1", "f-1", "s-4", "s-3", "s-2", "s-1", "s-0"];
    assert_eq!(
        ids(&all),
        newest_first,
        "roots only: subagents are not listed"
    );
    assert!(all["next"].is_null());
    let entry = &all["sessions"][2];
    assert_eq!(
        (&entry["question"], &entry["state"]),
        (&json!("q4?"), &json!("answered"))
    );
    assert_eq!(
        (&entry["pattern"], &entry["collection"]),
        (&json!("react"), &json!("even"))
    );
    assert_eq!(all["sessions"][1]["state"], "failed");
    // As text they do not compare: the graph leaves out zeros at the end of a fraction.
    let at =
        |name: &str| chrono::DateTime::parse_from_rfc3339(entry[name].as_str().unwrap()).unwrap();
    assert!(at("finished_at") >= at("started_at"));

    let graph = Unordered(fleet.graph.clone(), Arc::default());
    let parts = Parts {
        graph: Arc::new(graph.clone()),
        ..fleet.parts.clone()
    };
    let other = Gateway::serve(parts, options(), CancellationToken::new()).await;
    let other = other.unwrap();
    let unordered = Client {
        address: other.address(),
    };
    tokio::spawn(other.run());
    unordered.json("/sessions?limit=2").await;
    let mut asked = graph.1.lock().unwrap().clone();
    // The first page took no look at every session: only at the newest instant, and at what came soon before.
    assert!(asked.remove(0).contains("MAX(?start)"));
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|sparql| sparql.contains("?start >= ")));

    for client in [&client, &unordered] {
        let mut paged = Vec::new();
        let mut next = Some("/sessions?limit=2".to_owned());
        while let Some(path) = next {
            let page = client.json(&path).await;
            assert!(page["sessions"].as_array().unwrap().len() <= 2);
            paged.extend(ids(&page));
            next = page["next"].as_str().map(str::to_owned);
        }
        assert_eq!(paged, newest_first);
    }

    assert_eq!(
        ids(&client.json("/sessions?collection=odd").await),
        ["s-3", "s-1"]
    );
    let talk = "/sessions?conversation=it%27s+%22one%22+talk&limit=1";
    assert_eq!(ids(&client.json(talk).await), ["s-4"]);
    let injection = "/sessions?collection=x%22%20%7D%20UNION%20%7B";
    assert_eq!(ids(&client.json(injection).await), Vec::<String>::new());
    for query in ["limit=0", "limit=201", "limit=x", "before=x", "colour=red"] {
        let reply = client.get(&format!("/sessions?{query}")).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "invalid-parameter"),
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_trace_holds_the_whole_tree_in_every_format() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    let ask = json!({ "question": "compare tea and coffee", "session_id": "t-1" });
    client.start(&ask).await;
    client.ended("t-1").await;
    client
        .start(&json!({ "question": "unrelated?", "session_id": "other" }))
        .await;
    client.ended("other").await;

    let trace = client.json("/sessions/t-1/trace").await;
    let nodes = trace["nodes"].as_array().unwrap();
    let of_type = |kind: &str| {
        nodes
            .iter()
            .filter(|n| n["types"].as_array().unwrap().contains(&kind.into()))
            .count()
    };
    for (kind, count) in [
        ("tg:AgentQuestion", 3),
        ("tg:RoutingDecision", 3),
        ("tg:FanOut", 1),
        ("tg:SubagentCompletion", 2),
        ("tg:Synthesis", 1),
        ("tg:Answer", 3),
        ("tg:Reflection", 2),
        ("prov:SoftwareAgent", 4),
    ] {
        assert_eq!(of_type(kind), count, "{kind}");
    }
    assert!(
        nodes
            .iter()
            .all(|node| !node["id"].as_str().unwrap().contains("agent:other"))
    );
    let linked: BTreeSet<&str> = nodes
        .iter()
        .flat_map(|node| {
            node["properties"]["prov:wasDerivedFrom"]
                .as_array()
                .into_iter()
                .flatten()
        })
        .map(|value| value["id"].as_str().unwrap())
        .collect();
    for id in linked {
        assert!(
            nodes.iter().any(|node| node["id"] == id),
            "`{id}` is derived from, and missing"
        );
    }

    let turtle = client.get("/sessions/t-1/trace?format=turtle").await;
    assert!(turtle.header("content-type").starts_with("text/turtle"));
    assert!(
        turtle.text().contains("a prov:Activity"),
        "{}",
        turtle.text()
    );
    let quads = client.get("/sessions/t-1/trace?format=nquads").await;
    assert!(
        quads
            .text()
            .lines()
            .all(|line| line.ends_with("<urn:graph:retrieval> ."))
    );
    let negotiated = client
        .send(
            "GET",
            "/sessions/t-1/trace",
            &[("accept", "application/n-quads")],
            b"",
        )
        .await;
    assert_eq!(negotiated.body, quads.body);
    let drawn = client.get("/sessions/t-1/trace?format=mermaid").await;
    assert!(
        drawn.text().starts_with("flowchart TD\n"),
        "{}",
        drawn.text()
    );
    assert_eq!(drawn.header("content-type"), "text/vnd.mermaid");

    let subagent = client.json("/sessions/t-1").await["subagents"][0]["location"].clone();
    let part = client
        .json(&format!("{}/trace", subagent.as_str().unwrap()))
        .await;
    assert!(part["nodes"].as_array().unwrap().len() < nodes.len() / 2);

    let by_type = client
        .send(
            "GET",
            "/sessions/t-1/trace",
            &[("accept", "text/vnd.mermaid, application/json;q=0.5")],
            b"",
        )
        .await;
    assert_eq!(by_type.body, drawn.body);
    assert_eq!(by_type.header("content-type"), "text/vnd.mermaid");
    for accept in ["*/*", "application/json, text/vnd.mermaid;q=0.5"] {
        let reply = client
            .send("GET", "/sessions/t-1/trace", &[("accept", accept)], b"")
            .await;
        assert_eq!(reply.header("content-type"), "application/json", "{accept}");
    }
    let wrong = client.get("/sessions/t-1/trace?format=pdf").await;
    assert_eq!(
        (wrong.status, wrong.code().as_str()),
        (400, "invalid-parameter")
    );
    assert!(wrong.text().contains("`turtle`") && wrong.text().contains("`mermaid`"));
    let unknown = client.get("/sessions/nobody/trace").await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "unknown-session")
    );
}

#[tokio::test]
async fn a_document_is_found_by_its_uri_and_need_not_be_sent_twice() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    let session = client.start(&json!({ "question": "café?" })).await;
    let view = client.ended(&session).await;
    let link = view["links"]["answer"].as_str().unwrap();
    assert!(
        link.starts_with("/documents?uri=urn%3Atrustgraph%3Aagent%3A"),
        "{link}"
    );
    let document = client.get(link).await;
    assert_eq!(document.text(), "You asked: café?\nThat is all.");
    assert_eq!(document.header("content-type"), "text/plain; charset=utf-8");
    let tag = document.header("etag").to_owned();
    let again = client
        .send("GET", link, &[("if-none-match", &tag)], b"")
        .await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    let unknown = client.get("/documents?uri=urn:x").await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "unknown-document")
    );
    // A key of another kind of record is no document.
    let record = client
        .get(&format!(
            "/documents?uri=../sessions/{session}/steps/0/outcome"
        ))
        .await;
    assert_eq!(record.code(), "unknown-document");
    assert_eq!(client.get("/documents").await.code(), "invalid-parameter");
}

#[tokio::test]
async fn a_conversation_is_read_page_by_page_newest_first() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    for n in 0..3 {
        let ask = json!({ "question": format!("q{n}"), "conversation_id": "a talk/of two" });
        let session = client.start(&ask).await;
        client.ended(&session).await;
    }
    let mut path = "/conversations/a%20talk%2Fof%20two?limit=2".to_owned();
    let mut asked = Vec::new();
    loop {
        let page = client.json(&path).await;
        assert_eq!(page["conversation_id"], "a talk/of two");
        for exchange in page["exchanges"].as_array().unwrap() {
            asked.push(exchange["question"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        next.clone_into(&mut path);
    }
    assert_eq!(asked, ["q2", "q1", "q0"]);
    for (path, status, code) in [
        ("/conversations/unheard", 404, "unknown-conversation"),
        ("/conversations/a?limit=0", 400, "invalid-parameter"),
        ("/conversations/a?page=2", 400, "invalid-parameter"),
        ("/conversations/a?before=garbage", 400, "invalid-parameter"),
        ("/conversations/a?before=2026-x", 400, "invalid-parameter"),
        (
            "/conversations/a?before=998204422002219-../../b",
            400,
            "invalid-parameter",
        ),
    ] {
        let answer = client.get(path).await;
        assert_eq!(
            (answer.status, answer.code()),
            (status, code.to_owned()),
            "{path}"
        );
    }
}
