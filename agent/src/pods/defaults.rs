//! Default routes of a pod with several networks (NPWG §4.1.2.1.9, by family).
//!
//! Networks of ours get them or not when they are made. What other plugins make is known only
//! afterwards: then the routes that belong elsewhere are removed, and the gateways the pod has
//! asked for are set. A family never loses its default route to an attachment that has none to
//! give.

use book::pods::record::{Maker, Member, PodRecord};
use book::record::metric;
use cni_spec::IfName;
use netdev::{Netns, Route};

use crate::error::AgentError;
use crate::node::Node;

impl Node {
    /// Corrects the default routes after plugins have made the member at `index`.
    pub(super) async fn settle_defaults(
        &self,
        record: &mut PodRecord,
        index: usize,
        netns: &Netns,
    ) -> Result<(), AgentError> {
        let Some(member) = record.members.get(index).cloned() else {
            return Ok(());
        };
        for v4 in [true, false] {
            match member.default_routes.of(v4) {
                Some(gateways) if gateways.is_empty() => {}
                Some(gateways) => {
                    let gateways = gateways.clone();
                    set_defaults(netns, &member.ifname, v4, gateways).await?;
                }
                None if claims_whatever_it_has(&member)
                    && count_defaults(netns, &member.ifname, v4).await? > 0 =>
                {
                    self.move_default(record, index, v4, netns).await?;
                }
                None => {
                    remove_defaults(netns, &member.ifname, v4).await?;
                }
            }
        }
        Ok(())
    }

    /// Removes the default routes of all members but the one at `index`.
    ///
    /// This one has asked for the default route without a gateway, and its plugins have made one.
    async fn move_default(
        &self,
        record: &mut PodRecord,
        index: usize,
        v4: bool,
        netns: &Netns,
    ) -> Result<(), AgentError> {
        let container = record.key.container.clone();
        for (other, member) in record.members.iter_mut().enumerate() {
            let routes = member.default_routes.of_mut(v4);
            if other == index {
                *routes = Some(Vec::new());
            } else if routes.take().is_some() && other < index {
                remove_defaults(netns, &member.ifname, v4).await?;
                if matches!(member.maker, Maker::Podnet) {
                    let key = cni_spec::AttachmentKey {
                        container: container.clone(),
                        ifname: member.ifname.clone(),
                    };
                    self.give_up_default(&key, v4).await?;
                }
            }
        }
        self.book.pods().update(record);
        Ok(())
    }

    /// The record of an attachment of ours no more has default routes of this family.
    async fn give_up_default(
        &self,
        key: &cni_spec::AttachmentKey,
        v4: bool,
    ) -> Result<(), AgentError> {
        let known = self.book.record(key);
        if let Some(mut record) = known {
            *record.default_gateway.of_mut(v4) = None;
            self.book.save(&record).await?;
            self.book
                .ledger()
                .set_default_gateway(key, record.default_gateway);
        }
        Ok(())
    }
}

/// `default-route: []`.
fn claims_whatever_it_has(member: &Member) -> bool {
    member
        .asked_default_route
        .as_ref()
        .is_some_and(Vec::is_empty)
}

async fn count_defaults(netns: &Netns, ifname: &IfName, v4: bool) -> Result<usize, AgentError> {
    let found = in_pod(netns, ifname, move |connection, ifindex| {
        let routes = connection.routes(ifindex)?;
        let defaults = routes
            .iter()
            .filter(|route| route.prefix_len == 0 && route.dst.is_ipv4() == v4);
        Ok(defaults.count())
    });
    found.await
}

async fn remove_defaults(netns: &Netns, ifname: &IfName, v4: bool) -> Result<usize, AgentError> {
    let removed = in_pod(netns, ifname, move |connection, ifindex| {
        connection.remove_default_routes(ifindex, v4)
    });
    removed.await
}

/// Replaces the default routes of a family by these gateways, the first preferred.
async fn set_defaults(
    netns: &Netns,
    ifname: &IfName,
    v4: bool,
    gateways: Vec<std::net::IpAddr>,
) -> Result<(), AgentError> {
    let set = in_pod(netns, ifname, move |connection, ifindex| {
        connection.remove_default_routes(ifindex, v4)?;
        for (place, gateway) in (0..).zip(gateways) {
            let route = Route {
                metric: metric(v4, place),
                ..Route::default_via(gateway, ifindex)
            };
            connection.add_route(&route)?;
        }
        Ok(())
    });
    set.await
}

/// Runs `what` on an interface of the pod, if it is there.
///
/// The interface may be missing: a device that the kernel does not drive has none.
async fn in_pod<T: Default + Send + 'static>(
    netns: &Netns,
    ifname: &IfName,
    what: impl FnOnce(&mut netdev::Connection, u32) -> Result<T, netdev::Error> + Send + 'static,
) -> Result<T, AgentError> {
    let name = ifname.to_string();
    let pod = netdev::Netlink::in_netns(netns)?;
    let done = pod.with(move |connection| match connection.by_name(&name)? {
        Some(link) => what(connection, link.ifindex),
        None => Ok(T::default()),
    });
    Ok(done.await?)
}
