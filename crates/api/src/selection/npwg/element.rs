//! One element of the JSON list (NPWG §4.1.2.1).

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use super::NetworkSelection;
use crate::{
    json::{RawJson, RawObject},
    mac::{MacAddr, ParseMacError},
    meta::{NameError, check_label, check_subdomain},
    selection::{
        ifname::InterfaceName,
        limits::{CNI_ARGS_MAX, GATEWAYS_MAX, IPS_MAX, PORT_MAPPINGS_MAX},
        options::{AttachmentOptions, PORT_KEY, PortMapping, Protocol},
        problem::{Findings, SelectionProblem},
        reader::{Reader, typed},
    },
    validate::{Bandwidth, FieldProblem, IpRequest, Limit, RATE_MAX, RATE_MIN, reserved_as},
};

/// The largest whole number every JSON reader keeps (RFC 8259 §6).
const COUNT_MAX: u64 = (1 << 53) - 1;

/// Reads the element, as far as possible; `None` without a name.
///
/// Errors are in `findings`.
pub(super) fn read(
    findings: &mut Findings,
    index: usize,
    element: &RawJson,
) -> Option<NetworkSelection> {
    let mut reader = Reader::element(findings, index, element)?;
    let name = name(&mut reader);
    let namespace = reader
        .value::<String>("namespace", "a string")
        .filter(|namespace| !namespace.is_empty());
    if let Some(namespace) = &namespace {
        reader.check("namespace", check_label(namespace));
    }
    let interface = reader.parsed("interface", str::parse::<InterfaceName>);
    let mut ignored = Vec::new();
    let mut options = options(&mut reader, &mut ignored);
    for (key, value) in reader.rest().iter() {
        if key.contains('.') {
            options.extensions.insert(key.to_owned(), value.clone());
        } else {
            ignored.push(key.to_owned());
        }
    }
    Some(NetworkSelection {
        name: name?,
        namespace,
        interface,
        options,
        ignored,
    })
}

fn name(reader: &mut Reader<'_>) -> Option<String> {
    let Some(raw) = reader.raw("name") else {
        let example = "{\"name\": \"net-a\"}";
        let here = reader.here();
        reader
            .findings
            .push(here, SelectionProblem::NameRequired { example });
        return None;
    };
    let name: String = reader.check("name", typed(&raw, "a string"))?;
    reader.check("name", check_subdomain(&name))?;
    Some(name)
}

fn options(reader: &mut Reader<'_>, ignored: &mut Vec<String>) -> AttachmentOptions {
    AttachmentOptions {
        ips: ips(reader),
        mac: reader.parsed("mac", mac),
        bandwidth: bandwidth(reader),
        port_mappings: port_mappings(reader, ignored),
        default_route: default_route(reader),
        infiniband_guid: reader.parsed("infiniband-guid", str::parse),
        ipam_claim_reference: reader.parsed("ipam-claim-reference", object_name),
        port: reader.parsed(PORT_KEY, object_name),
        vpc: None,
        cni_args: cni_args(reader),
        extensions: std::collections::BTreeMap::new(),
    }
}

fn object_name(name: &str) -> Result<String, NameError> {
    check_subdomain(name)?;
    Ok(name.to_owned())
}

/// An object that plugins get as it is written.
fn cni_args(reader: &mut Reader<'_>) -> Option<RawObject> {
    let raw = reader.raw("cni-args")?;
    let found = raw.get().len();
    let limit = CNI_ARGS_MAX;
    if found > limit {
        reader.push("cni-args", SelectionProblem::TooLong { found, limit });
        return None;
    }
    reader.check("cni-args", typed(&raw, "an object"))
}

fn ips(reader: &mut Reader<'_>) -> Vec<IpRequest> {
    let Some(requests) = reader.parsed_list("ips", Some("address"), IPS_MAX, ip) else {
        return Vec::new();
    };
    let mut once: Vec<IpRequest> = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, request) in requests {
        if seen.insert(request.address) {
            once.push(request);
        } else {
            let found = request.address;
            reader.push(&path, FieldProblem::AddressTwice { found });
        }
    }
    once
}

