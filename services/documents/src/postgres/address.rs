//! The address of a database, as settings give it.

use super::tls::Tls;
use crate::error::Error;
use agentfleet_schema::redacted;
use std::path::PathBuf;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// Where a fleet's tables lie unless the address says otherwise.
const SCHEMA: &str = "agentfleet";
const PORT: u16 = 5432;
/// Longest for one host to take a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// A database, and how to reach it.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
    /// Without credentials.
    pub(super) shown: String,
    pub(super) schema: String,
}

/// What this program reads of an address itself.
#[derive(Default)]
struct Own {
    tls: Option<bool>,
    authorities: Option<PathBuf>,
    schema: Option<String>,
}

impl Address {
    pub(super) fn is_one(text: &str) -> bool {
        let schemes = ["postgres://", "postgresql://"];
        schemes.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Of `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. Parameters are those of libpq, and `schema`.
    pub(super) fn parse(text: &str, password: Option<String>) -> Result<Self, Error> {
        let wrong = || Error::Address(redacted(text).into_owned());
        if !Self::is_one(text) {
            return Err(wrong());
        }
        // Drivers take a password with a `?` in it.
        let host = text.rfind('@').unwrap_or_default();
        let (base, parameters) = match text[host..].find('?') {
            Some(at) => (&text[..host + at], &text[host + at + 1..]),
            None => (text, ""),
        };
        let (own, others) = Own::take(parameters)?;
        // Says which parameter is wrong, and quotes no value.
        let mut config: Config = format!("{base}?{others}")
            .parse()
            .map_err(|error| Error::Settings(super::fault::chain(&error)))?;
        let database = config.get_dbname().unwrap_or_default().to_owned();
        // An `@` in the password is where it was cut off, and its end would be told.
        let has_at = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().is_empty()
            || config.get_hosts().iter().any(has_at)
            || config.get_user().is_none()
            || database.is_empty()
            || database.contains('@')
        {
            return Err(wrong());
        }
        if config.get_password().is_none()
            && let Some(password) = password
        {
            config.password(password);
        }
        let schema = own.schema.unwrap_or_else(|| SCHEMA.to_owned());
        // Over a network that is not the machine's own only with TLS, unless somebody says otherwise.
        let is_encrypted = own.tls.unwrap_or(!config.get_hosts().iter().all(is_local));
        config.ssl_mode(if is_encrypted {
            SslMode::Require
        } else {
            SslMode::Disable
        });
        bounds(&mut config);
        let tls = Tls::new(own.authorities.as_deref())?;
        let mut shown = format!("postgres://{}/{database}", hosts(&config));
        if schema != SCHEMA {
            shown.push_str(&format!("?schema={schema}"));
        }
        Ok(Self {
            config,
            tls,
            shown,
            schema,
        })
    }
}

impl Own {
    /// Takes out of the parameters what is ours, and leaves the others as they are.
    fn take(parameters: &str) -> Result<(Self, String), Error> {
        let mut own = Self::default();
        let mut others = Vec::new();
        for pair in parameters.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = form_urlencoded::parse(pair.as_bytes()).next() else {
                continue;
            };
            let wrong = |expected: &str| {
                Error::Settings(format!("`{name}` is `{value}`, expected {expected}"))
            };
            match &*name {
                "sslmode" => {
                    own.tls = Some(match &*value {
                        "disable" => false,
                        "require" | "verify-ca" | "verify-full" => true,
                        _ => {
                            return Err(wrong(
                                "`require` (TLS, and the server's certificate is verified) or `disable`",
                            ));
                        }
                    });
                }
                "sslrootcert" => own.authorities = Some(PathBuf::from(&*value)),
                "schema" => {
                    let is_name =
                        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                    if !(1..=63).contains(&value.len()) || !value.chars().all(is_name) {
                        return Err(wrong("lower case letters, digits and `_`, 63 at most"));
                    }
                    own.schema = Some(value.into_owned());
                }
                "password" => {
                    return Err(Error::Settings(
                        "the password is among the parameters of the address: write `postgres://USER:PASSWORD@...`, or set PGPASSWORD".to_owned(),
                    ));
                }
                _ => others.push(pair),
            }
        }
        Ok((own, others.join("&")))
    }
}

/// Nothing waits for ever, and with several hosts it is the one that takes writes.
fn bounds(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("agentfleet");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    config
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(30))
        .keepalives_interval(Duration::from_secs(10))
        .keepalives_retries(3)
        .tcp_user_timeout(Duration::from_secs(30));
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any
    {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let ip: Option<std::net::IpAddr> = name.parse().ok();
            name == "localhost" || ip.is_some_and(|ip| ip.is_loopback())
        }
    }
}

fn hosts(config: &Config) -> String {
    let ports = config.get_ports();
    let named = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = ports.get(at).or(ports.first()).unwrap_or(&PORT);
        match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        }
    });
    named.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn parse(text: &str) -> Result<Address, Error> {
        Address::parse(text, Some("from-env".to_owned()))
    }

    #[test]
    fn tls_is_left_out_only_on_this_machine_or_by_order() {
        for (text, mode, shown) in [
            (
                "postgres://u:p@127.0.0.1:5433/db",
                SslMode::Disable,
                "postgres://127.0.0.1:5433/db",
            ),
            (
                "postgresql://u@[::1]/db",
                SslMode::Disable,
                "postgres://[::1]:5432/db",
            ),
            (
                "postgres://u@%2Fvar%2Frun%2Fpostgresql/db",
                SslMode::Disable,
                "postgres:///var/run/postgresql/db",
            ),
            (
                "postgres://u:p@db.example/db",
                SslMode::Require,
                "postgres://db.example:5432/db",
            ),
            (
                "postgres://u:p@a,b:6000/db?sslmode=disable",
                SslMode::Disable,
                "postgres://a:5432,b:6000/db",
            ),
            (
                "postgres://u:p@localhost/db?sslmode=verify-full&schema=two",
                SslMode::Require,
                "postgres://localhost:5432/db?schema=two",
            ),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.config.get_ssl_mode(), mode, "{text}");
            assert_eq!(address.shown, shown, "{text}");
        }
        let several = parse("postgres://u:p@a,b/db").unwrap();
        let attributes = several.config.get_target_session_attrs();
        assert_eq!(attributes, TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn a_password_comes_from_the_address_or_the_environment() {
        for (text, expected) in [
            ("postgres://u:p%40ss@localhost/db", "p@ss"),
            ("postgres://u:p/s?s@localhost/db?schema=s", "p/s?s"),
            ("postgres://u@localhost/db", "from-env"),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.config.get_password(), Some(expected.as_bytes()));
        }
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (text, says) in [
            ("postgres://", "postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
            (
                "postgres://secret@host",
                "postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            ),
            ("postgres://u:secret@host:port/db", "`port`"),
            (
                "postgres://u:p@secret@host/db",
                "postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            ),
            (
                "postgres://u:secret@host/db?sslmode=prefer",
                "expected `require`",
            ),
            (
                "postgres://u:secret@host/db?schema=A-b",
                "lower case letters",
            ),
            ("postgres://u@host/db?password=secret", "PGPASSWORD"),
            (
                "postgres://u:secret@host/db?sslrootcert=/no/such/file",
                "/no/such/file",
            ),
            ("postgres://u:secret@host/db?colour=red", "`colour`"),
        ] {
            let error = parse(text).err().expect(text);
            assert!(error.to_string().contains(says), "{text}: {error}");
            assert!(!error.to_string().contains("secret"), "{text}: {error}");
            assert_eq!(error.retry(), None);
        }
    }
}
