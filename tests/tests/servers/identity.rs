//! Who comes in at the door of a fleet on servers: with a token of an OpenID Connect issuer that knows
//! nothing of this project, and with an API key that another machine made.

use agentfleet_broker::{
    Broker as _, Durability, Outgoing, Properties, PulsarBroker, PulsarOptions,
};
use agentfleet_schema::topics::{self, property};
use agentfleet_tests::load::{Process, said};
use agentfleet_tests::place::Place;
use reqwest::{Client, StatusCode, redirect};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLIENT: &str = "agentfleet";
/// Longest that a door may go without looking at what changed elsewhere: keys of an issuer 10 s, its own 5 s.
const LOOKS: Duration = Duration::from_secs(30);

/// An issuer on loopback. Each start has a new key.
struct Issuer {
    child: Child,
    url: String,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Issuer {
    fn start(port: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("issuer");
        let python = Command::new(folder.join("venv.sh")).output().unwrap();
        let python = String::from_utf8(python.stdout).unwrap();
        let mut command = Command::new(python.trim());
        command.args(["-u", "-m", "oidc_provider_mock", "--port", port]);
        for (name, tenant, role) in [
            ("ada", "acme", "producer"),
            ("eve", "acme", "analyst"),
            ("ben", "umbrella", "analyst"),
        ] {
            let claims = json!({"sub": name, "tenant": tenant, "roles": [role]});
            command.args(["--user-claims", &claims.to_string()]);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = told.by_ref().find_map(|line| {
            let line = line.unwrap();
            let (_, url) = line.split_once("running on ")?;
            url.split_whitespace().next().map(str::to_owned)
        });
        // A full pipe would stop it.
        std::thread::spawn(move || told.for_each(drop));
        Self {
            child,
            url: url.expect("an address"),
        }
    }

    fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }

    /// The token of a user who signs in, as a browser and a client do.
    async fn token(&self, user: &str) -> String {
        let client = Client::builder().redirect(redirect::Policy::none());
        let client = client.build().unwrap();
        let back = "http://127.0.0.1:1/back";
        let asked = [
            ("client_id", CLIENT),
            ("redirect_uri", back),
            ("response_type", "code"),
            ("scope", "openid profile"),
            ("state", "s"),
        ];
        let signed_in = client
            .post(format!("{}/oauth2/authorize", self.url))
            .query(&asked)
            .form(&[("sub", user)])
            .send();
        let signed_in = signed_in.await.unwrap();
        let location = signed_in.headers()["location"].to_str().unwrap();
        let code = location
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix("code="));
        let given = client
            .post(format!("{}/oauth2/token", self.url))
            .basic_auth(CLIENT, Some("secret"))
            .form(&[
                ("grant_type", "authorization_code"),
                ("code", code.expect("a code")),
                ("redirect_uri", back),
            ])
            .send();
        let given: Value = given.await.unwrap().json().await.unwrap();
        given["id_token"].as_str().expect("a token").to_owned()
    }
}

/// The door of a fleet on servers.
struct Door {
    _up: Process,
    url: String,
}

impl Door {
    fn open(place: &Place, issuer: &Issuer) -> Self {
        let rules = json!({"rules": [{"text": "Thought: t\nFinal Answer: Seven."}]});
        Self::with(place, issuer, &rules, &[])
    }

    fn with(place: &Place, issuer: &Issuer, rules: &Value, more: &[(&str, &str)]) -> Self {
        let script = place.path("script.json");
        std::fs::write(&script, rules.to_string()).unwrap();
        let mut command = place.command(&["up", "--json"]);
        command.envs(more.iter().copied());
        command
            .env("AGENTFLEET_MODEL", format!("scripted:{}", script.display()))
            .env("AGENTFLEET_OIDC_ISSUER", &issuer.url)
            .env("AGENTFLEET_OIDC_AUDIENCE", CLIENT);
        let up = Process::start("up", &mut command, "url");
        Self {
            url: up.url(),
            _up: up,
        }
    }

    async fn get(&self, path: &str, bearer: &str) -> StatusCode {
        let asked = Client::new().get(format!("{}{path}", self.url));
        let answer = asked.bearer_auth(bearer).send().await.unwrap();
        answer.status()
    }

