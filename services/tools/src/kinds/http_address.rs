//! Which addresses an `http` tool may reach.
//!
//! The rule: a host name that leads to a link-local address or to a known metadata service of a
//! cloud is refused, because whoever answers for the name could otherwise read credentials of the
//! machine; an address written as digits is refused likewise. Loopback and private addresses are
//! allowed, since that is where own services are. A name is resolved once for each request, and the
//! request goes to what was found. Only reading calls follow redirects, to hosts that the item names,
//! each checked as the first address was.

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Metadata services outside the link-local ranges.
const METADATA_V4: &[Ipv4Addr] = &[
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Resolves names by the system, without the addresses that are refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded;

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            allowed(&host, found).map(|addresses| Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Refuses addresses written as digits that may not be reached; names are checked when they are resolved.
pub(crate) fn check(url: &Url) -> Result<(), String> {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse() {
        Ok(address) if is_refused(address) => Err(format!(
            "`{host}` is a link-local or metadata address, which is refused"
        )),
        _ => Ok(()),
    }
}

/// The addresses of a name that may be reached, or why there is none.
pub(super) fn allowed(
    host: &str,
    found: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let refused = found
        .iter()
        .map(SocketAddr::ip)
        .find(|address| is_refused(*address));
    let addresses: Vec<_> = found.into_iter().filter(|a| !is_refused(a.ip())).collect();
    match refused {
        Some(address) if addresses.is_empty() => Err(format!(
            "`{host}` leads to {address}, a link-local or metadata address, which is refused"
        )
        .into()),
        _ => Ok(addresses),
    }
}

fn is_refused(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast()
                || METADATA_V4.contains(&address)
        }
        IpAddr::V6(address) => match inner_v4(address) {
            Some(inner) => is_refused(IpAddr::V4(inner)),
            None => {
                address.is_unicast_link_local()
                    || address.is_unspecified()
                    || address.is_multicast()
                    || METADATA_V6.contains(&address)
            }
        },
    }
}

/// The IPv4 address inside a mapped or translated one.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low] = address.segments();
    let is_translated = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    address
        .to_ipv4_mapped()
        .or(is_translated.then_some(Ipv4Addr::new(a, b, c, d)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn link_local_and_metadata_addresses_are_refused() {
        for (address, refused) in [
            ("169.254.169.254", true),
            ("fe80::1", true),
            ("::ffff:169.254.169.254", true),
            ("64:ff9b::a9fe:a9fe", true),
            ("fd00:ec2::254", true),
            ("100.100.100.200", true),
            ("0.0.0.0", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("10.0.0.1", false),
            ("192.168.1.1", false),
            ("93.184.215.14", false),
            ("2606:2800:21f::1", false),
        ] {
            assert_eq!(is_refused(address.parse().unwrap()), refused, "{address}");
        }
    }

    #[test]
    fn a_name_keeps_its_allowed_addresses_and_says_why_none_is_left() {
        let found = |addresses: &[&str]| -> Vec<SocketAddr> {
            addresses
                .iter()
                .map(|a| SocketAddr::new(a.parse().unwrap(), 0))
                .collect()
        };
        let kept = allowed("h", found(&["169.254.169.254", "10.0.0.1"])).unwrap();
        assert_eq!(kept, found(&["10.0.0.1"]));
        assert_eq!(
            allowed("h", found(&["169.254.169.254"]))
                .unwrap_err()
                .to_string(),
            "`h` leads to 169.254.169.254, a link-local or metadata address, which is refused"
        );
    }
}
