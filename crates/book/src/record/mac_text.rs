//! Writes MAC addresses of records as text.

use agent_common::addr::MacAddr;
use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub(super) fn serialize<S: Serializer>(mac: &MacAddr, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(mac)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<MacAddr, D::Error> {
    String::deserialize(input)?
        .parse()
        .map_err(D::Error::custom)
}
