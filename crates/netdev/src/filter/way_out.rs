//! The BPF filter on what goes out by a link.
//!
//! An `ingress` qdisc has no such side: the kernel takes a filter for it as one of the way in.

use std::os::fd::BorrowedFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_ECHO};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::TcMessage;
use rustix::io::Errno;

use super::{
    BOTH_SIDES, CLSACT, EGRESS, ONE_SIDE, PRIORITY, TCA_KIND, TCMSG, add_qdisc, filter, filters,
    qdisc, refused,
};
use crate::connection::{Connection, Request};
use crate::error::Error;
use crate::wire;

impl Connection {
    /// Sets the first filter of what goes out by a link of podnet's to a program.
    ///
    /// A clsact qdisc is made where there is none. False, and nothing is done, for a link that has an `ingress`
    /// qdisc: see [`Self::widen_qdisc`].
    ///
    /// # Errors
    /// [`Error::Filter`]; [`Error::is_gone`] if there is no such link.
    pub fn set_egress_program(
        &mut self,
        ifindex: u32,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> Result<bool, Error> {
        match self.ask(add_qdisc(ifindex, BOTH_SIDES))? {
            Err(source) if source.errno() == Errno::EXIST => {
                if self.qdisc_kind(ifindex)?.as_deref() != Some(BOTH_SIDES) {
                    return Ok(false);
                }
            }
            answer => {
                answer.map_err(refused(ifindex, "add a clsact qdisc to"))?;
            }
        }
        let request = filter((ifindex, EGRESS), program, name, PRIORITY, NLM_F_CREATE);
        let set = self.ask(request)?;
        set.map(|_| true)
            .map_err(refused(ifindex, "set the BPF filter on the way out of"))
    }

    /// Replaces the `ingress` qdisc of a link by one of both sides.
    ///
    /// Its filters are gone for a moment: only for links that have a program in front of them.
    ///
    /// # Errors
    /// As [`Self::set_egress_program`].
    pub fn widen_qdisc(&mut self, ifindex: u32) -> Result<(), Error> {
        if self.qdisc_kind(ifindex)?.as_deref() != Some(ONE_SIDE) {
            return Ok(());
        }
        let remove = RouteNetlinkMessage::DelQueueDiscipline(qdisc(ifindex, ONE_SIDE));
        let requests = vec![Request::new(remove, 0), add_qdisc(ifindex, BOTH_SIDES)];
        for answer in self.ask_all(requests)? {
            answer.map_err(refused(ifindex, "replace the ingress qdisc of"))?;
        }
        Ok(())
    }

    /// Returns the id of the program in the first filter of what goes out by a link.
    ///
    /// # Errors
    /// [`Error::List`].
    pub fn egress_program(&mut self, ifindex: u32) -> Result<Option<u32>, Error> {
        if self.qdisc_kind(ifindex)?.as_deref() != Some(BOTH_SIDES) {
            return Ok(None);
        }
        let filters = filters(self, ifindex, EGRESS)?;
        let first = filters.iter().min_by_key(|filter| filter.priority);
        Ok(first.and_then(|filter| filter.program))
    }

    /// The kind of a link's qdisc for such filters; none without it.
    fn qdisc_kind(&mut self, ifindex: u32) -> Result<Option<String>, Error> {
        let mut message = TcMessage::default();
        message.header.index = i32::try_from(ifindex).unwrap_or(0);
        message.header.parent = CLSACT;
        let look = RouteNetlinkMessage::GetQueueDiscipline(message);
        let answers = self.look_all(vec![Request::new(look, NLM_F_ECHO)])?;
        match answers.into_iter().next() {
            Some(Ok(messages)) => Ok(messages.first().and_then(|message| {
                let mut attributes = wire::attributes(message.body.get(TCMSG..)?);
                let kind = attributes.find(|(kind, _)| *kind == TCA_KIND);
                kind.and_then(|(_, value)| wire::string(value))
            })),
            Some(Err(refusal)) if refusal.errno() != Errno::NOENT => Err(Error::List {
                what: "qdiscs",
                source: refusal,
            }),
            _ => Ok(None),
        }
    }
}
