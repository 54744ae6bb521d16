//! How many connections a namespace tracks for others.
//!
//! The kernel counts connections in lists, and walks a list for each new connection (`nf_conncount`): a list of
//! thousands is an attack itself. So a limit is many lists of a few, by a hash of the connection, and their
//! sum is never more than the limit. A list may be full a little before the others are.

use std::fmt;

use super::guard::{Bound, LinkName};

/// Connections in one list: at most so many are looked at for a new one.
const LIST: u32 = 64;

/// Connections that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Connections from one source of this family,
    Source {
        /// which is IPv4, or else IPv6.
        v4: bool,
    },
    /// those of this family that come in by one link,
    Link {
        /// IPv4, or else IPv6.
        v4: bool,
    },
    /// those of this family that go out by one link, with those that come in by it.
    Towards {
        /// IPv4, or else IPv6.
        v4: bool,
    },
}

/// New connections above a number of tracked ones end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// By which link their packets come in, or go out.
    pub link: LinkName,
    /// Which are counted together.
    pub whose: Whose,
    /// How many there may be.
    pub connections: u32,
    /// Destination of the packets: the namespace itself, or others.
    pub bound: Bound,
}

impl Limit {
    /// Name of the set of its lists.
    pub(super) const fn set(&self) -> &'static str {
        match self.whose {
            Whose::Source { v4: true } => "sources",
            Whose::Source { v4: false } => "sources6",
            // Of one link, whichever way connections begin.
            Whose::Link { v4: true } | Whose::Towards { v4: true } => "links",
            Whose::Link { v4: false } | Whose::Towards { v4: false } => "links6",
        }
    }

    /// Number of lists, and how many connections each may have.
    pub(super) const fn lists(&self) -> (u32, u32) {
        let lists = match self.connections / LIST {
            // The kernel makes no hash of one number.
            0 | 1 => 2,
            lists => lists,
        };
        (lists, self.connections / lists)
    }
}

/// The comment of the rule.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, v4) = match self.whose {
            Whose::Source { v4 } => ("source", v4),
            Whose::Link { v4 } | Whose::Towards { v4 } => ("link", v4),
        };
        let way = match self.whose {
            Whose::Towards { .. } => "out",
            Whose::Source { .. } | Whose::Link { .. } => "in",
        };
        let family = if v4 { "IPv4" } else { "IPv6" };
        let (link, connections) = (&self.link, self.connections);
        // A table of an agent with a set of each direction says something else, and is written again.
        let both = match self.whose {
            Whose::Towards { .. } => " both ways",
            Whose::Source { .. } | Whose::Link { .. } => "",
        };
        write!(
            f,
            "stop {way} by {link} {family} above {connections} connections of a {what}{both}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_short_and_their_sum_is_never_above_the_limit() {
        for connections in [2, 7, 63, 64, 65, 100, 200, 8192, 32_768, 1_000_000] {
            let limit = Limit {
                link: LinkName::Is("pods".to_owned()),
                whose: Whose::Source { v4: true },
                connections,
                bound: Bound::Elsewhere,
            };
            let (lists, each) = limit.lists();
            assert!(lists > 0 && each > 0 && each < 2 * LIST, "{connections}");
            assert!(lists * each <= connections, "{connections}");
            assert!(lists * each > connections / 64 * 63 || connections < 64 * 64);
        }
    }
}
