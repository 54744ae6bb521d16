//! Read policies as they are written.
//!
//! A part that cannot be kept is told, and lets nothing pass.
//!
//! An API server refuses most of what is wrong in a NetworkPolicy. The objects of others are checked by their
//! definition alone, which lets much through, and files without a cluster by nothing.

mod cluster;
mod network;
mod ports;

use std::fmt;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

pub use self::cluster::read as cluster;
pub use self::network::read as network;
use crate::labels::{Selector, SelectorSpec};
use crate::model::Policy;

/// A policy, and what could not be read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The policy.
    pub policy: Policy,
    /// Parts that it has not as they are written.
    pub problems: Vec<Problem>,
}

/// A part of a policy that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, as `spec.ingress[0].from[1]`.
    pub field: String,
    /// The fault, what it means, and the remedy.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.text)
    }
}

/// Collects problems.
#[derive(Debug, Default)]
struct Problems(Vec<Problem>);

impl Problems {
    /// Most that are told of one policy.
    const MOST: usize = 32;

    fn add(&mut self, field: impl Into<String>, text: impl Into<String>) {
        if self.0.len() < Self::MOST {
            self.0.push(Problem {
                field: field.into(),
                text: text.into(),
            });
        }
    }

    /// Reads a selector; one that is wrong is a problem, and none.
    fn selector(&mut self, field: &str, spec: &SelectorSpec) -> Option<Selector> {
        match Selector::read(spec) {
            Ok(selector) => Some(selector),
            Err(text) => {
                self.add(field, text);
                None
            }
        }
    }
}

/// Reads a network; bits behind its prefix are left out.
///
/// # Errors
/// The fault and the remedy.
fn net(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>();
    net.map(|net| net.trunc())
        .map_err(|_| format!("`{text}` is no network: write it as 192.0.2.0/24 or 2001:db8::/64"))
}

/// Reads a part of an object.
///
/// # Errors
/// A field has a value of another type.
fn parse<'a, T: Deserialize<'a>>(spec: &'a Value) -> Result<T, Problem> {
    T::deserialize(spec).map_err(|error| Problem {
        field: "spec".to_owned(),
        text: format!("the policy cannot be read: {error}"),
    })
}
