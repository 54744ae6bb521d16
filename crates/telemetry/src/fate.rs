//! Misfortune at the calls of a fake: one of them fails, or the process dies there.
//!
//! A test counts the calls of a run without misfortune, and runs the same again for each of them. So a new
//! step is covered by being a call.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

/// Misfortune at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The call has no effect and fails.
    FailsBefore,
    /// The call has its effect and fails.
    FailsAfter,
    /// This call and all later ones have no effect and fail.
    FailsFrom,
    /// The process dies before the effect.
    DiesBefore,
    /// The process dies after the effect.
    DiesAfter,
}

impl Fate {
    /// Fates that the process survives.
    pub const FAILURES: [Self; 3] = [Self::FailsBefore, Self::FailsAfter, Self::FailsFrom];
    /// Fates that it does not survive.
    pub const DEATHS: [Self; 2] = [Self::DiesBefore, Self::DiesAfter];
}

/// Payload of the panic that is a death.
#[derive(Debug)]
pub struct Dead;

/// Failure of a call by the test's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Calls of a fake so far, and the fate of one to come.
#[derive(Debug, Default)]
pub struct Calls {
    names: Vec<&'static str>,
    fate: Option<(usize, Fate)>,
    is_dead: bool,
}

impl Calls {
    /// Counts calls from here on, and has the one of this number meet its fate.
    ///
    /// Returns the names of those before. A process that has died has a successor from here on.
    pub fn expect(&mut self, fate: Option<(usize, Fate)>) -> Vec<&'static str> {
        self.fate = fate;
        self.is_dead = false;
        std::mem::take(&mut self.names)
    }

    /// Names of the calls since the last [`Self::expect`].
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// The fate of this call; a process that is dead dies at each of its threads.
    fn next(&mut self, name: &'static str) -> Option<Fate> {
        if self.is_dead {
            return Some(Fate::DiesBefore);
        }
        let number = self.names.len();
        self.names.push(name);
        let met = self.fate.and_then(|(at, fate)| match fate {
            Fate::FailsFrom => (number >= at).then_some(fate),
            _ => (number == at).then_some(fate),
        });
        self.is_dead = met.is_some_and(|fate| Fate::DEATHS.contains(&fate));
        met
    }
}

/// State of a fake that counts its calls.
pub trait Fated {
    /// Its calls.
    fn calls(&mut self) -> &mut Calls;
}

/// Makes one call of a fake: `effect` is what it does.
///
/// # Errors
/// When it is the call's fate.
///
/// # Panics
/// With [`Dead`], when the process dies there.
pub fn call<S: Fated, T>(
    state: &Mutex<S>,
    name: &'static str,
    effect: impl FnOnce(&mut S) -> T,
) -> Result<T, Refused> {
    let mut held = state.lock().unwrap_or_else(PoisonError::into_inner);
    let fate = held.calls().next(name);
    let done = match fate {
        Some(Fate::FailsBefore | Fate::FailsFrom | Fate::DiesBefore) => None,
        Some(Fate::FailsAfter | Fate::DiesAfter) | None => Some(effect(&mut held)),
    };
    drop(held);
    match (fate, done) {
        (Some(Fate::DiesBefore | Fate::DiesAfter), _) => resume_unwind(Box::new(Dead)),
        (None, Some(done)) => Ok(done),
        _ => Err(Refused),
    }
}
