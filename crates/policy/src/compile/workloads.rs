//! Facts about workloads, kept while neither these nor policies change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::atoms::Part;
use super::bits::Bits;
use super::numbers::Numbers;
use super::sets::SetKey;
use super::shape::Shape;
use crate::labels::Labels;
use crate::model::Direction;
use crate::world::{Workload, World};

/// Facts that policies of one shape say about a namespace.
#[derive(Debug)]
struct Space {
    labels: Labels,
    shape: u64,
    /// Selections of namespaces that have it.
    spaces: Arc<Bits>,
}

/// Facts that policies of one shape say about a workload.
#[derive(Debug)]
struct Facts {
    shape: u64,
    /// Selections that have its namespace; `None`: the namespace is not known.
    spaces: Option<Arc<Bits>>,
    /// Number of its part; `None`: it is not known.
    part: Option<u32>,
    /// Keys of its sets, where it is judged: for what it receives, and sends.
    keys: Option<Keys>,
    is_seen: bool,
}

/// Keys of sets for what is received, and sent.
pub(super) type Keys = [Option<Arc<SetKey>>; 2];

/// Workloads and namespaces of the last compilation.
#[derive(Debug, Default)]
pub(super) struct Known {
    namespaces: HashMap<String, Space>,
    workloads: HashMap<Arc<Workload>, Facts>,
}

impl Known {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.namespaces.len() + self.workloads.len()
    }

    /// Returns the part of a workload.
    pub(super) fn part(
        &mut self,
        world: &World,
        shape: &Shape,
        workload: &Arc<Workload>,
        parts: &mut Numbers<Arc<Part>>,
    ) -> Option<u32> {
        let spaces = self.spaces(world, shape, workload);
        if let Some(facts) = self.workloads.get_mut(workload)
            && facts.shape == shape.version
            && facts.spaces == spaces
        {
            facts.is_seen = true;
            if let Some(part) = facts.part {
                parts.touch(part);
            }
            return facts.part;
        }
        let part = spaces.as_ref().map(|spaces| {
            let peers = shape.ask(spaces, workload).peers();
            parts.number(Arc::new(Part::of(shape, peers, workload)))
        });
        let facts = Facts {
            shape: shape.version,
            spaces,
            part,
            keys: None,
            is_seen: true,
        };
        self.workloads.insert(Arc::clone(workload), facts);
        part
    }

    /// Returns the keys of the sets of a workload, of which the part was asked for.
    pub(super) fn keys(&mut self, shape: &Shape, classes: u64, workload: &Workload) -> Keys {
        let Some(facts) = self.workloads.get_mut(workload) else {
            return [None, None];
        };
        let is_of = |keys: &Keys| keys.iter().flatten().all(|key| key.classes == classes);
        if let Some(keys) = facts.keys.as_ref().filter(|keys| is_of(keys)) {
            return keys.clone();
        }
        let both = [Direction::Ingress, Direction::Egress];
        let keys = match &facts.spaces {
            None => both.map(|direction| Some(SetKey::of_unknown(classes, direction))),
            Some(spaces) => {
                let mut asked = shape.ask(spaces, workload);
                both.map(|direction| {
                    let bodies = asked.bodies(direction);
                    SetKey::of(shape, classes, direction, bodies, workload)
                })
            }
        };
        let keys = keys.map(|key| key.map(Arc::new));
        facts.keys = Some(keys.clone());
        keys
    }

    /// Returns the selections that have a workload's namespace, if that is known.
    fn spaces(&mut self, world: &World, shape: &Shape, workload: &Workload) -> Option<Arc<Bits>> {
        let name = &workload.namespace;
        let labels = world.namespaces.get(name)?;
        if let Some(space) = self.namespaces.get(name)
            && space.shape == shape.version
            && space.labels == *labels
        {
            return Some(Arc::clone(&space.spaces));
        }
        let spaces = Arc::new(shape.spaces_of(name, labels));
        let space = Space {
            labels: labels.clone(),
            shape: shape.version,
            spaces: Arc::clone(&spaces),
        };
        self.namespaces.insert(name.clone(), space);
        Some(spaces)
    }

    /// Forgets what was not asked for, and namespaces that are not known any more.
    pub(super) fn sweep(&mut self, namespaces: &BTreeMap<String, Labels>) {
        self.workloads
            .retain(|_, facts| std::mem::take(&mut facts.is_seen));
        self.workloads.shrink_to(2 * self.workloads.len());
        self.namespaces
            .retain(|name, _| namespaces.contains_key(name));
        self.namespaces.shrink_to(2 * self.namespaces.len());
    }
}
