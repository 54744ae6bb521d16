//! Share the node, its members and the question among the stages of an answer.

use agent_common::endpoint::ENDPOINT_REMOTE;
use book::record::Attachment;
use datapath::DatapathError;

use super::directory::{Directory, Member, name_of};
use super::question::{Address, Named, Question};
use super::report::Story;
use super::tables::{Hit, Lookup};
use crate::error::AgentError;
use crate::error::ExplainError;
use crate::node::Node;

/// Holds the node, all members that it knows, and the question.
pub(super) struct Scene<'a> {
    pub(super) node: &'a Node,
    pub(super) directory: Directory,
    pub(super) question: Question,
}

impl Scene<'_> {
    /// Whether members elsewhere, and strangers, are beyond an uplink.
    pub(super) fn has_uplink(&self, network: u32) -> bool {
        let facts = self.directory.facts(network);
        facts.is_some_and(|facts| facts.wire.is_some())
    }

    /// The sender is known by no name that would do.
    pub(super) fn nobody(&self) -> ExplainError {
        let fix = match &self.question.from.named {
            Named::Address(_) => "an address alone does not say whose: write NETWORK/ADDRESS",
            Named::OnNetwork(..) | Named::Container(_) | Named::Pair(..) => {
                "no member of this network is known to have it; for a packet of another node name the node with --arrive-from"
            }
        };
        ExplainError::Invalid {
            argument: "--from",
            value: self.question.from.text.clone(),
            fix,
        }
    }

    /// Looks into the maps.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(&datapath::Tables) -> Result<T, DatapathError>,
    ) -> Result<T, AgentError> {
        Ok(self.node.tables.look(look)?)
    }

    /// Tells of a look that the policy took into a map of `network`.
    pub(super) fn tell(&self, lookup: Lookup, story: &mut Story) -> Result<(), AgentError> {
        let network = lookup.network;
        let name = self.directory.network_name(network);
        let (map, key) = match lookup.key {
            Address::Ip(ip) => ("ENDPOINTS", ip.to_string()),
            Address::Mac(mac) => ("FDB", mac.to_string()),
        };
        let endpoint = match lookup.found {
            Hit::Further(found) => {
                let text = if found { "there" } else { "nothing" };
                let verdict = if found {
                    "the port's own"
                } else {
                    "not the port's"
                };
                story.step(format!("PORT_ADDRESSES[{key}]"), text, verdict);
                return Ok(());
            }
            Hit::Route(route) => {
                let to = route.filter(|it| it.network != 0);
                let (found, verdict) = match (route, to) {
                    (_, Some(to)) => (
                        self.directory.network_name(to.network),
                        "the virtual gateway routes there",
                    ),
                    (Some(_), None) => ("no network".to_owned(), "no network of the VPC has it"),
                    (None, None) => ("nothing".to_owned(), ""),
                };
                story.step(format!("ROUTES[{name}, {key}]"), found, verdict);
                return Ok(());
            }
            Hit::At(endpoint) => endpoint,
        };
        let what = format!("{map}[{name}, {key}]");
        let Some(endpoint) = endpoint else {
            let elsewhere = self.directory.elsewhere(network, lookup.key);
            story.step(what, "nothing", elsewhere.unwrap_or_default());
            let member = self.directory.member(network, lookup.key);
            // Members beyond an uplink are in no table.
            let beyond = matches!(member, Some(Member::There(..))) && self.has_uplink(network);
            if let Some(member) = member.filter(|_| !beyond) {
                story.disagree(self.missing(map, &key, &member));
            }
            return Ok(());
        };
        let vtep = if endpoint.flags & ENDPOINT_REMOTE != 0 {
            self.look(|tables| tables.vteps.get(endpoint.ifindex))?
        } else {
            None
        };
        story.step(what, self.directory.endpoint(&endpoint, vtep.as_ref()), "");
        Ok(())
    }

    fn missing(&self, map: &str, key: &str, member: &Member) -> String {
        let who = match member {
            Member::Here(record) => format!("{} of this node has it", name_of(record)),
            Member::There(_, endpoint) => format!("{} says that it has it", endpoint.peer.node),
        };
        format!(
            "{map} has nothing for {key}, and {who}: restart the agent, which writes all tables"
        )
    }

    /// Notes what is not as the record of an attachment says.
    pub(super) async fn faults(
        &self,
        record: &Attachment,
        story: &mut Story,
    ) -> Result<(), AgentError> {
        let entry = self.node.book.ledger().get(&record.key).map(|it| it.live);
        if entry != Some(true) {
            let state = record.state;
            story.disagree(format!(
                "{} is not live, its state is {state:?}",
                name_of(record)
            ));
            return Ok(());
        }
        for fault in self.node.attachments.faults(record).await? {
            story.disagree(format!("{}: {fault}", name_of(record)));
        }
        Ok(())
    }
}
