//! Text to entries; also text that others wrote.

use std::{net::IpAddr, str::FromStr};

use serde::de::DeserializeOwned;

use super::{AttachmentStatus, PREFIXES_KEY, StatusAddress, StatusError};
use crate::{
    json::{RawJson, RawObject},
    mac::MacAddr,
};

/// Reads the value of [`super::NETWORK_STATUS_ANNOTATION`] of any writer.
///
/// Addresses are read with or without prefix lengths, and `device` for `device-info`. Unknown keys
/// without a period are dropped; an empty text is an empty list.
///
/// # Errors
/// Not a list of entries, or a value that is not what it must be.
pub fn parse_network_status(text: &str) -> Result<Vec<AttachmentStatus>, StatusError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let objects: Vec<RawObject> = serde_json::from_str(text)?;
    objects
        .into_iter()
        .enumerate()
        .map(|(index, object)| Entry { index, object }.read())
        .collect()
}

struct Entry {
    index: usize,
    object: RawObject,
}

impl Entry {
    fn read(mut self) -> Result<AttachmentStatus, StatusError> {
        let guid: Option<String> = self.value("infiniband-guid", "a string")?;
        let name: Option<String> = self.value("name", "a string")?;
        let interface: Option<String> = self.value("interface", "a string")?;
        let bare: Vec<StatusAddress> = self.list("ips")?;
        let prefixes: Vec<StatusAddress> = self.list(PREFIXES_KEY)?;
        let mac: Option<String> = self.value("mac", "a string")?;
        let device_info = self.raw("device-info");
        let device = self.raw("device");
        Ok(AttachmentStatus {
            name: name.ok_or_else(|| self.bad("name", "nothing".to_owned(), "a string"))?,
            interface: interface.filter(|name| !name.is_empty()),
            ips: with_prefixes(bare, &prefixes),
            mac: mac
                .filter(|mac| !mac.trim().is_empty())
                .map(|mac| self.parse::<MacAddr>("mac", &mac, "a MAC address"))
                .transpose()?,
            mtu: self.value("mtu", "a number of bytes")?,
            default: self.value("default", "true or false")?.unwrap_or(false),
            dns: self.value("dns", "an object")?.unwrap_or_default(),
            gateway: self.list::<IpAddr>("gateway")?,
            default_route: self.list::<IpAddr>("default-route")?,
            device_info: device_info.or(device),
            infiniband_guid: guid.filter(|guid| !guid.is_empty()),
            extensions: self
                .object
                .iter()
                .filter(|(key, _)| key.contains('.'))
                .map(|(key, value)| (key.to_owned(), value.clone()))
                .collect(),
        })
    }

    fn raw(&mut self, key: &str) -> Option<RawJson> {
        self.object.remove(key).filter(|value| !value.is_null())
    }

    fn value<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, StatusError> {
        let Some(raw) = self.raw(key) else {
            return Ok(None);
        };
        raw.read()
            .map(Some)
            .map_err(|_| self.bad(key, raw.quote(), expected))
    }

    /// Blanks around a value are not part of it: examples of NPWG have them.
    fn parse<T: FromStr>(
        &self,
        key: &'static str,
        text: &str,
        expected: &'static str,
    ) -> Result<T, StatusError> {
        text.trim()
            .parse()
            .map_err(|_| self.bad(key, crate::json::quote(text), expected))
    }

    fn list<T: FromStr>(&mut self, key: &'static str) -> Result<Vec<T>, StatusError> {
        let texts: Option<Vec<String>> = self.value(key, "a list of addresses")?;
        let texts = texts.unwrap_or_default();
        texts
            .iter()
            .map(|text| self.parse(key, text, "an address"))
            .collect()
    }

    fn bad(&self, key: &'static str, found: String, expected: &'static str) -> StatusError {
        StatusError::BadValue {
            index: self.index,
            key,
            found,
            expected,
        }
    }
}

/// Each address with the prefix length that podnet's own key has for it.
fn with_prefixes(ips: Vec<StatusAddress>, prefixes: &[StatusAddress]) -> Vec<StatusAddress> {
    ips.into_iter()
        .map(|ip| {
            let known = prefixes.iter().find(|prefix| prefix.address == ip.address);
            match (ip.prefix_len, known) {
                (None, Some(prefix)) => *prefix,
                _ => ip,
            }
        })
        .collect()
}
