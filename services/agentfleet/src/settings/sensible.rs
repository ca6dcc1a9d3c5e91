//! Which settings are refused, since a fleet with them would do nothing, or harm.

use super::{Place, Settings, Source, Value, bad_value, variable};
use crate::error::Failure;
use agentfleet_documents::PostgresDocuments;
use agentfleet_graph::RemoteOptions;
use std::time::Duration;

/// Nothing of a run may be under way any more.
const SHORTEST_ARCHIVE: Duration = Duration::from_secs(3_600);

impl Settings {
    /// Refuses numbers with which nothing would ever be done.
    pub(super) fn sensible(&self) -> Result<(), Failure> {
        let nothing = [
            ("concurrency", self.concurrency == 0),
            ("max_attempts", self.max_attempts == 0),
            ("max_iterations", self.max_iterations == Some(0)),
            ("max_subagents", self.max_subagents == Some(0)),
            ("max_tokens", self.max_tokens == Some(0)),
            ("max_model_calls", self.max_model_calls == Some(0)),
            ("requests_per_minute", self.requests_per_minute == 0),
        ];
        let no_time = [
            ("lease", self.lease.is_zero()),
            ("run_timeout", self.run_timeout.is_zero()),
            ("subagent_timeout", self.subagent_timeout.is_zero()),
            ("tool_timeout", self.tool_timeout.is_zero()),
            ("model_wait", self.model_wait.is_zero()),
            ("query_timeout", self.query_timeout.is_zero()),
            // Each run would be deleted before its answer is read.
            (
                "keep_runs",
                self.keep_runs.is_some_and(|time| time.is_zero()),
            ),
        ];
        let given = |name: &str| self.given.get(name).map_or("0", String::as_str);
        if let Some((name, _)) = nothing.iter().find(|(_, zero)| *zero) {
            return Err(bad_value(
                name,
                given(name),
                self.source(name),
                "at least 1",
            ));
        }
        if let Some((name, _)) = no_time.iter().find(|(_, zero)| *zero) {
            let expected = "a time that is longer than nothing";
            return Err(bad_value(name, "0s", self.source(name), expected));
        }
        if self.context_window < 1_000 {
            let name = "context_window";
            let window = self.context_window.to_string();
            return Err(bad_value(
                name,
                &window,
                self.source(name),
                "at least 1000 tokens",
            ));
        }
        self.of_one_kind()?;
        self.archive_of_servers()?;
        self.coordination_apart()?;
        self.no_password_in_sight()?;
        self.issuer_whole()?;
        self.claims_whole()?;
        self.certificate_with_key()?;
        let longest = self.model_timeout.max(self.tool_timeout);
        if self.wall_limit <= longest {
            let expected = format!(
                "more than `model_timeout` and `tool_timeout`, which are up to {}",
                longest.show()
            );
            let name = "wall_limit";
            let limit = self.wall_limit.show();
            return Err(bad_value(name, &limit, self.source(name), &expected));
        }
        Ok(())
    }

    /// Refuses to require claims where nothing could tell the fleet's own messages from others.
    fn claims_whole(&self) -> Result<(), Failure> {
        if !self.require_claims {
            return Ok(());
        }
        let lacks = if self.broker == Place::Embedded {
            "a queue that others can publish to: the embedded one is the owner's alone"
        } else if self.oidc_issuer.is_none() {
            "`oidc_issuer`, whose tokens claims are"
        } else if self.fleet_secret.is_none() {
            "`fleet_secret`, by which processes of the fleet know each other's messages"
        } else {
            return Ok(());
        };
        let name = "require_claims";
        let expected = format!("`no`, or beside it {lacks}");
        Err(bad_value(name, "yes", self.source(name), &expected))
    }

