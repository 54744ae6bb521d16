//! A network of ours in a pod's list, and what is asked of the attachment to it, from all the
//! places where it can be asked.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use api::selection::{AttachmentOptions, SelectedAttachment};
use api::{AttachmentRequest, Interface, IpRequest, Mode, Network, Routing};
use cni_spec::{AttachmentKey, IfName};
use ipam::Request;
use world::World;

use super::plan::Asked;
use crate::bandwidth::{Limits, Source};
use crate::cni::{refuse_unsupported, with_routes};
use crate::error::AgentError;
use crate::ledger::Wanted;
use crate::record::{Decision, DefaultRoutes, ObjectRef, PodIdentity, Sandbox};

const LIST: &str = "the element in the pod's list";
const DEFINITION: &str = "podnet.dev/config of the NetworkAttachmentDefinition";
const PARAMETERS: &str = "AttachmentParameters of the PodNetworkAttachment";
const RUNTIME: &str = "requested by the runtime";

/// A network of ours, and what objects say about attachments to it.
#[derive(Debug, Clone)]
pub(super) struct Native {
    pub(super) network: Network,
    /// The definition wants the pod's default routes to go through it.
    pub(super) is_default_gateway: bool,
    /// What the PodNetworkAttachment asks for.
    asked: AttachmentRequest,
    /// What the NetworkAttachmentDefinition asks for.
    defined: AttachmentRequest,
    object: Option<ObjectRef>,
    decision: Decision,
}

impl Native {
    /// A PodNetwork.
    pub(super) fn network(world: &World, name: &str, because: &str) -> Result<Self, AgentError> {
        Ok(Self {
            network: world.network(name)?.clone(),
            is_default_gateway: false,
            asked: AttachmentRequest::default(),
            defined: AttachmentRequest::default(),
            object: None,
            decision: Decision::new("network", name, because),
        })
    }

    /// A PodNetworkAttachment.
    pub(super) fn attachment(
        world: &World,
        object: ObjectRef,
        because: &str,
    ) -> Result<Self, AgentError> {
        let attachment = world.attachment(&object.namespace, &object.name)?;
        let because = format!("PodNetworkAttachment {object} in {because}");
        let mut native = Self::network(world, &attachment.network, &because)?;
        native.network = with_routes(native.network, &attachment.request)?;
        native.asked = attachment.request.clone();
        native.object = Some(object);
        Ok(native)
    }

    /// With what a NetworkAttachmentDefinition says beside.
    pub(super) fn defined(
        self,
        request: AttachmentRequest,
        is_default_gateway: bool,
    ) -> Result<Self, AgentError> {
        Ok(Self {
            network: with_routes(self.network, &request)?,
            defined: request,
            is_default_gateway,
            ..self
        })
    }

    /// True when an attachment has a next hop for default routes of a family.
    pub(super) fn supplies_default(&self, v4: bool) -> bool {
        let of_family = |subnet: &&api::Subnet| subnet.prefix.addr().is_ipv4() == v4;
        let mut subnets = self.network.subnets.iter().filter(of_family);
        subnets.any(|subnet| self.network.mode == Mode::L3 || subnet.gateway.is_some())
    }

    /// What the attachment shall be; `explicit` when the pod wants its default routes here.
    pub(super) fn wanted(
        &self,
        asked: Asked<'_>,
        selected: &SelectedAttachment,
        ifname: &IfName,
        default_gateway: DefaultRoutes,
        explicit: bool,
    ) -> Result<Wanted, AgentError> {
        let options = &selected.options;
        let is_primary = ifname.as_str() == asked.request.ifname;
        refuse_options(options)?;
        if is_primary {
            refuse_unsupported(asked.conf, self.network.routing == Routing::Node)?;
        }
        if explicit && !self.supplies_default(true) && !self.supplies_default(false) {
            return Err(AgentError::NoGateway {
                network: self.network.name.clone(),
            });
        }
        self.check_gateways(options.default_route.iter().flatten())?;
        let limits = self.asked_limits(asked, options, is_primary);
        let mut decisions = vec![self.decision.clone()];
        let claim = options.ipam_claim_reference.as_ref();
        let claim = claim.filter(|_| !self.network.subnets.is_empty());
        if options.ipam_claim_reference.is_some() && claim.is_none() {
            let because = "the network has no addresses that a claim could keep (NPWG 8)";
            decisions.push(Decision::new("ipam-claim-reference", "ignored", because));
        }
        let pod: Option<PodIdentity> = asked.invocation.args.pod().map(Into::into);
        let claim = claim.zip(pod.as_ref()).map(|(name, pod)| ObjectRef {
            namespace: pod.namespace.clone(),
            name: name.clone(),
        });
        Ok(Wanted {
            key: AttachmentKey {
                container: asked_container(asked)?,
                ifname: ifname.clone(),
            },
            cni_network: asked.conf.head.name.clone(),
            request_digest: format!("{}/{ifname}", asked.digest),
            pod,
            sandbox: Sandbox::of(&asked.request.netns, asked.netns),
            ips: self.ips(asked, options, is_primary)?,
            claim,
            holder: None,
            mac: self.mac(asked, options, is_primary)?,
            default_gateway,
            nameservers: if is_primary {
                asked.conf.dns.nameservers.clone()
            } else {
                Vec::new()
            },
            object: self.object.clone(),
            asked: limits,
            limits: limits.or(&self.asked.bandwidth, &self.network.bandwidth),
            interface: self.interface()?,
            device: None,
            socket_path: None,
            decisions,
        })
    }

