//! Networks that leave the node by an uplink as they are.

use std::net::IpAddr;

use agent_common::drop::DropReason;
use agent_common::endpoint::{Endpoint, EndpointKey};
use agent_common::policy::Family;
use agent_common::port::Port;
use agent_common::wire::outside;
use serde_json::json;

use super::depart::Departure;
use super::report::{Outcome, Verdict};
use super::tables;
use crate::error::AgentError;

impl Departure<'_> {
    /// Out of the network's uplink, to this member or to whoever is there.
    pub(super) async fn leave_by_uplink(
        &mut self,
        port: &Port,
        member: Option<&Endpoint>,
    ) -> Result<Outcome, AgentError> {
        let found = if member.is_some() {
            "a member on another node"
        } else {
            "no member on this node"
        };
        self.story.step("policy", found, "to the wire");
        let Some((name, vlan)) = self.uplink(port.network).await? else {
            return Ok(self.drop(DropReason::NoUplink));
        };
        let text = match member {
            Some(member) => format!("out of {name}, for {}", member.mac),
            None => format!("out of {name}, to the holder of the address there"),
        };
        let mac = member.map(|member| member.mac.to_string());
        let details = json!({"uplink": name, "vlan": vlan, "mac": mac});
        Ok(Outcome::new(Verdict::Wired, text, details))
    }

    /// Out of the network's uplink, to a router that leads to the outside.
    pub(super) async fn leave_to_router(
        &mut self,
        port: &Port,
        family: Family,
        destination: Option<IpAddr>,
    ) -> Result<Outcome, AgentError> {
        let number = port.network;
        let found = "no member of the network, which has egress";
        self.story.step("policy", found, "to the wire");
        let Some((name, _)) = self.uplink(number).await? else {
            return Ok(self.drop(DropReason::NoUplink));
        };
        let network = self.scene.look(|tables| tables.networks.get(&number))?;
        if let (Some(network), Some(ip)) = (network, destination)
            && tables::is_own(&self.scene.node.tables, &network, number, ip)?
        {
            let found = "a subnet of the network";
            let verdict = "drop no_endpoint: routers would send it back";
            self.story
                .step(format!("WIRES[{number}, {ip}]"), found, verdict);
            return Ok(self.drop(DropReason::NoEndpoint));
        }
        let key = EndpointKey {
            network: number,
            ip: outside(family),
        };
        let what = format!("NEXT_HOPS[{number}, {}]", IpAddr::from(key.ip));
        let Some(hop) = self.scene.look(|tables| tables.next_hops.get(&key))? else {
            let found = format!("nothing: the node has no default route out of {name}");
            self.story.step(what, found, "drop no_uplink");
            return Ok(self.drop(DropReason::NoUplink));
        };
        let hop = IpAddr::from(hop.ip());
        self.story.step(what, hop.to_string(), "a hop less");
        let text = format!("out of {name}, to the router {hop}");
        let details = json!({"uplink": name, "router": hop.to_string()});
        Ok(Outcome::new(Verdict::Wired, text, details))
    }

    /// Name of the uplink, and the VLAN id of its frames; `None` when it is missing.
    pub(super) async fn uplink(
        &mut self,
        network: u32,
    ) -> Result<Option<(String, u16)>, AgentError> {
        let what = format!("NETWORKS[{network}]");
        let found = self.scene.look(|tables| tables.networks.get(&network))?;
        let Some(found) = found.filter(|it| it.uplink != 0) else {
            self.story.step(what, "no uplink", "drop no_uplink");
            return Ok(None);
        };
        let link = self.scene.node.host.netlink.by_index(found.uplink).await?;
        let name = link.map_or(format!("interface {}, which is gone", found.uplink), |it| {
            it.name
        });
        let tag = if found.vlan == 0 {
            "as it is".to_owned()
        } else {
            format!("with VLAN tag {}", found.vlan)
        };
        self.story.step(what, name.clone(), tag);
        Ok(Some((name, found.vlan)))
    }
}
