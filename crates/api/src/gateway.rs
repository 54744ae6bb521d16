//! `spec.gateway` of a `PodNetworkParameters`, as written.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

use crate::parameters::SUBNETS_MAX;

/// `spec.gateway` as written: a word, one address, or a list of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GatewaySpec {
    /// No gateway.
    #[default]
    None,
    /// The first usable address of every subnet.
    First,
    /// These addresses, at most one in each subnet; a single string is a list of one.
    Addresses(Vec<String>),
}

impl GatewaySpec {
    /// True for a network without gateways, the default.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl Serialize for GatewaySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("None"),
            Self::First => serializer.serialize_str("First"),
            Self::Addresses(addresses) => addresses.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for GatewaySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GatewayVisitor)
    }
}

/// The schema of a string or a list, which is not structural.
///
/// The server therefore keeps what it gets here, and only the limits that each of the two forms has are
/// checked. The agent checks the rest.
impl JsonSchema for GatewaySpec {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GatewaySpec".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-preserve-unknown-fields": true,
            "minLength": 1,
            "maxLength": 45,
            "maxItems": SUBNETS_MAX,
            "maxProperties": 0,
        })
    }
}

struct GatewayVisitor;

impl<'de> Visitor<'de> for GatewayVisitor {
    type Value = GatewaySpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("None, First, an address or a list of addresses")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<GatewaySpec, E> {
        Ok(match word {
            "None" => GatewaySpec::None,
            "First" => GatewaySpec::First,
            address => GatewaySpec::Addresses(vec![address.to_owned()]),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<GatewaySpec, A::Error> {
        let mut addresses = Vec::new();
        while let Some(address) = seq.next_element()? {
            addresses.push(address);
        }
        Ok(GatewaySpec::Addresses(addresses))
    }
}
