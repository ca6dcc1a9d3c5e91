//! Reading what a server sends, never beyond the bounds: bytes, lines, events, JSON.

use super::bounds::{Bound, ERROR_BODY};
use super::failure::Fault;
use reqwest::Response;
use serde_json::Value;
use std::time::Duration;

/// How long the body of an error is waited for. The status says most of it.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);

/// A response's body.
pub(crate) struct Body {
    response: Response,
    bound: Bound,
    read: usize,
    /// The longest wait for the next piece; `None` leaves it to whoever limits the call.
    pause: Option<Duration>,
}

impl Body {
    pub(crate) fn new(response: Response, bound: Bound, pause: Option<Duration>) -> Self {
        Self {
            response,
            bound,
            read: 0,
            pause,
        }
    }

    /// Adds the next piece to `buffer`; `false` at the end.
    async fn more(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Fault> {
        let next = self.response.chunk();
        let piece = match self.pause {
            Some(pause) => tokio::time::timeout(pause, next)
                .await
                .map_err(|_| Fault::TooSlow(pause))?,
            None => next.await,
        };
        let Some(piece) = piece.map_err(Fault::Transport)? else {
            return Ok(false);
        };
        self.read += piece.len();
        if !self.bound.holds(self.read) {
            return Err(Fault::Beyond(self.bound));
        }
        buffer.extend_from_slice(&piece);
        Ok(true)
    }

    /// The whole of it, as JSON.
    pub(crate) async fn json(mut self) -> Result<Value, Fault> {
        let mut all = Vec::new();
        while self.more(&mut all).await? {}
        json(&all)
    }
}

/// The beginning of an error's body, as far as it can be had.
pub(super) async fn error_body(mut response: Response) -> String {
    let mut body = Vec::new();
    let all = async {
        while let Ok(Some(piece)) = response.chunk().await {
            let room = ERROR_BODY - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if body.len() == ERROR_BODY {
                break;
            }
        }
    };
    // What came by then is what there is.
    let _ = tokio::time::timeout(ERROR_BODY_WAIT, all).await;
    String::from_utf8_lossy(&body).into_owned()
}

/// A body as server-sent events.
pub(super) struct Events {
    body: Body,
    buffer: Vec<u8>,
    /// Where the line begins that was not taken yet, and how far it was looked at.
    start: usize,
    seen: usize,
}

impl Events {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            buffer: Vec::new(),
            start: 0,
            seen: 0,
        }
    }

    /// Waits no longer than this for each further piece.
    pub(super) fn hurry(&mut self, pause: Duration) {
        self.body.pause = Some(self.body.pause.map_or(pause, |now| now.min(pause)));
    }

    /// The data of the next event. All else of an event is for browsers, or said in the data again.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Fault> {
        let mut data: Option<String> = None;
        while let Some(line) = self.line().await? {
            if line.is_empty() && data.is_some() {
                break;
            }
            let Some(rest) = line.strip_prefix("data:") else {
                continue;
            };
            let rest = rest.strip_prefix(' ').unwrap_or(rest);
            match &mut data {
                None => data = Some(rest.to_owned()),
                Some(data) => {
                    if !Bound::Line.holds(data.len() + rest.len() + 1) {
                        return Err(Fault::Beyond(Bound::Line));
                    }
                    data.push('\n');
                    data.push_str(rest);
                }
            }
        }
        Ok(data)
    }

    /// The next whole line, without its end. What follows the last line end is no line.
    async fn line(&mut self) -> Result<Option<String>, Fault> {
        loop {
            let found = self.buffer[self.seen..].iter().position(|b| *b == b'\n');
            self.seen = found.map_or(self.buffer.len(), |at| self.seen + at);
            if !Bound::Line.holds(self.seen - self.start) {
                return Err(Fault::Beyond(Bound::Line));
            }
            if found.is_some() {
                let line = &self.buffer[self.start..self.seen];
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                let line = std::str::from_utf8(line)
                    .map_err(|_| Fault::Malformed("its text is not UTF-8".to_owned()))?
                    .to_owned();
                self.seen += 1;
                self.start = self.seen;
                return Ok(Some(line));
            }
            // Lines that were taken make room; what is left is the beginning of one.
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.seen -= self.start;
                self.start = 0;
            }
            if !self.body.more(&mut self.buffer).await? {
                return Ok(None);
            }
        }
    }
}

/// Reads JSON whose values are counted first: parsed, an empty object takes a hundred times its bytes.
pub(super) fn json(text: &[u8]) -> Result<Value, Fault> {
    if !Bound::Values.holds(values(text)) {
        return Err(Fault::Beyond(Bound::Values));
    }
    serde_json::from_slice(text).map_err(|error| {
        Fault::Malformed(format!(
            "it is not JSON (line {}, column {})",
            error.line(),
            error.column()
        ))
    })
}

/// At least as many as there are values: each object, list and comma outside of strings is counted.
fn values(text: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' | b',' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings_only() {
        assert_eq!(values(br#"{"a": [1, 2], "b": "[,{\",["}"#), 5);
        let text = format!("\"{}\"", ",".repeat(Bound::Values.limit() + 1));
        assert!(json(text.as_bytes()).is_ok());
        let many = format!("[{}1]", "1,".repeat(Bound::Values.limit()));
        assert!(matches!(
            json(many.as_bytes()),
            Err(Fault::Beyond(Bound::Values))
        ));
    }
}
