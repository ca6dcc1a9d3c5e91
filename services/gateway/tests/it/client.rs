//! A client as small as can be: HTTP/1.0, so that a body ends with its connection.

use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(String::as_str)
            .unwrap_or_default()
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// Talks to one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub address: SocketAddr,
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"").await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// `POST /requests`, answered at once.
    pub(crate) async fn ask(&self, body: &Value, headers: &[(&str, &str)]) -> Reply {
        let mut all = vec![("content-type", "application/json")];
        all.extend(headers);
        self.send("POST", "/requests", &all, body.to_string().as_bytes())
            .await
    }

    /// The session of a request that is taken in.
    pub(crate) async fn start(&self, body: &Value) -> String {
        let reply = self.ask(body, &[]).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        reply.json()["session_id"].as_str().unwrap().to_owned()
    }

    /// What became of a session, once it has ended.
    pub(crate) async fn ended(&self, session: &str) -> Value {
        let view = self.json(&format!("/sessions/{session}?wait=60")).await;
        assert_eq!(view["finished"], true, "{view}");
        view
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut connection = self.open(method, path, headers, body).await;
        let (status, headers) = connection.head().await;
        let mut body = Vec::new();
        connection.reader.read_to_end(&mut body).await.unwrap();
        Reply {
            status,
            headers,
            body,
        }
    }

    /// Sends a request and leaves the answer to be read.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Connection {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut head = format!("{method} {path} HTTP/1.0\r\n");
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let sized = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if !sized && (!body.is_empty() || method == "POST") {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that has heard enough may hang up before it has read all.
        let _ = stream.write_all(body).await;
        Connection {
            reader: BufReader::new(stream),
        }
    }

    /// Opens an event stream.
    pub(crate) async fn events(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        Events::of(self.open("GET", path, headers, b"").await).await
    }

    /// Asks, and listens.
    pub(crate) async fn listen(&self, body: &Value) -> Events {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
        ];
        Events::of(
            self.open("POST", "/requests", &headers, body.to_string().as_bytes())
                .await,
        )
        .await
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub reader: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) async fn head(&mut self) -> (u16, HashMap<String, String>) {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        let status = line
            .split(' ')
            .nth(1)
            .unwrap_or_else(|| panic!("no status: {line:?}"));
        let status = status.parse().unwrap();
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).await.unwrap();
            let Some((name, value)) = line.trim().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        (status, headers)
    }
}

/// One server-sent event; only comments have `comment`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub id: String,
    pub name: String,
    pub comment: String,
    pub data: Value,
}

/// An event stream.
#[derive(Debug)]
pub(crate) struct Events {
    pub headers: HashMap<String, String>,
    connection: Connection,
}

impl Events {
    async fn of(mut connection: Connection) -> Self {
        let (status, headers) = connection.head().await;
        if status != 200 {
            let mut body = String::new();
            connection.reader.read_to_string(&mut body).await.unwrap();
            panic!("{status}: {body}");
        }
        assert_eq!(headers["content-type"], "text/event-stream");
        Self {
            headers,
            connection,
        }
    }

    /// The next event or comment; `None` when the stream has ended.
    pub(crate) async fn any(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            if self.connection.reader.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            if line.is_empty() {
                return Some(event);
            }
            let (field, value) = line.split_once(':').unwrap();
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" => event.comment.push_str(value),
                "id" => value.clone_into(&mut event.id),
                "event" => value.clone_into(&mut event.name),
                "data" => event.data = serde_json::from_str(value).unwrap(),
                "retry" => assert_eq!(value, "2000"),
                _ => panic!("unknown field in {line:?}"),
            }
        }
    }

    /// The next event that is no comment.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.any().await?;
            if event.comment.is_empty() {
                return Some(event);
            }
        }
    }

    /// The next event of a type.
    pub(crate) async fn named(&mut self, name: &str) -> Event {
        loop {
            let event = self
                .next()
                .await
                .unwrap_or_else(|| panic!("no `{name}` came"));
            if event.name == name {
                return event;
            }
        }
    }

    /// All that is left.
    pub(crate) async fn rest(&mut self) -> Vec<Event> {
        let mut rest = Vec::new();
        while let Some(event) = self.next().await {
            rest.push(event);
        }
        rest
    }

    pub(crate) fn session(&self) -> String {
        self.headers["location"]
            .strip_prefix("/sessions/")
            .unwrap()
            .to_owned()
    }
}
