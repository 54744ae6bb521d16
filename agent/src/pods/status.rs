//! Status of pods' attachments, for Kubernetes and for people.

use std::net::IpAddr;

use book::pods::record::{Maker, Member, PodRecord};
use book::pods::{AttachedNetwork, PodChange, PodNetworks};
use book::record::State;
use cni_spec::{CniResult, Interface};
use delegate::Delegation;
use ports;

use crate::error::AgentError;
use crate::node::Node;

impl Node {
    /// Every pod of a runtime of Kubernetes that is attached now, with what it has.
    pub fn pod_networks(&self) -> Vec<PodNetworks> {
        let records = self.book.pods().records().into_iter();
        records
            .filter(|record| record.state == State::Added)
            .filter_map(|record| self.networks_of(&record))
            .collect()
    }

    /// Result for the runtime: that of the interface it has asked for (KEP-CNI-1).
    ///
    /// It has nothing of the pod's other interfaces.
    ///
    /// # Errors
    /// When there is none; a record of ours has one.
    pub(crate) fn primary_result(&self, record: &PodRecord) -> Result<CniResult, AgentError> {
        let missing = || AgentError::NotAttached {
            key: record.key.clone(),
        };
        let member = record.primary().ok_or_else(missing)?;
        match &member.maker {
            Maker::Podnet => {
                let ledger = self.book.ledger();
                let entry = ledger.get(&record.key).ok_or_else(missing)?;
                Ok(entry.record.result()?)
            }
            Maker::Plugins(made) => Ok(without_foreign_defaults(member, made.result()?)),
        }
    }

    pub(super) fn tell_attached(&self, record: &PodRecord, new: bool) {
        if let Some(networks) = self.networks_of(record) {
            self.book.pods().tell(PodChange::Attached { networks, new });
        }
    }

    fn networks_of(&self, record: &PodRecord) -> Option<PodNetworks> {
        let attachments = record
            .members
            .iter()
            .filter_map(|member| match &member.maker {
                Maker::Podnet => self.made_by_us(record, member),
                Maker::Plugins(made) => Some(self.made_by_others(record, member, made)),
            })
            .collect();
        Some(PodNetworks {
            key: record.key.clone(),
            pod: record.pod.clone()?,
            attachments,
        })
    }

    fn made_by_us(&self, pod: &PodRecord, member: &Member) -> Option<AttachedNetwork> {
        let key = pod.key_of(member);
        let record = self.book.ledger().get(&key)?.record.clone();
        let result = record.result().ok()?;
        let network = record.network.name.clone();
        Some(AttachedNetwork {
            device_info: ports::device_info(&record),
            ..attached(pod, member, network, &result)
        })
    }

    /// Status of an attachment that plugins of others have made.
    pub(crate) fn made_by_others(
        &self,
        pod: &PodRecord,
        member: &Member,
        made: &Delegation,
    ) -> AttachedNetwork {
        // What was stored was a result.
        let result = made.result().unwrap_or_default();
        AttachedNetwork {
            device_info: made.device_info.clone(),
            ..attached(pod, member, made.network.clone(), &result)
        }
    }
}

/// NPWG §5: of the interfaces that are in a sandbox, the first one counts.
fn attached(
    pod: &PodRecord,
    member: &Member,
    network: String,
    result: &CniResult,
) -> AttachedNetwork {
    let in_sandbox = |interface: &&Interface| {
        let sandbox = interface.sandbox.as_deref();
        sandbox.is_some_and(|sandbox| !sandbox.is_empty())
    };
    let index = result.interfaces.iter().position(|one| in_sandbox(&one));
    let interface = index.and_then(|index| result.interfaces.get(index));
    let addresses = result
        .ips
        .iter()
        .filter(|ip| ip.interface.is_none() || ip.interface == index)
        .map(|ip| ip.address)
        .collect();
    let gateways = gateways(member, result);
    AttachedNetwork {
        source: member.source,
        target: member.target.clone(),
        network,
        delegated: member.delegation().is_some(),
        interface: member.ifname.to_string(),
        mac: interface.and_then(|interface| interface.mac.clone()),
        addresses,
        is_default_gateway: !gateways.is_empty(),
        gateways,
        default_route: member.asked_default_route.clone(),
        is_primary: member.ifname == pod.key.ifname,
        mtu: interface.and_then(|interface| interface.mtu),
        dns: result.dns.clone(),
        device_info: None,
    }
}

/// The next hops of the default routes that are left to this member (NPWG-5-W3).
fn gateways(member: &Member, result: &CniResult) -> Vec<IpAddr> {
    [true, false]
        .into_iter()
        .filter_map(|v4| Some((v4, member.default_routes.of(v4)?)))
        .flat_map(|(v4, chosen)| {
            if chosen.is_empty() {
                own_gateways(result, v4)
            } else {
                chosen.clone()
            }
        })
        .collect()
}

/// Gateways of the default routes in a result.
///
/// A route without a next hop goes by the gateway of an address.
fn own_gateways(result: &CniResult, v4: bool) -> Vec<IpAddr> {
    let of_family = result
        .routes
        .iter()
        .filter(|route| route.dst.is_ipv4() == v4 && route.dst.prefix() == 0);
    let of_address = || {
        let mut ips = result.ips.iter();
        ips.find_map(|ip| ip.gateway.filter(|gateway| gateway.is_ipv4() == v4))
    };
    of_family
        .filter_map(|route| route.gw.or_else(of_address))
        .collect()
}

/// The result of a member without the default routes it has given away.
fn without_foreign_defaults(member: &Member, mut result: CniResult) -> CniResult {
    result.routes.retain(|route| {
        route.dst.prefix() > 0 || member.default_routes.of(route.dst.is_ipv4()).is_some()
    });
    result
}
