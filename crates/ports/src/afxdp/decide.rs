//! Decides about requests at a control socket. Pure.

use xsk::control::{Answer, Request};

/// Most frames that a poll may take at once.
///
/// The processor does nothing else meanwhile.
const BUDGET_MAX: u32 = 512;
/// Longest time that a read may poll, in microseconds.
const TIMEOUT_MAX: u32 = 1_000_000;

/// Port of the control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) ifname: String,
    pub(super) queues: u32,
}

/// Steps that answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Answer this, and nothing else.
    Say(Answer),
    /// Hand out the map.
    Map,
    /// Open a socket in the pod's namespace and hand it out.
    NewSocket,
    /// Put the socket that came into the map.
    Insert { queue: u32 },
    /// Have the socket that came polled.
    BusyPoll { timeout: u32, budget: u32 },
}

/// Decides about a request, which came with a descriptor or without.
pub(super) fn decide(facts: &Facts, request: Option<&Request<'_>>, has_descriptor: bool) -> Step {
    let ours = |ifname: &str| ifname == facts.ifname;
    match request {
        None => Step::Say(Answer::Nak),
        // Who it is the socket says; the name is what the pod calls itself, and cut off.
        Some(Request::Connect(_)) => Step::Say(Answer::HostOk),
        Some(Request::Version) => Step::Say(Answer::Version),
        Some(Request::Fin) => Step::Say(Answer::FinAck),
        Some(Request::Map { ifname }) if ours(ifname) => Step::Map,
        Some(Request::NewSocket { ifname }) if ours(ifname) => Step::NewSocket,
        Some(Request::Insert { ifname, queue })
            if ours(ifname) && *queue < facts.queues && has_descriptor =>
        {
            Step::Insert { queue: *queue }
        }
        Some(Request::Map { .. } | Request::NewSocket { .. } | Request::Insert { .. }) => {
            Step::Say(Answer::FdNak)
        }
        Some(Request::BusyPoll { timeout, budget })
            if has_descriptor && *timeout <= TIMEOUT_MAX && *budget <= BUDGET_MAX =>
        {
            Step::BusyPoll {
                timeout: *timeout,
                budget: *budget,
            }
        }
        Some(Request::BusyPoll { .. }) => Step::Say(Answer::BusyPollNak),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(text: &str, has_descriptor: bool) -> Step {
        let facts = Facts {
            ifname: "net1".to_owned(),
            queues: 2,
        };
        let request = Request::parse(text.as_bytes());
        decide(&facts, request.as_ref(), has_descriptor)
    }

    #[test]
    fn a_session_of_dpdk_gets_what_it_expects_however_its_pod_is_called() {
        assert_eq!(
            decided("/connect,localhost", false),
            Step::Say(Answer::HostOk)
        );
        assert_eq!(decided("/connect", false), Step::Say(Answer::HostOk));
        assert_eq!(decided("/version", false), Step::Say(Answer::Version));
        assert_eq!(decided("/xsk_map_fd,net1", false), Step::Map);
        assert_eq!(decided("/fin", false), Step::Say(Answer::FinAck));
    }

    #[test]
    fn only_the_interface_and_the_queues_of_the_port_are_given() {
        let no = Step::Say(Answer::FdNak);
        assert_eq!(decided("/xsk_map_fd,net2", false), no);
        assert_eq!(decided("/xsk_new_socket,", false), no);
        assert_eq!(decided("/xsk_new_socket,net1", false), Step::NewSocket);
        assert_eq!(
            decided("/xsk_socket,net1,1", true),
            Step::Insert { queue: 1 }
        );
        assert_eq!(decided("/xsk_socket,net1,2", true), no, "there are two");
        assert_eq!(decided("/xsk_socket,net1,1", false), no, "which socket?");
        assert_eq!(decided("/xsk_socket,eth0,1", true), no);
    }

    #[test]
    fn nobody_polls_for_longer_than_others_can_wait() {
        let no = Step::Say(Answer::BusyPollNak);
        let yes = Step::BusyPoll {
            timeout: 20,
            budget: 64,
        };
        assert_eq!(decided("/config_busy_poll,20,64", true), yes);
        assert_eq!(decided("/config_busy_poll,20,64", false), no);
        assert_eq!(decided("/config_busy_poll,20,513", true), no);
        assert_eq!(decided("/config_busy_poll,1000001,64", true), no);
    }

    #[test]
    fn what_is_no_request_is_answered_and_nothing_is_done() {
        for text in ["", "/xsk_map", "/connect,a,b", "hello"] {
            assert_eq!(decided(text, true), Step::Say(Answer::Nak), "{text}");
        }
    }
}
