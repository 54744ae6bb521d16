//! The pod's end of an attachment's link, as it shall be.

use std::net::IpAddr;

use netdev::{Address, LinkLocal, PodEnd, Route, Sysctl};

use crate::access;
use crate::record::Attachment;

impl Attachment {
    /// The pod's end of the link, as `netdev` takes it.
    pub fn pod_end(&self) -> PodEnd {
        let mut end = PodEnd::new(self.key.ifname.as_str());
        end.addresses = self
            .leases
            .iter()
            .map(|lease| Address::new(lease.address, self.prefix_len(lease)))
            .collect();
        let v6 = self.has_v6();
        let addressless = self.network.addressless();
        end.link_local = if v6 || addressless {
            LinkLocal::Eui64
        } else {
            LinkLocal::Absent
        };
        end.routes = self.end_routes();
        // Neighbours that knew the address at another MAC address learn of the new one at once, where the datapath
        // does not: a frame to all costs a copy for each port.
        let announced = addressless || self.network.transport.has_uplink();
        if announced {
            end.sysctls.push(Sysctl::v4("arp_notify", "1"));
        }
        if v6 || addressless {
            end.sysctls.push(Sysctl::v6("disable_ipv6", "0"));
            if announced {
                end.sysctls.push(Sysctl::v6("ndisc_notify", "1"));
            }
            end.sysctls.push(Sysctl::v6("accept_ra", "0"));
        }
        if self.is_of_node() {
            end.sysctls.extend(access::sysctls(v6));
        }
        end
    }

    fn end_routes(&self) -> Vec<Route> {
        let of_node = self.is_of_node();
        let routes = self.routes().into_iter().map(|route| {
            // A network may have several subnets of a family, and the pod no address in this one.
            let elsewhere = |via: &IpAddr| {
                let subnets = self.network.subnets.iter();
                subnets.map(|it| it.prefix).any(|it| it.contains(via))
                    && !self.leases.iter().any(|it| it.prefix.contains(via))
            };
            let onlink = route
                .via
                .is_some_and(|via| self.network.routed || elsewhere(&via));
            let v4 = route.to.addr().is_ipv4();
            let own = self.leases.iter().find(|it| it.address.is_ipv4() == v4);
            Route {
                onlink,
                metric: route.metric,
                table: of_node.then_some(access::TABLE),
                source: own.filter(|_| of_node).map(|lease| lease.address),
                ..Route::new(route.to.addr(), route.to.prefix_len(), route.via, 0)
            }
        });
        routes.collect()
    }
}
