//! The switch for memif ports of a node.

use std::path::PathBuf;

use uswitch::PortCounters;
use uswitch::control::Client;

use super::Node;
use crate::pod::Port;

impl Node {
    /// The socket at which the node's switch is asked.
    pub fn switch_socket(&self) -> PathBuf {
        self.socket().with_file_name("switch").join("switch.sock")
    }

    /// Returns the switch's counters of a port.
    ///
    /// # Panics
    /// The switch does not answer, or does not have the port.
    pub fn switch_counters(&self, port: &Port) -> PortCounters {
        let mut client = Client::connect(&self.switch_socket()).expect("the switch answers");
        let ports = client.list().expect("a list").into_iter();
        let key = format!("{}/{}", port.container, port.ifname);
        let mut own = ports.filter(|port| port.config.key == key);
        own.next().expect("the switch has the port").counters
    }
}
