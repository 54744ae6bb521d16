//! Services of the cluster's network that some network of podnet reaches.
//!
//! The Services of a cluster are followed for as long as a network names one in `spec.clusterServices`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::copied::unread;
use cluster::facts::Follow;
use futures_util::future::select_all;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use netdev::{PortAt, PortProtocol};
use node_stack::egress::ClusterServices;
use reach::Reach;
use tokio::sync::{Notify, watch};
use world::Current;

/// The most ports of a Service that are opened, counted for each address.
///
/// Those of all Services of a network have to fit one message to the kernel.
const PORTS_MAX: usize = 16;
/// Time within which changes that come together are one.
const SETTLE: Duration = Duration::from_millis(20);

/// Follows these Services.
pub(crate) struct Named {
    client: Client,
    world: Arc<Current>,
}

impl Named {
    /// One for the networks of this world.
    pub(crate) fn new(client: &Client, world: Arc<Current>) -> Self {
        Self {
            client: client.clone(),
            world,
        }
    }

    /// Namespaces and names in the fields of all networks.
    ///
    /// `None` while networks are not known.
    fn names(&self) -> Option<BTreeSet<(String, String)>> {
        let world = self.world.get();
        let networks = world.resolved.definitions();
        let names = networks.flat_map(|it| it.cluster_services.iter().cloned());
        world.unread.is_empty().then(|| names.collect())
    }

    /// Tells the ways out of their ports, for ever.
    pub(crate) async fn work(&self, reach: &Reach) {
        let mut world = self.world.changes();
        loop {
            world.mark_unchanged();
            match self.names() {
                Some(names) if !names.is_empty() => self.follow(reach, &mut world).await,
                known => {
                    if known.is_some() {
                        reach.set_cluster_services(ClusterServices::new());
                    }
                    // The sender lives as long as the agent.
                    let _ = world.changed().await;
                }
            }
        }
    }

    /// Follows all Services until no network names one.
    async fn follow(&self, reach: &Reach, world: &mut watch::Receiver<u64>) {
        let changed = Arc::new(Notify::new());
        let mut follow = Follow::new(&self.client, &changed);
        let services = follow.copy_some("services", false, ports);
        let mut work = follow.work();
        loop {
            world.mark_unchanged();
            match self.names() {
                Some(names) if names.is_empty() => return,
                Some(names) if unread([&services.kind]).is_empty() => {
                    let known = services.known();
                    let named = known.iter().filter(|(name, _)| names.contains(*name));
                    let named = named.map(|(name, ports)| (name.clone(), ports.clone()));
                    reach.set_cluster_services(named.collect());
                }
                _ => {}
            }
            let change = async {
                tokio::select! {
                    () = changed.notified() => {}
                    _ = world.changed() => {}
                }
                tokio::time::sleep(SETTLE).await;
            };
            tokio::select! {
                () = change => {}
                // None of them ends.
                _ = select_all(work.iter_mut()) => {}
            }
        }
    }
}

/// Reads the ports of a Service with addresses; `None` for one without.
fn ports(object: &Service) -> Option<BTreeSet<PortAt>> {
    let spec = object.spec.as_ref()?;
    let ips = spec.cluster_ips.iter().flatten();
    let ips: Vec<IpAddr> = ips.filter_map(|ip| ip.parse().ok()).collect();
    let ports = spec.ports.iter().flatten().filter_map(|port| {
        let protocol = match port.protocol.as_deref() {
            None | Some("TCP") => PortProtocol::Tcp,
            Some("UDP") => PortProtocol::Udp,
            Some(_) => return None,
        };
        Some((protocol, u16::try_from(port.port).ok()?))
    });
    let all = ports.flat_map(|(protocol, port)| {
        ips.iter().map(move |ip| PortAt {
            ip: *ip,
            protocol,
            port,
        })
    });
    let all: BTreeSet<PortAt> = all.take(PORTS_MAX).collect();
    (!all.is_empty()).then_some(all)
}
