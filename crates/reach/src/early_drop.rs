//! Drops unwanted tunnel packets early: in XDP, or behind that in TC.
//!
//! A packet is unwanted when no network of this node has it. XDP drops it before there is an skb. A
//! trial finds out where an interface can do it, and the log says so. Frames for sockets go there from
//! the same program of XDP, where that is possible.

mod steer;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use agent_common::uplink::Uplink;
use clap::{Args, ValueEnum};
use datapath::{Hook, XdpMode};
use host::{Host, HostError};
use netdev::{Connection, Link, Offloads};
use rustix::io::Errno;
use serde::Serialize;
use steer::Interface;
pub use steer::Steer;
use telemetry::chain;

/// The kernel takes a program off when it gets to it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Options about XDP.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct EarlyDropOptions {
    /// Place at which interfaces drop packets of tunnels that no network here wants
    ///
    /// Before the kernel makes an skb of them, in the driver (native) or for any driver (generic), or behind
    /// that, in TC. auto is native on hardware whose driver takes it.
    #[arg(long, value_enum, env = "PODNET_XDP", default_value_t)]
    pub xdp: Xdp,
    /// Condition on which native XDP brings frames to AF_XDP and memif ports
    ///
    /// They go there from the interfaces of tunnels and networks, past the node's network stack. auto is where
    /// the interface is hardware that leaves VLAN tags in frames.
    #[arg(
        long = "xdp-steer",
        value_enum,
        env = "PODNET_XDP_STEER",
        default_value_t
    )]
    pub steer: Steer,
}

/// Whether XDP is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Xdp {
    /// In the driver of hardware that takes it, else not
    #[default]
    Auto,
    /// In the driver, whatever it costs there
    Native,
    /// In the kernel's stack, for any driver
    Generic,
    /// Not
    Off,
}

/// Where packets are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// XDP in the driver.
    Native,
    /// XDP in the kernel's stack.
    Generic,
    /// A filter at the interface.
    Tc,
}

impl Mode {
    /// The word used in output.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Tc => "tc",
        }
    }
}

impl From<XdpMode> for Mode {
    fn from(mode: XdpMode) -> Self {
        match mode {
            XdpMode::Native => Self::Native,
            XdpMode::Generic => Self::Generic,
        }
    }
}

/// Place at which an interface drops unwanted tunnel packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DropPlace {
    /// Its name.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// Where tunnels end.
    pub addresses: Vec<IpAddr>,
    /// UDP port of tunnels.
    pub port: u16,
    /// Where it drops.
    pub mode: Mode,
    /// Why there.
    pub because: Cow<'static, str>,
    /// Frames for sockets go there from XDP.
    pub steers: bool,
    /// Why, or why not.
    #[serde(rename = "steersBecause")]
    pub steers_because: Cow<'static, str>,
}

/// Why there is no XDP.
type Reason = Cow<'static, str>;

/// Where XDP is to be tried on an interface, and why there.
fn choose(
    xdp: Xdp,
    kind: Option<&str>,
    bus: Option<&str>,
) -> Result<(XdpMode, &'static str), Reason> {
    // A program on the bond runs at its members, and would see packets of those.
    if kind == Some("bond") && matches!(xdp, Xdp::Auto | Xdp::Native) {
        return Err("a bond runs native XDP at its members, which have no tunnels".into());
    }
    match xdp {
        Xdp::Off => Err("--xdp off".into()),
        Xdp::Native => Ok((XdpMode::Native, "--xdp native")),
        Xdp::Generic => Ok((XdpMode::Generic, "--xdp generic")),
        Xdp::Auto => match (kind, bus) {
            (Some(kind), _) => Err(format!(
                "a {kind} loses more TCP throughput by native XDP than early drops save; force it with --xdp native"
            )
            .into()),
            (None, Some(bus @ ("virtio" | "vmbus" | "xen"))) => Err(format!(
                "an interface on bus {bus} merges no packets while it has native XDP; force it with --xdp native"
            )
            .into()),
            (None, Some(_)) => Ok((XdpMode::Native, "hardware whose driver takes it")),
            (None, None) => Err("not known to be hardware; force it with --xdp native".into()),
        },
    }
}

