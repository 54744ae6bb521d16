//! Routes that a pod gets.

use std::net::IpAddr;

use api::Prefix;

/// A route in the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRoute {
    /// Destination.
    pub to: Prefix,
    /// Next hop; none for what is on the link.
    pub via: Option<IpAddr>,
    /// Preference, lower wins; the kernel's own when absent.
    pub metric: Option<u32>,
}

impl PodRoute {
    /// A route with the kernel's own preference.
    pub const fn new(to: Prefix, via: Option<IpAddr>) -> Self {
        Self {
            to,
            via,
            metric: None,
        }
    }
}

/// Metric of the default route at this place in a list: a later one is larger.
///
/// The first has the kernel's own (0 for IPv4, 1024 for IPv6).
pub fn metric(v4: bool, place: u32) -> Option<u32> {
    let first = if v4 { 0 } else { 1024 };
    (place > 0).then(|| place.saturating_add(first))
}

pub(super) fn host_prefix(ip: IpAddr) -> Prefix {
    Prefix::from(ip)
}

pub(super) fn default_prefix(v4: bool) -> Prefix {
    let any: IpAddr = if v4 {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    // A length of zero is valid for both families.
    Prefix::new(any, 0).unwrap_or_else(|_| Prefix::from(any))
}
