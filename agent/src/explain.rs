//! Follows a described packet through the tables of the datapath.
//!
//! The answer says where the packet ends, and why.
//!
//! The frame is built as the pod's kernel would send it, and decided about by the policy that the
//! programs run, [`agent_common::policy::decide`], over the maps as they are in the kernel: nothing of
//! what this agent believes to be in them takes part. Where its records say something else, that is
//! told beside it. Nothing is sent, and no counter moves.

mod address;
mod advice;
mod arrive;
mod carry_out;
mod depart;
mod directory;
mod frame;
mod here;
mod incoming;
mod question;
mod report;
mod tables;
mod wire;

use agent_common::endpoint::ENDPOINT_REMOTE;
use book::BookError;
use book::record::Attachment;
use cni_spec::FollowRequest;
use datapath::DatapathError;
use serde_json::Value;

use self::directory::{Directory, Member, name_of};
use self::question::{Address, Question};
use self::report::Story;
use self::tables::{Hit, Lookup};
use crate::error::AgentError;
use crate::error::ExplainError;
use crate::node::Node;

/// The node, everybody on it, and what was asked.
struct Scene<'a> {
    node: &'a Node,
    directory: Directory,
    question: Question,
}

/// Follows a packet of this description through the tables.
///
/// # Errors
/// When the description names nobody, or the kernel does not tell.
pub async fn follow(node: &Node, request: &FollowRequest) -> Result<Value, AgentError> {
    let question = Question::read(request)?;
    let directory = Directory::of(node);
    let from = directory.find(&question.from)?;
    let mut to = directory.find(&question.to)?;
    if let (None, Some(network), Some(address)) = (&to.member, from.network, to.address) {
        // An address by itself is looked for where the sender is.
        to.member = directory.member(network, address);
    }
    let scene = Scene {
        node,
        directory,
        question,
    };
    let elsewhere = scene.question.arrive_from.is_some();
    let report = match (&from.member, &from.network) {
        (Some(Member::Here(record)), _) if !elsewhere => {
            depart::follow(&scene, record, &from, &to).await?
        }
        (Some(Member::There(network, _)), _) | (_, Some(network)) if scene.has_uplink(*network) => {
            incoming::follow(&scene, &from, &to, *network).await?
        }
        (Some(Member::There(network, _)), _) => {
            arrive::follow(&scene, &from, &to, *network).await?
        }
        (_, Some(network)) if elsewhere => arrive::follow(&scene, &from, &to, *network).await?,
        _ => return Err(scene.nobody().into()),
    };
    serde_json::to_value(report)
        .map_err(|source| BookError::Record {
            key: "the report".to_owned(),
            source,
        })
        .map_err(AgentError::from)
}

impl Scene<'_> {
    /// Whether members elsewhere, and strangers, are beyond an uplink.
    fn has_uplink(&self, network: u32) -> bool {
        let facts = self.directory.facts(network);
        facts.is_some_and(|facts| facts.wire.is_some())
    }

    /// The sender is known by no name that would do.
    fn nobody(&self) -> ExplainError {
        let fix = match &self.question.from.named {
            question::Named::Address(_) => {
                "an address alone does not say whose: write NETWORK/ADDRESS"
            }
            question::Named::OnNetwork(..)
            | question::Named::Container(_)
            | question::Named::Pair(..) => {
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
    fn look<T>(
        &self,
        look: impl FnOnce(&datapath::Tables) -> Result<T, DatapathError>,
    ) -> Result<T, AgentError> {
        Ok(self.node.tables.look(look)?)
    }

    /// Tells of a look that the policy took into a map of `network`.
    fn tell(&self, network: u32, lookup: Lookup, story: &mut Story) -> Result<(), AgentError> {
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
            Hit::At(endpoint) => endpoint,
        };
        let what = format!("{map}[{name}, {key}]");
        let Some(endpoint) = endpoint else {
            let elsewhere = self.directory.elsewhere(network, lookup.key);
            story.step(what, "nothing", elsewhere.unwrap_or_default());
            if let Some(member) = self.directory.member(network, lookup.key) {
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
    async fn faults(&self, record: &Attachment, story: &mut Story) -> Result<(), AgentError> {
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