    /// Refuses a mixture: a fleet has all its parts in the data directory, or all on servers.
    fn of_one_kind(&self) -> Result<(), Failure> {
        if let Place::At(address) = &self.records
            && !PostgresDocuments::is_address(address)
        {
            let (name, expected) = (
                "records",
                "`postgres://USER:PASSWORD@HOST:PORT/DATABASE`, which is where servers keep the records",
            );
            return Err(bad_value(name, address, self.source(name), expected));
        }
        let parts = [
            ("broker", &self.broker),
            ("records", &self.records),
            ("graph", &self.graph),
        ];
        let names = |embedded: bool| {
            let some = parts
                .iter()
                .filter(|(_, place)| (**place == Place::Embedded) == embedded);
            some.map(|(name, _)| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(" and ")
        };
        let (here, there) = (names(true), names(false));
        // Processes of one machine share a data directory, and the graph of the `up` among them.
        let is_beside = |url: &str| there == "`graph`" && RemoteOptions::new(url).is_of_up();
        if here.is_empty()
            || there.is_empty()
            || matches!(&self.graph, Place::At(url) if is_beside(url))
        {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{there} on a server and {here} embedded: a fleet has all three embedded, or all three on servers"
        ))
        .hint(
            "name all: `broker` (pulsar://HOST:6650), `records` (postgres://USER@HOST/DATABASE) and `graph` \
             (http://HOST:3030/ds); `agentfleet migrate` moves what is embedded there",
        ))
    }

    fn archive_of_servers(&self) -> Result<(), Failure> {
        if self.archive_after < SHORTEST_ARCHIVE {
            let (name, expected) = ("archive_after", "at least 1h");
            let after = self.archive_after.show();
            return Err(bad_value(name, &after, self.source(name), expected));
        }
        let Some(address) = &self.archive else {
            return Ok(());
        };
        let bucket = address.strip_prefix("s3://").unwrap_or_default();
        if bucket.is_empty() || bucket.starts_with('/') {
            let (name, expected) = ("archive", "`s3://BUCKET` or `s3://BUCKET/PREFIX`");
            return Err(bad_value(name, address, self.source(name), expected));
        }
        if self.on_servers() {
            return Ok(());
        }
        Err(Failure::usage(
            "setting `archive` is for a fleet on servers: runs of a data directory stay in it",
        ))
    }

    fn coordination_apart(&self) -> Result<(), Failure> {
        let (name, Some(url)) = ("coordination", &self.coordination) else {
            return Ok(());
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let expected =
                "the URL of a SPARQL 1.1 dataset such as `http://HOST:3030/coordination`";
            return Err(bad_value(name, url, self.source(name), expected));
        }
        if !self.on_servers() {
            return Err(Failure::usage(
                "setting `coordination` is for a fleet on servers: a data directory counts siblings in its own graph",
            ));
        }
        if matches!(&self.graph, Place::At(graph) if url.trim_end_matches('/') == graph.trim_end_matches('/'))
        {
            let expected =
                "another dataset than `graph`; leave it out to count siblings in the graph";
            return Err(bad_value(name, url, self.source(name), expected));
        }
        Ok(())
    }

    /// An issuer makes tokens for others, too: one without an audience would let in whoever has any.
    fn issuer_whole(&self) -> Result<(), Failure> {
        let tied = [
            ("oidc_audience", self.oidc_audience.is_some()),
            ("oidc_jwks_url", self.oidc_jwks_url.is_some()),
            ("oidc_certificates", self.oidc_certificates.is_some()),
            ("oidc_tenant", self.oidc_tenant.is_some()),
        ];
        let needs = |name: &str, other: &str, why: &str| {
            Err(Failure::usage(format!(
                "setting `{name}` needs `{other}`: {why}"
            )))
        };
        match (&self.oidc_issuer, tied.iter().find(|(_, given)| *given)) {
            (None, None) => Ok(()),
            (None, Some((name, _))) => needs(name, "oidc_issuer", "without one no token counts"),
            (Some(_), _) if self.oidc_audience.is_none() => needs(
                "oidc_issuer",
                "oidc_audience",
                "the issuer makes tokens for others, too",
            ),
            (Some(_), _) => match &self.oidc_tenant {
                Some(tenant) if !agentfleet_schema::names::is_tenant(tenant) => {
                    let (name, expected) = ("oidc_tenant", "1 to 64 letters, digits and `-_@+`");
                    Err(bad_value(name, tenant, self.source(name), expected))
                }
                _ => Ok(()),
            },
        }
    }

    /// Half of it would serve without TLS what was meant to be served with it.
    fn certificate_with_key(&self) -> Result<(), Failure> {
        let (has, lacks, what) = match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => ("tls_certificate", "tls_key", "the file of its private key"),
            (None, Some(_)) => ("tls_key", "tls_certificate", "the file of its certificate"),
            _ => return Ok(()),
        };
        Err(Failure::usage(format!(
            "setting `{has}` needs `{lacks}`, {what}; without both `up` speaks no HTTPS"
        )))
    }

    /// Every user of the machine can read the arguments of a process.
    fn no_password_in_sight(&self) -> Result<(), Failure> {
        let name = "records";
        let Place::At(address) = &self.records else {
            return Ok(());
        };
        let (user, _) = address.rsplit_once('@').unwrap_or_default();
        let has_password = user.matches(':').count() > 1;
        if !has_password || self.source(name) != Source::Flag {
            return Ok(());
        }
        let variable = variable(name);
        Err(Failure::usage(format!(
            "flag `--{name}` holds a password, which every user of this machine may see in `ps`: set \
             {variable} instead, or leave the password out and set PGPASSWORD"
        )))
    }
}
