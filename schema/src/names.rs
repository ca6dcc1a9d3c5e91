//! Which names are taken, of whoever gives them.

use std::net::IpAddr;

/// Longest name of a principal with an API key, of a tenant and of a role, in bytes.
pub const MAX_PLAIN: usize = 64;

/// Whether a name can be that of a tenant. Its collections begin with it and a dot, so it has none itself: one
/// tenant would else be shown what is another's.
pub fn is_tenant(name: &str) -> bool {
    is_plain(name) && !name.contains('.')
}

/// Whether a name can stand in logs, in tables, in keys and in the shell as it is.
pub fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
    !name.is_empty() && name.len() <= MAX_PLAIN && name.chars().all(is_plain)
}

/// Whether a host, as it stands in an address, is this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']);
    host == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_those_of_tenants_have_no_dot() {
        for (name, plain, tenant) in [
            ("acme", true, true),
            ("a-b_c@d+e", true, true),
            ("acme.lab", true, false),
            ("", false, false),
            ("a b", false, false),
            ("../x", false, false),
            ("é", false, false),
        ] {
            assert_eq!((is_plain(name), is_tenant(name)), (plain, tenant), "{name}");
        }
        assert!(is_plain(&"a".repeat(MAX_PLAIN)) && !is_plain(&"a".repeat(MAX_PLAIN + 1)));
    }

    #[test]
    fn a_host_is_this_machine_only_where_it_says_nothing_else() {
        for (host, is_here) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("[::1]", true),
            ("::1", true),
            ("127.0.0.1.example", false),
            ("localhost.example", false),
            ("10.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), is_here, "{host}");
        }
    }
}