/// Bus of the interface's device, as sysfs has it.
fn bus(interface: &str) -> Option<String> {
    let link = std::fs::read_link(format!("/sys/class/net/{interface}/device/subsystem")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Attaches the XDP program to an interface where it belongs, and nowhere else.
///
/// Returns the mode, or the reason that there is none.
fn settle(
    connection: &mut Connection,
    hook: &Hook,
    xdp: Xdp,
    link: &Link,
    bus: Option<&str>,
) -> Result<Result<(XdpMode, &'static str), Reason>, HostError> {
    let ifindex = link.ifindex;
    let chosen = choose(xdp, link.kind.as_deref(), bus);
    let ours = hook.xdp_id()?;
    let there = connection.xdp_programs(ifindex)?;
    let is_in = |mode| match mode {
        XdpMode::Native => ours.is_some() && there.native == ours,
        XdpMode::Generic => ours.is_some() && there.generic == ours,
    };
    if let Ok((mode, _)) = chosen
        && is_in(mode)
    {
        return Ok(chosen);
    }
    if is_in(XdpMode::Native) || is_in(XdpMode::Generic) {
        take_off(connection, hook, ifindex)?;
    }
    let Ok((mode, because)) = chosen else {
        return Ok(chosen);
    };
    if let Some(other) = connection.xdp_programs(ifindex)?.any() {
        return Ok(Err(format!(
            "another XDP program, id {other}, is attached and stays"
        )
        .into()));
    }
    let Some(refusal) = hook.attach_xdp(ifindex, mode)? else {
        return Ok(Ok((mode, because)));
    };
    let what = match refusal.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY | Errno::EXIST) => "another XDP program came first",
        Some(Errno::OPNOTSUPP) => "the driver has no native XDP",
        Some(Errno::RANGE) => "the MTU is too large for XDP in this driver",
        _ => "the driver refuses XDP",
    };
    Ok(Err(format!("{what}: {refusal}").into()))
}

