use proptest::prelude::*;

use super::state::Queue;
use super::*;

const MBIT: u64 = 1_000_000;
const FULL: u32 = 2 * 1514;

fn shape(bits_per_second: u64, burst_bits: Option<u64>) -> Shape {
    Shape::new(bits_per_second, burst_bits, 1500)
}

#[test]
fn defaults_are_a_millisecond_of_burst_and_twenty_five_of_queue() {
    let cases = [
        // bit/s, then bytes: rate, burst, segment, queue
        (1000, 125, FULL, FULL, 128 * 1514),
        (10 * MBIT, 1_250_000, FULL, FULL, 128 * 1514),
        (100 * MBIT, 12_500_000, 12_500, 12_500, 312_500),
        (1000 * MBIT, 125_000_000, 125_000, 125_000, 1 << 20),
        (5000 * MBIT, 625_000_000, 625_000, 625_000, 1_562_500),
        (
            100_000 * MBIT,
            12_500_000_000,
            12_500_000,
            12_500_000,
            31_250_000,
        ),
    ];
    for (bits, rate, burst, segment, queue) in cases {
        let expected = Shape {
            rate,
            burst,
            segment,
            queue,
        };
        assert_eq!(shape(bits, None), expected, "{bits} bit/s");
    }
}

#[test]
fn a_burst_is_kept_between_what_works_and_a_second_of_the_rate() {
    let rate = 100 * MBIT;
    let burst = |bits| shape(rate, Some(bits)).burst;
    // The NPWG specification's own example asks for 200 bits.
    assert_eq!(burst(200), 12_500);
    assert_eq!(burst(8 * 100_000), 100_000);
    assert_eq!(burst(u32::MAX.into()), 12_500_000);
    assert_eq!(burst(8 * u64::from(u32::MAX)), 12_500_000);
    assert_eq!(burst(u64::MAX), 12_500_000);
    assert_eq!(shape(8000, Some(u64::MAX)).burst, FULL);
    assert_eq!(shape(u64::MAX, Some(u64::MAX)).burst, u32::MAX);
}

#[test]
fn a_long_burst_does_not_make_long_packets() {
    let long = shape(100 * MBIT, Some(u32::MAX.into()));
    assert_eq!(long.segment, 12_500);
    assert!(long.splits());
    // By default the burst itself splits, and at high rates no packet is as large.
    assert!(!shape(100 * MBIT, None).splits());
    assert!(!shape(10 * MBIT, None).splits());
    assert!(!shape(100_000 * MBIT, Some(u64::MAX)).splits());
}

#[test]
fn the_largest_packets_of_tcp_stay_whole_from_a_gigabit_on() {
    let with_headers = 65_536 + 1514;
    assert!(shape(1000 * MBIT, None).segment > with_headers);
    assert!(shape(500 * MBIT, None).segment < with_headers);
}

#[test]
fn a_shape_is_shown_as_it_was_asked_for() {
    assert_eq!(
        shape(10 * MBIT, None).to_string(),
        "10 Mbit/s, burst 3028 bytes"
    );
    assert_eq!(
        shape(1000 * MBIT, None).to_string(),
        "1 Gbit/s, burst 125000 bytes"
    );
    assert_eq!(
        shape(1500 * MBIT, None).to_string(),
        "1500 Mbit/s, burst 187500 bytes"
    );
    assert_eq!(
        shape(64_000, None).to_string(),
        "64 kbit/s, burst 3028 bytes"
    );
    assert_eq!(
        shape(1008, None).to_string(),
        "1008 bit/s, burst 3028 bytes"
    );
}

#[test]
fn another_rate_burst_segment_or_queue_does_not_match() {
    let wanted = shape(100 * MBIT, Some(80 * MBIT));
    let reported = wanted.as_reported();
    assert!(wanted.matches(&reported));
    let others = [
        Shape {
            rate: reported.rate + 1,
            ..reported
        },
        Shape {
            burst: reported.burst - 10,
            ..reported
        },
        Shape {
            segment: reported.segment - 2000,
            ..reported
        },
        Shape {
            segment: reported.burst,
            ..reported
        },
        Shape {
            queue: reported.queue + 1,
            ..reported
        },
    ];
    for other in others {
        assert!(!wanted.matches(&other), "{other:?}");
    }
}

#[test]
fn disciplines_have_the_names_of_their_queues() {
    let flows = Flows::new(0x0f10, 64, 65);
    let names = [
        Discipline::FqCodel,
        Discipline::Htb(flows),
        Discipline::Fifo,
    ];
    assert_eq!(
        names.map(|d| d.to_string()),
        ["tbf+fq_codel", "tbf+htb", "tbf"]
    );
}

