//! Parse `runtimeConfig`: arguments of declared capabilities (CNI CONVENTIONS.md).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU64;

use crate::addr::{IpRequest, MacAddr};
use crate::error::SpecError;
use crate::fields::{Fields, parse_at, refused};

/// Capability with all annotations of the pod (containerd, CRI-O; CNI-CAP-04).
pub const CAP_POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// The smallest rate, bit/s.
///
/// Kubernetes refuses smaller ones in its annotations too.
pub const RATE_MIN: u64 = 1_000;
/// The largest rate, bit/s; Kubernetes' as well.
pub const RATE_MAX: u64 = 1_000_000_000_000_000;

/// Capability arguments, matched without regard to case (CNI-CAP-03).
///
/// Keys we do not know are ignored; keys we know and do not serve are kept, so that the agent can
/// refuse them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// `ips`: addresses wanted.
    pub ips: Vec<IpRequest>,
    /// `mac`: the MAC wanted; one that an interface may have.
    pub mac: Option<MacAddr>,
    /// `bandwidth`: limits, if any limit is set.
    pub bandwidth: Option<Bandwidth>,
    /// `portMappings`: host ports wanted.
    pub port_mappings: Vec<PortMapping>,
    /// Annotations of the pod, from [`CAP_POD_ANNOTATIONS`].
    ///
    /// Empty for a pod without any, absent when the runtime says nothing of them.
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// `cgroupPath`: the pod's cgroup.
    pub cgroup_path: Option<String>,
    /// `dns`: the pod's resolver settings.
    pub dns: RuntimeDns,
    /// `ipRanges`: one address out of each inner list.
    pub ip_ranges: Vec<Vec<IpRange>>,
    /// `deviceID`: a device the device plugin chose.
    pub device_id: Option<String>,
    /// `CNIDeviceInfoFile`: where to describe the device (device-info-spec).
    pub device_info_file: Option<String>,
}

/// `bandwidth`: rates in bit/s and bursts in bits, as the container sees them.
///
/// Ingress is the traffic it receives. 0 means unlimited and is `None` here: runtimes written in Go
/// send it for a rate that was not requested (MEAS-01). There is no burst without a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// `ingressRate`, bit/s.
    pub ingress_rate: Option<NonZeroU64>,
    /// `ingressBurst`, bits.
    pub ingress_burst: Option<NonZeroU64>,
    /// `egressRate`, bit/s.
    pub egress_rate: Option<NonZeroU64>,
    /// `egressBurst`, bits.
    pub egress_burst: Option<NonZeroU64>,
}

impl Bandwidth {
    /// Whether any direction is limited.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.ingress_rate.is_some() || self.egress_rate.is_some()
    }
}

/// One entry of `portMappings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// `hostPort`.
    pub host_port: u16,
    /// `containerPort`.
    pub container_port: u16,
    /// `protocol` in lower case; `tcp` when missing.
    pub protocol: String,
    /// `hostIP`; empty counts as missing.
    pub host_ip: Option<IpAddr>,
}

/// `dns`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeDns {
    /// `servers`.
    pub servers: Vec<String>,
    /// `searches`.
    pub searches: Vec<String>,
    /// `options`.
    pub options: Vec<String>,
}

/// One entry of `ipRanges`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpRange {
    /// `subnet`.
    pub subnet: IpRequest,
    /// `rangeStart`.
    pub range_start: Option<IpAddr>,
    /// `rangeEnd`.
    pub range_end: Option<IpAddr>,
    /// `gateway`.
    pub gateway: Option<IpAddr>,
}

impl RuntimeConfig {
    pub(crate) fn decode(fields: Option<&Fields<'_>>) -> Result<Self, SpecError> {
        let Some(fields) = fields else {
            return Ok(Self::default());
        };
        let dns = fields.object("dns")?;
        let dns_list = |key| dns.as_ref().map_or(Ok(Vec::new()), |dns| dns.strings(key));
        Ok(Self {
            ips: fields.parsed_list("ips")?,
            mac: fields
                .string("mac")?
                .map(|text| usable_mac(&fields.path("mac"), &text))
                .transpose()?,
            bandwidth: fields
                .object("bandwidth")?
                .map(|fields| bandwidth(&fields))
                .transpose()?
                .filter(|limits| *limits != Bandwidth::default()),
            port_mappings: fields.objects("portMappings", port_mapping)?,
            pod_annotations: annotations(fields)?,
            cgroup_path: fields.string("cgroupPath")?,
            dns: RuntimeDns {
                servers: dns_list("servers")?,
                searches: dns_list("searches")?,
                options: dns_list("options")?,
            },
            ip_ranges: fields.elements("ipRanges", |path, value| {
                let set = value
                    .as_array()
                    .ok_or_else(|| refused(&path, "a list of ranges", value))?;
                set.iter()
                    .enumerate()
                    .map(|(index, range)| ip_range(&Fields::at(format!("{path}[{index}]"), range)?))
                    .collect()
            })?,
            device_id: fields.string("deviceID")?,
            device_info_file: fields.string("CNIDeviceInfoFile")?,
        })
    }
}