    async fn view(&self, path: &str, bearer: &str) -> Value {
        let asked = Client::new().get(format!("{}{path}", self.url));
        let answer = asked.bearer_auth(bearer).send().await.unwrap();
        answer.json().await.unwrap()
    }

    /// What an analyst's query finds, one text a row.
    async fn query(&self, sparql: &str, bearer: &str) -> (StatusCode, Vec<String>) {
        let asked = Client::new().get(format!("{}/sparql", self.url));
        let asked = asked.query(&[("query", sparql), ("format", "json")]);
        let answer = asked.bearer_auth(bearer).send().await.unwrap();
        let status = answer.status();
        let found: Value = answer.json().await.unwrap_or_default();
        let rows = found["results"]["bindings"].as_array();
        let texts = rows.into_iter().flatten().map(|row| {
            let text = row["text"]["value"].as_str().unwrap_or_default();
            text.to_owned()
        });
        (status, texts.collect())
    }

    async fn ask(&self, question: &str, bearer: &str) -> (StatusCode, Value) {
        let asked = Client::new().post(format!("{}/requests", self.url));
        let asked = asked.bearer_auth(bearer).json(&json!({
            "question": question, "pattern": "react",
        }));
        let answer = asked.send().await.unwrap();
        let status = answer.status();
        (status, answer.json().await.unwrap_or_default())
    }

    /// Asks until the door has looked at what changed elsewhere.
    async fn comes_to(&self, expected: StatusCode, path: &str, bearer: &str) {
        let began = Instant::now();
        loop {
            let asked_at = began.elapsed();
            let status = self.get(path, bearer).await;
            if status == expected {
                return;
            }
            assert!(asked_at < LOOKS, "{status} instead of {expected}");
        }
    }
}

/// On a machine of its own, which shares the servers.
fn elsewhere(place: &Place, arguments: &[&str]) -> Value {
    let mut command = place.command(arguments);
    said(command.env("AGENTFLEET_DATA", place.path("elsewhere")))
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_an_issuer_and_keys_of_another_machine_come_in_as_who_they_are() {
    let place = Place::new();
    let mut issuer = Issuer::start("0");
    let door = Door::open(&place, &issuer);

    let ada = issuer.token("ada").await;
    let (status, told) = door.ask("What is seven?", &ada).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{told}");
    let session = format!("/sessions/{}", told["session_id"].as_str().unwrap());
    assert_eq!(
        door.get(&session, &issuer.token("eve").await).await,
        StatusCode::OK
    );
    // Of another tenant, and of another role.
    let ben = issuer.token("ben").await;
    assert_eq!(door.get(&session, &ben).await, StatusCode::NOT_FOUND);
    assert_eq!(door.ask("And eight?", &ben).await.0, StatusCode::FORBIDDEN);
    // What is signed by nobody, and what was changed after it was signed.
    let mut parts: Vec<&str> = ada.split('.').collect();
    let other = ben.split('.').nth(1).unwrap().to_owned();
    parts[1] = &other;
    let forged = [parts.join("."), format!("{}.{}.", parts[0], parts[1])];
    for token in &forged {
        assert_eq!(door.get(&session, token).await, StatusCode::UNAUTHORIZED);
    }

    // The issuer begins anew with another key: what that one signs counts, and the old key no more.
    let port = issuer.port().to_owned();
    drop(issuer);
    assert_eq!(door.get("/sessions", &ben).await, StatusCode::OK);
    issuer = Issuer::start(&port);
    let again = issuer.token("eve").await;
    door.comes_to(StatusCode::OK, &session, &again).await;
    door.comes_to(StatusCode::UNAUTHORIZED, "/sessions", &ben)
        .await;

    // A key that another machine makes and takes back.
    let key = elsewhere(
        &place,
        &[
            "keys", "create", "desk", "--tenant", "acme", "--role", "analyst", "--json",
        ],
    );
    let secret = key["key"]
        .as_str()
        .unwrap_or_else(|| panic!("{key}"))
        .to_owned();
    door.comes_to(StatusCode::OK, &session, &secret).await;
    elsewhere(&place, &["keys", "revoke", key["id"].as_str().unwrap()]);
    door.comes_to(StatusCode::UNAUTHORIZED, &session, &secret)
        .await;

    let noted = elsewhere(&place, &["audit", "list", "--json"]).to_string();
    for told in ["ben", "keys", "umbrella"] {
        assert!(noted.contains(told), "{told}: {noted}");
    }
    assert!(!noted.contains(&ada) && !noted.contains(&secret));
    elsewhere(&place, &["audit", "verify", "--json"]);
}

/// A producer that writes to the topic of requests.
struct Producer(PulsarBroker);

impl Producer {
    async fn new(place: &Place) -> Self {
        let options = PulsarOptions::new(place.pulsar.address());
        Self(PulsarBroker::connect(options).await.unwrap())
    }

    async fn send(&self, id: &str, request: &Value, properties: &[(&str, &str)]) {
        let mut all: Properties = properties
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        all.insert(property::ID.to_owned(), id.to_owned());
        let message = Outgoing {
            topic: topics::AGENT_REQUEST,
            payload: request.to_string().into_bytes(),
            properties: all,
            deliver_at: None,
            durability: Durability::Durable,
        };
        self.0.publish(vec![message]).await.unwrap();
    }
}

/// Waits for something that the fleet comes to by itself.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LOOKS, "the fleet did not come to it");
        std::thread::sleep(Duration::from_millis(200));
    }
}

