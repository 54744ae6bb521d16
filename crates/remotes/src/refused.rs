//! Claims that do not count, as they are shown and logged.

use std::collections::BTreeSet;
use std::net::IpAddr;

use agent_common::addr::MacAddr;

use super::holdings::Refusal;

/// Lines of the log about refused claims at a time; more are counted.
const LINES: usize = 10;
/// Nodes whose dates were complained about; no more are logged.
const NODES: usize = 1000;

/// Claims of a node about a network that do not count, for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedClaims {
    /// Name of the network.
    pub network: String,
    /// Name of the node.
    pub node: String,
    /// The reason.
    pub why: Refusal,
    /// Number of addresses or members.
    ///
    /// For [`Refusal::Vtep`] those that are not reached by that address.
    pub count: usize,
    /// The member of one of them.
    pub mac: Option<MacAddr>,
    /// Its address, or that of the node's tunnels.
    pub ip: Option<IpAddr>,
}

/// A network, a node, and the reason.
type Cause = (String, String, Refusal);

/// Claims that were logged.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    /// Refused when it was looked last.
    seen: BTreeSet<Cause>,
    logged: BTreeSet<Cause>,
    /// Networks, and nodes whose dates on them are in the future.
    early: BTreeSet<(String, String)>,
}

impl Complaints {
    /// Logs what is refused for the second time in a row, once as long as that goes on.
    pub(super) fn tell(&mut self, refused: &[RefusedClaims]) {
        let cause = |it: &RefusedClaims| (it.network.clone(), it.node.clone(), it.why);
        let now: BTreeSet<Cause> = refused.iter().map(cause).collect();
        self.logged.retain(|it| now.contains(it));
        let mut left = LINES;
        let mut more = 0_usize;
        for it in refused {
            let cause = cause(it);
            if !self.seen.contains(&cause) || self.logged.contains(&cause) {
                continue;
            }
            if left == 0 {
                more += 1;
                continue;
            }
            left -= 1;
            tracing::warn!(
                network = it.network,
                node = it.node,
                count = it.count,
                mac = it.mac.map(tracing::field::display),
                address = it.ip.map(tracing::field::display),
                why = it.why.sentence(),
                "members of another node are refused"
            );
            self.logged.insert(cause);
        }
        if more > 0 {
            tracing::warn!(
                more,
                "more members of other nodes are refused; podnet-agent get endpoints shows them"
            );
        }
        self.seen = now;
    }

    /// Logs once whose clock is ahead.
    pub(super) fn tell_early(&mut self, network: &str, nodes: &BTreeSet<String>) {
        for node in nodes {
            let new = (network.to_owned(), node.clone());
            if self.early.len() < NODES && self.early.insert(new) {
                tracing::warn!(
                    network,
                    node,
                    "claims of a node are dated in the future, and hold against no other; set its clock"
                );
            }
        }
    }
}