    /// Rates that no object changes later: the runtime's, which are for its own interface, the
    /// element's, the definition's.
    fn asked_limits(
        &self,
        asked: Asked<'_>,
        options: &AttachmentOptions,
        is_primary: bool,
    ) -> Limits {
        let by_runtime = asked.conf.runtime.bandwidth.as_ref();
        let by_runtime = Limits::asked(by_runtime.filter(|_| is_primary));
        let element = options.bandwidth.unwrap_or_default();
        Limits::wished(&element, Source::Pod)
            .or_else(by_runtime)
            .or_else(Limits::wished(&self.defined.bandwidth, Source::Definition))
    }

    /// The definition's, the attachment's, the network's.
    fn interface(&self) -> Result<Interface, AgentError> {
        let asked = self.defined.interface.or(self.asked.interface);
        let interface = asked.unwrap_or(self.network.interface);
        if self.network.routing == Routing::Node && !interface.is_veth() {
            return Err(AgentError::Unsupported {
                key: "interface.type".to_owned(),
                value: interface.kind.to_string(),
                why: "the node reaches pods of this network by their interfaces: write Veth, or name \
                      a network with routing Isolated",
            });
        }
        Ok(interface)
    }

    fn ips(
        &self,
        asked: Asked<'_>,
        options: &AttachmentOptions,
        is_primary: bool,
    ) -> Result<(Vec<Request>, &'static str), AgentError> {
        let of_object = |ips: &[IpRequest]| -> Vec<Request> {
            let request = |ip: &IpRequest| Request {
                address: ip.address,
                prefix_len: ip.prefix_len,
            };
            ips.iter().map(request).collect()
        };
        let mut by_runtime = Vec::new();
        if is_primary {
            let ips = asked.conf.requested_ips(&asked.invocation.args)?;
            by_runtime.extend(ips.iter().map(|ip| Request {
                address: ip.addr,
                prefix_len: ip.prefix,
            }));
        }
        let sources = [
            (of_object(&options.ips), LIST),
            (by_runtime, RUNTIME),
            (of_object(&self.defined.ips), DEFINITION),
            (of_object(&self.asked.ips), PARAMETERS),
        ];
        let first = sources.into_iter().find(|(ips, _)| !ips.is_empty());
        Ok(first.unwrap_or_default())
    }

    fn mac(
        &self,
        asked: Asked<'_>,
        options: &AttachmentOptions,
        is_primary: bool,
    ) -> Result<Option<(MacAddr, &'static str)>, AgentError> {
        let by_runtime = if is_primary {
            asked.conf.requested_mac(&asked.invocation.args)?
        } else {
            None
        };
        let octets = |mac: Option<api::MacAddr>| mac.map(api::MacAddr::octets);
        let sources = [
            (octets(options.mac), LIST),
            (by_runtime.map(|mac| mac.0), RUNTIME),
            (octets(self.defined.mac), DEFINITION),
            (octets(self.asked.mac), PARAMETERS),
        ];
        let first = sources
            .into_iter()
            .find_map(|(mac, source)| Some((MacAddr(mac?), source)));
        Ok(first)
    }

    /// On a switched network the next hop is a neighbour; on a routed one it is the network's own
    /// gateway, and there is no other (NPWG §4.1.2.1.9).
    fn check_gateways<'a>(
        &self,
        mut gateways: impl Iterator<Item = &'a IpAddr>,
    ) -> Result<(), AgentError> {
        let reachable = |gateway: &IpAddr| {
            self.network
                .subnets
                .iter()
                .any(|subnet| match self.network.mode {
                    Mode::L2 => subnet.prefix.contains(gateway),
                    Mode::L3 => subnet.gateway == Some(*gateway),
                })
        };
        match gateways.find(|gateway| !reachable(gateway)) {
            None => Ok(()),
            Some(gateway) => Err(AgentError::GatewayOutside {
                gateway: *gateway,
                network: self.network.name.clone(),
            }),
        }
    }
}

/// What podnet does not do it refuses, rather than do half of what was asked.
fn refuse_options(options: &AttachmentOptions) -> Result<(), AgentError> {
    let refuse = |key: &str, value: String, why| {
        Err(AgentError::Unsupported {
            key: key.to_owned(),
            value,
            why,
        })
    };
    if let Some(mapping) = options.port_mappings.first() {
        return refuse(
            "portMappings",
            format!(
                "host port {} to {}",
                mapping.host_port, mapping.container_port
            ),
            "podnet maps no host ports on such a network: remove the mapping from the pod's list",
        );
    }
    if let Some(guid) = options.infiniband_guid {
        return refuse(
            "infiniband-guid",
            guid.to_string(),
            "podnet's networks are Ethernet: remove it from the pod's list",
        );
    }
    Ok(())
}

fn asked_container(asked: Asked<'_>) -> Result<cni_spec::ContainerId, AgentError> {
    let key = asked.invocation.call.key();
    key.map(|key| key.container.clone())
        .ok_or(AgentError::Internal {
            what: "a request without a container",
        })
}
