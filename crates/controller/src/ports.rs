//! Decide the status of `Port`s, and release those whose pods have ended.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::{GRANTED, Holder, MacAddr, Port, PortUser, READY, Resolved, Routing};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use overview::pod::Pod;
use overview::view::{View, addresses_of_port};

use super::conditions::{self, Finding, Refusal};
use super::plan::{ObjectStep, Status, StatusOf, step_of};

/// Steps about Ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// Statuses.
    pub status: Vec<ObjectStep>,
    /// Ports to be released.
    pub released: Vec<Arc<Port>>,
}

/// Computes the steps that bring all Ports to their wanted state.
pub(super) fn steps(view: &View, resolved: &Resolved, now: Timestamp) -> Steps {
    let taken = Taken::of(view);
    let mut steps = Steps::default();
    for port in view.ports.values() {
        if port.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let refusal = ready(port, resolved, &taken);
        let finding = Finding::new(READY, "Ready", refusal);
        let status = port.status.as_ref();
        let written = status.map_or(&[][..], |status| &status.conditions);
        let conditions =
            conditions::with_history(&[finding], now, port.metadata.generation, written);
        if !conditions::are_written(&conditions, written) {
            steps.status.push(ObjectStep {
                status: Some(Status {
                    conditions,
                    ..Status::default()
                }),
                kind: StatusOf::Port,
                ..step_of(&port.metadata)
            });
        }
        let user = status.and_then(|status| status.user.as_ref());
        let namespace = port.namespace().unwrap_or_default();
        let has_ended = user.is_some_and(|user| {
            let pod = view.pods.get(&(namespace, user.pod.clone()));
            pod.is_none_or(|pod| !has_port(pod, user))
        });
        if has_ended {
            steps.released.push(Arc::clone(port));
        }
    }
    steps
}

/// Reports whether a pod has a Port whose status says so.
///
/// A node says it of its own pods only.
pub(super) fn has_port(pod: &Pod, user: &PortUser) -> bool {
    pod.uid() == user.uid && pod.spec.node_name.as_ref() == Some(&user.node) && !pod.has_ended()
}

/// The first Port that has each MAC address, and the holders of reserved addresses.
///
/// What a Port only wishes for is not its own: whoever makes Ports could keep others from being ready.
struct Taken<'a> {
    macs: BTreeMap<(&'a str, MacAddr), Name>,
    reserved: BTreeMap<(&'a str, IpAddr), (Holder, Option<String>)>,
}

/// Age, namespace and name of a Port: the order of Ports that have the same.
type Name = (Option<Timestamp>, String, String);

fn name_of(port: &Port) -> Name {
    let made = port.metadata.creation_timestamp.as_ref().map(|it| it.0);
    (made, port.namespace().unwrap_or_default(), port.name_any())
}

/// The MAC address that a Port has, by its status.
fn written_mac(port: &Port) -> Option<MacAddr> {
    port.status.as_ref()?.mac.as_ref()?.parse().ok()
}

impl<'a> Taken<'a> {
    fn of(view: &'a View) -> Self {
        let mut taken = Self {
            macs: BTreeMap::new(),
            reserved: BTreeMap::new(),
        };
        for port in view.ports.values() {
            let Some(mac) = written_mac(port) else {
                continue;
            };
            let name = name_of(port);
            let first = taken.macs.entry((&port.spec.network, mac));
            let first = first.or_insert_with(|| name.clone());
            if name < *first {
                *first = name;
            }
        }
        for reservation in &view.reservations {
            let spec = &reservation.spec;
            let (Ok(ip), Some(holder)) = (spec.address.parse(), spec.holder()) else {
                continue;
            };
            let conditions = reservation.status.iter().flat_map(|it| &it.conditions);
            let mut granted = conditions.filter(|it| it.type_ == GRANTED);
            let refused = granted.find(|it| it.status == "False");
            let refused = refused.map(|it| it.message.clone());
            taken
                .reserved
                .insert((&spec.network, ip), (holder, refused));
        }
        taken
    }
}

/// Reports whether a pod can have the Port.
fn ready(port: &Port, resolved: &Resolved, taken: &Taken<'_>) -> Result<(), Refusal> {
    let uid = port.uid().unwrap_or_default();
    let request = api::port(&uid, &port.spec);
    let request = request.map_err(|error| ("ParamsInvalid", error.to_string()))?;
    let network = resolved
        .network(&request.network)
        .map_err(|error| ("NetworkNotReady", error.to_string()))?;
    if network.routing == Routing::Node {
        let message = format!(
            "addresses of network {} are those of the nodes and cannot move: make a Port of a network without \
             routing Node",
            network.name
        );
        return Err(("NetworkOfNodes", message));
    }
    let name = name_of(port);
    let mac = written_mac(port).unwrap_or(request.mac);
    let first = taken.macs.get(&(request.network.as_str(), mac));
    if let Some((_, space, first)) = first.filter(|first| **first != name) {
        let whose = if *space == name.1 {
            format!("Port {space}/{first}")
        } else {
            "a Port of another namespace".to_owned()
        };
        let message = format!(
            "{whose} has MAC address {mac} on network {}: make a Port with another spec.macRequest",
            network.name
        );
        return Err(("MACTaken", message));
    }
    let wishes = request.ips.iter().map(|ip| (ip.address, ip.prefix_len));
    let known = addresses_of_port(port).into_iter().map(|ip| (ip, None));
    // The subnet of one that it has may have another length by now.
    let all: BTreeMap<IpAddr, Option<u8>> = wishes.chain(known).collect();
    world::blocks::check(network, all.clone()).map_err(|error| {
        let message = format!("network {}: {error}", network.name);
        ("AddressUnusable", message)
    })?;
    all.into_keys()
        .try_for_each(|ip| taken.admits(port, &network.name, ip))
}

impl Taken<'_> {
    /// Reports whether an address is no other holder's.
    fn admits(&self, port: &Port, network: &str, ip: IpAddr) -> Result<(), Refusal> {
        let Some((holder, refused)) = self.reserved.get(&(network, ip)) else {
            return Ok(());
        };
        if port.metadata.uid.as_deref() != Some(holder.uid()) {
            let whose = whose(port, holder);
            let message = format!(
                "{ip} of network {network} is reserved for {whose}: make a Port with another address"
            );
            return Err(("AddressTaken", message));
        }
        let why = refused.as_ref().map_or(Ok(()), Err);
        why.map_err(|why| {
            (
                "AddressTaken",
                format!("{ip} of network {network} is in use: {why}"),
            )
        })
    }
}

/// The holder of an address, as users of the Port's namespace may hear of it.
fn whose(port: &Port, holder: &Holder) -> String {
    let (namespace, name) = match holder {
        Holder::Pod(pod) => (&pod.namespace, &pod.name),
        Holder::Claim(claim) => (&claim.namespace, &claim.name),
        Holder::Port(other) => (&other.namespace, &other.name),
    };
    let own = port.namespace().unwrap_or_default();
    if *namespace != own {
        return "something in another namespace".to_owned();
    }
    if matches!(holder, Holder::Port(_)) && *name == port.name_any() {
        return "an earlier Port of this name, until some minutes after its pods have ended"
            .to_owned();
    }
    holder.to_string()
}

#[cfg(test)]
mod tests;
