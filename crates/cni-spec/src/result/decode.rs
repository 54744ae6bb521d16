//! Results of any version into the internal form (CNI-RES-03, CNI-RES-04).

use std::net::IpAddr;

use serde_json::Value;

use super::{CniResult, Dns, Interface, IpConfig, Route};
use crate::addr::IpPrefix;
use crate::error::SpecError;
use crate::fields::{Fields, refused};
use crate::version::CniVersion;

impl CniResult {
    /// Reads a result of any version.
    ///
    /// Its own `cniVersion` says the form; without one `config`'s version does, unless only the old
    /// keys are there. `null` and `{}` are the empty result.
    ///
    /// # Errors
    /// [`SpecError::IncompatibleVersion`] (code 1) for a result of a version we do not know;
    /// code 7 for a value that is not what it must be.
    pub fn parse(value: &Value, config: CniVersion) -> Result<Self, SpecError> {
        if value.is_null() {
            return Ok(Self::default());
        }
        let fields = Fields::root(value, "a CNI result, a JSON object")?;
        let has = |key| fields.get(key).is_some();
        let only_old_keys = (has("ip4") || has("ip6")) && !has("ips") && !has("interfaces");
        let old = match fields.string("cniVersion")? {
            Some(text) => CniVersion::parse(Some(&text))? < CniVersion::V0_3_0,
            None => config < CniVersion::V0_3_0 || only_old_keys,
        };
        let mut result = Self {
            dns: Dns::decode(fields.object("dns")?.as_ref())?,
            ..Self::default()
        };
        if old {
            for key in ["ip4", "ip6"] {
                if let Some(family) = fields.object(key)? {
                    result.add_family(&family)?;
                }
            }
        } else {
            result.interfaces = fields.objects("interfaces", interface)?;
            result.ips = fields.objects("ips", ip_config)?;
            result.routes = fields.objects("routes", route)?;
        }
        result.check_indexes()?;
        Ok(result)
    }

    /// `ip4` or `ip6` of 0.1.0 and 0.2.0.
    fn add_family(&mut self, fields: &Fields<'_>) -> Result<(), SpecError> {
        self.ips.push(IpConfig {
            address: fields.required("ip", fields.parsed("ip")?)?,
            gateway: ip(fields, "gateway")?,
            interface: None,
        });
        self.routes.extend(fields.objects("routes", route)?);
        Ok(())
    }

    /// No address may point at an interface that is not there (CNI-RES-05).
    pub(super) fn check_indexes(&self) -> Result<(), SpecError> {
        let interfaces = self.interfaces.len();
        for (ip, entry) in self.ips.iter().enumerate() {
            if let Some(index) = entry.interface.filter(|index| *index >= interfaces) {
                return Err(SpecError::InterfaceIndex {
                    ip,
                    index,
                    interfaces,
                });
            }
        }
        Ok(())
    }
}

impl Dns {
    pub(crate) fn decode(fields: Option<&Fields<'_>>) -> Result<Self, SpecError> {
        let Some(fields) = fields else {
            return Ok(Self::default());
        };
        Ok(Self {
            nameservers: fields.strings("nameservers")?,
            domain: fields.string("domain")?,
            search: fields.strings("search")?,
            options: fields.strings("options")?,
        })
    }
}

fn interface(fields: &Fields<'_>) -> Result<Interface, SpecError> {
    Ok(Interface {
        name: fields.required("name", fields.string("name")?)?,
        mac: fields.string("mac")?,
        mtu: number(fields, "mtu")?.filter(|mtu| *mtu != 0),
        sandbox: fields.string("sandbox")?,
        socket_path: fields.string("socketPath")?,
        pci_id: fields.string("pciID")?,
    })
}

fn ip_config(fields: &Fields<'_>) -> Result<IpConfig, SpecError> {
    Ok(IpConfig {
        address: fields.required("address", fields.parsed::<IpPrefix>("address")?)?,
        gateway: ip(fields, "gateway")?,
        interface: index(fields)?,
    })
}

/// -1 is how older plugins say "no interface".
fn index(fields: &Fields<'_>) -> Result<Option<usize>, SpecError> {
    let Some(value) = fields.get("interface") else {
        return Ok(None);
    };
    if value.as_i64() == Some(-1) {
        return Ok(None);
    }
    fields.number("interface", "an index into `interfaces`, or -1")
}

fn route(fields: &Fields<'_>) -> Result<Route, SpecError> {
    Ok(Route {
        dst: fields.required("dst", fields.parsed("dst")?)?,
        gw: ip(fields, "gw")?,
        mtu: number(fields, "mtu")?,
        advmss: number(fields, "advmss")?,
        priority: number(fields, "priority")?,
        table: number(fields, "table")?,
        scope: number(fields, "scope")?,
    })
}

fn number(fields: &Fields<'_>, key: &str) -> Result<Option<u32>, SpecError> {
    fields.number(key, "a whole number below 4294967296")
}

fn ip(fields: &Fields<'_>, key: &str) -> Result<Option<IpAddr>, SpecError> {
    let Some(text) = fields.string(key)? else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|_| refused(&fields.path(key), "an IP address", &Value::String(text)))
}
