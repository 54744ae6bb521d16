//! Conflicts of networks that are in use.

use super::Ledger;
use crate::BookError;
use crate::record::NetworkFacts;

impl Ledger {
    /// Refuses a network that contradicts its attachments here or another network.
    ///
    /// Its number or its part of an uplink may be another's already.
    ///
    /// # Errors
    /// The contradiction.
    pub fn refuse_changed(&self, facts: &NetworkFacts) -> Result<(), BookError> {
        let network = || facts.name.clone();
        for other in self
            .networks()
            .filter(|other| other.name == facts.name || other.id == facts.id)
        {
            if other.name != facts.name {
                return Err(BookError::IdTaken {
                    id: facts.id,
                    network: network(),
                    owner: other.name.clone(),
                });
            }
            if other.id != facts.id {
                return Err(BookError::IdChanged { network: network() });
            }
            if other.routed != facts.routed {
                return Err(BookError::ModeChanged { network: network() });
            }
            if other.by_node != facts.by_node {
                return Err(BookError::RoutingChanged { network: network() });
            }
            if other.transport != facts.transport || other.wire != facts.wire {
                return Err(BookError::TransportChanged { network: network() });
            }
            if other.addressless() != facts.addressless() {
                return Err(BookError::SubnetsChanged { network: network() });
            }
        }
        refuse_taken(facts, self.networks())
    }
}

/// Refuses what of an uplink a network that is in use has.
fn refuse_taken<'a>(
    facts: &NetworkFacts,
    in_use: impl Iterator<Item = &'a NetworkFacts>,
) -> Result<(), BookError> {
    let Some(wire) = &facts.wire else {
        return Ok(());
    };
    for other in in_use.filter(|other| other.id != facts.id) {
        let theirs = other.wire.as_ref();
        let clash = theirs.and_then(|it| wire.clash(&facts.prefixes(), it, &other.prefixes()));
        if let Some(clash) = clash {
            return Err(BookError::UplinkTaken {
                network: facts.name.clone(),
                owner: other.name.clone(),
                uplink: wire.uplink.clone(),
                clash,
            });
        }
    }
    Ok(())
}