/// Reads a MAC that one interface may have.
pub(crate) fn usable_mac(path: &str, text: &str) -> Result<MacAddr, SpecError> {
    let mac: MacAddr = parse_at(path, text)?;
    if mac.is_usable() {
        return Ok(mac);
    }
    Err(SpecError::FieldValue {
        path: path.to_owned(),
        source: Box::new(SpecError::Mac {
            value: text.to_owned(),
            rule: "it is zero or a group address; the lowest bit of the first octet must be 0",
        }),
    })
}

fn bandwidth(fields: &Fields<'_>) -> Result<Bandwidth, SpecError> {
    let (ingress_rate, ingress_burst) = limit(fields, "ingressRate", "ingressBurst")?;
    let (egress_rate, egress_burst) = limit(fields, "egressRate", "egressBurst")?;
    Ok(Bandwidth {
        ingress_rate,
        ingress_burst,
        egress_rate,
        egress_burst,
    })
}

/// Rate and burst of one direction.
fn limit(
    fields: &Fields<'_>,
    rate_key: &'static str,
    burst_key: &'static str,
) -> Result<(Option<NonZeroU64>, Option<NonZeroU64>), SpecError> {
    let expected = "0 for unlimited, or 1000 (1 kbit/s) to 1000000000000000 (1 Pbit/s), in whole \
                    bits per second";
    let rate = fields.number::<u64>(rate_key, expected)?;
    let in_range = rate.is_none_or(|rate| matches!(rate, 0 | RATE_MIN..=RATE_MAX));
    if let (false, Some(found)) = (in_range, fields.get(rate_key)) {
        return Err(refused(&fields.path(rate_key), expected, found));
    }
    let expected = "a whole number of bits, 0 to have it chosen";
    let burst = fields.number::<u64>(burst_key, expected)?;
    let (rate, burst) = (
        rate.and_then(NonZeroU64::new),
        burst.and_then(NonZeroU64::new),
    );
    if burst.is_some() && rate.is_none() {
        return Err(SpecError::BurstWithoutRate {
            path: fields.path(burst_key),
            rate: rate_key,
        });
    }
    Ok((rate, burst))
}

fn port_mapping(fields: &Fields<'_>) -> Result<PortMapping, SpecError> {
    let port = |key| {
        let port = fields.number::<u16>(key, "a port number, 0 to 65535")?;
        fields.required(key, port)
    };
    Ok(PortMapping {
        host_port: port("hostPort")?,
        container_port: port("containerPort")?,
        protocol: fields
            .string("protocol")?
            .map_or_else(|| "tcp".to_owned(), |text| text.to_ascii_lowercase()),
        host_ip: ip(fields, "hostIP")?,
    })
}

fn ip_range(fields: &Fields<'_>) -> Result<IpRange, SpecError> {
    Ok(IpRange {
        subnet: fields.required("subnet", fields.parsed("subnet")?)?,
        range_start: ip(fields, "rangeStart")?,
        range_end: ip(fields, "rangeEnd")?,
        gateway: ip(fields, "gateway")?,
    })
}

fn ip(fields: &Fields<'_>, key: &str) -> Result<Option<IpAddr>, SpecError> {
    let Some(text) = fields.string(key)? else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| SpecError::FieldValue {
        path: fields.path(key),
        source: Box::new(SpecError::Address {
            value: text,
            rule: "it is not an IPv4 or IPv6 address",
        }),
    })
}

/// Annotation keys are data: their case is kept.
fn annotations(fields: &Fields<'_>) -> Result<Option<BTreeMap<String, String>>, SpecError> {
    let Some(annotations) = fields.object(CAP_POD_ANNOTATIONS)? else {
        // Go writes an empty map that was never made as `null`.
        let said = fields.raw(CAP_POD_ANNOTATIONS).is_some();
        return Ok(said.then(BTreeMap::new));
    };
    annotations
        .object_map()
        .iter()
        .map(|(key, value)| {
            let text = value
                .as_str()
                .ok_or_else(|| refused(&annotations.path(key), "a string", value))?;
            Ok((key.clone(), text.to_owned()))
        })
        .collect::<Result<_, _>>()
        .map(Some)
}
