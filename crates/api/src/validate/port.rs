//! Validates `Port`.

use super::attachment::{IpRequest, ip_requests, mac_request};
use super::{Faults, FieldErrors, FieldProblem};
use crate::mac::MacAddr;
use crate::meta::check_subdomain;
use crate::port::PortSpec;

/// Network, MAC address and addresses that a Port is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRequest {
    /// Name of its network.
    pub network: String,
    /// Its MAC address, unicast.
    pub mac: MacAddr,
    /// Addresses that it must have, unicast, each once.
    ///
    /// Families without one get that of its first pod.
    pub ips: Vec<IpRequest>,
}

/// Checks a Port, which has this UID.
///
/// # Errors
/// Every field that is wrong, with what to write instead.
pub fn port(uid: &str, spec: &PortSpec) -> Result<PortRequest, FieldErrors> {
    let mut faults = Faults::default();
    if let Err(error) = check_subdomain(&spec.network) {
        faults.push("spec.network", FieldProblem::Name(error));
    }
    let mac = mac_request(&mut faults, spec.mac_request.as_deref());
    let ips = ip_requests(&mut faults, &spec.ip_requests);
    faults.finish(PortRequest {
        network: spec.network.clone(),
        mac: mac.unwrap_or_else(|| MacAddr::derived(uid)),
        ips,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(mac: Option<&str>, ips: &[&str]) -> PortSpec {
        PortSpec {
            network: "blue".to_owned(),
            mac_request: mac.map(str::to_owned),
            ip_requests: ips.iter().map(|&ip| ip.to_owned()).collect(),
        }
    }

    #[test]
    fn a_port_without_a_mac_address_has_one_that_its_uid_says() {
        let mac = |uid| port(uid, &spec(None, &[])).unwrap().mac;
        assert_eq!(mac("6c3f"), mac("6c3f"));
        assert_ne!(mac("6c3f"), mac("6c40"));
        assert!(mac("6c3f").is_unicast());
        assert_eq!(
            mac("6c3f").octets()[0],
            2,
            "administered locally (IEEE 802-2014, 8.4)"
        );
        let given = port("6c3f", &spec(Some("02:00:00:00:00:2a"), &[])).unwrap();
        assert_eq!(given.mac.to_string(), "02:00:00:00:00:2a");
    }

    #[test]
    fn every_wrong_field_of_a_port_is_named() {
        let mut wrong = spec(Some("01:00:00:00:00:2a"), &["10.0.0.7", "10.0.0.7", "x"]);
        wrong.network = "Blue".to_owned();
        let errors = port("6c3f", &wrong).unwrap_err();
        let paths: Vec<&str> = errors.0.iter().map(|error| &*error.path).collect();
        assert_eq!(
            paths,
            [
                "spec.network",
                "spec.macRequest",
                "spec.ipRequests[1]",
                "spec.ipRequests[2]"
            ]
        );
    }
}
