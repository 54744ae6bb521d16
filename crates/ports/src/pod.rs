//! The pod's end of an attachment, as it is there.

use std::net::IpAddr;

use book::record::Attachment;
use netdev::{Link, Netlink, Netns};

use crate::error::PortError;

/// Interface of the pod as it is.
struct Seen {
    link: Link,
    addresses: Vec<(IpAddr, u8)>,
    routes: Vec<(IpAddr, u8, Option<IpAddr>)>,
}

/// Faults of the pod's end.
///
/// # Errors
/// When the kernel does not tell.
pub(super) async fn faults(record: &Attachment, netns: &Netns) -> Result<Vec<String>, PortError> {
    Ok(match look(netns, record.key.ifname.as_str()).await? {
        Some(seen) => against_pod(record, &seen),
        None => vec![format!("interface {} is gone", record.key.ifname)],
    })
}

async fn look(netns: &Netns, ifname: &str) -> Result<Option<Seen>, PortError> {
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

/// Later plugins of the chain may have added to it; our own part must be there.
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
