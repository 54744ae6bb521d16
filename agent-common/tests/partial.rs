//! Prove that checksums written after the decision change nothing it was made from.

use agent_common::cases::{self, Case, World};
use agent_common::drop::DropReason;
use agent_common::packet::{Frame, Start};
use agent_common::partial::Partial;
use agent_common::policy::{self, Decision};

/// Where sums go behind their beginning: TCP, UDP, SCTP, ICMP, and what nobody has.
const OFFSETS: [u16; 7] = [16, 6, 8, 2, 0, 1, 40];
/// Values written there: forbidden addresses, ports and types.
const VALUES: [[u8; 2]; 5] = [[0, 0], [0xff, 0xff], [134, 0], [0, 67], [10, 66]];

/// A case into which a checksum is still to be written.
struct Unfinished<'a> {
    case: &'a Case,
    partial: Partial,
}

impl Frame for Unfinished<'_> {
    fn length(&self) -> usize {
        self.case.length()
    }

    fn segment_length(&self) -> usize {
        self.case.segment_length()
    }

    fn has_vlan_tag(&self) -> bool {
        self.case.has_vlan_tag()
    }

    fn vlan_id(&self) -> u16 {
        self.case.vlan_id()
    }

    fn partial(&self) -> Partial {
        self.partial
    }

    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.case.load(offset)
    }

    fn start(&self) -> Start {
        self.case.start()
    }
}

/// ATT-02a: an unfinished checksum changes no decision, or the frame is refused.
///
/// Whatever is written later, the frame stays one about which the same is decided.
#[test]
fn what_is_written_later_changes_no_decision() {
    let world = World::new();
    let (mut accepted, mut refused) = (0_u32, 0_u32);
    for case in cases::all() {
        if matches!(case.decision, Decision::Drop(_)) {
            continue;
        }
        let (port, tables) = (case.sender.port(), world.seen_by(case.sender.ifindex));
        let decide = |frame: &Unfinished<'_>| policy::decide(frame, &port, &tables);
        let length = i32::try_from(case.frame.len()).expect("a short frame");
        for start in -4..length.min(160) {
            for offset in OFFSETS {
                let partial = Partial::new(start, offset);
                let decision = decide(&Unfinished {
                    case: &case,
                    partial,
                });
                if decision == Decision::Drop(DropReason::Malformed) {
                    refused += 1;
                    continue;
                }
                assert_eq!(decision, case.decision, "{}: {partial:?}", case.name);
                accepted += 1;
                let place =
                    usize::try_from(start).expect("not before the frame") + usize::from(offset);
                let mut written = case.clone();
                let Some(to) = written.frame.get_mut(place..place + 2) else {
                    continue;
                };
                let before = [to[0], to[1]];
                for value in VALUES {
                    written.frame[place..place + 2].copy_from_slice(&value);
                    let finished = decide(&Unfinished {
                        case: &written,
                        partial: Partial::NONE,
                    });
                    let what = format!("{}: {value:?} at {place}, {before:?} before", case.name);
                    assert_eq!(finished, case.decision, "{what}");
                }
            }
        }
    }
    assert!(
        accepted > 1000 && refused > 10_000,
        "{accepted} and {refused}"
    );
    proof::of!("ATT-02a");
}
