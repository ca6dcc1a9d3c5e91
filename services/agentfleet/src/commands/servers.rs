//! What `doctor` says of each server by itself: whether it answers, how soon, and what time it has.
//! Nothing is asked that needs a right, so that a wrong password is not taken for a server that is down.

use crate::error::{Exit, Failure};
use crate::settings::{Place, Settings};
use agentfleet_console::text;
use agentfleet_documents::PostgresDocuments;
use agentfleet_models::root_cause;
use agentfleet_runtime::clock::Offset;
use reqwest::header::DATE;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use std::time::{Duration, Instant, SystemTime};

/// Longest that a server is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer that takes longer makes every step slow: it needs several.
const SLOW: Duration = Duration::from_secs(1);

/// A server of the fleet.
pub(super) struct Server {
    pub name: &'static str,
    address: String,
}

impl Server {
    /// The servers that the settings name.
    pub(super) fn of(settings: &Settings) -> Vec<Self> {
        let at = |place: &Place| match place {
            Place::Embedded => None,
            Place::At(address) => Some(address.clone()),
        };
        let broker = at(&settings.broker);
        let admin = settings.broker_admin.clone().filter(|_| broker.is_some());
        [
            ("broker server", broker),
            ("broker admin", admin),
            ("records server", at(&settings.records)),
            ("graph server", at(&settings.graph)),
            ("coordination server", settings.coordination.clone()),
        ]
        .into_iter()
        .filter_map(|(name, address)| address.map(|address| Self { name, address }))
        .collect()
    }

    /// Whether it answers, how soon, and by what clock.
    pub(super) async fn look(&self) -> Result<String, Failure> {
        let address = &self.address;
        if PostgresDocuments::is_address(address) {
            return self.database().await;
        }
        let (began, asked_at) = (Instant::now(), SystemTime::now());
        let asked = async {
            if address.starts_with("http") {
                self.over_http().await
            } else {
                self.connect().await.map(|()| None)
            }
        };
        let bad = |says: String| Failure::new(Exit::Unavailable, says);
        let date = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(date)) => date,
            Ok(Err(error)) => return Err(bad(format!("{address} does not answer: {error}"))),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                return Err(bad(format!("{address} does not answer within {seconds} s")));
            }
        };
        let took = began.elapsed();
        if !address.starts_with("http") {
            // The system does that for a server that hangs; `workers` and `queue` ask the broker itself.
            return Ok(format!("{address} takes connections"));
        }
        let offset =
            date.and_then(|date| Offset::told(address, &date, asked_at, SystemTime::now()));
        answered(address, took, offset)
    }

    /// Also how it is set up: one that may lose what it confirmed is refused.
    async fn database(&self) -> Result<String, Failure> {
        let (began, asked_at) = (Instant::now(), SystemTime::now());
        let standing = PostgresDocuments::look(&self.address).await?;
        let address = &standing.address;
        let offset = Offset::between(address, standing.now, asked_at, SystemTime::now());
        let says = answered(address, began.elapsed(), Some(offset))?;
        Ok(match standing.standbys_behind {
            0 => says,
            count => format!(
                "{says}. Warning: standbys follow it ({count}), and commits wait for none of them: a failover \
                 may lose steps, which are then done twice; `synchronous_standby_names` makes it wait"
            ),
        })
    }

    async fn over_http(&self) -> Result<Option<String>, String> {
        // The innermost reason quotes no address.
        let failed = |error: reqwest::Error| root_cause(&error);
        let mut url = Url::parse(&self.address).map_err(|error| error.to_string())?;
        // Nothing secret is sent, so whoever answers may: it is only asked whether somebody is there.
        url.set_query(None);
        url.set_password(None).ok();
        url.set_username("").ok();
        let mut client = Client::builder()
            .redirect(Policy::none())
            .danger_accept_invalid_certs(true);
        if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            // No proxy can reach it.
            client = client.no_proxy();
        }
        let client = client.build().map_err(failed)?;
        let answer = client.head(url).send().await.map_err(failed)?;
        let date = answer.headers().get(DATE);
        let date = date.and_then(|date| date.to_str().ok());
        Ok(date.map(str::to_owned))
    }

    async fn connect(&self) -> Result<(), String> {
        let rest = self.address.split_once("://").map_or("", |(_, rest)| rest);
        let hosts = rest.split('/').next().unwrap_or_default();
        let hosts = hosts.rsplit('@').next().unwrap_or_default();
        let usual = if self.address.contains("+ssl") {
            6651
        } else {
            6650
        };
        let mut reason = "it names no host".to_owned();
        for host in hosts.split(',') {
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let host = if has_port {
                host.to_owned()
            } else {
                format!("{host}:{usual}")
            };
            match tokio::net::TcpStream::connect(&host).await {
                Ok(_) => return Ok(()),
                Err(error) => reason = format!("{host}: {error}"),
            }
        }
        Err(reason)
    }
}

fn answered(address: &str, took: Duration, offset: Option<Offset>) -> Result<String, Failure> {
    let bad = |says: String| Failure::new(Exit::Unavailable, says);
    let told = text::duration(took.as_millis() as u64);
    if let Some(offset) = offset.filter(Offset::is_wrong) {
        return Err(bad(format!("{address} answers in {told}, but {offset}"))
            .hint("set the clocks, with NTP for example: deadlines of runs go by them"));
    }
    if took > SLOW {
        return Err(bad(format!("{address} answers slowly, in {told}"))
            .hint("each step needs several answers: bring the fleet nearer to it"));
    }
    Ok(format!("{address} answers in {told}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// A server that answers once, with a date so far from ours.
    async fn server(ahead: i64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            let far = Duration::from_secs(ahead.unsigned_abs());
            let now = SystemTime::now();
            let date = if ahead < 0 { now - far } else { now + far };
            let date = httpdate::fmt_http_date(date);
            let answer = format!("HTTP/1.1 401 No\r\ndate: {date}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        format!("http://{address}/ds")
    }

    async fn look(address: String) -> (bool, String) {
        let name = "graph server";
        match (Server { name, address }).look().await {
            Ok(says) => (true, says),
            Err(failure) => (false, failure.to_string()),
        }
    }

    #[tokio::test]
    async fn a_server_is_told_by_itself_with_its_clock() {
        crate::install_tls();
        for (ahead, ok, part) in [
            (0, true, "answers in "),
            (3_600, false, "this machine's clock is 3"),
            (3_600, false, "behind that of"),
            (-3_600, false, "ahead of that of"),
        ] {
            let (well, says) = look(server(ahead).await).await;
            assert_eq!(well, ok, "{says}");
            assert!(says.contains(part), "{part}: {says}");
        }
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = gone.local_addr().unwrap();
        assert!(look(format!("pulsar://{address}")).await.0);
        drop(gone);
        for scheme in ["pulsar", "http"] {
            let (well, says) = look(format!("{scheme}://{address}")).await;
            assert!(!well && says.contains("does not answer"), "{says}");
        }
    }
}
