//! Test the cost of programs in the running kernel.
//!
//! The object alone is looked at in `tests/cost.rs`.

use datapath::Datapath;

use super::scratch::scene;

/// Half of `BPF_COMPLEXITY_LIMIT_INSNS` of linux/bpf.h.
///
/// A program that changes a little must not fail to load.
const VERIFIED: u32 = 500_000;

#[test]
fn the_kernel_takes_the_programs_with_room_to_spare() {
    scene(|scratch| {
        let datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let costs = datapath
            .costs()
            .expect("what the kernel says of its programs");
        println!("{:<14}{:>11}{:>10}", "program", "translated", "verified");
        for cost in &costs {
            let verified = cost.verified.map_or("-".to_owned(), |it| it.to_string());
            println!("{:<14}{:>11}{verified:>10}", cost.name, cost.translated);
        }
        assert!(costs.iter().any(|cost| cost.name == "from_pod"));
        for cost in costs {
            assert!(cost.translated > 0, "{}", cost.name);
            assert!(
                cost.verified.is_none_or(|it| it <= VERIFIED),
                "{}: the verifier walked {:?} instructions",
                cost.name,
                cost.verified
            );
        }
    });
}
