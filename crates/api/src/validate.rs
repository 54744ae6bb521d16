//! Validates written objects. Values of these types need no further checks.

mod attachment;
mod bandwidth;
mod endpoint_slice;
mod ether_types;
mod interface;
mod network;
mod port;
mod problem;
mod routes;
mod services;
#[cfg(test)]
mod tests;
mod vpc;
mod wire;

pub use attachment::{AttachmentRequest, IpRequest, attachment_request};
pub use bandwidth::{Bandwidth, Limit, RATE_MAX, RATE_MIN};
pub use endpoint_slice::{Endpoint, EndpointPod, EndpointSlice};
pub(crate) use ether_types::{ETHER_TYPE_PATTERN, ETHER_TYPES_MAX};
pub(crate) use network::overlap;
pub use network::{MTU_MAX, Network, NetworkId, Subnet, Written, is_pod_address, network};
pub use port::{PortRequest, port};
pub use problem::{FieldError, FieldErrors, FieldProblem};
pub use routes::{PushedRoute, RouteRequest};
pub(crate) use vpc::{Vpc as ValidVpc, vpc};
pub use wire::{Clash, Share, VlanRange, Wire};
pub(crate) use wire::{IFNAME_MAX, VLAN_MAX};

use std::net::IpAddr;

use ipnet::IpNet;

/// Gathers every error of an object, so that a person mends it in one go.
#[derive(Default)]
struct Faults(Vec<FieldError>);

impl Faults {
    fn push(&mut self, path: impl Into<String>, problem: FieldProblem) {
        self.0.push(FieldError {
            path: path.into(),
            problem,
        });
    }

    /// The value, with the error noted and swallowed.
    fn take<T>(&mut self, path: impl Into<String>, value: Result<T, FieldProblem>) -> Option<T> {
        value.map_err(|problem| self.push(path, problem)).ok()
    }

    fn finish<T>(self, value: T) -> Result<T, FieldErrors> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(FieldErrors(self.0))
        }
    }
}

/// A prefix whose host bits are zero.
fn parse_prefix(text: &str) -> Result<IpNet, FieldProblem> {
    let prefix: IpNet = text.parse().map_err(|_| FieldProblem::BadPrefix {
        found: text.to_owned(),
    })?;
    if prefix.addr() == prefix.network() {
        Ok(prefix)
    } else {
        Err(FieldProblem::HostBits {
            found: text.to_owned(),
            network: prefix.trunc(),
        })
    }
}

fn parse_address(text: &str) -> Result<IpAddr, FieldProblem> {
    text.parse().map_err(|_| FieldProblem::BadAddress {
        found: text.to_owned(),
    })
}

/// The first address of `prefix` a host or gateway may have.
fn first_usable(prefix: &IpNet) -> IpAddr {
    let reserved = reserved_as(prefix, prefix.network()).is_some();
    match prefix.network() {
        first if !reserved => first,
        IpAddr::V4(first) => IpAddr::V4((u32::from(first) + 1).into()),
        IpAddr::V6(first) => IpAddr::V6((u128::from(first) + 1).into()),
    }
}

/// Returns the reserved meaning of `address` in `prefix`, if no host may have it.
///
/// A /31 (RFC 3021) and a /127 (RFC 6164) have no such addresses.
pub(crate) fn reserved_as(prefix: &IpNet, address: IpAddr) -> Option<&'static str> {
    match prefix {
        IpNet::V4(v4) if v4.prefix_len() >= 31 => None,
        IpNet::V6(v6) if v6.prefix_len() >= 127 => None,
        IpNet::V4(_) if address == prefix.network() => Some("network address"),
        IpNet::V4(_) if address == prefix.broadcast() => Some("broadcast address"),
        IpNet::V6(_) if address == prefix.network() => Some("subnet-router anycast address"),
        _ => None,
    }
}
