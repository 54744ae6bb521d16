//! Builds the request for an attachment from all places of its wishes.
//!
//! A configuration that names one network and a pod's list of networks lead here alike: the first is a pod
//! with one element that says nothing of its own. What is nearer to the pod wins whole:
//!
//! | | addresses, MAC | rates | kind of interface |
//! |---|---|---|---|
//! | 1 | element of the pod's list | element | NetworkAttachmentDefinition |
//! | 2 | runtime, for its own interface | runtime, for its own interface | AttachmentParameters |
//! | 3 | NetworkAttachmentDefinition | NetworkAttachmentDefinition | network |
//! | 4 | AttachmentParameters | AttachmentParameters | |
//! | 5 | | network | |

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use api::nad::OwnNetwork;
use api::selection::{AttachmentOptions, SelectedAttachment};
use api::{AttachmentRequest, Interface, IpRequest, Mode, Network, Routing};
use book::bandwidth::{Limits, Source};
use book::ledger::{ClaimKind, ClaimRef, Wanted};
use book::record::{Decision, DefaultRoutes, ObjectRef, PodIdentity, Sandbox};
use book::{AddressError, BookError};
use cni_spec::digest::digest;
use cni_spec::{AttachmentKey, CniRequest, IfName, Invocation, NetConf, NetworkRef, SpecError};
use ipam::Request;
use netdev::Netns;
use serde_json::Value;
use world::World;

use crate::error::AgentError;

mod host_ports;

/// Where a network was named that is no element of a list.
const CONFIGURATION: &str = "the CNI configuration";
const LIST: &str = "the element in the pod's list";
const DEFINITION: &str = "podnet.dev/config of the NetworkAttachmentDefinition";
const PARAMETERS: &str = "AttachmentParameters of the PodNetworkAttachment";
const RUNTIME: &str = "requested by the runtime";

/// One request of a runtime, taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a CniRequest,
    pub(crate) invocation: &'a Invocation,
    pub(crate) conf: &'a NetConf,
    pub(crate) netns: &'a Netns,
    /// Digest of all of it.
    pub(crate) digest: &'a str,
}

/// Where in a request an attachment stands.
struct Place<'a> {
    /// Of the element; nothing where there is no list.
    options: &'a AttachmentOptions,
    ifname: &'a IfName,
    default_gateway: DefaultRoutes,
    /// The default routes are asked for, and must be possible.
    explicit: bool,
    /// A plugin maps the host ports of the runtime for it.
    by_plugin: bool,
    /// `name` of the configuration that leads to the network.
    config_name: Option<&'a str>,
    digest: String,
}

/// A network of ours, and what objects say about attachments to it.
#[derive(Debug, Clone)]
pub(crate) struct Native {
    pub(crate) network: Network,
    /// The definition wants the pod's default routes to go through it.
    pub(crate) is_default_gateway: bool,
    /// Wishes of the PodNetworkAttachment.
    asked: AttachmentRequest,
    /// Wishes of the NetworkAttachmentDefinition.
    defined: AttachmentRequest,
    /// `name` of the definition's configuration.
    config_name: Option<String>,
    object: Option<ObjectRef>,
    decision: Decision,
}

impl Native {
    /// A PodNetwork.
    pub(crate) fn network(world: &World, name: &str, because: &str) -> Result<Self, AgentError> {
        Ok(Self {
            network: world.network(name)?.clone(),
            is_default_gateway: false,
            asked: AttachmentRequest::default(),
            defined: AttachmentRequest::default(),
            config_name: None,
            object: None,
            decision: Decision::new("network", name, because),
        })
    }

