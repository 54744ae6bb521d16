//! Read the ports of rules.

use serde::Deserialize;
use serde_json::Value;

use super::Problems;
use crate::model::{Ports, Protocol};

/// An item of `ports`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PortSpec {
    protocol: Option<String>,
    port: Option<Value>,
    end_port: Option<i64>,
}

/// An item of `protocols`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ProtocolSpec {
    tcp: Option<OfProtocol>,
    udp: Option<OfProtocol>,
    sctp: Option<OfProtocol>,
    destination_named_port: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfProtocol {
    destination_port: Option<Numbers>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Numbers {
    number: Option<i64>,
    range: Option<Range>,
}

#[derive(Debug, Deserialize)]
struct Range {
    start: i64,
    end: i64,
}

impl PortSpec {
    /// Reads an item; a wrong one is a problem, and no port (A-NP-20 to -25).
    pub(super) fn read(&self, field: &str, problems: &mut Problems) -> Option<Ports> {
        let found = self.ports();
        found
            .map_err(|text| problems.add(field, format!("{text}; the item allows nothing")))
            .ok()
    }

    fn ports(&self) -> Result<Ports, String> {
        let protocol = match self.protocol.as_deref() {
            None | Some("TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            Some(other) => {
                return Err(format!(
                    "there is no protocol `{other}`: write TCP, UDP or SCTP"
                ));
            }
        };
        match (&self.port, self.end_port) {
            (None | Some(Value::Null), None) => Ok(Ports::Range(protocol, 0, u16::MAX)),
            (Some(Value::String(name)), None) => Ok(Ports::Named(Some(protocol), name.clone())),
            (Some(Value::Number(number)), end) => {
                let first = number.as_i64().and_then(port);
                let first = first.ok_or_else(|| no_port(&number.to_string()))?;
                let last = match end {
                    None => first,
                    Some(end) => port(end).ok_or_else(|| no_port(&end.to_string()))?,
                };
                if last < first {
                    return Err(format!(
                        "the range from {first} to {last} has no port: write an endPort that is not below port"
                    ));
                }
                Ok(Ports::Range(protocol, first, last))
            }
            (_, Some(_)) => Err("endPort needs a port that is a number".to_owned()),
            (Some(other), None) => Err(no_port(&other.to_string())),
        }
    }
}

impl ProtocolSpec {
    /// Reads an item.
    ///
    /// # Errors
    /// The fault.
    pub(super) fn ports(&self) -> Result<Ports, String> {
        let of = [
            (Protocol::Tcp, &self.tcp),
            (Protocol::Udp, &self.udp),
            (Protocol::Sctp, &self.sctp),
        ];
        let mut found = of
            .into_iter()
            .filter_map(|(protocol, it)| Some((protocol, it.as_ref()?)));
        match (found.next(), found.next(), &self.destination_named_port) {
            (None, _, Some(name)) => Ok(Ports::Named(None, name.clone())),
            (Some((protocol, it)), None, None) => it.ports(protocol),
            (None, _, None) => {
                Err("the item has no field that this version of podnet knows".to_owned())
            }
            _ => Err(
                "the item has several fields: write one of tcp, udp, sctp and destinationNamedPort"
                    .to_owned(),
            ),
        }
    }
}

impl OfProtocol {
    fn ports(&self, protocol: Protocol) -> Result<Ports, String> {
        let Some(numbers) = &self.destination_port else {
            return Ok(Ports::Range(protocol, 0, u16::MAX));
        };
        let of = |number: i64| port(number).ok_or_else(|| no_port(&number.to_string()));
        let (first, last) = match (numbers.number, &numbers.range) {
            (Some(number), None) => (of(number)?, of(number)?),
            (None, Some(range)) => (of(range.start)?, of(range.end)?),
            _ => return Err("destinationPort needs one of number and range".to_owned()),
        };
        if last < first {
            return Err(format!(
                "the range from {first} to {last} has no port: write an end that is above start"
            ));
        }
        Ok(Ports::Range(protocol, first, last))
    }
}

fn port(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

fn no_port(text: &str) -> String {
    format!("{text} is no port: write a name or a number from 1 to 65535")
}
