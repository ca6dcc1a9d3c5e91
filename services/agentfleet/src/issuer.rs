//! The issuer of the settings, whose tokens count at the HTTP door.

use crate::error::{Exit, Failure};
use crate::settings::Settings;
use agentfleet_console::text;
use agentfleet_issuer::{ClaimNames, Issuer, Options, Waits};
use std::sync::Arc;

/// The issuer that the settings name, if they name one. It is asked for its keys when the first token comes.
pub(crate) fn of(settings: &Settings) -> Result<Option<Arc<Issuer>>, Failure> {
    let Some(issuer) = &settings.oidc_issuer else {
        return Ok(None);
    };
    let audiences = settings.oidc_audience.as_deref().unwrap_or_default();
    let audiences = audiences.split(',').map(str::trim);
    let options = Options {
        issuer: issuer.clone(),
        audiences: audiences
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        keys: settings.oidc_jwks_url.clone(),
        certificates: settings.oidc_certificates.clone(),
        claims: ClaimNames {
            name: settings.oidc_name_claim.clone(),
            tenant: settings.oidc_tenant_claim.clone(),
            roles: settings.oidc_roles_claim.clone(),
            permissions: settings.oidc_permissions_claim.clone(),
            default_tenant: settings.oidc_tenant.clone(),
        },
        waits: Waits::default(),
    };
    let issuer = Issuer::new(options);
    let issuer = issuer.map_err(|error| Failure::usage(format!("the issuer: {error}")))?;
    Ok(Some(Arc::new(issuer)))
}

/// Whether the issuer answers, and with how many keys; for `doctor`.
pub(crate) async fn look(settings: &Settings) -> Option<Result<String, Failure>> {
    let issuer = match of(settings) {
        Ok(issuer) => issuer?,
        Err(failure) => return Some(Err(failure)),
    };
    let name = settings.oidc_issuer.as_deref().unwrap_or_default();
    Some(match issuer.look().await {
        Ok(keys) => {
            let keys = text::counted(keys as u64, "key");
            Ok(format!("{name} has {keys} for signatures"))
        }
        Err(refused) => Err(Failure::new(Exit::Unavailable, refused.to_string())),
    })
}
