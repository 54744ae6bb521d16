//! The internal form into the shape each version has (CNI-RES-01, -02).

use serde_json::{Map, Value, json};

use super::{CniResult, Dns, Interface, IpConfig, Route};
use crate::error::SpecError;
use crate::version::CniVersion;

impl CniResult {
    /// Writes the result in exactly this version (CNI-ADD-02).
    ///
    /// Fields that the version does not have are left out: before 1.1.0 `mtu`, `socketPath`, `pciID`
    /// and the route attributes, before 0.3.0 the interfaces and all addresses of a family but the
    /// first.
    ///
    /// # Errors
    /// [`SpecError::NoIpForVersion`] for a result without addresses before 0.3.0 (as Go's
    /// converter has it), [`SpecError::InterfaceIndex`] for an index that points nowhere.
    pub fn to_version(&self, version: CniVersion) -> Result<Value, SpecError> {
        self.check_indexes()?;
        let mut out = Map::new();
        out.insert("cniVersion".to_owned(), version.as_str().into());
        if version < CniVersion::V0_3_0 {
            if self.ips.is_empty() {
                return Err(SpecError::NoIpForVersion { version });
            }
            for (key, ipv4) in [("ip4", true), ("ip6", false)] {
                if let Some(family) = self.family(ipv4) {
                    out.insert(key.to_owned(), family);
                }
            }
        } else {
            let interfaces = self.interfaces.iter().map(|i| i.encode(version));
            insert_list(&mut out, "interfaces", interfaces.collect());
            let ips = self.ips.iter().map(|ip| ip.encode(version));
            insert_list(&mut out, "ips", ips.collect());
            let routes = self.routes.iter().map(|route| route.encode(version));
            insert_list(&mut out, "routes", routes.collect());
        }
        let dns = self.dns.encode();
        // The older Go types cannot omit it, and old readers may expect it.
        if version < CniVersion::V1_0_0 || !dns.is_empty() {
            out.insert("dns".to_owned(), dns.into());
        }
        Ok(Value::Object(out))
    }

    /// Builds `ip4` or `ip6` of 0.1.0 and 0.2.0.
    ///
    /// It is the first address of the family and its routes.
    fn family(&self, ipv4: bool) -> Option<Value> {
        let first = self.ips.iter().find(|ip| ip.address.is_ipv4() == ipv4)?;
        let mut out = Map::new();
        out.insert("ip".to_owned(), first.address.to_string().into());
        insert_text(&mut out, "gateway", first.gateway);
        let routes = self
            .routes
            .iter()
            .filter(|route| route.dst.is_ipv4() == ipv4)
            .map(|route| route.encode(CniVersion::V0_2_0));
        insert_list(&mut out, "routes", routes.collect());
        Some(out.into())
    }
}

impl Interface {
    fn encode(&self, version: CniVersion) -> Value {
        let mut out = Map::new();
        out.insert("name".to_owned(), self.name.as_str().into());
        insert_text(&mut out, "mac", self.mac.as_ref());
        insert_text(&mut out, "sandbox", self.sandbox.as_ref());
        if version >= CniVersion::V1_1_0 {
            insert_number(&mut out, "mtu", self.mtu);
            insert_text(&mut out, "socketPath", self.socket_path.as_ref());
            insert_text(&mut out, "pciID", self.pci_id.as_ref());
        }
        out.into()
    }
}

impl IpConfig {
    fn encode(&self, version: CniVersion) -> Value {
        let mut out = Map::new();
        if version < CniVersion::V1_0_0 {
            let family = if self.address.is_ipv4() { "4" } else { "6" };
            out.insert("version".to_owned(), family.into());
        }
        if let Some(index) = self.interface {
            out.insert("interface".to_owned(), index.into());
        }
        out.insert("address".to_owned(), self.address.to_string().into());
        insert_text(&mut out, "gateway", self.gateway);
        out.into()
    }
}

impl Route {
    fn encode(&self, version: CniVersion) -> Value {
        let mut out = Map::new();
        out.insert("dst".to_owned(), self.dst.to_string().into());
        insert_text(&mut out, "gw", self.gw);
        if version >= CniVersion::V1_1_0 {
            insert_number(&mut out, "mtu", self.mtu);
            insert_number(&mut out, "advmss", self.advmss);
            insert_number(&mut out, "priority", self.priority);
            insert_number(&mut out, "table", self.table);
            insert_number(&mut out, "scope", self.scope);
        }
        out.into()
    }
}

impl Dns {
    fn encode(&self) -> Map<String, Value> {
        let mut out = Map::new();
        let list = |strings: &[String]| strings.iter().map(|text| json!(text)).collect();
        insert_list(&mut out, "nameservers", list(&self.nameservers));
        insert_text(&mut out, "domain", self.domain.as_ref());
        insert_list(&mut out, "search", list(&self.search));
        insert_list(&mut out, "options", list(&self.options));
        out
    }
}

fn insert_text(out: &mut Map<String, Value>, key: &str, text: Option<impl ToString>) {
    if let Some(text) = text {
        out.insert(key.to_owned(), text.to_string().into());
    }
}

fn insert_number(out: &mut Map<String, Value>, key: &str, number: Option<u32>) {
    if let Some(number) = number {
        out.insert(key.to_owned(), number.into());
    }
}

fn insert_list(out: &mut Map<String, Value>, key: &str, list: Vec<Value>) {
    if !list.is_empty() {
        out.insert(key.to_owned(), list.into());
    }
}
