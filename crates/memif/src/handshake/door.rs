//! Interfaces behind a socket, and who has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Violation;
use crate::wire::{Name, Secret};

/// An interface behind a socket: a client connects to it by its number.
#[derive(Debug)]
pub struct Door {
    id: u32,
    name: Name,
    secret: Option<Secret>,
    taken: AtomicBool,
}

impl Door {
    /// The interface `id`, for everybody who can reach the socket.
    pub fn new(id: u32, name: Name) -> Self {
        Self {
            id,
            name,
            secret: None,
            taken: AtomicBool::new(false),
        }
    }

    /// The same, for those who know a secret. An empty secret is none.
    #[must_use]
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secret = (!secret.is_empty()).then_some(secret);
        self
    }

    /// Whether a client that sends this may have it: all clients, where no secret is asked for.
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
        self.taken.load(Ordering::Acquire)
    }

    /// Its name, which clients are told.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// A client's hold on an interface: one at a time. Free again when it is dropped.
#[derive(Debug)]
pub struct Claim(Arc<Door>);

impl Claim {
    pub(super) fn take(door: &Arc<Door>) -> Option<Self> {
        let was_taken = door.taken.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| Self(Arc::clone(door)))
    }

    /// The interface.
    pub fn door(&self) -> &Door {
        &self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
