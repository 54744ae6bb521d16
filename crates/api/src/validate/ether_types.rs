//! EtherTypes that a network with an uplink carries besides IPv4, IPv6 and ARP.

use std::collections::BTreeSet;

use super::{Faults, FieldProblem};
use crate::parameters::{Mode, TransportSpec};

/// The most EtherTypes of a network.
pub(crate) const ETHER_TYPES_MAX: u32 = 16;
/// Pattern of a written EtherType.
pub(crate) const ETHER_TYPE_PATTERN: &str = "^0x[0-9a-fA-F]{4}$";
const PATH: &str = "spec.transport.etherTypes";

/// Reads `spec.transport.etherTypes`: in order, each once.
pub(super) fn ether_types(faults: &mut Faults, spec: &TransportSpec, mode: Mode) -> Vec<u16> {
    let written = &spec.ether_types;
    if written.is_empty() {
        return Vec::new();
    }
    if !spec.kind.has_uplink() || mode != Mode::L2 {
        faults.push(PATH, FieldProblem::EtherTypesOfNoSegment);
        return Vec::new();
    }
    if written.len() > ETHER_TYPES_MAX as usize {
        let found = written.len();
        faults.push(PATH, FieldProblem::ManyEtherTypes { found });
        return Vec::new();
    }
    let mut types = BTreeSet::new();
    for (index, text) in written.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let read = read(text).ok_or_else(|| FieldProblem::BadEtherType {
            found: text.clone(),
        });
        types.extend(faults.take(path, read));
    }
    types.into_iter().collect()
}

/// Reads an EtherType that the programs let pass.
fn read(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("0x")?;
    let is_hex = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    // Lengths of 802.3; MAC control; tags.
    let never =
        number < 0x0600 || matches!(number, 0x8808 | 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300);
    (!never).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ether_type_is_four_hexadecimal_digits_of_one_that_can_pass() {
        assert_eq!(read("0x88f7"), Some(0x88f7));
        assert_eq!(read("0x88F7"), Some(0x88f7));
        assert_eq!(read("0x0600"), Some(0x0600));
        for wrong in [
            "", "88f7", "0x88f", "0x088f7", "0x+8f7", "0X88f7", "35063", "0x05ff", "0x8808",
            "0x8100", "0x88a8", " 0x88f7", "PTP",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
