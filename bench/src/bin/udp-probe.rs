//! Small datagrams between two namespaces; a process of its own, so that it can have a priority
//! and a CPU of its own. Prints one number.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::probe::Pair;
use netdev::Netns;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, millis, from, to, from_ip, to_ip] = words.as_slice() else {
        bail!("udp-probe MODE MILLISECONDS NETNS NETNS IP IP");
    };
    let time = Duration::from_millis(millis.parse().context("milliseconds")?);
    let (from, to) = (Netns::open(Path::new(from))?, Netns::open(Path::new(to))?);
    let pair = Pair::open((&from, from_ip.parse()?), (&to, to_ip.parse()?))?;
    let number = match mode.as_str() {
        "two-cpus" => pair.two_cpus(time),
        "one-cpu" => pair.one_cpu(time),
        "round-trip" => pair.round_trip(time),
        other => bail!("{other}: not a mode"),
    }?;
    println!("{number}");
    Ok(())
}
