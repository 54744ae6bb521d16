//! Decides whether XDP sends frames for sockets there from an interface.
//!
//! A frame that becomes no skb reaches the pod as the driver shows it: an unfinished checksum stays
//! unfinished, and a VLAN tag that was taken off is not seen, so that a frame of another VLAN looks
//! like one of the node's.

use clap::ValueEnum;
use datapath::XdpMode;

use super::Reason;

/// Whether frames for ports that are sockets go there from XDP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Steer {
    /// From hardware with native XDP that leaves VLAN tags in the frame
    #[default]
    Auto,
    /// From native XDP, on any interface
    ///
    /// The operator knows that the interface shows frames as they are on the wire.
    Always,
    /// Not
    Never,
}

/// Facts about an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface<'a> {
    pub(super) name: &'a str,
    /// Of a virtual one.
    pub(super) kind: Option<&'a str>,
    pub(super) bus: Option<&'a str>,
}

/// Decides whether an interface steers frames at `mode`, with the reason.
///
/// Asks `hides_tags` only when the rest leaves it open: it says whether the interface takes VLAN tags
/// off, `None` when the kernel does not tell.
pub(super) fn decide(
    steer: Steer,
    mode: Option<XdpMode>,
    interface: Interface<'_>,
    hides_tags: impl FnOnce() -> Option<bool>,
) -> (bool, Reason) {
    if mode != Some(XdpMode::Native) {
        return (false, "no native XDP here".into());
    }
    let name = interface.name;
    match steer {
        Steer::Never => (false, "--xdp-steer never".into()),
        Steer::Always => (true, "--xdp-steer always".into()),
        Steer::Auto => match (interface.kind, interface.bus) {
            (Some(kind), _) => {
                let because = format!(
                    "a {kind} may show unfinished checksums and hide VLAN tags; force it with --xdp-steer always"
                );
                (false, because.into())
            }
            (None, None | Some("virtio" | "vmbus" | "xen")) => (
                false,
                "not known to be hardware; force it with --xdp-steer always".into(),
            ),
            (None, Some(_)) => match hides_tags() {
                None => (
                    false,
                    "the kernel does not tell whether VLAN tags are taken off".into(),
                ),
                Some(true) => {
                    let because = format!(
                        "{name} takes VLAN tags off; ethtool -K {name} rxvlan off ends that"
                    );
                    (false, because.into())
                }
                Some(false) => (
                    true,
                    "hardware that shows frames as they are on the wire".into(),
                ),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: Interface<'_> = Interface {
        name: "ens1",
        kind: None,
        bus: Some("pci"),
    };

    #[test]
    fn by_itself_only_where_frames_are_as_on_the_wire() {
        let auto = |interface, hides_tags| {
            decide(Steer::Auto, Some(XdpMode::Native), interface, || hides_tags)
        };
        assert!(auto(CARD, Some(false)).0);
        let (veth, virtio, unknown) = (
            Interface {
                kind: Some("veth"),
                ..CARD
            },
            Interface {
                bus: Some("virtio"),
                ..CARD
            },
            Interface { bus: None, ..CARD },
        );
        let others = [
            (veth, Some(false), "a veth"),
            (virtio, Some(false), "not known"),
            (unknown, Some(false), "not known"),
            (CARD, Some(true), "ens1 takes VLAN tags off"),
            (CARD, None, "does not tell"),
        ];
        for (interface, hides_tags, why) in others {
            let (steers, because) = auto(interface, hides_tags);
            assert!(!steers && because.contains(why), "{interface:?}: {because}");
        }
    }

    #[test]
    fn only_in_the_driver_and_never_against_the_word() {
        for mode in [None, Some(XdpMode::Generic)] {
            for steer in [Steer::Auto, Steer::Always, Steer::Never] {
                let (steers, _) = decide(steer, mode, CARD, || Some(false));
                assert!(!steers, "{steer:?} {mode:?}");
            }
        }
        let native = Some(XdpMode::Native);
        assert!(!decide(Steer::Never, native, CARD, || Some(false)).0);
        let veth = Interface {
            kind: Some("veth"),
            ..CARD
        };
        assert!(decide(Steer::Always, native, veth, || Some(true)).0);
    }
}
