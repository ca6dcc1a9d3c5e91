//! Our providers against a server that somebody else wrote: `fakellm`, from the Python package
//! index, which its authors test with OpenAI's and Anthropic's own clients.
//!
//! The package is installed once into `$AGENTFLEET_CACHE` (else the target directory). If it cannot
//! be installed or started the test fails: a check that is skipped in silence checks nothing.

use agentfleet_models::{
    ApiKey, ChatModel, Kind, Message, ModelRequest, Provider, ProviderKind, ProviderOptions,
    TextSink, ToolSpec,
};
use agentfleet_schema::Operation;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

const PACKAGE: &str = "fakellm==0.3.5";

const RULES: &str = r#"
version: 1
defaults:
  fallback: deterministic_echo
rules:
  - name: after_the_tool
    when: {tool_result_contains: "twelve metres"}
    respond: {content: "It is twelve metres deep, says the tool."}
  - name: call_the_tool
    when: {tools_include: search}
    respond:
      tool_calls:
        - {name: search, arguments: {query: "harbour depth", limit: 3}}
  - name: talk
    when: {messages_contain: "how deep"}
    respond: {content: "The harbour is rather deep at the northern quay."}
  - name: crowded
    when: {messages_contain: "crowded"}
    respond: {status: 429, error: "Rate limit exceeded"}
"#;

/// The server's process; ended by its id with the test.
struct Running {
    child: Child,
    url: String,
    _rules: tempfile::NamedTempFile,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Running {
    fn start() -> Self {
        let rules = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        fs::write(rules.path(), RULES).unwrap();
        let mut child = Command::new(python())
            .args(["-m", "fakellm.cli", "serve", "--port", "0", "--config"])
            .arg(rules.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The server tells its port on standard error once it listens.
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut told = String::new();
        let url = loop {
            let from = told.len();
            let read = log.read_line(&mut told).unwrap();
            assert_ne!(read, 0, "the server ended before it listened:\n{told}");
            if let Some((_, rest)) = told[from..].split_once("running on ") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        // Its access log goes on; a full pipe would stop it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self {
            child,
            url,
            _rules: rules,
        }
    }
}

/// The Python that has the package, installed once.
fn python() -> PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(install).clone()
}

fn install() -> PathBuf {
    let cache = std::env::var_os("AGENTFLEET_CACHE").filter(|dir| !dir.is_empty());
    let cache = cache.map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    fs::create_dir_all(&cache).unwrap();
    let place = cache.join(PACKAGE.replace("==", "-"));
    let python = place.join("bin/python");
    if python.exists() {
        return python;
    }
    // Made aside and moved into place whole, so that an install that broke off is never used.
    let aside = tempfile::tempdir_in(&cache).unwrap();
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(aside.path()));
    run(Command::new(aside.path().join("bin/python")).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        PACKAGE,
    ]));
    // Whoever moves first wins; the other copy is removed.
    fs::rename(aside.path(), &place).ok();
    assert!(python.exists(), "the install left no {}", python.display());
    python
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}; python3 is needed"));
    assert!(
        output.status.success(),
        "{command:?} failed; python3-venv and a package index are needed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn provider(kind: ProviderKind, server: &Running) -> Provider {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let mut options = ProviderOptions::new(kind, "any-model");
    options.base_url = Some(server.url.clone());
    options.key = Some(ApiKey::new("any-key", "TEST_API_KEY"));
    Provider::new(
        options,
        reqwest::Client::builder().no_proxy().build().unwrap(),
    )
    .unwrap()
}

fn request(question: &str) -> ModelRequest {
    ModelRequest {
        operation: Operation::React,
        messages: vec![
            Message::System("Be brief.".into()),
            Message::User(question.into()),
        ],
        tools: Vec::new(),
        schema: None,
        inputs: Value::Null,
        model: String::new(),
        fallbacks: Vec::new(),
        temperature: None,
        max_tokens: Some(200),
        timeout: Duration::from_secs(30),
    }
}

#[derive(Default)]
struct Pieces(Mutex<Vec<String>>);

impl TextSink for Pieces {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push(piece.to_owned());
    }
}

const KINDS: [ProviderKind; 2] = [ProviderKind::OpenAi, ProviderKind::Anthropic];

#[tokio::test]
async fn a_reply_is_streamed_in_pieces() {
    let server = Running::start();
    for kind in KINDS {
        let pieces = Pieces::default();
        let reply = provider(kind, &server)
            .chat(request("How deep is it?"), &pieces)
            .await
            .unwrap();
        assert_eq!(
            reply.text, "The harbour is rather deep at the northern quay.",
            "{kind:?}"
        );
        assert_eq!(reply.model, "any-model");
        let pieces = pieces.0.into_inner().unwrap();
        assert!(pieces.len() > 5, "{kind:?}: {pieces:?}");
        assert_eq!(pieces.concat(), reply.text);
    }
}

#[tokio::test]
async fn a_tool_is_called_and_its_result_understood() {
    let server = Running::start();
    for kind in KINDS {
        let provider = provider(kind, &server);
        // The server tells conversations apart by how they begin.
        let mut request = request(&format!("What is the depth at quay {kind:?}?"));
        request.tools = vec![ToolSpec {
            name: "search".into(),
            description: "Searches".into(),
            parameters: json!({"type": "object", "properties": {"query": {"type": "string"}}}),
        }];
        let reply = provider
            .chat(request.clone(), &Pieces::default())
            .await
            .unwrap();
        assert_eq!(reply.tool_calls.len(), 1, "{kind:?}: {reply:?}");
        let call = reply.tool_calls[0].clone();
        assert_eq!(call.name, "search");
        assert_eq!(
            call.arguments,
            json!({"query": "harbour depth", "limit": 3})
        );

        request.messages.push(Message::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments,
            thought: reply.text,
        });
        request.messages.push(Message::ToolResult {
            id: call.id,
            name: call.name,
            content: "The tool found: twelve metres".into(),
        });
        let reply = provider.chat(request, &Pieces::default()).await.unwrap();
        assert_eq!(
            reply.text, "It is twelve metres deep, says the tool.",
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_refusal_by_rate_says_to_try_again() {
    let server = Running::start();
    for kind in KINDS {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let mut options = ProviderOptions::new(kind, "any-model");
        options.base_url = Some(server.url.clone());
        options.key = Some(ApiKey::new("any-key", "TEST_API_KEY"));
        // The package answers a streamed request with status 200 whatever the rule says.
        options.streaming = false;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let provider = Provider::new(options, http).unwrap();
        let error = provider
            .chat(request("Is it crowded?"), &Pieces::default())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::RateLimited, "{kind:?}: {error}");
    }
}