    /// A PodNetworkAttachment.
    pub(crate) fn attachment(
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

    /// The network that a configuration names, for a pod of a namespace.
    ///
    /// # Errors
    /// It names none, or one that cannot be used.
    pub(crate) fn configured(
        world: &World,
        conf: &NetConf,
        namespace: &str,
    ) -> Result<Self, AgentError> {
        match &conf.network {
            Some(NetworkRef::PodNetwork(name)) => {
                Self::network(world, name, &format!("podNetwork of {CONFIGURATION}"))
            }
            Some(NetworkRef::Attachment {
                namespace: other,
                name,
            }) => {
                let object = ObjectRef {
                    namespace: other.as_deref().unwrap_or(namespace).to_owned(),
                    name: name.clone(),
                };
                Self::attachment(world, object, CONFIGURATION)
            }
            Some(NetworkRef::FromPod) | None => Err(SpecError::NoNetwork.into()),
        }
    }

    /// Adds the wishes of a NetworkAttachmentDefinition.
    pub(crate) fn defined(self, definition: OwnNetwork) -> Result<Self, AgentError> {
        Ok(Self {
            network: with_routes(self.network, &definition.request)?,
            defined: definition.request,
            is_default_gateway: definition.is_default_gateway,
            config_name: definition.config_name,
            ..self
        })
    }

    /// True when an attachment has a next hop for default routes of a family.
    pub(crate) fn supplies_default(&self, v4: bool) -> bool {
        let of_family = |subnet: &&api::Subnet| subnet.prefix.addr().is_ipv4() == v4;
        let mut subnets = self.network.subnets.iter().filter(of_family);
        subnets.any(|subnet| self.network.mode == Mode::L3 || subnet.gateway.is_some())
    }

    /// Wanted attachment of a configuration that names one network.
    pub(crate) fn wanted_alone(&self, asked: Asked<'_>) -> Result<Wanted, AgentError> {
        let is_default_gateway = asked.conf.is_default_gateway;
        let place = Place {
            options: &AttachmentOptions::default(),
            ifname: &key_of(asked)?.ifname,
            default_gateway: is_default_gateway.into(),
            explicit: is_default_gateway,
            by_plugin: false,
            config_name: Some(&asked.conf.head.name),
            digest: asked.digest.to_owned(),
        };
        self.wanted_at(asked, place)
    }

    /// Wanted attachment of a list's element.
    ///
    /// `explicit` says that the pod wants its default routes here.
    pub(crate) fn wanted(
        &self,
        asked: Asked<'_>,
        selected: &SelectedAttachment,
        ifname: &IfName,
        default_gateway: DefaultRoutes,
        explicit: bool,
    ) -> Result<Wanted, AgentError> {
        let place = Place {
            options: &selected.options,
            ifname,
            default_gateway,
            explicit,
            by_plugin: self.network.routing == Routing::Node,
            config_name: self.config_name.as_deref(),
            digest: format!("{}/{ifname}", asked.digest),
        };
        self.wanted_at(asked, place)
    }

    fn wanted_at(&self, asked: Asked<'_>, place: Place<'_>) -> Result<Wanted, AgentError> {
        let Place {
            options,
            ifname,
            default_gateway,
            explicit,
            by_plugin,
            config_name,
            digest: request_digest,
        } = place;
        let key = AttachmentKey {
            container: key_of(asked)?.container.clone(),
            ifname: ifname.clone(),
        };
        let is_primary = ifname.as_str() == asked.request.ifname;
        refuse_options(options)?;
        self.check_vpc(options)?;
        if is_primary {
            refuse_unsupported(asked.conf)?;
        }
        let host_ports = if is_primary && !by_plugin {
            host_ports::of_runtime(&self.network, &asked.conf.runtime.port_mappings)?
        } else {
            Vec::new()
        };
        if explicit && !self.supplies_default(true) && !self.supplies_default(false) {
            return Err(AgentError::NoGateway {
                network: self.network.name.clone(),
            });
        }
        self.check_gateways(options.default_route.iter().flatten())?;
        let limits = self.asked_limits(asked, options, is_primary);
        let mut decisions = vec![self.decision.clone()];
        let pod: Option<PodIdentity> = asked.invocation.args.pod().map(Into::into);
        let claim = self.claim(options, pod.as_ref(), &mut decisions)?;
        Ok(Wanted {
            key,
            cni_network: asked.conf.head.name.clone(),
            request_digest,
            pod,
            labels: asked.conf.labels.clone(),
            sandbox: Sandbox::of(&asked.request.netns, asked.netns),
            ips: self.ips(asked, options, is_primary)?,
            claim,
            claim_network: config_name.map(str::to_owned),
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
            host_ports,
            decisions,
        })
    }

    /// Checks that the network is of the VPC that the pod names.
    fn check_vpc(&self, options: &AttachmentOptions) -> Result<(), AgentError> {
        match &options.vpc {
            Some(vpc) if self.network.vpc.as_ref() != Some(vpc) => Err(AgentError::NotOfVpc {
                network: self.network.name.clone(),
                vpc: vpc.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The object that says which addresses it has: a Port, or a claim.
    fn claim(
        &self,
        options: &AttachmentOptions,
        pod: Option<&PodIdentity>,
        decisions: &mut Vec<Decision>,
    ) -> Result<Option<ClaimRef>, AgentError> {
        if let (Some(port), None) = (&options.port, pod) {
            let error = AddressError::PortWithoutPod { port: port.clone() };
            return Err(BookError::from(error).into());
        }
        let port = options.port.as_ref().map(|name| (ClaimKind::Port, name));
        let claim = options.ipam_claim_reference.as_ref();
        if claim.is_some() && self.network.subnets.is_empty() {
            let because = "the network has no addresses that a claim could keep (NPWG 8)";
            decisions.push(Decision::new("ipam-claim-reference", "ignored", because));
        }
        let claim = claim.filter(|_| !self.network.subnets.is_empty());
        let claim = claim.map(|name| (ClaimKind::IpamClaim, name));
        Ok(port.or(claim).zip(pod).map(|((kind, name), pod)| ClaimRef {
            kind,
            object: ObjectRef {
                namespace: pod.namespace.clone(),
                name: name.clone(),
            },
        }))
    }

    /// Rates that no object changes later: of runtime, element and definition.
    ///
    /// Those of the runtime are for its own interface.
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
            return Err(AgentError::InterfaceOfNodeNetwork {
                kind: interface.kind,
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

    /// Checks that each gateway is a possible next hop (NPWG §4.1.2.1.9).
    ///
    /// On a switched network it is a neighbour. On a routed one it is the network's own gateway.
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

/// Refuses options that podnet does not have, rather than serve half a request.
fn refuse_options(options: &AttachmentOptions) -> Result<(), AgentError> {
    // A list is an annotation, which Pod Security does not look at, and ports without a socket, as those of
    // Services, could be another tenant's.
    if let Some(mapping) = options.port_mappings.first() {
        return Err(AgentError::HostPortOfList {
            host: mapping.host_port,
            container: mapping.container_port,
        });
    }
    if let Some(guid) = options.infiniband_guid {
        return Err(AgentError::InfiniBand {
            guid: guid.to_string(),
        });
    }
    Ok(())
}

fn key_of(asked: Asked<'_>) -> Result<&AttachmentKey, AgentError> {
    asked.invocation.call.key().ok_or(AgentError::NoContainer)
}

/// Configuration and arguments, whatever order a runtime wrote its maps in.
pub(crate) fn digest_of(request: &CniRequest) -> String {
    // Parsing sorts the keys of objects.
    let config: Value = serde_json::from_str(request.config.get()).unwrap_or_default();
    let mut args: Vec<&str> = request.args.split(';').collect();
    args.sort_unstable();
    format!("{:016x}", digest(format!("{config}{args:?}").as_bytes()))
}

/// The network as an attachment has it that asks for routes of its own.
fn with_routes(network: Network, request: &AttachmentRequest) -> Result<Network, AgentError> {
    let name = network.name.clone();
    let routed = network.with_routes(&request.routes);
    routed.map_err(|errors| AgentError::Routes {
        network: name,
        errors,
    })
}

/// Refuses features that podnet does not have, rather than serve half a request.
fn refuse_unsupported(conf: &NetConf) -> Result<(), AgentError> {
    if !conf.runtime.ip_ranges.is_empty() {
        return Err(AgentError::Ranges {
            count: conf.runtime.ip_ranges.len(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
