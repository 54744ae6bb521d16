//! The host: what the kernel of this node has of podnet.

use std::os::fd::AsFd as _;

use datapath::{Dispatcher, Hook, HookKind, Room};
use netdev::{Connection, Discipline, Netlink};

pub mod error;
mod grace;
mod names;
mod removal;
mod stack;

pub use error::HostError;
pub use grace::{Expedited, Grace};
pub use names::{
    ALIAS_PREFIX, FAR_PREFIX, HOST_PREFIX, NEAR_PREFIX, far_name, host_name, near_name,
};
pub use removal::{Remove, Removed, Remover};
pub use stack::{Ear, PROTOCOL, listen, listens, silence};

/// Handles of the node's kernel, which all rooms above share.
#[derive(Debug)]
pub struct Host {
    /// The node's own network namespace.
    pub netlink: Netlink,
    /// The attach point of the programs at a link.
    pub hook: Hook,
    /// Mechanism by which the kernel makes room for a tunnel's headers.
    pub room: Room,
    /// Mechanism by which the kernel limits rates; none if it has none.
    pub discipline: Option<Discipline>,
    /// The switch for grace periods that end soon.
    pub grace: Grace,
}

impl Host {
    /// True when packets from this interface meet the dispatcher.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn is_attached(&self, name: &str, ifindex: u32) -> Result<bool, HostError> {
        let (hook, name) = (self.hook.clone(), name.to_owned());
        let look = move |connection: &mut Connection| {
            Attached::to(&hook)?.is_at(connection, &name, ifindex)
        };
        self.netlink.with(look).await
    }

    /// True when packets from the node's stack to this interface meet their dispatcher.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn is_on_the_way_out(&self, ifindex: u32) -> Result<bool, HostError> {
        let hook = self.hook.clone();
        let look = move |connection: &mut Connection| {
            Attached::to(&hook)?.is_on_the_way_out(connection, ifindex)
        };
        self.netlink.with(look).await
    }

    /// Has packets from the node's stack to this interface meet their dispatcher.
    ///
    /// True where they did not. A refusal is logged: all else that the port has stays in repair.
    pub async fn mend_way_out(&self, name: &str, ifindex: u32) -> bool {
        let hook = self.hook.clone();
        let mend = move |connection: &mut Connection| -> Result<bool, HostError> {
            if Attached::to(&hook)?.is_on_the_way_out(connection, ifindex)? {
                return Ok(false);
            }
            attach_way_out(connection, &hook, ifindex).map(|()| true)
        };
        match self.netlink.with(mend).await {
            Ok(was_missing) => was_missing,
            Err(error) => {
                tracing::error!(
                    interface = name,
                    error = %telemetry::chain(&error),
                    "policies of the default network do not judge what the node sends to the pod"
                );
                false
            }
        }
    }

    /// Attaches the dispatcher where it is missing.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn attach_again(&self, ifindex: u32) -> Result<(), HostError> {
        let hook = self.hook.clone();
        let attach =
            move |connection: &mut Connection| attach_dispatcher(connection, &hook, ifindex);
        self.netlink.with(attach).await
    }
}

/// Has what the node's stack sends to a pod meet its dispatcher.
///
/// It is on the way out of the pod's host end. A link of an agent of before has no place for it, and gets one if a TCX link stands in front of its filter.
///
/// # Errors
/// When the kernel refuses, and [`HostError::OneSided`].
pub fn attach_way_out(
    connection: &mut Connection,
    hook: &Hook,
    ifindex: u32,
) -> Result<(), HostError> {
    let (program, name) = (hook.program(Dispatcher::ToPod)?, Dispatcher::ToPod.name());
    if connection.set_egress_program(ifindex, program.as_fd(), name)? {
        return Ok(());
    }
    if hook.kind(ifindex) != HookKind::Tcx {
        return Err(HostError::OneSided { ifindex });
    }
    connection.widen_qdisc(ifindex)?;
    attach_dispatcher(connection, hook, ifindex)?;
    match connection.set_egress_program(ifindex, program.as_fd(), name)? {
        true => Ok(()),
        false => Err(HostError::OneSided { ifindex }),
    }
}

/// The dispatchers as the kernel knows them, asked for once for many links.
#[derive(Debug, Clone)]
pub struct Attached {
    hook: Hook,
    /// ID of the pods' dispatcher.
    dispatcher: u32,
    /// ID of that of the way out, once it was asked for.
    way_out: Option<u32>,
}

impl Attached {
    /// Finds the dispatcher.
    ///
    /// # Errors
    /// When it is not pinned.
    pub fn to(hook: &Hook) -> Result<Self, HostError> {
        Ok(Self {
            hook: hook.clone(),
            dispatcher: hook.dispatcher_id(Dispatcher::Pod)?,
            way_out: None,
        })
    }

    /// True when packets from the node's stack to this link meet theirs. Blocks.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn is_on_the_way_out(
        &mut self,
        connection: &mut Connection,
        ifindex: u32,
    ) -> Result<bool, HostError> {
        let dispatcher = match self.way_out {
            Some(dispatcher) => dispatcher,
            None => {
                let dispatcher = self.hook.dispatcher_id(Dispatcher::ToPod)?;
                *self.way_out.insert(dispatcher)
            }
        };
        Ok(connection.egress_program(ifindex)? == Some(dispatcher))
    }

    /// True when packets from this interface meet it. Blocks.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn is_at(
        &self,
        connection: &mut Connection,
        name: &str,
        ifindex: u32,
    ) -> Result<bool, HostError> {
        if self.hook.tcx_programs(name)?.contains(&self.dispatcher) {
            return Ok(true);
        }
        let filters = connection.ingress_filters(ifindex)?;
        // Only the first filter is sure to run.
        let first = filters.iter().min_by_key(|filter| filter.priority);
        Ok(first.is_some_and(|filter| filter.program == Some(self.dispatcher)))
    }
}

/// Attaches the dispatcher to a link by a clsact filter, for all that comes in.
///
/// A tenth of a millisecond where the kernel needs no grace period for it. Another program in the place of
/// ours, one that a dispatcher whose pins somebody removed has left, is replaced.
///
/// # Errors
/// When the dispatcher is not pinned, and when the kernel refuses.
pub fn attach_dispatcher(
    connection: &mut Connection,
    hook: &Hook,
    ifindex: u32,
) -> Result<(), HostError> {
    let program = hook.program(Dispatcher::Pod)?;
    Ok(connection.set_ingress_program(ifindex, program.as_fd(), Dispatcher::Pod.name())?)
}
