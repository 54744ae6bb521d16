//! BPF filters on what comes in by a link, and on what goes out.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use rustix::io::Errno;

use crate::connection::{Connection, Request};
use crate::error::{Error, Refusal};
use crate::wire;

mod way_out;

/// `sizeof(struct tcmsg)`.
const TCMSG: usize = 20;
/// `RTM_NEWTFILTER`.
const RTM_NEWTFILTER: u16 = 44;
/// `TC_H_CLSACT` (linux/pkt_sched.h).
const CLSACT: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0xfff1,
};
/// `TC_H_CLSACT` with `TC_H_MIN_INGRESS` (linux/pkt_sched.h).
const INGRESS: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0xfff2,
};
/// `TC_H_CLSACT` with `TC_H_MIN_EGRESS` (linux/pkt_sched.h).
const EGRESS: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0xfff3,
};
/// Kind of the qdisc of a link of podnet's, on the one side that it needs.
///
/// The kernel walks a list of both sides of all such qdiscs for each new one: with one side, a node of thousands of
/// ports takes a quarter of the time.
const ONE_SIDE: &str = "ingress";
/// Kind of the qdisc of a link of the node, where others have filters too.
const BOTH_SIDES: &str = "clsact";
/// Ours is the first filter of a link of ours, and there is one.
const PRIORITY: u32 = 1;
/// The first that is tried on a link of the node.
const PRIORITY_BESIDE: u16 = 2;
const HANDLE: u32 = 1;
/// `ETH_P_ALL` (linux/if_ether.h), in network order.
const ALL_PROTOCOLS: u16 = 3_u16.to_be();
// linux/rtnetlink.h, linux/pkt_cls.h
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
/// `TCA_BPF_FLAG_ACT_DIRECT`: what the program returns is what is done.
const ACT_DIRECT: u32 = 1;

/// A BPF filter on the ingress side of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressFilter {
    /// `tcm_handle`.
    pub handle: u32,
    /// Preference; the lowest runs first.
    pub priority: u16,
    /// The program's id.
    pub program: Option<u32>,
    /// The name it was given, which `tc` shows.
    pub name: Option<String>,
}

