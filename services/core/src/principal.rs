//! On whose behalf a request is worked, set where it comes in.

use agentfleet_schema::{AgentRequest, Principal};

/// Makes a request that of a principal: what it says itself of who asks is dropped, and it stays within the
/// collections of the tenant: the one of its name, and those whose names go on behind that with a dot. `Err`
/// says what was wrong, and what would be right.
pub fn on_behalf(request: &mut AgentRequest, of: &Principal) -> Result<(), (String, String)> {
    request.user.clone_from(&of.name);
    request.control.principal = Some(of.clone());
    let tenant = of.tenant.as_str();
    if request.collection == AgentRequest::default().collection {
        request.collection = tenant.into();
        return Ok(());
    }
    let asked = request.collection.as_str();
    let behind = asked.strip_prefix(tenant);
    if behind.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
        return Ok(());
    }
    Err((
        format!("collection `{asked}` is not of tenant `{tenant}`"),
        format!("leave it out for `{tenant}`, or name one that begins with `{tenant}.`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_stays_within_the_collections_of_its_tenant() {
        let principal = Principal {
            name: "ann".into(),
            tenant: "acme".into(),
            ..Principal::default()
        };
        let default = AgentRequest::default().collection.to_string();
        for (asked, becomes) in [
            (default.as_str(), Some("acme")),
            ("acme", Some("acme")),
            ("acme.handbook", Some("acme.handbook")),
            ("acme2", None),
            ("bond", None),
            ("", None),
        ] {
            let mut request = AgentRequest {
                user: "root".into(),
                collection: asked.into(),
                ..AgentRequest::default()
            };
            let done = on_behalf(&mut request, &principal);
            assert_eq!(done.is_ok(), becomes.is_some(), "{asked}");
            assert_eq!(request.user, "ann");
            assert_eq!(request.control.principal, Some(principal.clone()));
            if let Some(becomes) = becomes {
                assert_eq!(request.collection.as_str(), becomes);
            }
        }
    }
}
