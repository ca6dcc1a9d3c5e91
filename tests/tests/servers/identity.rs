//! Who comes in at the door of a fleet on servers: with a token of an OpenID Connect issuer that knows
//! nothing of this project, and with an API key that another machine made.

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
        let script = place.path("script.json");
        let rules = json!({"rules": [{"text": "Thought: t\nFinal Answer: Seven."}]});
        std::fs::write(&script, rules.to_string()).unwrap();
        let mut command = place.command(&["up", "--json"]);
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
