//! Validates `AttachmentParameters`.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::Serialize;

use super::{
    Bandwidth, Faults, FieldErrors, FieldProblem,
    bandwidth::{EGRESS, INGRESS, limit},
    interface::interface,
    network::unicast_address,
    routes::{self, RouteRequest},
};
use crate::{interface::Interface, mac::MacAddr, parameters::AttachmentParametersSpec};

/// Wishes for one attachment; the default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentRequest {
    /// Its own rates and bursts; [`Bandwidth::or`] adds the network's defaults.
    pub bandwidth: Bandwidth,
    /// Kind of its port; without it the network's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// The MAC address the interface must have, unicast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Addresses the interface must have, unicast, each once.
    pub ips: Vec<IpRequest>,
    /// Routes of the pod, as asked for; the network checks them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteRequest>,
}

/// An address an attachment must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpRequest {
    /// The address.
    pub address: IpAddr,
    /// Length of its subnet's prefix, where the request says it.
    pub prefix_len: Option<u8>,
}

impl fmt::Display for IpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        match self.prefix_len {
            Some(len) => write!(f, "/{len}"),
            None => Ok(()),
        }
    }
}

impl Serialize for IpRequest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for IpRequest {
    type Err = FieldProblem;

    /// An address, or an address with the length of its subnet's prefix; unicast.
    fn from_str(text: &str) -> Result<Self, FieldProblem> {
        let (address, prefix_len) = if let Ok(address) = text.parse::<IpAddr>() {
            (address, None)
        } else if let Ok(prefix) = text.parse::<IpNet>() {
            (prefix.addr(), Some(prefix.prefix_len()))
        } else {
            return Err(FieldProblem::BadIpRequest {
                found: text.to_owned(),
            });
        };
        Ok(Self {
            address: unicast_address(address)?,
            prefix_len,
        })
    }
}

/// Checks one object's parameters by themselves.
///
/// Whether a burst has a rate shows only when all of an attachment's parameters are merged.
///
/// # Errors
/// Every field that is wrong, with what to write instead.
pub fn attachment_request(
    spec: &AttachmentParametersSpec,
) -> Result<AttachmentRequest, FieldErrors> {
    let mut faults = Faults::default();
    let bandwidth = Bandwidth {
        ingress: limit(&mut faults, INGRESS, spec.ingress_rate, spec.ingress_burst),
        egress: limit(&mut faults, EGRESS, spec.egress_rate, spec.egress_burst),
    };
    let interface = interface(&mut faults, spec.interface.as_ref());
    let mac = mac_request(&mut faults, spec.mac_request.as_deref());
    let ips = ip_requests(&mut faults, &spec.ip_requests);
    let routes = routes::written(&mut faults, &spec.routes);
    faults.finish(AttachmentRequest {
        bandwidth,
        interface,
        mac,
        ips,
        routes: routes.into_iter().map(|(_, route)| route).collect(),
    })
}

/// Reads `spec.macRequest`.
pub(super) fn mac_request(faults: &mut Faults, text: Option<&str>) -> Option<MacAddr> {
    text.and_then(|text| faults.take("spec.macRequest", unicast_mac(text)))
}

/// Reads `spec.ipRequests`, each address once.
pub(super) fn ip_requests(faults: &mut Faults, texts: &[String]) -> Vec<IpRequest> {
    let mut ips: Vec<IpRequest> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let path = format!("spec.ipRequests[{index}]");
        let Some(ip) = faults.take(path.as_str(), text.parse::<IpRequest>()) else {
            continue;
        };
        if ips.iter().any(|other| other.address == ip.address) {
            faults.push(path, FieldProblem::AddressTwice { found: ip.address });
        } else {
            ips.push(ip);
        }
    }
    ips
}

fn unicast_mac(text: &str) -> Result<MacAddr, FieldProblem> {
    let mac: MacAddr = text.parse().map_err(FieldProblem::BadMac)?;
    if mac.is_unicast() {
        Ok(mac)
    } else {
        Err(FieldProblem::MacNotUnicast { found: mac })
    }
}
