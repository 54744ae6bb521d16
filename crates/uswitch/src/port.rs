//! A port: what the agent says of it, and what the switch says of it.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::port::{PORT_OUTSIDE, PORT_TRUNK, Port};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;
use ways::Identity;

/// Rings in each direction that a port can have.
pub const QUEUES_MAX: u16 = 8;
/// Bytes of a port's name, which clients are told: a field of memif.
const NAME_MAX: usize = 31;
/// Bytes of a port's key.
const KEY_MAX: usize = 256;
/// Bytes of a secret: a field of memif.
const SECRET_MAX: usize = 23;
/// Addresses of a port.
const IPS_MAX: usize = 256;

/// Configuration of a port, as the agent sends it.
///
/// `network` to `mtu` are the fields of the kernel program's `PORTS`; see
/// [`Port`](agent_common::port::Port).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// Unique key of the port, chosen by the agent: the pod is before the last slash.
    pub key: String,
    /// Name of the interface in the pod, at most 31 bytes, as clients are told it.
    pub name: String,
    /// The network's number. It cannot change.
    pub network: u32,
    /// Index of the port's counters in the kernel program's maps; unique on the node.
    pub port_id: u16,
    /// `PORT_*` flags.
    pub flags: u32,
    /// The only source MAC address accepted.
    #[serde(with = "text")]
    pub mac: MacAddr,
    /// All addresses of the port, none for a network without.
    #[serde(default)]
    pub ips: Vec<IpAddr>,
    /// Largest L3 packet in bytes.
    pub mtu: u16,
    /// True if frames to other ports of the switch may bypass the device.
    ///
    /// False for a port with rates: their queues are there. False for one that policies judge.
    pub fast: bool,
    /// True if frames of a port that policies judge may do so.
    ///
    /// They do as packets of connections that the kernel has judged and shown
    /// ([`Request::Judge`](crate::control::Request::Judge)).
    #[serde(default)]
    pub judged: bool,
    /// True if frames of one flow may go to the device together.
    ///
    /// So the kernel carries them (GSO). False for a port whose frames somebody looks at there.
    #[serde(default = "yes")]
    pub trains: bool,
    /// Rings that a client may have in each direction; two, if it is one.
    pub queues: u16,
    /// Secret that a client must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// The meaning of a field that an older agent does not send.
fn yes() -> bool {
    true
}

/// A port that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {value} is not allowed, {fix}")]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The remedy.
    pub fix: &'static str,
}

impl PortConfig {
    /// The pod: with all ports of it this one shares memory and time.
    pub fn pod(&self) -> &str {
        self.key
            .rsplit_once('/')
            .map_or(self.key.as_str(), |(pod, _)| pod)
    }

    /// The port, as the policy reads it.
    pub(crate) fn identity(&self) -> Identity {
        let port = Port {
            network: self.network,
            flags: self.flags,
            mac: self.mac,
            mtu: self.mtu,
            port_id: self.port_id,
            ip4: [0; 4],
            tunnel_port: 0,
            ip6: Ip16::NONE,
            link_local: Ip16::NONE,
            home: 0,
            shaper: 0,
        };
        Identity::new(&port, &self.ips, self.judged)
    }

    /// Whether frames of the port may bypass the device, all or some.
    pub(crate) fn is_fast(&self) -> bool {
        self.fast || self.judged
    }

    /// Whether it can be a port.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field, value: &dyn Display, fix| {
            let value = value.to_string();
            Err(ConfigError { field, value, fix })
        };
        if self.key.is_empty() || self.key.len() > KEY_MAX {
            return wrong("key", &self.key, "use 1 to 256 bytes");
        }
        if self.name.len() > NAME_MAX || self.name.contains('\0') {
            return wrong("name", &self.name, "use at most 31 bytes, none of them NUL");
        }
        if !(1..=0xff_ffff).contains(&self.network) {
            return wrong("network", &self.network, "use 1 to 16777215");
        }
        if self.flags & (PORT_OUTSIDE | PORT_TRUNK) != 0 {
            return wrong("flags", &self.flags, "no way out and no trunk can be memif");
        }
        if !self.mac.is_unicast() {
            return wrong("mac", &self.mac, "use the address of one station");
        }
        if self.ips.len() > IPS_MAX {
            return wrong("ips", &self.ips.len(), "use at most 256");
        }
        if !(68..=65535 - 18).contains(&self.mtu) {
            return wrong("mtu", &self.mtu, "use 68 to 65517");
        }
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return wrong("queues", &self.queues, "use 1 to 8");
        }
        match &self.secret {
            Some(secret) if secret.len() > SECRET_MAX || secret.contains('\0') => wrong(
                "secret",
                &"what is given",
                "use at most 23 bytes, none of them NUL",
            ),
            _ => Ok(()),
        }
    }
}

