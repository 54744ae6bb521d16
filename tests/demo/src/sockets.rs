//! Run pods without privileges that have sockets in place of an interface.
//!
//! They are on a network with pods that have one.

use std::net::IpAddr;

use anyhow::Result;
use testbed::afxdp::{self, Echo};
use testbed::{MemifApp, manifest, traffic};

use super::ms;
use super::report::Report;
use super::stage::Stage;

/// The pods, their attachments, and what these are.
const PODS: [(&str, &str, &str); 3] = [
    ("memif1", "memif-blue", "Memif"),
    ("memif2", "memif-blue", "Memif"),
    ("afxdp1", "afxdp-blue", "AFXDP"),
];
const NETWORK: &str = "blue";
/// A pod of the same network with an interface of the kernel.
const KERNEL: &str = "blue1";

/// The objects that pods are attached by.
pub(crate) fn prepare(stage: &Stage) -> Result<()> {
    for (_, object, kind) in PODS {
        let spec = format!("{{interface: {{type: {kind}}}}}");
        stage.manifest(object, &manifest::attachment(object, NETWORK, &spec))?;
    }
    Ok(())
}

/// Attaches them, has everybody talk, and detaches them again.
pub(crate) fn show(stage: &mut Stage, report: &mut Report) -> Result<()> {
    report.heading("Sockets in place of interfaces: memif and AF_XDP, for pods without privileges");
    for (pod, object, kind) in PODS {
        let took = stage.attach_as(pod, NETWORK, Some(&format!("default/{object}")))?;
        let ip = stage.port(pod)?.v4();
        report.check(
            true,
            format!(
                "{pod:<7} on {NETWORK:<6} {ip}, {kind:<22} ADD took {}",
                ms(took)
            ),
        );
    }
    talk(stage, report)?;
    for _ in PODS {
        stage.detach_last()?;
    }
    Ok(())
}

fn talk(stage: &Stage, report: &mut Report) -> Result<()> {
    let kernel = stage.port(KERNEL)?;
    let (one, two) = (stage.port("memif1")?, stage.port("memif2")?);
    let fast = stage.port("afxdp1")?;
    let _apps = [MemifApp::start(one), MemifApp::start(two)];
    for (from, to) in [(one, kernel), (kernel, one), (one, two)] {
        for (a, b) in traffic::pairs(from, to) {
            let trip = traffic::udp_round_trip(from, a, to, b);
            let trip = trip.map_or_else(
                |error| error.to_string(),
                |()| "arrives and is answered".to_owned(),
            );
            let holds = trip.starts_with("arrives");
            report.check(
                holds,
                format!("{} to {}, {b}: UDP {trip}", from.container, to.container),
            );
        }
    }
    let echo = Echo::start(vec![afxdp::open(fast, 0)]);
    let from = IpAddr::V4(kernel.v4());
    let answers = traffic::udp_answers(kernel, from, (fast.v4(), 7).into(), 100);
    let echoed = echo.stop();
    report.check(
        answers? == 100,
        format!(
            "{KERNEL} to {}, {}: a program without any capability has answered {echoed} datagrams",
            fast.container,
            fast.v4()
        ),
    );
    Ok(())
}