/// Takes our program off an interface, and waits until the kernel has.
fn take_off(connection: &mut Connection, hook: &Hook, ifindex: u32) -> Result<(), HostError> {
    hook.forget_xdp(ifindex)?;
    let Some(ours) = hook.xdp_id()? else {
        return Ok(());
    };
    let patience = Instant::now() + PATIENCE;
    while Instant::now() < patience {
        let there = connection.xdp_programs(ifindex)?;
        if ![there.native, there.generic].contains(&Some(ours)) {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The places of all interfaces that tunnels end at.
#[derive(Debug)]
pub struct EarlyDrop {
    host: Arc<Host>,
    options: EarlyDropOptions,
    /// By the index of the interface.
    places: Mutex<BTreeMap<u32, DropPlace>>,
}

impl EarlyDrop {
    /// Hold what is needed; no place is known yet.
    pub fn new(host: Arc<Host>, options: EarlyDropOptions) -> Self {
        Self {
            host,
            options,
            places: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, DropPlace>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the places, by the index of the interface.
    ///
    /// A lock that left this room could be held while another is taken, and has no rank.
    pub fn places(&self) -> BTreeMap<u32, DropPlace> {
        self.lock().clone()
    }

    /// Every interface that tunnels end at drops as early as it can, and no other does.
    pub(crate) async fn settle(&self, wanted: &BTreeMap<u32, Uplink>) {
        let mut before = self.places();
        let mut places = BTreeMap::new();
        let mut gone = Vec::new();
        for (ifindex, uplink) in wanted.iter().filter(|(_, it)| it.has_tunnels()) {
            let (ifindex, uplink, options) = (*ifindex, *uplink, self.options);
            let hook = self.host.hook.clone();
            let look = move |connection: &mut Connection| {
                place(connection, &hook, options, ifindex, &uplink)
            };
            match self.host.netlink.with(look).await {
                Ok(Some(place)) => {
                    if before.remove(&ifindex).as_ref() != Some(&place) {
                        let (interface, because) = (&place.interface, &place.because);
                        let (mode, steers) = (place.mode.label(), place.steers);
                        let steers_because = &place.steers_because;
                        tracing::info!(%interface, mode, %because, steers, %steers_because, "packets of tunnels that have no receiver here are dropped at this uplink");
                    }
                    places.insert(ifindex, place);
                }
                // It is gone, and the program with it.
                Ok(None) => gone.push(ifindex),
                Err(error) => {
                    tracing::warn!(ifindex, error = %chain(&error), "the place where this interface drops packets cannot be chosen; the next look tries again");
                }
            }
        }
        let linked = self.host.hook.xdp_links().unwrap_or_default();
        for ifindex in linked
            .into_iter()
            .filter(|it| gone.contains(it) || !wanted.get(it).is_some_and(Uplink::has_tunnels))
        {
            let hook = self.host.hook.clone();
            let off = move |connection: &mut Connection| take_off(connection, &hook, ifindex);
            match self.host.netlink.with(off).await {
                Ok(()) => tracing::info!(ifindex, "the XDP program is taken off the interface"),
                Err(error) => {
                    tracing::warn!(ifindex, error = %chain(&error), "the XDP program cannot be taken off the interface; the next look tries again");
                }
            }
        }
        *self.lock() = places;
    }
}

/// Settles an interface. `None` when it is gone.
fn place(
    connection: &mut Connection,
    hook: &Hook,
    options: EarlyDropOptions,
    ifindex: u32,
    uplink: &Uplink,
) -> Result<Option<DropPlace>, HostError> {
    let Some(link) = connection.by_index(ifindex)? else {
        return Ok(None);
    };
    let bus = bus(&link.name);
    let (at, because) = match settle(connection, hook, options.xdp, &link, bus.as_deref()) {
        Ok(Ok((mode, because))) => (Some(mode), because.into()),
        Ok(Err(reason)) => (None, reason),
        // The filter is there, whatever became of XDP.
        Err(error) => (None, chain(&error).into()),
    };
    let interface = Interface {
        name: &link.name,
        kind: link.kind.as_deref(),
        bus: bus.as_deref(),
    };
    let hides_tags = || Offloads::open()?.hides_vlan_tags(ifindex);
    let (steers, steers_because) =
        steer::decide(options.steer, at, interface, || hides_tags().ok());
    let addresses = [uplink.v4, uplink.v6];
    let addresses = addresses
        .into_iter()
        .filter(|it| *it != agent_common::addr::Ip16::NONE);
    Ok(Some(DropPlace {
        interface: link.name,
        ifindex,
        addresses: addresses.map(IpAddr::from).collect(),
        port: u16::from_be_bytes(uplink.port),
        mode: at.map_or(Mode::Tc, Mode::from),
        because,
        steers,
        steers_because,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_native_on_hardware_only() {
        let auto = |kind, bus| choose(Xdp::Auto, kind, bus);
        let native = Ok((XdpMode::Native, "hardware whose driver takes it"));
        assert_eq!(auto(None, Some("pci")), native);
        assert_eq!(auto(None, Some("usb")), native);
        for (kind, bus) in [
            (Some("veth"), None),
            (Some("vlan"), None),
            (Some("bond"), None),
            (None, Some("virtio")),
            (None, Some("vmbus")),
            (None, None),
        ] {
            assert!(auto(kind, bus).is_err(), "{kind:?} {bus:?}");
        }
    }

    #[test]
    fn what_is_asked_for_is_tried_but_where_it_would_see_nothing() {
        for kind in [None, Some("veth"), Some("vlan")] {
            let native = choose(Xdp::Native, kind, None);
            assert_eq!(native, Ok((XdpMode::Native, "--xdp native")));
            let generic = choose(Xdp::Generic, kind, None);
            assert_eq!(generic, Ok((XdpMode::Generic, "--xdp generic")));
            assert_eq!(choose(Xdp::Off, kind, None), Err("--xdp off".into()));
        }
        assert!(choose(Xdp::Native, Some("bond"), None).is_err());
        assert!(choose(Xdp::Generic, Some("bond"), None).is_ok());
    }
}