/// An address a pod can have, with the length of its prefix where that is said.
pub(in crate::selection) fn ip(text: &str) -> Result<IpRequest, SelectionProblem> {
    let (address, _) = text.split_once('/').unwrap_or((text, ""));
    if let Ok(address) = address.parse() {
        not_mapped(address, text)?;
    }
    let request: IpRequest = text.parse()?;
    let prefix = request
        .prefix_len
        .and_then(|len| IpNet::new(request.address, len).ok());
    let reserved = prefix.and_then(|prefix| {
        let subnet = prefix.trunc();
        reserved_as(&subnet, request.address).map(|what| (subnet, what))
    });
    match reserved {
        None => Ok(request),
        Some((subnet, what)) => Err(SelectionProblem::from(FieldProblem::ReservedAddress {
            address: request.address,
            what,
            subnet,
        })),
    }
}

fn not_mapped(address: IpAddr, text: &str) -> Result<(), SelectionProblem> {
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            None => Ok(()),
            Some(v4) => Err(SelectionProblem::MappedAddress {
                found: text.to_owned(),
                address: v4.into(),
            }),
        },
        IpAddr::V4(_) => Ok(()),
    }
}

/// Reads six octets; also three groups with dots between them, as Go does.
fn mac(text: &str) -> Result<MacAddr, FieldProblem> {
    let mac: MacAddr = match dotted_mac(text) {
        Some(mac) => mac,
        None => text
            .parse()
            .map_err(|error: ParseMacError| FieldProblem::BadMac(error))?,
    };
    if mac.is_unicast() {
        Ok(mac)
    } else {
        Err(FieldProblem::MacNotUnicast { found: mac })
    }
}

fn dotted_mac(text: &str) -> Option<MacAddr> {
    let groups: Vec<&str> = text.split('.').collect();
    let well_formed = groups.len() == 3
        && groups
            .iter()
            .all(|group| group.len() == 4 && group.bytes().all(|b| b.is_ascii_hexdigit()));
    if !well_formed {
        return None;
    }
    let [_, _, octets @ ..] = u64::from_str_radix(&groups.concat(), 16)
        .ok()?
        .to_be_bytes();
    Some(MacAddr::new(octets))
}

fn bandwidth(reader: &mut Reader<'_>) -> Option<Bandwidth> {
    let mut object = reader.object("bandwidth")?;
    let ingress = limit(&mut object, "ingressRate", "ingressBurst");
    let egress = limit(&mut object, "egressRate", "egressBurst");
    if (ingress, egress) == ((Wish::Absent, Wish::Absent), (Wish::Absent, Wish::Absent)) {
        let here = object.here();
        object.findings.push(
            here,
            SelectionProblem::Empty {
                what: "rate, as ingressRate",
            },
        );
    }
    object.refuse_rest("ingressRate, ingressBurst, egressRate, egressBurst");
    let limit = |(rate, burst): (Wish, Wish)| Limit {
        rate: rate.value(),
        burst: burst.value(),
    };
    Some(Bandwidth {
        ingress: limit(ingress),
        egress: limit(egress),
    })
}

/// A number as it was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Absent,
    Wrong,
    Value(u64),
}

impl Wish {
    fn value(self) -> Option<u64> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Wrong => None,
        }
    }
}

/// The rate and the burst of one direction, as seen from the pod.
fn limit(object: &mut Reader<'_>, rate_key: &'static str, burst_key: &str) -> (Wish, Wish) {
    let rate = count(object, rate_key);
    let burst = count(object, burst_key);
    if let Wish::Value(rate) = rate
        && !(RATE_MIN..=RATE_MAX).contains(&rate)
    {
        // At most `RATE_MAX`, or it is quoted as the largest number there is.
        let found = i64::try_from(rate).unwrap_or(i64::MAX);
        object.push(rate_key, FieldProblem::RateRange { found });
    }
    if burst != Wish::Absent && rate == Wish::Absent {
        object.push(
            burst_key,
            SelectionProblem::BurstWithoutRate { rate: rate_key },
        );
    }
    (rate, burst)
}

