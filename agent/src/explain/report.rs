//! Report about a packet: steps, outcome, disagreements of tables and records.

use agent_common::drop::DropReason;
use serde::Serialize;
use serde_json::{Value, json};

use super::advice;

/// The whole answer; the keys are stable.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// This node.
    pub(super) node: String,
    /// The packet.
    pub(super) packet: Shown,
    /// Lookups in their order.
    pub(super) steps: Vec<Step>,
    /// Outcome of the packet.
    pub(super) outcome: Outcome,
    /// Where the tables say something else than the records, in words.
    pub(super) disagreements: Vec<String>,
}

/// A packet in words.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    /// Name of the network.
    pub(super) network: String,
    /// Its number.
    #[serde(rename = "networkID")]
    pub(super) network_id: u32,
    /// `L2` or `L3`.
    pub(super) mode: &'static str,
    /// Sender.
    pub(super) from: String,
    /// Receiver.
    pub(super) to: String,
    /// Payload.
    pub(super) protocol: String,
    /// Source address, if it has one.
    pub(super) source: Option<String>,
    /// Destination address, if it has one.
    pub(super) destination: Option<String>,
    /// Source MAC address.
    pub(super) source_mac: Option<String>,
    /// Destination MAC address, once it is known.
    pub(super) destination_mac: Option<String>,
    /// Length with the Ethernet header.
    pub(super) bytes: usize,
    /// The start of the frame, hexadecimal.
    pub(super) head: String,
}

/// Bytes of a frame that are shown.
const HEAD: usize = 96;

impl Shown {
    /// Shows the frame that was built in the end.
    pub(super) fn frame(&mut self, frame: &[u8]) {
        self.bytes = frame.len();
        let head = frame.iter().take(HEAD);
        self.head = head.map(|byte| format!("{byte:02x}")).collect();
    }
}

/// One thing that was looked up.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Step {
    /// From 1.
    number: usize,
    /// The packet it is about: `arp`, `nd` or `packet`.
    packet: &'static str,
    /// Object of the lookup.
    lookup: String,
    /// Result of the lookup.
    found: String,
    /// Consequence for the packet.
    verdict: String,
}

/// End of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// A pod of this node gets it.
    Delivered,
    /// It goes to another node.
    Tunnelled,
    /// Each member of the network gets a copy.
    Replicated,
    /// The datapath answers it.
    Answered,
    /// The node's own network stack gets it.
    Node,
    /// It goes out of the network's uplink.
    Wired,
    /// It leaves its network by the gateway of that on this node.
    Left,
    /// It ends without an effect, as it should.
    Ignored,
    /// It ends, and is counted.
    Dropped,
    /// Somebody else's answer is needed before it can be sent.
    Unresolved,
    /// No program of ours sees it.
    Unguarded,
}

/// End of a packet, and its cause.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    /// In one word.
    pub(super) verdict: Verdict,
    /// In a sentence.
    text: String,
    /// Label of the reason for a drop.
    reason: Option<&'static str>,
    /// Meaning of the reason.
    meaning: Option<&'static str>,
    /// Advice about the reason.
    advice: Option<&'static str>,
    /// Facts about the outcome, as JSON.
    details: Value,
}

impl Outcome {
    /// An outcome that is no drop.
    pub(super) fn new(verdict: Verdict, text: impl Into<String>, details: Value) -> Self {
        Self {
            verdict,
            text: text.into(),
            reason: None,
            meaning: None,
            advice: None,
            details,
        }
    }

    /// A drop.
    pub(super) fn dropped(reason: DropReason, on: &str) -> Self {
        Self {
            verdict: Verdict::Dropped,
            text: format!("dropped on {on} as {reason}"),
            reason: Some(reason.label()),
            meaning: Some(reason.meaning().trim_ascii()),
            advice: Some(advice::of(reason)),
            details: json!({"node": on}),
        }
    }

    /// A loss that no program counts.
    pub(super) fn lost(text: impl Into<String>, advice: &'static str) -> Self {
        Self {
            advice: Some(advice),
            ..Self::new(Verdict::Dropped, text, Value::Null)
        }
    }
}

/// The steps so far.
#[derive(Debug)]
pub(super) struct Story {
    packet: &'static str,
    steps: Vec<Step>,
    disagreements: Vec<String>,
}

/// The packet that was asked about.
pub(super) const PACKET: &str = "packet";

impl Story {
    /// Nothing was looked at yet.
    pub(super) const fn new() -> Self {
        Self {
            packet: PACKET,
            steps: Vec::new(),
            disagreements: Vec::new(),
        }
    }

    /// From here on it is about another packet.
    pub(super) const fn about(&mut self, packet: &'static str) {
        self.packet = packet;
    }

    /// Adds a step.
    pub(super) fn step(
        &mut self,
        lookup: impl Into<String>,
        found: impl Into<String>,
        verdict: impl Into<String>,
    ) {
        self.steps.push(Step {
            number: self.steps.len() + 1,
            packet: self.packet,
            lookup: lookup.into(),
            found: found.into(),
            verdict: verdict.into(),
        });
    }

    /// Notes that records and kernel differ.
    pub(super) fn disagree(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.disagreements.contains(&text) {
            self.disagreements.push(text);
        }
    }

    /// The answer.
    pub(super) fn end(self, node: &str, packet: Shown, outcome: Outcome) -> Report {
        Report {
            node: node.to_owned(),
            packet,
            steps: self.steps,
            outcome,
            disagreements: self.disagreements,
        }
    }
}
