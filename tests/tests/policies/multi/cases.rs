//! The table of cases.

mod blocks;
mod changes;
mod networks;
mod peers;
mod ports;
mod refused;
mod selectors;

use super::case::Case;

/// Groups of cases with their names.
pub(super) fn all() -> Vec<Case> {
    [
        peers::cases(),
        selectors::cases(),
        blocks::cases(),
        ports::cases(),
        refused::cases(),
        networks::cases(),
        changes::cases(),
    ]
    .concat()
}

/// One or two cases of each group, for grounds on which a case takes longer.
pub(super) fn some() -> Vec<Case> {
    const NAMES: [&str; 14] = [
        "one sender is allowed by its label",
        "one receiver is allowed by its label",
        "a policy without policyTypes and with rules for both isolates both",
        "two policies add up",
        "all is denied for a namespace",
        "selectors next to each other and in each other",
        "a frontend, a backend, a database and monitoring",
        "blocks in one rule",
        "a block with exceptions for what a pod receives and sends",
        "ranges of ports for what a pod receives and sends",
        "a protocol without a port",
        "a policy for both networks knows pods by their addresses on each",
        "a policy is written again, and removed",
        "labels of a namespace change",
    ];
    let mut all = all();
    all.retain(|case| NAMES.contains(&case.name.as_str()));
    assert_eq!(all.len(), NAMES.len(), "a case has another name");
    all
}
