use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::join::Frame;

fn judged(flow: u16, segments: u32, time_ns: u64, verdict: Verdict) -> Judged {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([
        0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    bytes.extend(flow.to_be_bytes());
    bytes.extend([0, 9]);
    Judged {
        frame: Frame {
            time_ns,
            cpu: 0,
            direction: Direction::FromPod,
            length: 60,
            segments,
            bytes,
        },
        verdict,
    }
}

fn plain(flow: u16) -> Judged {
    judged(flow, 1, 5, Verdict::Accepted)
}

#[test]
fn packets_of_a_flow_are_one_row_for_each_outcome() {
    let mut table = FlowTable::new(1000);
    table.open(1);
    let dropped = DropReasonNumber::SPOOFED;
    for (segments, time_ns, verdict) in [
        (1, 30, Verdict::Accepted),
        (4, 10, Verdict::Accepted),
        (1, 20, Verdict::Dropped(dropped)),
        (0, 40, Verdict::Unknown),
    ] {
        assert!(table.count(1, &judged(7, segments, time_ns, verdict)));
    }
    table.lose(1, 3);
    let all = table.take();
    let [(1, interval)] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(interval.lost, 3);
    let rows: Vec<_> = interval
        .rows
        .iter()
        .map(|row| (row.outcome, row.counts))
        .collect();
    let counts = |samples, packets, first_ns, last_ns| Counts {
        samples,
        packets,
        bytes: 60 * samples,
        first_ns,
        last_ns,
    };
    assert_eq!(
        rows,
        [
            (Outcome::Forwarded, counts(2, 5, 10, 30)),
            (Outcome::Dropped(dropped), counts(1, 1, 20, 20)),
            (Outcome::Unknown, counts(1, 1, 40, 40)),
        ]
    );
    // The next interval begins without them, and with the port.
    assert!(table.is_empty() && table.take().is_empty());
    assert!(table.count(1, &plain(7)));
}

struct DropReasonNumber;

impl DropReasonNumber {
    const SPOOFED: u32 = 6;
}

#[test]
fn a_port_with_too_many_flows_fills_its_own_share_and_counts_the_rest() {
    let mut table = FlowTable::new(320);
    table.open(1);
    table.open(2);
    assert_eq!(table.share(), 20);
    for flow in 0..1000 {
        assert_eq!(table.count(1, &plain(flow)), flow < 20);
    }
    // A flow that has room goes on to be counted, and so do those of others.
    assert!(table.count(1, &plain(3)));
    assert!(table.count(2, &plain(3)));
    let all = table.take();
    assert_eq!(all[0].1.rows.len(), 20);
    assert_eq!(all[0].1.overflow.samples, 980);
    assert_eq!(all[0].1.rows[0].counts.samples, 2, "the largest is first");
    assert_eq!((all[1].1.rows.len(), all[1].1.overflow.samples), (1, 0));
}

#[test]
fn a_port_that_comes_gets_its_share_from_the_smallest_flows_of_others() {
    let mut table = FlowTable::new(32);
    table.open(0);
    assert!(table.count(0, &plain(1)) && table.count(0, &plain(2)) && table.count(0, &plain(2)));
    for port in 1..32 {
        table.open(port);
    }
    assert_eq!(table.share(), 1);
    let interval = table.close(0).expect("it was there");
    assert_eq!(interval.rows.len(), 1);
    assert_eq!(interval.rows[0].counts.samples, 2);
    assert_eq!(interval.overflow.samples, 1);
    assert_eq!(table.close(0), None);
    assert!(
        !table.count(0, &plain(1)),
        "a port that is gone has no flows"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Open(u64),
    Close(u64),
    Count(u64, u16, u32),
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..40_u64).prop_map(Step::Open),
        1 => (0..40_u64).prop_map(Step::Close),
        20 => (0..40_u64, 0..60_u16, 1..3_u32).prop_map(|(a, b, c)| Step::Count(a, b, c)),
        1 => Just(Step::Take),
    ]
}

proptest! {
    /// The table is within its limits, and counts every packet of a port once.
    #[test]
    fn no_packet_is_counted_twice_or_not_at_all_and_the_table_keeps_its_limits(
        most in 1_usize..200,
        steps in prop::collection::vec(step(), 0..600),
    ) {
        let mut table = FlowTable::new(most);
        let mut expected: HashMap<u64, u64> = HashMap::new();
        let counted = |interval: &Interval| -> u64 {
            let rows = interval.rows.iter().map(|row| row.counts.packets);
            rows.sum::<u64>() + interval.overflow.packets
        };
        for step in steps {
            match step {
                Step::Open(port) => {
                    table.open(port);
                    expected.entry(port).or_insert(0);
                }
                Step::Close(port) => {
                    let packets = table.close(port).map(|interval| counted(&interval));
                    prop_assert_eq!(packets, expected.remove(&port));
                }
                Step::Count(port, flow, packets) => {
                    let frame = judged(flow, packets, 1, Verdict::Accepted);
                    table.count(port, &frame);
                    if let Some(sum) = expected.get_mut(&port) {
                        *sum += u64::from(packets);
                    }
                }
                Step::Take => {
                    let share = table.share();
                    let taken: HashMap<u64, Interval> = table.take().into_iter().collect();
                    for (port, sum) in &mut expected {
                        let interval = taken.get(port).cloned().unwrap_or_default();
                        prop_assert!(interval.rows.len() <= share);
                        prop_assert_eq!(counted(&interval), *sum);
                        *sum = 0;
                    }
                }
            }
            prop_assert!(table.len() <= most.max(expected.len()));
        }
    }
}
