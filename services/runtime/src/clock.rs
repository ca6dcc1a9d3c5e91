//! Whether this machine's clock agrees with those of the servers that the fleet works on. Deadlines are
//! instants that one machine writes and another reads, so a clock that is wrong cuts runs short.
//!
//! The servers tell their time in the `Date` header of every reply over HTTP, whatever its status.

use crate::CLOCK_SKEW;
use agentfleet_schema::Millis;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Beyond this a worker does not start: deadlines, delays and the order of what is told would be wrong.
pub const TOO_FAR: Duration = Duration::from_secs(30);
/// A `Date` has whole seconds.
const PRECISION: Duration = Duration::from_secs(1);
/// How long a server may take to answer. One that takes long tells the time less well.
const PATIENCE: Duration = Duration::from_secs(3);

/// By how much this machine's clock is ahead of a server's; negative if it is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offset {
    pub server: String,
    pub millis: Millis,
}

impl Offset {
    /// What the `Date` of an answer says that was asked for and came at these instants; `None` if it is none.
    pub fn told(server: &str, date: &str, asked: SystemTime, answered: SystemTime) -> Option<Self> {
        let theirs = millis(httpdate::parse_http_date(date).ok()?);
        Some(Self::between(server, theirs, asked, answered))
    }

    /// What the time says that a server had meanwhile.
    pub fn between(server: &str, theirs: Millis, asked: SystemTime, answered: SystemTime) -> Self {
        Self {
            server: server.to_owned(),
            millis: difference(millis(asked), theirs, millis(answered)),
        }
    }

    /// Whether deadlines are wrong by more than the fleet allows for.
    pub fn is_wrong(&self) -> bool {
        self.is_beyond(CLOCK_SKEW + PRECISION)
    }

    /// Whether no worker may work by this clock.
    pub fn is_too_far(&self) -> bool {
        self.is_beyond(TOO_FAR)
    }

    fn is_beyond(&self, bound: Duration) -> bool {
        Duration::from_millis(self.millis.unsigned_abs()) > bound
    }
}

impl std::fmt::Display for Offset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.millis.unsigned_abs().div_ceil(1000);
        let way = if self.millis < 0 {
            "behind"
        } else {
            "ahead of"
        };
        let server = &self.server;
        write!(
            f,
            "this machine's clock is {seconds} s {way} that of `{server}`"
        )
    }
}

/// The offset from the server that agrees best, because a single server may be the one that is wrong.
/// `None` if none of them says what time it is.
pub async fn offset(servers: &[String]) -> Option<Offset> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build().ok()?;
    let each = servers.iter().map(|server| offset_from(&client, server));
    let offsets = futures::future::join_all(each).await;
    let known = offsets.into_iter().flatten();
    known.min_by_key(|offset| offset.millis.abs())
}

async fn offset_from(client: &reqwest::Client, server: &str) -> Option<Offset> {
    let asked = SystemTime::now();
    let answer = client.head(server).send().await.ok()?;
    let date = answer.headers().get(reqwest::header::DATE)?.to_str().ok()?;
    Offset::told(server, date, asked, SystemTime::now())
}

/// How far the time between `asked` and `answered` is from what the server said meanwhile: any instant
/// of the second that it named.
fn difference(asked: Millis, theirs: Millis, answered: Millis) -> Millis {
    let last = theirs + PRECISION.as_millis() as Millis;
    if asked > last {
        asked - last
    } else if answered < theirs {
        answered - theirs
    } else {
        0
    }
}

fn millis(time: SystemTime) -> Millis {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as Millis)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// A server whose clock is ahead of ours, and that knows nothing else.
    async fn server(ahead: i64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await.unwrap();
                let now = (millis(SystemTime::now()) / 1000 + ahead).unsigned_abs();
                let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(now));
                let answer = format!(
                    "HTTP/1.1 404 Not Found\r\ndate: {date}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        format!("http://{address}/")
    }

    #[tokio::test]
    async fn a_clock_is_wrong_when_no_server_agrees_with_it() {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let (right, ahead, behind) = (server(0).await, server(120).await, server(-120).await);
        let found = offset(&[ahead.clone(), right, behind.clone()]).await;
        assert!(!found.unwrap().is_wrong());
        let found = offset(std::slice::from_ref(&ahead)).await.unwrap();
        assert!(found.is_wrong() && found.is_too_far());
        assert!(found.to_string().contains("behind that of"), "{found}");
        let found = offset(&[behind]).await.unwrap();
        assert!(found.to_string().contains("ahead of that of"), "{found}");
        assert_eq!(offset(&[]).await, None);
    }

    #[test]
    fn an_offset_is_only_what_the_precision_of_a_date_cannot_explain() {
        for (asked, theirs, answered, offset) in [
            (10_000, 10_000, 10_020, 0),
            (10_990, 10_000, 11_400, 0),
            (13_500, 10_000, 13_600, 2_500),
            (7_000, 10_000, 7_500, -2_500),
        ] {
            assert_eq!(difference(asked, theirs, answered), offset);
        }
    }
}
