//! How much a pod may write into its annotations.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::{
    SelectionNote,
    problem::{Findings, Place, SelectionProblem},
};
use crate::{json::RawJson, listed::PROBLEMS_MAX};

/// Default limit of attachments of one pod.
///
/// Each takes a port of the node and addresses of its network, which other pods have to share.
pub const ATTACHMENTS_MAX: usize = 32;
/// Longest annotation, bytes; Kubernetes allows as much for all of a pod together.
///
/// The webhook reads annotations before Kubernetes has checked this.
pub(super) const TEXT_MAX: usize = 256 << 10;
/// Most addresses of one attachment; as many as an endpoint of a slice has.
pub(super) const IPS_MAX: usize = crate::ENDPOINT_IPS_MAX;
/// Gateways of `default-route`: one of each family is used.
pub(super) const GATEWAYS_MAX: usize = 16;
/// Ports of the node that lead to one attachment.
pub(super) const PORT_MAPPINGS_MAX: usize = 64;
/// Longest `cni-args`, bytes.
///
/// They are kept in the attachment's record and written to each plugin.
pub(super) const CNI_ARGS_MAX: usize = 16 << 10;

/// How many attachments a list may ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Attachments that the pod has already.
    pub(super) before: usize,
    /// Attachments that it may have together.
    pub(super) limit: usize,
}

impl Room {
    /// Admits every list: for one that was checked before.
    pub(super) const UNLIMITED: Self = Self {
        before: 0,
        limit: usize::MAX,
    };

    /// True when a list may have so many elements; else the error is noted.
    pub(super) fn admits(self, found: usize, findings: &mut Findings) -> bool {
        let Self { before, limit } = self;
        let fits = found <= limit.saturating_sub(before);
        if !fits {
            let problem = SelectionProblem::TooManyAttachments {
                found,
                before,
                limit,
            };
            findings.push(Place::Whole, problem);
        }
        fits
    }

    /// Reads a JSON list: counts all elements, keeps those that are admitted.
    ///
    /// # Errors
    /// The text is not a JSON list.
    pub(super) fn list(self, text: &str) -> Result<Counted, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let list = self.deserialize(&mut reader)?;
        reader.end()?;
        Ok(list)
    }
}

/// The first elements of a list.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) first: Vec<RawJson>,
    /// How many elements the list has.
    pub(super) found: usize,
}

impl<'de> DeserializeSeed<'de> for Room {
    type Value = Counted;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Counted, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Room {
    type Value = Counted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Counted, A::Error> {
        let room = self.limit.saturating_sub(self.before);
        let mut first = Vec::new();
        while first.len() < room
            && let Some(element) = list.next_element()?
        {
            first.push(element);
        }
        let mut found = first.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            found = found.saturating_add(1);
        }
        Ok(Counted { first, found })
    }
}

/// Collects notes; the first [`PROBLEMS_MAX`] are kept, and the rest is counted.
#[derive(Debug, Default)]
pub(super) struct Notes {
    first: Vec<SelectionNote>,
    more: usize,
}

impl Notes {
    pub(super) fn push(&mut self, note: SelectionNote) {
        if self.first.len() < PROBLEMS_MAX {
            self.first.push(note);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    pub(super) fn finish(mut self) -> Vec<SelectionNote> {
        if self.more > 0 {
            self.first.push(SelectionNote::More { count: self.more });
        }
        self.first
    }
}
