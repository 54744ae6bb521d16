//! Measure a forwarded packet's cost for the server, in time of its thread.
//!
//! Everything is in the cache: the rings of two clients in memory of this process, one thread that is
//! each in turn.
//!
//! ```sh
//! cargo run --release --package memif --example ring_cost
//! ```

use std::error::Error;
use std::sync::Arc;

use memif::{Agreed, Bell, Layout, Name, Region, Regions, Rx, Tx};
use rustix::time::{ClockId, clock_gettime};

/// Packets between two looks at the clock.
const BATCH: u16 = 256;
/// Packets of a burst.
const BURST: u16 = 64;
const BATCHES: u32 = 4000;
const HEADER: usize = 64;

struct Client {
    rx: Rx,
    tx: Tx,
    regions: Arc<Regions>,
    layout: Layout,
}

impl Client {
    fn new() -> Result<Self, Box<dyn Error>> {
        let agreed = Agreed {
            app: Name::default(),
            c2s_rings: 1,
            s2c_rings: 1,
            log2_ring_size: 10,
        };
        let layout = Layout::new(&agreed, 2048)?;
        let regions = layout.format(Region::heap(usize::try_from(layout.size())?));
        let ((c2s, out), (s2c, into)) = (layout.c2s[0], layout.s2c[0]);
        Ok(Self {
            rx: Rx::client(&regions, s2c, None, into)?,
            tx: Tx::client(&regions, c2s, Bell::silent(), out)?,
            regions,
            layout,
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for len in [64, 128, 512, 1500] {
        let (cost, overhead) = measure(len)?;
        println!("{len} B: {:.1} ns for each packet", cost - overhead);
    }
    Ok(())
}

fn measure(len: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let mut one = Client::new()?;
    let mut other = Client::new()?;
    let mut rx = Rx::server(&one.regions, one.layout.c2s[0].0, None, 2048)?;
    let place = other.layout.s2c[0].0;
    let mut tx = Tx::server(&other.regions, place, Bell::silent())?;
    // The server has emptied the ring: the client lends its buffers anew.
    other.rx = Rx::client(&other.regions, place, None, other.layout.s2c[0].1)?;
    let frame = vec![0x5a; len];
    let (mut spent, mut overhead, mut packets) = (0, 0, 0_u32);
    for _ in 0..BATCHES {
        for _ in 0..BATCH {
            let _ = one.tx.push(&frame)?;
        }
        one.tx.flush();
        let start = now();
        let nothing = now();
        for _ in 0..BATCH / BURST {
            let mut outcome = Ok(());
            rx.burst(BURST, |packet| {
                let mut header = [0; HEADER];
                let len = packet.read(0, &mut header);
                let header = header.get(..len).unwrap_or_default();
                if let Err(violation) = tx.forward(header, &packet) {
                    outcome = Err(violation);
                }
            })?;
            outcome?;
            tx.flush();
        }
        spent += now() - nothing;
        overhead += nothing - start;
        other.rx.burst(BATCH, |_| packets += 1)?;
    }
    assert_eq!(packets, u32::from(BATCH) * BATCHES);
    Ok((
        f64::from(u32::try_from(spent / i64::from(packets / 1000))?) / 1000.0,
        f64::from(u32::try_from(overhead / i64::from(packets / 1000))?) / 1000.0,
    ))
}

/// Nanoseconds of processor time of this thread.
fn now() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
