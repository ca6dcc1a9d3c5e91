//! What goes over the wire between a fleet and the server of its model: passed on as it comes, and kept.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Result, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A call of the model, as the fleet made it and the server answered it.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub request: Value,
    pub status: u16,
    /// The chunks of a stream, or the one reply.
    pub replied: Vec<Value>,
    pub whole: bool,
}

impl Exchange {
    fn of(request: &[u8], response: &[u8]) -> Option<Self> {
        let request = serde_json::from_slice(request).ok()?;
        let at = response.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&response[..at]).to_lowercase();
        let body = &response[at + 4..];
        let body = if head.contains("transfer-encoding: chunked") {
            joined(body)
        } else {
            body.to_vec()
        };
        let body = String::from_utf8_lossy(&body);
        let events: Vec<&str> = body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        let whole = events.is_empty() || events.last() == Some(&"[DONE]");
        let texts = if events.is_empty() {
            vec![&*body]
        } else {
            events
        };
        Some(Self {
            request,
            status: head.split(' ').nth(1)?.parse().ok()?,
            replied: texts
                .into_iter()
                .filter_map(|text| serde_json::from_str(text).ok())
                .collect(),
            whole,
        })
    }

    /// The text of the reply, put together from its chunks.
    pub(super) fn text(&self) -> String {
        let says = |chunk: &Value| {
            let choice = &chunk["choices"][0];
            let said = ["delta", "message"].map(|name| choice[name]["content"].as_str());
            said.into_iter()
                .flatten()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        self.replied.iter().map(says).collect()
    }

    /// The tokens that the server says were read and written.
    pub(super) fn usage(&self) -> (u64, u64) {
        let told = self.replied.iter().rev().find_map(|chunk| {
            let usage = chunk.get("usage")?;
            let read = usage["prompt_tokens"].as_u64()?;
            Some((read, usage["completion_tokens"].as_u64()?))
        });
        told.unwrap_or_default()
    }

    /// Why the model stopped.
    pub(super) fn stop(&self) -> &str {
        let stops = self.replied.iter().rev();
        let mut stops = stops.filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
        stops.next().unwrap_or_default()
    }

    pub(super) fn calls_tools(&self) -> bool {
        self.replied.iter().any(|chunk| {
            let choice = &chunk["choices"][0];
            choice["delta"]["tool_calls"].is_array() || choice["message"]["tool_calls"].is_array()
        })
    }

    /// The schema that the reply was to match.
    pub(super) fn schema(&self) -> Option<&Value> {
        self.request.pointer("/response_format/json_schema/schema")
    }

    pub(super) fn operation(&self) -> Option<&str> {
        let name = self.request.pointer("/response_format/json_schema/name");
        name.and_then(Value::as_str)
    }
}

/// A body without the sizes of its chunks.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(at) = body.windows(2).position(|two| two == b"\r\n") {
        let size = String::from_utf8_lossy(&body[..at]);
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
            break;
        };
        let end = (at + 2 + size).min(body.len());
        all.extend_from_slice(&body[at + 2..end]);
        body = body.get(end + 2..).unwrap_or_default();
        if size == 0 {
            break;
        }
    }
    all
}

/// Stands before a server. It ends with the test.
#[derive(Debug)]
pub(super) struct Wire {
    pub url: String,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    /// One of it for each request that is still passed on.
    open: Arc<()>,
}

/// Longest that a request may go on after whoever made it has ended.
const ENDS: Duration = Duration::from_secs(60);

impl Wire {
    /// `server` is host and port.
    pub(super) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let exchanges = Arc::default();
        let open = Arc::new(());
        let (server, kept) = (server.to_owned(), Arc::clone(&exchanges));
        let counted = Arc::downgrade(&open);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, kept) = (server.clone(), Arc::clone(&kept));
                let Some(open) = counted.upgrade() else {
                    return;
                };
                std::thread::spawn(move || {
                    // Whoever goes away in between has his reasons.
                    drop(pass(stream.unwrap(), &server, &kept));
                    drop(open);
                });
            }
        });
        Self {
            url,
            exchanges,
            open,
        }
    }

    /// All that was said, once nobody speaks any more.
    pub(super) fn exchanges(&self) -> Vec<Exchange> {
        let began = Instant::now();
        while Arc::strong_count(&self.open) > 1 {
            assert!(began.elapsed() < ENDS, "a call of the model goes on");
            std::thread::yield_now();
        }
        self.exchanges.lock().unwrap().clone()
    }
}

/// Passes one request on, and its response back as it comes.
fn pass(mut client: TcpStream, server: &str, kept: &Mutex<Vec<Exchange>>) -> Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
        if !name.eq_ignore_ascii_case("connection") {
            head.push_str(&line);
        }
    }
    let mut request = vec![0; length];
    reader.read_exact(&mut request)?;
    let mut upstream = TcpStream::connect(server)?;
    upstream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    upstream.write_all(&request)?;
    let (mut response, mut buffer) = (Vec::new(), [0; 16 << 10]);
    loop {
        let read = upstream.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        response.extend_from_slice(&buffer[..read]);
        // Whoever has read the end of a stream need not wait for that of its body.
        if client.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    if head.contains("/chat/completions") {
        let exchange = Exchange::of(&request, &response);
        kept.lock().unwrap().extend(exchange);
    }
    Ok(())
}
