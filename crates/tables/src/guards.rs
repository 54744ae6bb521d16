//! Put policies in force at ports, with the other entries that lead to them.
//!
//! These entries are in other tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_common::addr::Ip16;
use datapath::DatapathError;
use telemetry::failpoint::reached;

pub use verdicts::{Guarded, Guards, Local, Marks, PortSets, SetRows};

use crate::Reconciler;

impl Reconciler {
    /// Puts the policies of a network in force at its ports on this node.
    ///
    /// The sets come before the tables that lead to them, and go after those.
    ///
    /// # Errors
    /// When the kernel refuses, or a table is full: what was in force stays.
    pub fn enforce(
        &self,
        network: u32,
        wanted: Option<&Arc<Guarded>>,
    ) -> Result<(), DatapathError> {
        let live = || -> BTreeSet<u16> {
            let ledger = self.book.ledger();
            ledger.live_on(network).map(|it| it.port_id).collect()
        };
        let marks = match wanted.filter(|wanted| !wanted.ports.is_empty()) {
            Some(wanted) => {
                self.lock().datapath.serve_guards()?;
                let switched = {
                    let ledger = self.book.ledger();
                    let records = ledger.entries_on(network);
                    let switched = records.filter(|record| record.is_switched());
                    switched.map(|record| record.port_id).collect()
                };
                let local = Local {
                    live: live(),
                    switched,
                };
                self.guards.enforce(network, wanted, &local)?
            }
            None => Marks::default(),
        };
        let now = marks.clone();
        let before = self.surroundings.set_marks(network, marks);
        // The entries of a port that is not live yet are written later, with these marks.
        let live = live();
        let of = |marks: &Marks| {
            let among = |ports: &BTreeSet<u16>| -> BTreeSet<u16> {
                ports.intersection(&live).copied().collect()
            };
            let is_any = !marks.guarded.is_empty();
            (is_any, among(&marks.guarded), among(&marks.closed))
        };
        if of(&before) != of(&now) {
            if let Err(error) = self.reconcile(network) {
                // The next call has it to do again.
                self.surroundings.set_marks(network, (*before).clone());
                return Err(error);
            }
            reached("guards.marked");
        }
        let mut gone = self.guards.ports_of(network);
        gone.extend(before.guarded.iter().copied());
        gone.retain(|port| !now.guarded.contains(port));
        self.guards
            .release(network, wanted.map(|wanted| &**wanted), &gone)
    }

    /// Puts the policies for one more port in force, before anything of it is there.
    ///
    /// `switched` says whether the switch for memif has its frames. `atoms` are those of its addresses, which no other
    /// member has. False, and nothing is done, for a network of
    /// which no tables are in force.
    ///
    /// # Errors
    /// When the kernel refuses, or a table is full: the port must not be made.
    pub fn enforce_port(
        &self,
        network: u32,
        (port, sets, switched): (u16, PortSets, bool),
        atoms: &[(Ip16, u32)],
    ) -> Result<bool, DatapathError> {
        let Some(closed) = self.guards.add(network, (port, sets, switched), atoms)? else {
            return Ok(false);
        };
        if sets != PortSets::default() {
            self.surroundings.add_mark(network, port, closed);
        }
        Ok(true)
    }

    /// The maps of policies.
    pub const fn guards(&self) -> &Guards {
        &self.guards
    }
}
