//! Manifests as text, the way a person writes them.

use std::fmt::Write;

/// A `PodNetwork` with its `PodNetworkParameters`.
#[derive(Debug, Clone)]
pub struct Network {
    /// Name of both objects.
    pub name: String,
    /// `L2` or `L3`.
    pub mode: &'static str,
    /// Prefixes.
    pub subnets: Vec<String>,
    /// `None`, `First` or addresses.
    pub gateway: String,
    /// Prefixes or addresses that no pod gets.
    pub exclude: Vec<String>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// Network ID.
    pub id: Option<u32>,
    /// The node routes for it.
    pub by_node: bool,
    /// `spec.masquerade`.
    pub masquerade: Option<bool>,
    /// `spec.egress` is `Masquerade`.
    pub egress: bool,
    /// `spec.egress` is `Uplink`.
    pub egress_by_uplink: bool,
    /// `spec.routes`: destination and, if named, next hop.
    pub routes: Vec<(String, Option<String>)>,
    /// `spec.serviceCIDRs`.
    pub service_cidrs: Vec<String>,
    /// `spec.nodeAccess`, if it is not the default.
    pub node_access: Option<&'static str>,
    /// `spec.transport` as flow YAML without braces, if it is not the default.
    pub transport: Option<String>,
    /// `spec.interface.type`, if it is not the default.
    pub interface: Option<&'static str>,
    /// `spec.vpc`.
    pub vpc: Option<String>,
    /// `spec.enabled`.
    pub enabled: bool,
}

