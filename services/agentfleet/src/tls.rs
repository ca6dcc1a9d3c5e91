//! The certificate of the settings, with which `up` serves HTTPS.

use crate::error::{Exit, Failure};
use crate::settings::Settings;
use agentfleet_core::provenance::date_time;
use agentfleet_gateway::{Lifetime, TlsFiles};
use agentfleet_schema::Millis;

/// How long before its end a certificate is to be renewed.
const DUE: Millis = 14 * DAY;
const DAY: Millis = 24 * 3_600_000;

/// The files that the settings name, if they name them.
pub(crate) fn of(settings: &Settings) -> Option<TlsFiles> {
    Some(TlsFiles {
        certificate: settings.tls_certificate.clone()?,
        key: settings.tls_key.clone()?,
    })
}

/// What an address of `up` begins with.
pub(crate) fn scheme(settings: &Settings) -> &'static str {
    match of(settings) {
        Some(_) => "https",
        None => "http",
    }
}

/// Whether certificate and key can be used, and how long the certificate counts; for `doctor`.
pub(crate) fn look(settings: &Settings, now: Millis) -> Option<Result<String, Failure>> {
    let files = of(settings)?;
    let name = files.certificate.display().to_string();
    Some(match files.lifetime() {
        Ok(lifetime) => told(&name, lifetime, now),
        Err(error) => Err(Failure::new(Exit::Unavailable, error.to_string())),
    })
}

fn told(name: &str, lifetime: Lifetime, now: Millis) -> Result<String, Failure> {
    let Lifetime { from, until } = lifetime;
    let bad = |says: String| Err(Failure::new(Exit::Unavailable, says));
    let (begins, ends) = (date_time(from), date_time(until));
    if until <= now {
        return bad(format!(
            "`{name}` expired at {ends}: clients refuse it; put a new certificate in its place, which needs no restart"
        ));
    }
    if from > now {
        return bad(format!(
            "`{name}` does not count before {begins}: clients refuse it until then, or the clock of this machine is behind"
        ));
    }
    let says = format!("`{name}` counts until {ends}");
    if until - now < DUE {
        let days = (until - now) / DAY;
        return Ok(format!(
            "{says}. Warning: {days} days are left; put a new certificate in its place, which needs no restart"
        ));
    }
    Ok(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_told_by_how_long_it_still_counts() {
        let now = 1_800_000_000_000;
        for (from, until, is_well, part) in [
            (now - DAY, now + 15 * DAY, true, "counts until"),
            (now, now + DUE, true, "counts until"),
            (now, now + DUE - 1, true, "Warning: 13 days are left"),
            (now - DAY, now + 1, true, "Warning: 0 days are left"),
            (now - DAY, now, false, "expired at"),
            (now + 1, now + DUE, false, "does not count before"),
        ] {
            let told = told("server.pem", Lifetime { from, until }, now);
            let is_ok = told.is_ok();
            let says = told.unwrap_or_else(|failure| failure.to_string());
            assert_eq!(is_ok, is_well, "{says}");
            assert!(says.contains(part), "{part}: {says}");
            assert_eq!(says.contains("Warning"), part.contains("Warning"), "{says}");
        }
    }
}
