//! Validates `spec.interface`.

use super::{Faults, FieldErrors, FieldProblem};
use crate::interface::{Interface, InterfaceKind, InterfaceSpec, QUEUES_MAX};
use crate::parameters::Routing;

const PATH: &str = "spec.interface";

/// The port as written; none where nothing is.
pub(super) fn interface(faults: &mut Faults, spec: Option<&InterfaceSpec>) -> Option<Interface> {
    let InterfaceSpec { kind, queues } = spec?;
    let queues = match *queues {
        None => 1,
        Some(_) if *kind == InterfaceKind::Veth => {
            faults.push(format!("{PATH}.queues"), FieldProblem::QueuesOfVeth);
            1
        }
        Some(found) => {
            let good = u16::try_from(found).ok();
            let good = good.filter(|queues| (1..=QUEUES_MAX).contains(queues));
            let queues = good.ok_or(FieldProblem::QueuesRange { found });
            faults.take(format!("{PATH}.queues"), queues).unwrap_or(1)
        }
    };
    Some(Interface {
        kind: *kind,
        queues,
    })
}

/// The node's own stack reaches pods by interfaces of theirs.
pub(super) fn note_unreachable(faults: &mut Faults, interface: Interface, routing: Routing) {
    if routing == Routing::Node && !interface.is_veth() {
        faults.push(
            PATH,
            FieldProblem::InterfaceNeedsIsolation {
                found: interface.kind,
            },
        );
    }
}

impl Interface {
    /// That a network with this routing can have such ports.
    pub(crate) fn check_routing(self, routing: Routing) -> Result<(), FieldErrors> {
        let mut faults = Faults::default();
        note_unreachable(&mut faults, self, routing);
        faults.finish(())
    }
}
