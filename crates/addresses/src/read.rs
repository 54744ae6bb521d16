//! Reading blocks and reservations.

use std::net::IpAddr;

use api::{GRANTED, IpBlock, IpReservation, Prefix};

/// How a grant begins; the node's name follows.
pub const BY: &str = "by node ";

/// Reads the answer of the holder of the block: whether it agrees, and why not.
pub(super) fn answer(reservation: &IpReservation) -> Option<(bool, &str)> {
    let status = reservation.status.as_ref()?;
    let granted = status.conditions.iter().find(|it| it.type_ == GRANTED)?;
    match granted.status.as_str() {
        "True" => Some((true, "")),
        "False" => Some((false, &granted.message)),
        _ => None,
    }
}

/// Reads the name of the node that says it has granted a reservation.
///
/// Admission policies bind that name to the node.
pub fn granted_by(reservation: &IpReservation) -> Option<&str> {
    let status = reservation.status.as_ref()?;
    let granted = status.conditions.iter().find(|it| it.type_ == GRANTED)?;
    let by = granted.message.strip_prefix(BY)?;
    (granted.status == "True").then_some(by)
}

/// Reads the addresses of a block.
pub(super) fn cidr(block: &IpBlock) -> Option<Prefix> {
    block.spec.cidr.parse().ok()
}

/// True for a block that the controller is going to delete.
pub(super) fn is_marked(block: &IpBlock) -> bool {
    let status = block.status.as_ref();
    status.is_some_and(|status| status.reclaim_after.is_some())
}

/// The node of the block with an address.
pub(super) fn block_holder(blocks: &[IpBlock], ip: IpAddr) -> Option<String> {
    let of_ip = |it: &&IpBlock| cidr(it).is_some_and(|block| block.contains(&ip));
    blocks.iter().find(of_ip).map(|it| it.spec.node.clone())
}