#[test]
fn a_turn_holds_the_largest_packet_there_can_be_and_no_more_than_two_frames_where_all_are_split() {
    let tree = |bits: u64| Tree {
        ifindex: 1,
        shape: shape(bits, None),
        discipline: Discipline::Fifo,
        frame: 1514,
    };
    // 64 KiB of payload in segments of 1448 bytes with 86 bytes of headers each.
    let largest = 65_536 + (65_536_u32).div_ceil(1448) * 86;
    for mbits in [1000, 5000, 100_000] {
        assert!(tree(mbits * MBIT).turn() >= largest, "{mbits} Mbit/s");
    }
    // A hostile pod makes packets of half a megabyte (BIG TCP).
    assert!(tree(100_000 * MBIT).turn() >= GSO_MAX);
    assert_eq!(tree(10 * MBIT).turn(), FULL);
    // All that goes first together is half of the rate.
    for mbits in [10, 100, 5000] {
        assert!(tree(mbits * MBIT).sparse() * 64 <= mbits * MBIT / 8 / 2);
    }
    assert_eq!(tree(1000).sparse(), 1000);
}

#[test]
fn a_missing_kind_of_queue_is_not_a_missing_device() {
    let error = |errno| refused(7, "htb in its tbf".to_owned(), Refusal::new(errno, None));
    assert!(error(Errno::NODEV).is_gone());
    assert!(!error(Errno::NOENT).is_gone());
    assert_eq!(
        error(Errno::NOENT).to_string(),
        "cannot limit the rate of link 7: htb in its tbf"
    );
}

prop_compose! {
    /// Every magnitude as likely as any other.
    fn any_size()(value: u64, shift in 0u32..64) -> u64 {
        value >> shift
    }
}

proptest! {
    #[test]
    fn any_rate_burst_and_mtu_give_a_shape_that_works(
        bits in any_size(), burst in proptest::option::of(any_size()), mtu: u16,
    ) {
        let shape = Shape::new(bits, burst, mtu);
        let frame = u32::from(mtu) + ETHERNET;
        prop_assert!(shape.check(1).is_ok());
        prop_assert!(shape.rate <= Shape::RATE_MAX);
        prop_assert!(shape.rate <= (bits / 8).max(1));
        // Smaller, and the kernel drops what cannot be split: every packet of the full size.
        prop_assert!(shape.segment >= 2 * frame && shape.burst >= shape.segment);
        prop_assert!(shape.queue >= 128 * frame);
        prop_assert!(u64::from(shape.burst) <= shape.rate.max(2 * u64::from(frame)));
    }

    #[test]
    fn a_turn_is_never_less_than_a_packet_that_goes_whole(
        bits in any_size(), burst in proptest::option::of(any_size()), mtu: u16,
    ) {
        let shape = Shape::new(bits, burst, mtu);
        let frame = u32::from(mtu) + ETHERNET;
        let tree = Tree { ifindex: 1, shape, discipline: Discipline::Fifo, frame };
        prop_assert!(tree.turn() >= shape.segment.min(GSO_MAX));
        prop_assert!(shape.splits() || tree.turn() >= shape.burst.min(GSO_MAX));
    }

    #[test]
    fn more_is_never_less(
        bits in any_size(), more in any_size(), burst in any_size(), longer in any_size(), mtu: u16,
    ) {
        let small = Shape::new(bits, Some(burst), mtu);
        let fast = Shape::new(bits.saturating_add(more), Some(burst), mtu);
        prop_assert!(fast.rate >= small.rate && fast.burst >= small.burst);
        prop_assert!(fast.segment >= small.segment && fast.queue >= small.queue);
        let long = Shape::new(bits, Some(burst.saturating_add(longer)), mtu);
        prop_assert!(long.burst >= small.burst && long.rate == small.rate);
        let unasked = Shape::new(bits, None, mtu);
        prop_assert!(small.burst >= unasked.burst);
    }

    #[test]
    fn any_shape_matches_what_the_kernel_makes_of_it(
        bits in any_size(), burst in proptest::option::of(any_size()), mtu: u16,
    ) {
        let shape = Shape::new(bits, burst, mtu);
        prop_assert!(shape.matches(&shape.as_reported()));
    }

    #[test]
    fn any_bytes_are_read_as_a_queue_without_a_panic(bytes: Vec<u8>) {
        if let Some(queue) = Queue::parse(&bytes) {
            let _ = queue.state(None, None);
            let _ = queue.htb();
        }
    }
}