/// Packets and bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet header included.
    pub bytes: u64,
}

impl Count {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
    }

    #[inline]
    pub(crate) fn add_all(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// Packets and bytes of a port, hand-overs included. Counters wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// From the client straight to the client of another port.
    #[serde(default)]
    pub fast_from: Count,
    /// To the client straight from the client of another port.
    #[serde(default)]
    pub fast_to: Count,
    /// From the client to the device, where the kernel program judges and counts it.
    #[serde(default)]
    pub device_from: Count,
    /// To the client from the device.
    #[serde(default)]
    pub device_to: Count,
    /// Dropped packets.
    #[serde(default)]
    pub drops: PortDrops,
}

/// Packets that the switch dropped, by reason.
///
/// Packets that the policy refuses are not among them: the kernel program drops those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDrops {
    /// To the client, which had posted no buffer.
    #[serde(default)]
    pub no_buffer: u64,
    /// To the client, longer than the buffer that it had posted.
    #[serde(default)]
    pub too_long: u64,
    /// To a client that was not there.
    #[serde(default)]
    pub not_connected: u64,
    /// From the client: shorter than an Ethernet header, or longer than any frame.
    #[serde(default)]
    pub bad_length: u64,
    /// From the client: in too many pieces.
    #[serde(default)]
    pub bad_descriptor: u64,
    /// From the client to the device, whose queue was full.
    #[serde(default)]
    pub device_full: u64,
    /// From the client to the device, which is down or gone.
    #[serde(default)]
    pub device_down: u64,
}

/// State of a port, as the switch reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Configuration from the agent, without the secret.
    pub config: PortConfig,
    /// The client has its rings.
    pub connected: bool,
    /// The client's application and interface, while it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Why the last client is no more, or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_closed: Option<String>,
    /// Counters of the port.
    #[serde(default)]
    pub counters: PortCounters,
}

/// A value as its text.
mod text {
    use super::{Deserialize as _, Deserializer, Display, FromStr, Serializer, de};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
impl PortConfig {
    /// A port.
    pub(crate) fn sample() -> Self {
        Self {
            key: "c1/net1".to_owned(),
            name: "net1".to_owned(),
            network: 7,
            port_id: 3,
            flags: 0,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ips: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            mtu: 1500,
            fast: true,
            judged: false,
            trains: true,
            queues: 1,
            secret: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> PortConfig {
        PortConfig::sample()
    }

    #[test]
    fn the_pod_of_a_port_is_what_its_key_begins_with() {
        let mut port = config();
        assert_eq!(port.pod(), "c1");
        port.key = "alone".to_owned();
        assert_eq!(port.pod(), "alone");
    }

    #[test]
    fn a_port_is_read_as_it_is_written_and_what_is_new_is_ignored() {
        let mut json = serde_json::to_value(config()).unwrap();
        assert_eq!(json["mac"], "02:00:00:00:00:01");
        json["of_a_later_version"] = serde_json::json!({"x": 1});
        let read: PortConfig = serde_json::from_value(json).unwrap();
        assert_eq!(read, config());
    }

    #[test]
    fn what_no_port_can_be_is_refused_by_the_name_of_the_field() {
        type Change = fn(&mut PortConfig);
        let changes: [(&str, Change); 11] = [
            ("key", |port| port.key.clear()),
            ("name", |port| port.name = "n".repeat(32)),
            ("name", |port| port.name = "a\0b".to_owned()),
            ("network", |port| port.network = 0),
            ("network", |port| port.network = 1 << 24),
            ("flags", |port| port.flags = PORT_TRUNK),
            ("mac", |port| port.mac = MacAddr::BROADCAST),
            ("mtu", |port| port.mtu = 67),
            ("queues", |port| port.queues = 9),
            ("queues", |port| port.queues = 0),
            ("secret", |port| port.secret = Some("s".repeat(24))),
        ];
        assert_eq!(config().check(), Ok(()));
        for (field, change) in changes {
            let mut port = config();
            change(&mut port);
            let refused = port.check().unwrap_err();
            assert_eq!(refused.field, field);
            assert!(!refused.to_string().contains("ssss"), "a secret is kept");
        }
    }
}
