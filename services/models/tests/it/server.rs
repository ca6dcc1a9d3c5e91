//! A small HTTP server that answers as told, one answer per request, and keeps what it was asked.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(String::as_str)
            .unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(String),
    /// Says this again and again until the client goes away.
    Endless(String),
    /// Waits for the client to go away.
    UntilClosed,
    /// Resets the connection.
    Reset,
}

/// What to answer to one request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    parts: Vec<Part>,
    silent: bool,
}

impl Answer {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            parts: vec![Part::Text(body.into())],
            silent: false,
        }
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    pub(crate) fn sse(body: impl Into<String>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    pub(crate) fn error(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn then(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Never answers at all.
    pub(crate) fn silence() -> Self {
        let mut answer = Self::new(200, "text/plain", "");
        answer.silent = true;
        answer
    }
}

/// The server. Ends with the test.
pub(crate) struct Server {
    address: std::net::SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    closed: watch::Receiver<usize>,
}

impl Server {
    pub(crate) async fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (closed_tx, closed) = watch::channel(0);
        let answers: Vec<Answer> = answers.into_iter().collect();
        let log = Arc::clone(&received);
        tokio::spawn(async move {
            for answer in answers {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (log, closed) = (Arc::clone(&log), closed_tx.clone());
                tokio::spawn(async move { serve(stream, answer, &log, &closed).await });
            }
            // Later requests find nobody.
            drop(listener);
        });
        Self {
            address,
            received,
            closed,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn only(&self) -> Received {
        let all = self.received();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    /// Waits until a client has gone away in the middle of an answer.
    pub(crate) async fn client_left(&mut self) {
        self.closed.wait_for(|count| *count > 0).await.unwrap();
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: Answer,
    log: &Mutex<Vec<Received>>,
    closed: &watch::Sender<usize>,
) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    log.lock().unwrap().push(request);
    if answer.silent {
        until_closed(&mut stream, closed).await;
        return;
    }
    let mut head = format!("HTTP/1.1 {} Told\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &[name, ": ", value, "\r\n"].concat();
    }
    head.push_str("\r\n");
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    for part in answer.parts {
        match part {
            Part::Text(text) => {
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
                stream.flush().await.ok();
            }
            Part::Endless(text) => {
                while stream.write_all(text.as_bytes()).await.is_ok() {}
                closed.send_modify(|count| *count += 1);
                return;
            }
            Part::UntilClosed => until_closed(&mut stream, closed).await,
            Part::Reset => {
                // The client must have read what came before, or the reset would discard it.
                stream.set_zero_linger().unwrap();
                return;
            }
        }
    }
    stream.shutdown().await.ok();
}

async fn until_closed(stream: &mut TcpStream, closed: &watch::Sender<usize>) {
    let mut rest = [0_u8; 64];
    while !matches!(stream.read(&mut rest).await, Ok(0) | Err(_)) {}
    closed.send_modify(|count| *count += 1);
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut buffer = [0_u8; 8192];
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut buffer).await.ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(0, |l| l.parse().unwrap());
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        match stream.read(&mut buffer).await.ok()? {
            0 => return None,
            count => body.extend_from_slice(&buffer[..count]),
        }
    }
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Received {
        method,
        path,
        headers,
        body,
    })
}
