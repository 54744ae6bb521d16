//! Entries to text.

use serde::Serialize;

use super::{AttachmentStatus, PREFIXES_KEY, StatusAddress, StatusDns, StatusError};
use crate::json::{RawJson, RawObject};

/// Writes [`super::NETWORK_STATUS_ANNOTATION`]; entries keep their order.
///
/// As the clients in use read it: `ips` without prefix lengths, which are in [`PREFIXES_KEY`],
/// `gateway`, and `dns` even when it is empty.
///
/// # Errors
/// Two default networks, or a MAC address without an interface.
pub fn write_network_status(entries: &[AttachmentStatus]) -> Result<String, StatusError> {
    let mut defaults = entries.iter().filter(|entry| entry.default);
    if let (Some(first), Some(second)) = (defaults.next(), defaults.next()) {
        return Err(StatusError::TwoDefaults {
            first: first.name.clone(),
            second: second.name.clone(),
        });
    }
    let orphan = |entry: &&AttachmentStatus| entry.mac.is_some() && entry.interface.is_none();
    if let Some(entry) = entries.iter().find(orphan) {
        let name = entry.name.clone();
        return Err(StatusError::MacWithoutInterface { name });
    }
    let written: Result<Vec<_>, _> = entries.iter().map(object).collect();
    Ok(serde_json::to_string(&written?)?)
}

/// The keys NPWG and its clients know, in the order of NPWG §5.3.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Known<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    default: bool,
    dns: &'a StatusDns,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gateway: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    default_route: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_info: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    infiniband_guid: Option<&'a str>,
}

fn object(entry: &AttachmentStatus) -> Result<RawObject, StatusError> {
    let bare = |ip: &StatusAddress| ip.address.to_string();
    let list = |write: &dyn Fn(&StatusAddress) -> String| entry.ips.iter().map(write).collect();
    let known = Known {
        name: &entry.name,
        interface: entry.interface.as_deref(),
        ips: list(&bare),
        mac: entry.mac.map(|mac| mac.to_string()),
        mtu: entry.mtu,
        default: entry.default,
        dns: &entry.dns,
        gateway: entry.gateway.iter().map(ToString::to_string).collect(),
        default_route: entry
            .default_route
            .iter()
            .map(ToString::to_string)
            .collect(),
        device_info: entry.device_info.as_ref(),
        infiniband_guid: entry.infiniband_guid.as_deref(),
    };
    let text = serde_json::to_string(&known)?;
    let mut object: RawObject = serde_json::from_str(&text)?;
    if entry.ips.iter().any(|ip| ip.prefix_len.is_some()) {
        let prefixes: Vec<String> = list(&ToString::to_string);
        object.set(PREFIXES_KEY, &prefixes)?;
    }
    for (key, value) in &entry.extensions {
        object.set(key, value)?;
    }
    Ok(object)
}
