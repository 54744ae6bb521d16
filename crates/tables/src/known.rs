//! The content of the tables, as far as it is known.

use std::collections::BTreeMap;

use datapath::{DatapathError, Entries, Tables};

use super::layers::{Change, Layers, by_network};

/// Maps that a change of entries is made in.
pub(super) trait Maps {
    /// Reads everything that is in them.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn dump(&self) -> Result<Entries, DatapathError>;

    /// Turns `old`, which is in them, into `new`.
    ///
    /// # Errors
    /// When the kernel refuses; part of it may have been done.
    fn apply(&mut self, old: &Entries, new: &Entries) -> Result<(), DatapathError>;
}

impl Maps for Tables {
    fn dump(&self) -> Result<Entries, DatapathError> {
        self.dump()
    }

    fn apply(&mut self, old: &Entries, new: &Entries) -> Result<(), DatapathError> {
        self.apply(old, new)
    }
}

/// Entries of the tables by network.
///
/// An error leaves none, and the next call reads the maps again.
#[derive(Debug, Default)]
pub(super) struct Known(Option<BTreeMap<u32, Layers>>);

impl Known {
    /// Has the next call read the maps.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns all networks; reads the maps if they are not known.
    ///
    /// Addresses of interfaces that are no port, as an interrupted change leaves, are removed: a
    /// later change would not know of them.
    pub(super) fn networks(
        &mut self,
        maps: &mut impl Maps,
    ) -> Result<&BTreeMap<u32, Layers>, DatapathError> {
        if self.0.is_none() {
            let (networks, strays) = by_network(maps.dump()?);
            maps.apply(&strays, &Entries::default())?;
            self.0 = Some(networks);
        }
        Ok(self.0.get_or_insert_default())
    }

    /// Makes the tables of a network these.
    pub(super) fn write(
        &mut self,
        maps: &mut impl Maps,
        network: u32,
        wanted: Layers,
    ) -> Result<(), DatapathError> {
        let replace = |layers: &mut Layers| {
            let change = layers.to(&wanted);
            *layers = wanted;
            Some(change)
        };
        self.write_change(maps, network, replace).map(drop)
    }

    /// Makes a change of the tables of a network; false when `change` makes none.
    ///
    /// A `change` that makes none leaves its argument as it is.
    pub(super) fn write_change(
        &mut self,
        maps: &mut impl Maps,
        network: u32,
        change: impl FnOnce(&mut Layers) -> Option<Change>,
    ) -> Result<bool, DatapathError> {
        self.networks(maps)?;
        // Put back only when the maps are known to be as they should.
        let mut networks = self.0.take().unwrap_or_default();
        let mut layers = networks.remove(&network).unwrap_or_default();
        let change = change(&mut layers);
        if let Some(change) = &change {
            maps.apply(&change.old, &change.new)?;
        }
        if !layers.is_empty() {
            networks.insert(network, layers);
        }
        self.0 = Some(networks);
        Ok(change.is_some())
    }
}
