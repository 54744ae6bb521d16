//! `CHECK`: is the attachment still as it was made?

use std::net::IpAddr;
use std::sync::Arc;

use cni_spec::{AttachmentKey, CniResult};
use datapath::Dispatcher;
use netdev::{Link, Netlink, Netns};

use crate::error::AgentError;
use crate::host::HostError;
use crate::node::Node;
use crate::record::{Attachment, HostEnd, State};

/// What is in the pod.
struct Seen {
    link: Link,
    addresses: Vec<(IpAddr, u8)>,
    routes: Vec<(IpAddr, u8, Option<IpAddr>)>,
}

impl Node {
    /// Compares an attachment with its record, the kernel and what the runtime remembers.
    ///
    /// # Errors
    /// [`AgentError::NotAttached`], or [`AgentError::Damaged`] with everything that is wrong.
    pub async fn check(
        self: &Arc<Self>,
        key: &AttachmentKey,
        netns: &Netns,
        previous: &CniResult,
    ) -> Result<(), AgentError> {
        let known = self
            .book
            .ledger()
            .get(key)
            .map(|entry| entry.record.clone());
        let record = known.ok_or_else(|| AgentError::NotAttached { key: key.clone() })?;
        if record.state != State::Added {
            // Something of it is left, so the runtime must not take it for unknown (CNI-ERR-04).
            let faults = vec!["it is being removed".to_owned()];
            return Err(AgentError::Damaged {
                key: key.clone(),
                faults,
            });
        }
        let mut faults = against_result(&record, previous);
        if !record.sandbox.is(netns) {
            faults.push("CNI_NETNS is another namespace than at ADD".to_owned());
        } else if record.is_switched() {
            faults.extend(self.switch_faults(&record).await?);
        } else {
            match look(netns, record.key.ifname.as_str()).await? {
                Some(seen) => faults.extend(against_pod(&record, &seen)),
                None => faults.push(format!("interface {} is gone", record.key.ifname)),
            }
        }
        faults.extend(self.host_faults(&record).await?);
        if faults.is_empty() {
            Ok(())
        } else {
            Err(AgentError::Damaged {
                key: key.clone(),
                faults,
            })
        }
    }

    /// True when packets from this host end meet the dispatcher.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn is_attached(&self, host: &HostEnd) -> Result<bool, HostError> {
        let dispatcher = self.host.hook.dispatcher_id(Dispatcher::Pod)?;
        if self
            .host
            .hook
            .tcx_programs(&host.name)?
            .contains(&dispatcher)
        {
            return Ok(true);
        }
        let ifindex = host.ifindex;
        let filters = self
            .host
            .netlink
            .with(move |connection| connection.ingress_filters(ifindex))
            .await?;
        // Only the first filter is sure to run.
        let first = filters.iter().min_by_key(|filter| filter.priority);
        Ok(first.is_some_and(|filter| filter.program == Some(dispatcher)))
    }

    /// What is wrong at the node's end of an attachment.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn host_faults(&self, record: &Attachment) -> Result<Vec<String>, AgentError> {
        let name = &record.host.name;
        let Some(link) = self.host.netlink.by_name(name).await? else {
            return Ok(vec![format!("host interface {name} is gone")]);
        };
        if link.ifindex != record.host.ifindex {
            return Ok(vec![format!("host interface {name} was replaced")]);
        }
        let mut faults = Vec::new();
        if !link.up {
            faults.push(format!("host interface {name} is down"));
        }
        if !self.is_attached(&record.host).await? {
            faults.push(format!("the program of host interface {name} is detached"));
        }
        faults.extend(self.port_faults(record)?);
        faults.extend(self.limit_faults(record).await?);
        faults.extend(self.routing.faults(record).await?);
        if record.network.egress && self.egress.way_out(record.network.id).is_none() {
            faults.push("the way out of its network is gone".to_owned());
        }
        faults.extend(self.tables.faults(record)?);
        Ok(faults)
    }
}

async fn look(netns: &Netns, ifname: &str) -> Result<Option<Seen>, AgentError> {
    let pod = Netlink::in_netns(netns)?;
    let ifname = ifname.to_owned();
    let seen = pod
        .with(move |connection| -> Result<_, netdev::Error> {
            let Some(link) = connection.by_name(&ifname)? else {
                return Ok(None);
            };
            let addresses = connection.addresses(link.ifindex)?;
            let routes = connection.routes(link.ifindex)?;
            Ok(Some(Seen {
                link,
                addresses: addresses
                    .iter()
                    .map(|found| (found.ip, found.prefix_len))
                    .collect(),
                routes: routes
                    .iter()
                    .map(|found| (found.dst, found.prefix_len, found.gateway))
                    .collect(),
            }))
        })
        .await?;
    Ok(seen)
}

/// What later plugins of the chain have added is theirs; what we have made must be there.
fn against_pod(record: &Attachment, seen: &Seen) -> Vec<String> {
    let mut faults = Vec::new();
    if !seen.link.up {
        faults.push(format!("interface {} is down", record.key.ifname));
    }
    if seen.link.mac != Some(record.mac.0) {
        faults.push(format!(
            "interface {} has another MAC address than {}",
            record.key.ifname, record.mac
        ));
    }
    for lease in &record.leases {
        let wanted = (lease.address, record.prefix_len(lease));
        if !seen.addresses.contains(&wanted) {
            faults.push(format!("address {}/{} is gone", wanted.0, wanted.1));
        }
    }
    for route in record.routes() {
        let wanted = (route.to.addr(), route.to.prefix_len(), route.via);
        if !seen.routes.contains(&wanted) {
            faults.push(format!("the route to {} is gone", route.to));
        }
    }
    faults
}

/// The runtime's memory must name our interface and our addresses.
fn against_result(record: &Attachment, previous: &CniResult) -> Vec<String> {
    let mut faults = Vec::new();
    // Results before 0.3.0 name no interfaces.
    let named = previous.interfaces.is_empty()
        || previous
            .interfaces
            .iter()
            .any(|found| found.name == record.key.ifname.as_str());
    if !named {
        faults.push(format!(
            "prevResult does not name interface {}",
            record.key.ifname
        ));
    }
    for lease in &record.leases {
        let listed = previous
            .ips
            .iter()
            .any(|ip| ip.address.addr() == lease.address);
        let of_family = previous
            .ips
            .iter()
            .any(|ip| ip.address.is_ipv4() == lease.address.is_ipv4());
        // Results before 0.3.0 have one address a family.
        let as_good = listed || (previous.interfaces.is_empty() && of_family);
        if !as_good {
            faults.push(format!(
                "prevResult does not list address {}",
                lease.address
            ));
        }
    }
    faults
}