fn count(object: &mut Reader<'_>, key: &str) -> Wish {
    let Some(raw) = object.raw(key) else {
        return Wish::Absent;
    };
    match raw.read::<u64>() {
        Ok(value @ 1..=COUNT_MAX) => Wish::Value(value),
        _ => {
            let found = raw.quote();
            object.push(key, SelectionProblem::NotCountable { found });
            Wish::Wrong
        }
    }
}

fn port_mappings(reader: &mut Reader<'_>, ignored: &mut Vec<String>) -> Vec<PortMapping> {
    let Some(values) = reader.value::<Vec<RawJson>>("portMappings", "a list of objects") else {
        return Vec::new();
    };
    if values.is_empty() {
        let what = "mapping, as {\"hostPort\": 8080, \"containerPort\": 80}";
        reader.push("portMappings", SelectionProblem::Empty { what });
    }
    if !reader.bounded("portMappings", values.len(), PORT_MAPPINGS_MAX) {
        return Vec::new();
    }
    let mut mappings: Vec<PortMapping> = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let path = format!("portMappings[{index}]");
        let Some(mut object) = reader.object_at(&path, value) else {
            continue;
        };
        let host_port = port(&mut object, "hostPort");
        let container_port = port(&mut object, "containerPort");
        let protocol = object.parsed("protocol", str::parse::<Protocol>);
        let host_ip = object
            .value::<String>("hostIP", "a string")
            .filter(|text| !text.is_empty())
            .and_then(|text| object.check("hostIP", host_address(&text)));
        for (key, _) in object.rest().iter() {
            ignored.push(format!("{path}.{key}"));
        }
        if let (Some(host_port), Some(container_port)) = (host_port, container_port) {
            mappings.push(PortMapping {
                host_port,
                container_port,
                protocol: protocol.unwrap_or_default(),
                host_ip: host_ip.filter(|address| !address.is_unspecified()),
            });
        }
    }
    mappings
}

fn port(object: &mut Reader<'_>, key: &str) -> Option<u16> {
    let raw = object.raw(key);
    let port = raw.as_ref().and_then(|raw| raw.read::<u16>().ok());
    match port {
        Some(port @ 1..) => Some(port),
        _ => {
            let found = raw.map_or_else(|| "nothing".to_owned(), |raw| raw.quote());
            object.push(key, SelectionProblem::PortRange { found });
            None
        }
    }
}

fn host_address(text: &str) -> Result<IpAddr, FieldProblem> {
    text.parse().map_err(|_| FieldProblem::BadAddress {
        found: text.to_owned(),
    })
}

/// May be empty: then the attachment gets the default route its own network gives.
fn default_route(reader: &mut Reader<'_>) -> Option<Vec<IpAddr>> {
    let gateways = reader.parsed_list("default-route", None, GATEWAYS_MAX, gateway)?;
    let mut seen = BTreeSet::new();
    for (path, gateway) in &gateways {
        if !seen.insert(*gateway) {
            let found = *gateway;
            reader.push(path, FieldProblem::AddressTwice { found });
        }
    }
    Some(gateways.into_iter().map(|(_, gateway)| gateway).collect())
}

fn gateway(text: &str) -> Result<IpAddr, SelectionProblem> {
    let bad = || SelectionProblem::BadGateway {
        found: text.to_owned(),
    };
    let address: IpAddr = text.parse().map_err(|_| bad())?;
    not_mapped(address, text)?;
    let broadcast = address == IpAddr::from([255; 4]);
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() || broadcast {
        Err(bad())
    } else {
        Ok(address)
    }
}
