//! The veth pair that delays what a pod sends.

use book::bandwidth::Limit;
use book::record::{Attachment, Shaper};
use host::{ALIAS_PREFIX, Ear, far_name, near_name};
use netdev::{AddrGenMode, Discipline, LinkChange, Shape, VethSpec};

use crate::error::PortError;
use crate::kernel::Kernel;

/// Wanted shaper pair.
///
/// Packets go in at the near end, wait in its queue, and come out at the far end, where the dispatcher
/// decides about them again.
#[derive(Debug, Clone)]
pub struct Pair {
    near: String,
    far: String,
    alias: String,
    mtu: u16,
    /// The far end hands packets to the node's stack; with IPv6 or without.
    routed: Option<bool>,
    /// How fast, and how much waits.
    pub(super) shape: Shape,
    /// How it waits.
    pub(super) discipline: Discipline,
}

impl Pair {
    /// The pair of an attachment with this limit.
    pub fn of(record: &Attachment, limit: Limit, discipline: Discipline) -> Self {
        Self {
            near: near_name(&record.host.name),
            far: far_name(&record.host.name),
            alias: format!("{ALIAS_PREFIX}{}", record.key),
            mtu: record.network.mtu,
            routed: record.network.by_node.then(|| record.has_v6()),
            shape: limit.shape(record.network.mtu),
            discipline,
        }
    }

    /// Makes the pair in the namespace of the connection and of the calling thread.
    ///
    /// A pair that is there is replaced.
    ///
    /// # Errors
    /// When the kernel refuses a link, a queue or the program. What was made by then is found by its
    /// name.
    pub(crate) fn make<K: Kernel>(
        &self,
        connection: &mut K,
        hook: &K::Hook,
    ) -> Result<Shaper, PortError> {
        connection.delete_by_name(&self.near)?;
        let mut spec = VethSpec::new(&self.near, &self.far);
        spec.mtu = u32::from(self.mtu);
        spec.alias = Some(self.alias.clone());
        spec.queues = Some(1);
        let pair = connection.create_veth(&spec)?;
        connection.attach_dispatcher(hook, pair.peer_ifindex)?;
        // Before it is up: a queue is then made without waiting for those who use the device.
        connection.shape(pair.host_ifindex, &self.shape, self.discipline)?;
        connection.silence(&self.near)?;
        match self.routed {
            Some(v6) => connection.listen((&self.far, pair.peer_ifindex), Ear::Far, v6)?,
            None => connection.silence(&self.far)?,
        }
        let far = LinkChange {
            alias: Some(self.alias.clone()),
            addr_gen_mode: Some(AddrGenMode::None),
            up: Some(true),
            ..LinkChange::default()
        };
        connection.reconfigure(pair.peer_ifindex, &far)?;
        connection.set_up(pair.host_ifindex)?;
        Ok(Shaper {
            near: pair.host_ifindex,
            far: pair.peer_ifindex,
            used: true,
        })
    }
}
