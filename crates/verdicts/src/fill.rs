//! Tell how full the maps of policies are, and lend the connections.

use std::sync::Arc;

use agent_common::map as size;
use datapath::connections::Connections;

use super::Guards;

impl Guards {
    /// Returns the names of the maps, their entries, and their limits.
    ///
    /// Entries are those of this agent.
    pub fn fill(&self) -> [(&'static str, usize, u32); 6] {
        let inner = self.inner.lock();
        let networks = || inner.networks.values();
        let sum = |of: fn(&super::Guarded) -> usize| networks().map(|it| of(&it.content)).sum();
        let ports = networks().map(|it| it.ports.len()).sum();
        let sets = |of: &super::Guarded| of.sets.iter().map(|set| set.entries().count()).sum();
        [
            ("GUARDS", ports, size::MAX_GUARDS),
            ("ATOMS", sum(|it| it.atoms.len()), size::MAX_ATOMS),
            ("BLOCKS", sum(|it| it.blocks.len()), size::MAX_BLOCKS),
            ("CLASSES", inner.networks.len(), size::MAX_GENERATIONS),
            ("SETS", sum(sets), size::MAX_SET_ROWS),
            ("ROWS", sum(|it| it.rows.len()), size::MAX_ROWS),
        ]
    }

    /// All connections that policies let pass.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.inner.lock().maps.connections)
    }
}
