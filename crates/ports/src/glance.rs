//! Finds ports that may not be as recorded, by few questions about all of them.
//!
//! What a glance passes over, [`super::Ports::repair`] and [`super::Ports::limit`] would leave alone, and
//! [`super::Ports::faults`] would find no fault in. Queues are one dump for all ports, the switch is asked once,
//! and links are those of a survey.

use std::collections::{BTreeMap, BTreeSet};

use book::record::{Attachment, HostEnd};
use host::{far_name, near_name};
use netdev::{Discipline, RootQueue};
use uswitch::PortConfig;

use crate::error::PortError;
use crate::shaping::{End, Seen};
use crate::survey::Survey;

/// Questions of a glance.
pub(crate) trait Sight {
    /// Lists the queues at the roots of all links, by index.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn root_queues(&mut self) -> Result<BTreeMap<u32, RootQueue>, PortError>;

    /// Lists ports as the switch has them, by their keys.
    ///
    /// # Errors
    /// When it does not answer.
    fn switched(&mut self) -> Result<BTreeMap<String, PortConfig>, PortError>;

    /// True when packets from a link meet the dispatcher.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn is_attached(&mut self, name: &str, ifindex: u32) -> Result<bool, PortError>;

    /// True when what the node's stack sends to a link meets its dispatcher.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn is_on_the_way_out(&mut self, ifindex: u32) -> Result<bool, PortError>;

    /// Has a host end wait for its TCX link, if it has none.
    fn await_promotion(&mut self, host: &HostEnd);

    /// True when an AF_XDP port has all of its parts.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn has_sockets(&mut self, record: &Attachment) -> Result<bool, PortError>;

    /// True when the objects ask for the limits of the record.
    fn has_its_limits(&mut self, record: &Attachment) -> bool;

    /// True when the switch has a port as recorded, or not at all.
    fn is_told(&mut self, record: &Attachment, held: &BTreeMap<String, PortConfig>) -> bool;
}

/// [`super::Ports::suspects`], by this way of the kernel to limit rates.
pub(crate) fn suspects(
    sight: &mut impl Sight,
    survey: &Survey,
    records: &[Attachment],
    discipline: Option<Discipline>,
) -> Result<BTreeSet<usize>, PortError> {
    let queues = sight.root_queues()?;
    let has_switched = records.iter().any(Attachment::is_switched);
    // Without an answer all that it should have are looked at, and told of then.
    let held = has_switched.then(|| sight.switched().ok()).flatten();
    let glance = Glance {
        survey,
        queues,
        held,
        discipline,
    };
    let suspects = records.iter().enumerate().filter(|(_, record)| {
        // What cannot be seen at a glance is looked at by itself, and told then.
        !glance.passes(sight, record).unwrap_or(false)
    });
    Ok(suspects.map(|(place, _)| place).collect())
}

/// Answers for all ports.
struct Glance<'a> {
    survey: &'a Survey,
    queues: BTreeMap<u32, RootQueue>,
    /// None where the switch does not answer.
    held: Option<BTreeMap<String, PortConfig>>,
    discipline: Option<Discipline>,
}

impl Glance<'_> {
    fn passes(&self, sight: &mut impl Sight, record: &Attachment) -> Result<bool, PortError> {
        let host = &record.host;
        let link = self.survey.named(&host.name);
        if !link.is_some_and(|link| link.ifindex == host.ifindex && link.up) {
            return Ok(false);
        }
        if !sight.is_attached(&host.name, host.ifindex)? {
            return Ok(false);
        }
        if record.network.by_node && !sight.is_on_the_way_out(host.ifindex)? {
            return Ok(false);
        }
        sight.await_promotion(host);
        if !sight.has_its_limits(record)
            || !self.seen(record).is_settled(record, self.discipline)
            || !self.is_far_end_attached(sight, record)?
        {
            return Ok(false);
        }
        if record.is_switched() {
            let held = self.held.as_ref();
            return Ok(held.is_some_and(|held| sight.is_told(record, held)));
        }
        Ok(!record.is_afxdp() || sight.has_sockets(record)?)
    }

    fn queue(&self, ifindex: u32) -> RootQueue {
        let queue = self.queues.get(&ifindex).cloned();
        queue.unwrap_or(RootQueue::Default)
    }

    fn seen(&self, record: &Attachment) -> Seen {
        let near = self.survey.named(&near_name(&record.host.name));
        let far = self.survey.named(&far_name(&record.host.name));
        let both = near.zip(far);
        let pair = both.filter(|(near, far)| near.peer == Some(far.ifindex));
        let end = |ifindex, up| End { ifindex, up };
        Seen {
            host: self.queue(record.host.ifindex),
            near: near.is_some(),
            pair: pair.map(|(near, far)| {
                let queue = self.queue(near.ifindex);
                (end(near.ifindex, near.up), end(far.ifindex, far.up), queue)
            }),
        }
    }

    fn is_far_end_attached(
        &self,
        sight: &mut impl Sight,
        record: &Attachment,
    ) -> Result<bool, PortError> {
        match record.shaper {
            Some(shaper) => sight.is_attached(&far_name(&record.host.name), shaper.far),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests;