impl Network {
    /// A network without subnets.
    pub fn new(name: &str, mode: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            mode,
            subnets: Vec::new(),
            gateway: "None".to_owned(),
            exclude: Vec::new(),
            mtu: None,
            id: None,
            by_node: false,
            masquerade: None,
            egress: false,
            egress_by_uplink: false,
            routes: Vec::new(),
            service_cidrs: Vec::new(),
            node_access: None,
            transport: None,
            interface: None,
            vpc: None,
            enabled: true,
        }
    }

    /// An L2 network with these subnets.
    pub fn l2(name: &str, subnets: &[&str]) -> Self {
        Self::new(name, "L2").subnets(subnets)
    }

    /// An L3 network with these subnets and their first addresses as gateways.
    pub fn l3(name: &str, subnets: &[&str]) -> Self {
        Self::new(name, "L3").subnets(subnets).gateway("First")
    }

    /// Replaces the subnets.
    #[must_use]
    pub fn subnets(mut self, subnets: &[&str]) -> Self {
        self.subnets = subnets.iter().map(ToString::to_string).collect();
        self
    }

    /// Sets the prefixes of the Services' addresses.
    #[must_use]
    pub fn services(mut self, prefixes: &[&str]) -> Self {
        self.service_cidrs = prefixes.iter().map(ToString::to_string).collect();
        self
    }

    /// Replaces the gateway.
    #[must_use]
    pub fn gateway(mut self, gateway: &str) -> Self {
        gateway.clone_into(&mut self.gateway);
        self
    }

    /// Replaces the excluded prefixes.
    #[must_use]
    pub fn exclude(mut self, exclude: &[&str]) -> Self {
        self.exclude = exclude.iter().map(ToString::to_string).collect();
        self
    }

    /// Sets the MTU in bytes.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// Sets the network ID.
    #[must_use]
    pub fn id(mut self, id: u32) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets `spec.routing` to `Node`.
    #[must_use]
    pub fn by_node(mut self) -> Self {
        self.by_node = true;
        self
    }

    /// Sets `spec.masquerade`.
    #[must_use]
    pub fn masquerade(mut self, masquerade: bool) -> Self {
        self.masquerade = Some(masquerade);
        self
    }

    /// Sets `spec.egress` to `Masquerade`.
    #[must_use]
    pub fn egress(mut self) -> Self {
        self.egress = true;
        self
    }

    /// Sets `spec.egress` to `Uplink`.
    #[must_use]
    pub fn egress_by_uplink(mut self) -> Self {
        self.egress_by_uplink = true;
        self
    }

    /// Adds a route.
    #[must_use]
    pub fn route(mut self, dst: &str, gw: Option<&str>) -> Self {
        self.routes.push((dst.to_owned(), gw.map(str::to_owned)));
        self
    }

    /// Sets `spec.transport.type` to `VXLAN`.
    #[must_use]
    pub fn vxlan(mut self) -> Self {
        self.transport = Some("type: VXLAN".to_owned());
        self
    }

    /// Sets `spec.transport` to VLAN `id` of [`UPLINK`](crate::host::UPLINK).
    #[must_use]
    pub fn vlan(self, id: u16) -> Self {
        self.on_uplink(&format!("type: VLAN, id: {id}"))
    }

    /// Sets it to a trunk of these VLANs.
    #[must_use]
    pub fn trunk(self, ids: &str) -> Self {
        self.on_uplink(&format!("type: VLAN, trunk: \"{ids}\""))
    }

    /// Sets it to `Native`.
    #[must_use]
    pub fn native(self) -> Self {
        self.on_uplink("type: Native")
    }

    /// Adds EtherTypes to those that a network with an uplink carries, as `0x88f7`.
    #[must_use]
    pub fn ether_types(mut self, list: &[&str]) -> Self {
        let quoted: Vec<_> = list.iter().map(|it| format!("\"{it}\"")).collect();
        let transport = self.transport.unwrap_or_default();
        self.transport = Some(format!("{transport}, etherTypes: [{}]", quoted.join(", ")));
        self
    }

    fn on_uplink(mut self, what: &str) -> Self {
        self.transport = Some(format!("{what}, uplink: {}", crate::host::UPLINK));
        self
    }

    /// Sets `spec.vpc`.
    #[must_use]
    pub fn vpc(mut self, vpc: &str) -> Self {
        self.vpc = Some(vpc.to_owned());
        self
    }

    /// Sets `spec.enabled` to false.
    #[must_use]
    pub fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Sets the type of ports: `AFXDP` or `Memif`.
    #[must_use]
    pub fn interface(mut self, kind: &'static str) -> Self {
        self.interface = Some(kind);
        self
    }

    /// The two documents.
    pub fn yaml(&self) -> String {
        let quoted = |list: &[String]| {
            let items: Vec<_> = list.iter().map(|item| format!("\"{item}\"")).collect();
            items.join(", ")
        };
        let name = &self.name;
        let mut out = format!(
            "apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\nspec:\n  \
             enabled: {}\n  provider: podnet.dev/ebpf\n  \
             parametersRefs: [{{group: podnet.dev, kind: PodNetworkParameters, name: {name}}}]\n---\n\
             apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\n\
             metadata: {{name: {name}}}\nspec:\n  mode: {}\n  subnets: [{}]\n  gateway: \"{}\"\n  \
             exclude: [{}]\n",
            self.enabled,
            self.mode,
            quoted(&self.subnets),
            self.gateway,
            quoted(&self.exclude),
        );
        // Writing to a string cannot fail.
        if self.by_node {
            let _ = writeln!(out, "  routing: Node");
        }
        if let Some(masquerade) = self.masquerade {
            let _ = writeln!(out, "  masquerade: {masquerade}");
        }
        if self.egress {
            let _ = writeln!(out, "  egress: Masquerade");
        }
        if self.egress_by_uplink {
            let _ = writeln!(out, "  egress: Uplink");
        }
        if !self.routes.is_empty() {
            let _ = writeln!(out, "  routes:");
        }
        for (dst, gw) in &self.routes {
            let gw = gw
                .as_ref()
                .map_or(String::new(), |gw| format!(", gw: \"{gw}\""));
            let _ = writeln!(out, "  - {{dst: \"{dst}\"{gw}}}");
        }
        if !self.service_cidrs.is_empty() {
            let _ = writeln!(out, "  serviceCIDRs: [{}]", quoted(&self.service_cidrs));
        }
        if let Some(access) = self.node_access {
            let _ = writeln!(out, "  nodeAccess: {access}");
        }
        if let Some(transport) = &self.transport {
            let _ = writeln!(out, "  transport: {{{transport}}}");
        }
        if let Some(kind) = self.interface {
            let _ = writeln!(out, "  interface: {{type: {kind}}}");
        }
        if let Some(vpc) = &self.vpc {
            let _ = writeln!(out, "  vpc: {vpc}");
        }
        if let Some(mtu) = self.mtu {
            let _ = writeln!(out, "  mtu: {mtu}");
        }
        if let Some(id) = self.id {
            let _ = writeln!(out, "  networkID: {id}");
        }
        out
    }

    /// Returns the networks of [`crate::Setup::default`]: two of each mode.
    ///
    /// They have the same subnets.
    pub fn standard() -> Vec<Self> {
        let l2 = ["10.10.0.0/24", "fd10:10::/64"];
        let l3 = ["10.20.0.0/24", "fd10:20::/64"];
        vec![
            Self::l2("blue", &l2).id(1001),
            Self::l2("red", &l2).id(1002),
            Self::l3("green", &l3).id(1003),
            Self::l3("lime", &l3).id(1004),
        ]
    }
}

/// Writes a `Vpc` with these prefixes and peers.
pub fn vpc(name: &str, cidrs: &[&str], peers: &[&str]) -> String {
    let cidrs: Vec<_> = cidrs.iter().map(|it| format!("\"{it}\"")).collect();
    let peers: Vec<_> = peers.iter().map(|it| format!("{{vpc: {it}}}")).collect();
    format!(
        "apiVersion: podnet.dev/v1alpha1\nkind: Vpc\nmetadata: {{name: {name}}}\n\
         spec: {{cidrs: [{}], peers: [{}]}}\n",
        cidrs.join(", "),
        peers.join(", ")
    )
}

/// Writes a `PodNetworkAttachment` with its `AttachmentParameters`.
///
/// Both are in namespace `default`; `spec` is the parameters' as flow YAML, `{ipRequests: [10.10.0.42]}`.
pub fn attachment(name: &str, network: &str, spec: &str) -> String {
    format!(
        "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkAttachment\n\
         metadata: {{name: {name}, namespace: default}}\nspec:\n  podNetworkName: {network}\n  \
         parametersRefs: [{{group: podnet.dev, kind: AttachmentParameters, name: {name}}}]\n---\n\
         apiVersion: podnet.dev/v1alpha1\nkind: AttachmentParameters\n\
         metadata: {{name: {name}, namespace: default}}\nspec: {spec}\n"
    )
}