const SECRET: &str = "a secret of the fleet, with enough characters";

/// What a command of the fleet says.
fn signed(place: &Place, arguments: &[&str]) -> Value {
    said(
        place
            .command(arguments)
            .env("AGENTFLEET_FLEET_SECRET", SECRET),
    )
}

/// What became of a session, once it ended.
fn ended(place: &Place, session: &str) -> Value {
    until(|| {
        let listed = signed(place, &["sessions", "list", "--json"]);
        let rows = listed.as_array()?;
        let row = rows.iter().find(|row| row["session"] == session)?;
        let is_open = ["queued", "running", "waiting", "working"]
            .iter()
            .any(|state| row["state"] == *state);
        (!is_open).then(|| row.clone())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_queue_is_for_whom_its_claim_says_and_for_nobody_without_one() {
    let place = Place::new();
    let issuer = Issuer::start("0");
    let settings = [
        ("AGENTFLEET_REQUIRE_CLAIMS", "yes"),
        ("AGENTFLEET_FLEET_SECRET", SECRET),
    ];
    let rules = json!({"rules": [
        {"operation": "supervisor-decompose", "text": r#"{"thought": "t", "goals": ["Left.", "Right."]}"#},
        {"operation": "supervisor-review", "text": r#"{"choice": "answer"}"#},
        {"operation": "supervisor-synthesise", "text": "Both."},
        {"text": "Thought: t\nFinal Answer: Seven."},
    ]});
    let door = Door::with(&place, &issuer, &rules, &settings);
    let producer = Producer::new(&place).await;
    let (ada, eve) = (issuer.token("ada").await, issuer.token("eve").await);

    // Whatever the message says itself of who asks, and of how far it has come.
    let forged = json!({
        "question": "Left and right?", "pattern": "supervisor", "session_id": "claimed", "user": "root",
        "step": 7, "parent_session_id": "other",
        "control": {"root": "other", "principal": {"name": "root", "tenant": "umbrella", "permissions": ["*"]}},
    });
    producer
        .send("m-1", &forged, &[(property::CLAIM, &ada)])
        .await;
    let row = ended(&place, "claimed");
    assert_eq!(row["state"], "answered", "{row}");
    let view = door.view("/sessions/claimed", &eve).await;
    let whose = (&view["user"], &view["collection"]);
    assert_eq!(whose, (&json!("ada"), &json!("acme")), "{view}");
    assert_eq!(view["subagents"].as_array().unwrap().len(), 2, "{view}");
    assert_eq!(door.get("/sessions/claimed", &eve).await, StatusCode::OK);
    let ben = issuer.token("ben").await;
    assert_eq!(
        door.get("/sessions/claimed", &ben).await,
        StatusCode::NOT_FOUND
    );

    // Nobody; a role that may not ask; a token that was changed; one who takes another's session; and who writes a
    // step of a run as a worker does.
    let question =
        |session: &str| json!({"question": "Why?", "pattern": "react", "session_id": session});
    let mut changed = ada.clone();
    changed.insert(ada.len() / 2, 'x');
    let next = json!({
        "question": "Why?", "pattern": "react", "session_id": "claimed", "step": 1,
        "control": {"root": "claimed", "principal": {"name": "ada", "tenant": "acme"}},
    });
    let lies = [
        (property::SESSION, "claimed"),
        (property::STEP, "1"),
        (property::SIGNATURE, "00ff"),
    ];
    producer.send("r-nobody", &question("s-1"), &[]).await;
    producer
        .send("r-analyst", &question("s-2"), &[(property::CLAIM, &eve)])
        .await;
    producer
        .send(
            "r-changed",
            &question("s-3"),
            &[(property::CLAIM, &changed)],
        )
        .await;
    producer.send("r-step", &next, &lies).await;
    let cancel = [
        (property::KIND, property::KIND_CANCEL),
        (property::CLAIM, &*ada),
    ];
    producer
        .send("r-cancel", &question("claimed"), &cancel)
        .await;
    for (id, why) in [
        ("r-nobody", "carries no `claim`"),
        ("r-analyst", "no role of `eve` allows `ask`"),
        ("r-changed", "the claim does not count"),
        ("r-step", "does not fit the secret of this fleet"),
        ("r-cancel", "a claim lets ask, not cancel"),
    ] {
        let parked = until(|| {
            let parked = signed(&place, &["dlq", "list", "--json"]);
            let all = parked.as_array()?.clone();
            all.into_iter()
                .find(|one| one["properties"][property::ID] == id)
        });
        let reason = parked["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("not-authorized: ") && reason.contains(why),
            "{parked}"
        );
        let mut again = place.command(&["dlq", "redrive", parked["id"].as_str().unwrap()]);
        let again = again.env("AGENTFLEET_FLEET_SECRET", SECRET);
        let refused = agentfleet_tests::load::refused(again);
        assert!(refused.contains("nothing shows who sent it"), "{refused}");
    }
    // Who the issuer named is in the log; and a process that would not fit the others does not start.
    until(|| {
        let log = signed(&place, &["audit", "list", "--json"]).to_string();
        (log.contains("publish to agent-request") && log.contains("eve")).then_some(())
    });
    for (other, says) in [
        ("", "this one has no `fleet_secret`"),
        (
            "another secret of some fleet, with enough characters",
            "this one has another `fleet_secret`",
        ),
    ] {
        let mut command = place.command(&["sessions", "list"]);
        if !other.is_empty() {
            command.env("AGENTFLEET_FLEET_SECRET", other);
        }
        let refused = agentfleet_tests::load::refused(&mut command);
        assert!(refused.contains(says), "{refused}");
    }
    let mut worker = place.command(&["orchestrator", "--model", "offline"]);
    let refused = agentfleet_tests::load::refused(worker.env("AGENTFLEET_FLEET_SECRET", SECRET));
    assert!(
        refused.contains("workers of this fleet require claims"),
        "{refused}"
    );
    let listed = signed(&place, &["sessions", "list", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");

    // Its run replays and verifies, and its tenant finds it in the graph, and nobody else does.
    let verified = signed(&place, &["verify", "claimed", "--json"]);
    assert_eq!(verified["findings"], json!([]), "{verified}");
    signed(&place, &["replay", "claimed", "--json"]);
    let asked = "SELECT DISTINCT ?text { ?q a tg:Question ; tg:query ?text }";
    let (status, found) = door.query(asked, &eve).await;
    assert_eq!(status, StatusCode::OK);
    assert!(found.contains(&"Left and right?".to_owned()), "{found:?}");
    assert_eq!(door.query(asked, &ben).await, (StatusCode::OK, Vec::new()));
    let other = "SELECT ?text FROM <urn:agentfleet:tenant:acme> { ?q tg:query ?text }";
    assert_eq!(door.query(other, &ben).await.0, StatusCode::BAD_REQUEST);
    let used = signed(&place, &["usage", "--tenant", "acme", "--json"]);
    assert_eq!(used[0]["used"]["runs"], 1, "{used}");
}