impl Connection {
    /// Sets the first ingress filter of a link of podnet's to a program.
    ///
    /// An `ingress` qdisc is made where there is none; a clsact qdisc does as well. Another program in that
    /// place is replaced, with no packet between them. The kernel keeps the program as long as the filter
    /// is there. `name`: what `tc` shows.
    ///
    /// # Errors
    /// [`Error::Filter`]; [`Error::is_gone`] if there is no such link.
    pub fn set_ingress_program(
        &mut self,
        ifindex: u32,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> Result<(), Error> {
        // Without `NLM_F_EXCL` one that is there is changed.
        let set = filter((ifindex, INGRESS), program, name, PRIORITY, NLM_F_CREATE);
        let requests = vec![add_qdisc(ifindex, ONE_SIDE), set];
        let mut answers = self.ask_all(requests)?.into_iter();
        match answers.next() {
            Some(Err(source)) if source.errno() != Errno::EXIST => {
                return Err(refused(ifindex, "add an ingress qdisc to")(source));
            }
            _ => {}
        }
        let set = answers.next().unwrap_or(Ok(Vec::new()));
        set.map(|_| ())
            .map_err(refused(ifindex, "set the BPF filter of"))
    }

    /// Adds an ingress filter with a program to the clsact qdisc of a link.
    ///
    /// The filters of others stay; the qdisc is made where there is none. `program` has this id; `name`:
    /// what `tc` shows. False when the filter is there already.
    ///
    /// # Errors
    /// [`Error::Filter`]; [`Error::is_gone`] if there is no such link.
    pub fn add_ingress_program(
        &mut self,
        ifindex: u32,
        (program, id): (BorrowedFd<'_>, u32),
        name: &str,
    ) -> Result<bool, Error> {
        let there = self.ingress_filters(ifindex)?;
        if there.iter().any(|it| it.program == Some(id)) {
            return Ok(false);
        }
        match self.ask(add_qdisc(ifindex, BOTH_SIDES))? {
            Err(source) if source.errno() != Errno::EXIST => {
                return Err(refused(ifindex, "add a clsact qdisc to")(source));
            }
            _ => {}
        }
        // Priority 1 is where many put theirs, and replace what is there.
        let free = (PRIORITY_BESIDE..).find(|it| there.iter().all(|other| other.priority != *it));
        let priority = u32::from(free.unwrap_or(PRIORITY_BESIDE));
        let request = filter(
            (ifindex, INGRESS),
            program,
            name,
            priority,
            NLM_F_CREATE | NLM_F_EXCL,
        );
        let set = self.ask(request)?;
        set.map(|_| true)
            .map_err(refused(ifindex, "add the BPF filter to"))
    }

    /// Removes a filter, and the clsact qdisc when nothing else is in it.
    ///
    /// A missing filter is no error.
    ///
    /// # Errors
    /// [`Error::Filter`].
    pub fn remove_ingress_filter(
        &mut self,
        ifindex: u32,
        filter: &IngressFilter,
    ) -> Result<(), Error> {
        let mut message = TcMessage::default();
        message.header.index = i32::try_from(ifindex).unwrap_or(0);
        message.header.handle = filter.handle.into();
        message.header.parent = INGRESS;
        message.header.info = u32::from(filter.priority) << 16 | u32::from(ALL_PROTOCOLS);
        message.attributes = vec![TcAttribute::Kind("bpf".to_owned())];
        let request = Request::new(RouteNetlinkMessage::DelTrafficFilter(message), 0);
        match self.ask(request)? {
            Err(source)
                if !matches!(source.errno(), Errno::NOENT | Errno::NODEV | Errno::INVAL) =>
            {
                Err(refused(ifindex, "remove the BPF filter of")(source))
            }
            _ => self.remove_empty_clsact(ifindex),
        }
    }

    fn remove_empty_clsact(&mut self, ifindex: u32) -> Result<(), Error> {
        for parent in [INGRESS, EGRESS] {
            let mut message = TcMessage::default();
            message.header.index = i32::try_from(ifindex).unwrap_or(0);
            message.header.parent = parent;
            let request = RouteNetlinkMessage::GetTrafficFilter(message);
            let listed = self.dump("filters", &request)?;
            if listed.iter().any(|message| message.kind == RTM_NEWTFILTER) {
                return Ok(());
            }
        }
        let message = RouteNetlinkMessage::DelQueueDiscipline(qdisc(ifindex, BOTH_SIDES));
        let request = Request::new(message, 0);
        match self.ask(request)? {
            Err(source)
                if !matches!(source.errno(), Errno::NOENT | Errno::NODEV | Errno::INVAL) =>
            {
                Err(refused(ifindex, "remove the clsact qdisc of")(source))
            }
            _ => Ok(()),
        }
    }

    /// Lists the BPF ingress filters of a link's clsact qdisc; none without the qdisc.
    ///
    /// # Errors
    /// [`Error::List`].
    pub fn ingress_filters(&mut self, ifindex: u32) -> Result<Vec<IngressFilter>, Error> {
        filters(self, ifindex, INGRESS)
    }
}

fn filters(
    connection: &mut Connection,
    ifindex: u32,
    side: TcHandle,
) -> Result<Vec<IngressFilter>, Error> {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).unwrap_or(0);
    message.header.parent = side;
    let messages = connection.dump("filters", &RouteNetlinkMessage::GetTrafficFilter(message))?;
    Ok(messages
        .iter()
        .filter(|message| message.kind == RTM_NEWTFILTER)
        .filter_map(|message| parse(&message.body))
        .collect())
}

/// Says that the kernel has refused this step at a link.
fn refused(ifindex: u32, step: &'static str) -> impl FnOnce(Refusal) -> Error {
    move |source| Error::Filter {
        link: ifindex.into(),
        step,
        source,
    }
}

/// Adds a qdisc of this kind for filters on what comes in by a link.
fn add_qdisc(ifindex: u32, kind: &str) -> Request {
    Request::new(
        RouteNetlinkMessage::NewQueueDiscipline(qdisc(ifindex, kind)),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

fn qdisc(ifindex: u32, kind: &str) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).unwrap_or(0);
    message.header.handle = TcHandle {
        major: 0xffff,
        minor: 0,
    };
    message.header.parent = CLSACT;
    message.attributes = vec![TcAttribute::Kind(kind.to_owned())];
    message
}

fn filter(
    (ifindex, side): (u32, TcHandle),
    program: BorrowedFd<'_>,
    name: &str,
    priority: u32,
    flags: u16,
) -> Request {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).unwrap_or(0);
    message.header.handle = HANDLE.into();
    message.header.parent = side;
    message.header.info = priority << 16 | u32::from(ALL_PROTOCOLS);
    let option = |kind, value| TcOption::Other(DefaultNla::new(kind, value));
    let mut label = name.as_bytes().to_vec();
    label.push(0);
    message.attributes = vec![
        TcAttribute::Kind("bpf".to_owned()),
        TcAttribute::Options(vec![
            option(TCA_BPF_FD, program.as_raw_fd().to_ne_bytes().to_vec()),
            option(TCA_BPF_NAME, label),
            option(TCA_BPF_FLAGS, ACT_DIRECT.to_ne_bytes().to_vec()),
        ]),
    ];
    Request::new(RouteNetlinkMessage::NewTrafficFilter(message), flags)
}

fn parse(body: &[u8]) -> Option<IngressFilter> {
    // struct tcmsg: family and padding, ifindex, handle, parent, info (priority and protocol).
    let handle = wire::u32_at(body, 8)?;
    let priority = u16::try_from(wire::u32_at(body, 16)? >> 16).ok()?;
    let mut is_bpf = false;
    let (mut program, mut name) = (None, None);
    for (kind, value) in wire::attributes(body.get(TCMSG..)?) {
        match kind {
            TCA_KIND => is_bpf = wire::string(value).as_deref() == Some("bpf"),
            TCA_OPTIONS => {
                let option = |wanted| {
                    let mut options = wire::attributes(value);
                    options
                        .find(|(kind, _)| *kind == wanted)
                        .map(|(_, value)| value)
                };
                program = option(TCA_BPF_ID).and_then(|value| wire::u32_at(value, 0));
                name = option(TCA_BPF_NAME).and_then(wire::string);
            }
            _ => {}
        }
    }
    // The chain itself is listed too, without a handle.
    (is_bpf && handle != 0).then_some(IngressFilter {
        handle,
        priority,
        program,
        name,
    })
}
