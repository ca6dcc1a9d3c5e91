//! An example that runs, and calls of it in one line.

use agentfleet_examples::{Example, Service};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Running {
    folder: TempDir,
    base: String,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(example: &'static Example) -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let folder = tempfile::tempdir().unwrap();
        let service = Service::open(example, &folder.path().join("data.sqlite")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            service
                .serve(listener, async { drop(stopped.await) })
                .await
                .unwrap();
        });
        Self {
            folder,
            base,
            client: Client::builder().no_proxy().build().unwrap(),
            stop: Some(stop),
            served,
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("data.sqlite")
    }

    /// Ends it as a signal does.
    pub(crate) async fn stopped(mut self) -> TempDir {
        self.stop.take().unwrap().send(()).unwrap();
        self.served.await.unwrap();
        self.folder
    }

    /// A call with some headers: its status and its body.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap())
    }

    /// What a call gives that goes well.
    pub(crate) async fn well(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, &body, &[]).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.well("GET", path, Value::Null).await
    }

    /// That a call is refused, how, and in which words.
    pub(crate) async fn refuses(&self, call: (&str, &str), body: Value, status: u16, says: &str) {
        let (found, answer) = self.call(call.0, call.1, &body, &[]).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(
            found == status && error.contains(says),
            "{call:?}: {found} {answer}"
        );
    }
}

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect()
}

/// Each tool of an example is an endpoint of its service, with the same arguments. How many there are.
pub(crate) async fn tools_are_endpoints(example: &'static Example) -> usize {
    let running = Running::start(example).await;
    let about = running.get("/").await;
    let endpoints = about["endpoints"].as_array().unwrap();
    let items = example.items(9_999);
    let tools = items.iter().filter(|(item_type, ..)| *item_type == "tool");
    let mut count = 0;
    for (_, file, text) in tools {
        let tool: Value = serde_json::from_str(text).unwrap();
        let name = tool["name"].as_str().unwrap();
        assert_eq!(*file, format!("{name}.json"));
        let url = tool["url"].as_str().unwrap();
        let path = url.strip_prefix("http://127.0.0.1:9999").unwrap();
        let endpoint = endpoints
            .iter()
            .find(|one| one["method"] == tool["method"] && one["path"] == path);
        let endpoint = endpoint.unwrap_or_else(|| panic!("`{name}` has no endpoint `{path}`"));
        let properties = tool["parameters"]["properties"].as_object().unwrap();
        let sent = properties.keys().map(String::as_str);
        let sent: BTreeSet<&str> = sent
            .filter(|one| !path.contains(&format!("{{{one}}}")))
            .collect();
        assert_eq!(sent, names(&endpoint["takes"]), "`{name}`");
        assert_eq!(
            tool["headers"],
            json!({"x-tenant": "${run.tenant}"}),
            "`{name}`"
        );
        count += 1;
    }
    count
}
