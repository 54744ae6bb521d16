//! Interfaces behind a socket, and who has them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::budget::{Budget, Lease};
use crate::error::Violation;
use crate::wire::{Name, Secret};

/// An interface behind a socket: a client connects to it by its number.
#[derive(Debug)]
pub struct Door {
    id: u32,
    name: Name,
    secret: Option<Secret>,
    holder: Mutex<Holder>,
}

/// The client that has an interface.
#[derive(Debug, Default)]
struct Holder {
    /// The number of its claim; zero when there is none.
    claim: u64,
    /// The largest number so far.
    last: u64,
    /// It has its rings: no other client can displace it.
    connected: bool,
    /// Its memory.
    lease: Option<Lease>,
}

impl Door {
    /// The interface `id`, for everybody who can reach the socket.
    pub fn new(id: u32, name: Name) -> Self {
        Self {
            id,
            name,
            secret: None,
            holder: Mutex::default(),
        }
    }

    /// The same, for those who know a secret. An empty secret is none.
    #[must_use]
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secret = (!secret.is_empty()).then_some(secret);
        self
    }

    /// Checks the secret of a client; any is right where none is asked for.
    ///
    /// # Errors
    /// No secret was sent, or another one.
    pub(super) fn check(&self, sent: &Secret) -> Result<(), Violation> {
        match &self.secret {
            Some(_) if sent.is_empty() => Err(Violation::SecretRequired),
            Some(secret) if !secret.matches(sent) => Err(Violation::SecretIncorrect),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a client has it.
    pub fn is_taken(&self) -> bool {
        self.holder().claim != 0
    }

    /// Its name, which clients are told.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    fn holder(&self) -> MutexGuard<'_, Holder> {
        // Nothing panics while it is locked.
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's hold on an interface: one at a time. Free again when it is dropped.
#[derive(Debug)]
pub struct Claim {
    door: Arc<Door>,
    number: u64,
}

impl Claim {
    /// Takes an interface that is free, or whose client has no rings yet.
    ///
    /// The latter may have stalled, and must not keep others out until its time is over. What it had
    /// registered is given back.
    ///
    /// # Errors
    /// A client is connected.
    pub(super) fn take(door: &Arc<Door>, budget: Option<&Arc<Budget>>) -> Result<Self, Violation> {
        let mut holder = door.holder();
        if holder.connected {
            return Err(Violation::AlreadyConnected(door.id));
        }
        let number = holder.last.wrapping_add(1).max(1);
        // Before the new one counts.
        holder.lease = None;
        *holder = Holder {
            claim: number,
            last: number,
            connected: false,
            lease: budget.map(Lease::new),
        };
        drop(holder);
        Ok(Self {
            door: Arc::clone(door),
            number,
        })
    }

    /// Counts the client's memory, in bytes.
    ///
    /// # Errors
    /// A limit is reached, or another client has the interface by now.
    pub(super) fn reserve(&self, bytes: u64) -> Result<(), Violation> {
        let mut holder = self.holder()?;
        let lease = holder.lease.as_mut();
        lease.map_or(Ok(()), |lease| lease.grow_to(bytes))
    }

    /// The same for a client that is connected already, beyond any limit.
    pub(super) fn reserve_anyway(&self, bytes: u64) {
        if let Ok(mut holder) = self.holder()
            && let Some(lease) = &mut holder.lease
        {
            lease.grow_anyway(bytes);
        }
    }

    /// Finds a client that another has displaced.
    ///
    /// # Errors
    /// This one is.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.holder().map(|_| ())
    }

    /// The client has its rings: no other displaces it any more.
    ///
    /// # Errors
    /// Another one was quicker.
    pub(super) fn connect(&self) -> Result<(), Violation> {
        self.holder()?.connected = true;
        Ok(())
    }

    fn holder(&self) -> Result<MutexGuard<'_, Holder>, Violation> {
        let holder = self.door.holder();
        if holder.claim == self.number {
            Ok(holder)
        } else {
            Err(Violation::Displaced(self.door.id))
        }
    }

    /// The interface.
    pub fn door(&self) -> &Door {
        &self.door
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Ok(mut holder) = self.holder() {
            holder.claim = 0;
            holder.connected = false;
            holder.lease = None;
        }
    }
}
