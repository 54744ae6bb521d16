//! Both halves together: two nodes, one controller, a server in memory.
//!
//! The machines, the books and the controller's plans are the real ones. What passes between them
//! comes late, out of order between kinds, twice or not at all, and every process starts again at any
//! moment. What holds at every step is in [`check`], and is judged by ports that live and by objects of
//! the server, not by what a machine believes: an address has one holder, one in use has its block or
//! its reservation, and a claim keeps its addresses. When everything has come to rest ([`rest`]), every
//! address can be had, and with the last pod every block and every reservation goes.
//!
//! The walks are the same ones in every run. `MODEL_SEED` makes others, `MODEL_WALKS` says how many:
//! after a change of the machine it is worth to let some thousands run.

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use self::cluster::Cluster;
use self::network::SHAPES;
use self::steps::Step;

mod check;
mod cluster;
mod control;
mod host;
mod kind;
mod network;
mod pods;
mod rest;
mod scenes;
mod server;
mod steps;

/// How long a node keeps a block that it does not need.
const KEEP: Duration = Duration::from_secs(60);
/// Delay of a copy of nodes and blocks at most, seconds.
///
/// Half of the time that a node has to answer.
const BEHIND: i64 = 5;
const HOSTS: usize = 2;
const CLAIMS: u8 = 2;
/// Walks of a run.
const WALKS: u32 = 300;
/// Scenes, and groups of steps by chance, of a walk.
const PARTS: std::ops::Range<usize> = 8..30;

fn numbered(last: u8) -> IpAddr {
    IpAddr::from([10, 10, 0, last])
}

/// Events of a walk, so that a test can see that it goes anywhere.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    booked: u64,
    by_name: u64,
    by_claim: u64,
    granted_elsewhere: u64,
    given_back: u64,
    removed: u64,
    taken_back: u64,
    asked: u64,
    revoked: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.booked += other.booked;
        self.by_name += other.by_name;
        self.by_claim += other.by_claim;
        self.granted_elsewhere += other.granted_elsewhere;
        self.given_back += other.given_back;
        self.removed += other.removed;
        self.taken_back += other.taken_back;
        self.asked += other.asked;
        self.revoked += other.revoked;
    }

    /// Names the events that no walk came by.
    fn missing(&self) -> Vec<&'static str> {
        let counts = [
            ("booked", self.booked),
            ("by name", self.by_name),
            ("by claim", self.by_claim),
            ("granted elsewhere", self.granted_elsewhere),
            ("given back", self.given_back),
            ("removed", self.removed),
            ("taken back", self.taken_back),
            ("asked for", self.asked),
            ("revoked", self.revoked),
        ];
        let missing = counts.iter().filter(|(_, count)| *count == 0);
        missing.map(|(name, _)| *name).collect()
    }
}

fn walk(shape: usize, spare: u32, steps: &[Step]) -> Result<Tally, TestCaseError> {
    let mut cluster = Cluster::new(&SHAPES[shape], spare);
    for who in 0..=HOSTS {
        cluster.play(Step::Catch(who));
    }
    for step in steps {
        cluster.play(*step);
        cluster.check()?;
    }
    cluster.finish()?;
    Ok(cluster.tally())
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// PAIN-IP-2, NPWG-8-T2
#[test]
fn no_address_has_two_holders_or_none_for_ever() {
    let walks = number("MODEL_WALKS").and_then(|walks| walks.try_into().ok());
    let mut runner = TestRunner::new(Config {
        cases: walks.unwrap_or(WALKS),
        rng_seed: RngSeed::Fixed(number("MODEL_SEED").unwrap_or(61)),
        failure_persistence: None,
        ..Config::default()
    });
    let all = std::cell::RefCell::new(Tally::default());
    let walks = (
        0..SHAPES.len(),
        prop_oneof![Just(0), Just(2_u32)],
        scenes::walk(PARTS),
    );
    let result = runner.run(&walks, |(shape, spare, steps)| {
        all.borrow_mut().add(walk(shape, spare, &steps)?);
        Ok(())
    });
    if let Err(found) = result {
        panic!("{found}");
    }
    let missing = all.into_inner().missing();
    assert!(missing.is_empty(), "no walk came by: {missing:?}");
    proof::of!("NPWG-8-T2", "PAIN-IP-2");
}
