//! The network between a cluster's machines: a namespace for each, and a switch.
//!
//! ```text
//! podnet-k8s-cp 10.89.0.1   fd89::1  ─┐
//! podnet-k8s-n1 10.89.0.11  fd89::11 ─┼─ br0 in podnet-k8s-sw
//! podnet-k8s-n2 10.89.0.12  fd89::12 ─┘
//! ```
//!
//! Each machine has a second link, `eth1`, to `br1`: a network that is there without the cluster. The control
//! plane is a host there, 192.168.105.1, and the nodes have no address.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use netdev::NamedNetns;

use super::place::{self, CONTROL};
use xtask::step::show;

/// The switch, as a part of the cluster.
const SWITCH: &str = "sw";
/// Name of every machine's link.
const LINK: &str = "eth0";
/// Name of every machine's link to the network that is not the cluster's.
const PREMISES: &str = "eth1";
/// The address of the host there.
const PREMISES_HOST: &str = "192.168.105.1/24";
/// Number of the control plane in its addresses, and of the first node less one.
const CONTROL_HOST: u8 = 1;
const FIRST_HOST: u8 = 10;
/// How many nodes have addresses.
pub(super) const MOST_NODES: u8 = 40;

/// Settings of a router, which every node of Kubernetes is.
const SETTINGS: [(&str, &str); 4] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// IPv4 and IPv6 address of a machine.
pub(super) type Addresses = [IpAddr; 2];

/// Addresses of the control plane.
pub(super) fn control_plane() -> Addresses {
    addresses(CONTROL_HOST)
}

/// Addresses of a node; the first is 1.
pub(super) fn node(index: u8) -> Addresses {
    addresses(FIRST_HOST + index)
}

fn addresses(host: u8) -> Addresses {
    // The same digits in both, for people.
    let digits = u16::from(host / 10) << 4 | u16::from(host % 10);
    [
        Ipv4Addr::new(10, 89, 0, host).into(),
        Ipv6Addr::new(0xfd89, 0, 0, 0, 0, 0, 0, digits).into(),
    ]
}

/// Makes the switch and connects the control plane.
///
/// # Errors
/// The kernel refuses.
pub(super) fn create() -> Result<()> {
    namespace(SWITCH)?;
    ip(
        SWITCH,
        "link add br0 type bridge\nlink set br0 addrgenmode none\nlink set br0 up\n\
         link add br1 type bridge\nlink set br1 addrgenmode none\nlink set br1 up\n",
    )?;
    connect(CONTROL, control_plane())?;
    ip(
        CONTROL,
        &format!("address add {PREMISES_HOST} dev {PREMISES}\n"),
    )
}

/// Makes the namespace of a machine and connects it to the switch.
///
/// # Errors
/// The kernel refuses.
pub(super) fn connect(name: &str, [v4, v6]: Addresses) -> Result<()> {
    namespace(name)?;
    let (port, premises) = (format!("to-{name}"), format!("pr-{name}"));
    let switch = place::part(SWITCH);
    ip(
        name,
        &format!(
            "link set lo up\n\
             link add {LINK} type veth peer name {port} netns {switch}\n\
             link set {LINK} up\n\
             address add {v4}/24 dev {LINK}\n\
             address add {v6}/64 dev {LINK} nodad\n\
             link add {PREMISES} type veth peer name {premises} netns {switch}\n\
             link set {PREMISES} addrgenmode none\n\
             link set {PREMISES} up\n"
        ),
    )?;
    ip(
        SWITCH,
        &format!(
            "link set {port} master br0 up addrgenmode none\n\
             link set {premises} master br1 up addrgenmode none\n"
        ),
    )?;
    if name != CONTROL {
        // The kubelet takes the address of the link with the default route.
        let [via4, via6] = control_plane();
        ip(
            name,
            &format!(
                "route add default via {via4} dev {LINK}\n\
                 route add default via {via6} dev {LINK}\n"
            ),
        )?;
    }
    let set = place::netns(name)?.run_in(|| {
        SETTINGS
            .iter()
            .try_for_each(|(key, value)| fs::write(format!("/proc/sys/{key}"), value))
    })?;
    set.with_context(|| format!("settings of a router in {name}"))
}

fn namespace(name: &str) -> Result<()> {
    let path = place::netns_path(name);
    let made = NamedNetns::create(&path).with_context(|| format!("making {}", path.display()))?;
    made.keep();
    Ok(())
}

/// Runs commands of `ip` in the namespace of a part, one a line.
///
/// # Errors
/// One of them fails.
pub(super) fn ip(name: &str, commands: &str) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["-n", &place::part(name), "-batch", "-"])
        .stdin(Stdio::piped());
    let mut child = ip.spawn().context("cannot start ip; install iproute2")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(commands.as_bytes())
            .context("writing to ip")?;
    }
    let status = child.wait().context("waiting for ip")?;
    if !status.success() {
        bail!("`{}` failed: {status}, on:\n{commands}", show(&ip));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addresses_of_a_machine_end_in_the_same_digits() {
        let shown = node(2).map(|address| address.to_string());
        assert_eq!(shown, ["10.89.0.12", "fd89::12"]);
        let shown = control_plane().map(|address| address.to_string());
        assert_eq!(shown, ["10.89.0.1", "fd89::1"]);
    }

    #[test]
    fn every_node_has_an_address_of_the_switch() {
        let last = node(MOST_NODES).map(|address| address.to_string());
        assert_eq!(last, ["10.89.0.50", "fd89::50"]);
    }
}
