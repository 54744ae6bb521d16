//! Removal of links: those of `DEL`s that wait go in one request.
//!
//! The kernel waits some milliseconds for each removal that it is asked for, and no longer for many in one
//! request. What comes while two removals are under way waits, and goes with all others that wait then.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netdev::{Connection, Error};
use telemetry::failpoint::pause;
use tokio::sync::oneshot;

use crate::Host;

/// Most links that are removed by one request.
///
/// No link of the node can be made or changed meanwhile: fifty took as many milliseconds.
const LINKS_MAX: usize = 64;
/// Removals at once: one ends its wait while the next one is made.
const ROUNDS_MAX: usize = 2;
/// Most `DEL`s that wait; one more removes its links by itself.
const WAITING_MAX: usize = 1024;

/// Results for links in the order of names, false for one that was not there.
pub type Removed = Vec<Result<bool, Error>>;

/// A way to remove links by their names.
pub trait Remove: Send + Sync + 'static {
    /// Removes links; `tcx`: one of them has a TCX link.
    fn remove(&self, names: Vec<String>, tcx: bool) -> impl Future<Output = Removed> + Send;
}

impl Remove for Arc<Host> {
    async fn remove(&self, names: Vec<String>, tcx: bool) -> Removed {
        let count = names.len();
        let host = Arc::clone(self);
        let work = move |connection: &mut Connection| -> Result<Removed, Error> {
            let expedite = || tcx.then(|| host.grace.expedite());
            Ok(remove_all(connection, &names, random_group(), expedite))
        };
        match self.netlink.with(work).await {
            Ok(removed) => removed,
            // No connection.
            Err(error) => {
                let rest = (1..count).map(|_| Err(Error::ShuttingDown));
                std::iter::once(Err(error)).chain(rest).collect()
            }
        }
    }
}

/// Verbs that the removal of links needs of the kernel.
trait LinkGroups {
    /// Removes a link; false when there is none of this name.
    ///
    /// # Errors
    /// When the kernel refuses, as for all verbs here.
    fn delete_by_name(&mut self, name: &str) -> Result<bool, Error>;

    /// Puts links into a group, by their names; false for one that is not there.
    fn join_group(&mut self, names: &[String], group: u32) -> Result<Removed, Error>;

    /// Lists the names of all links in a group, whatever they are.
    fn group_members(&mut self, group: u32) -> Result<Vec<String>, Error>;

    /// Removes all links of a group.
    fn delete_group(&mut self, group: u32) -> Result<bool, Error>;
}

impl LinkGroups for Connection {
    fn delete_by_name(&mut self, name: &str) -> Result<bool, Error> {
        self.delete_by_name(name)
    }

    fn join_group(&mut self, names: &[String], group: u32) -> Result<Removed, Error> {
        self.join_group(names, group)
    }

    fn group_members(&mut self, group: u32) -> Result<Vec<String>, Error> {
        self.group_members(group)
    }

    fn delete_group(&mut self, group: u32) -> Result<bool, Error> {
        self.delete_group(group)
    }
}

/// Removes links of many callers.
#[derive(Debug)]
pub struct Remover<R> {
    shared: Arc<Shared<R>>,
}

#[derive(Debug)]
struct Shared<R> {
    kernel: R,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Removals under way.
    rounds: usize,
}

#[derive(Debug)]
struct Waiting {
    names: Vec<String>,
    tcx: bool,
    done: oneshot::Sender<Removed>,
}

impl<R> Shared<R> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Remove> Remover<R> {
    /// Nothing waits.
    pub fn new(kernel: R) -> Self {
        Self {
            shared: Arc::new(Shared {
                kernel,
                state: Mutex::default(),
            }),
        }
    }

    /// Removes links by their names; returns which were there.
    ///
    /// `tcx`: one of them has a TCX link.
    ///
    /// # Errors
    /// When one of them cannot be removed, the first. The links of others are no matter of this caller.
    pub async fn remove(&self, names: Vec<String>, tcx: bool) -> Result<Vec<bool>, Error> {
        let (done, removed) = oneshot::channel();
        let is_full = {
            let mut state = self.shared.state();
            let is_full = state.waiting.len() >= WAITING_MAX;
            if !is_full {
                state.waiting.push_back(Waiting {
                    names: names.clone(),
                    tcx,
                    done,
                });
                if state.rounds < ROUNDS_MAX {
                    state.rounds += 1;
                    let round = Round {
                        shared: Arc::clone(&self.shared),
                        is_over: false,
                    };
                    tokio::spawn(round.work());
                }
            }
            is_full
        };
        let removed = match is_full {
            true => self.shared.kernel.remove(names, tcx).await,
            // The task that had it died.
            false => removed.await.map_err(|_| Error::ShuttingDown)?,
        };
        removed.into_iter().collect()
    }
}

/// A task that removes what waits until nothing does.
struct Round<R> {
    shared: Arc<Shared<R>>,
    is_over: bool,
}

impl<R> Drop for Round<R> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.shared.state();
        state.rounds -= 1;
        if state.rounds == 0 {
            // Nobody comes to these: their callers hear that the task is gone.
            state.waiting.clear();
        }
    }
}

impl<R: Remove> Round<R> {
    async fn work(mut self) {
        while let Some(batch) = self.next() {
            let names = batch.iter().flat_map(|it| it.names.iter().cloned());
            let tcx = batch.iter().any(|it| it.tcx);
            let removed = self.shared.kernel.remove(names.collect(), tcx).await;
            let mut removed = removed.into_iter();
            for Waiting { names, done, .. } in batch {
                // The links of one that hears nothing any more are removed all the same.
                let _ = done.send(removed.by_ref().take(names.len()).collect());
            }
        }
    }

    /// The next links to be removed; without any the round is over.
    fn next(&mut self) -> Option<Vec<Waiting>> {
        let mut state = self.shared.state();
        let (mut batch, mut links) = (Vec::new(), 0);
        while let Some(waiting) = state
            .waiting
            .pop_front_if(|next| links == 0 || links + next.names.len() <= LINKS_MAX)
        {
            links += waiting.names.len();
            batch.push(waiting);
        }
        if batch.is_empty() {
            // Under the same lock: whoever comes next starts a round.
            state.rounds -= 1;
            self.is_over = true;
            return None;
        }
        Some(batch)
    }
}

/// Removes links by their names, all by one request where that is safe.
///
/// `group`: a number that no other link has. `expedite` is called right before a removal; what it returns
/// lives as long as that.
fn remove_all<K: LinkGroups, G>(
    kernel: &mut K,
    names: &[String],
    group: u32,
    expedite: impl Fn() -> G,
) -> Removed {
    let together = match names {
        [] => return Vec::new(),
        [_] => None,
        _ => remove_together(kernel, names, group, &expedite),
    };
    together.unwrap_or_else(|| {
        let _expedited = expedite();
        pause("del.expedited");
        let each = names.iter().map(|name| kernel.delete_by_name(name));
        each.collect()
    })
}

/// Removes links by a group of their own; none where they have to go one by one.
fn remove_together<K: LinkGroups, G>(
    kernel: &mut K,
    names: &[String],
    group: u32,
    expedite: &impl Fn() -> G,
) -> Option<Removed> {
    let joined = match kernel.join_group(names, group) {
        Ok(joined) => joined,
        Err(error) => {
            tracing::warn!(%error, "links are removed one by one, which takes longer");
            return None;
        }
    };
    pause("del.grouped");
    let ours = names.iter().zip(&joined);
    let ours = ours.filter(|(_, joined)| matches!(joined, Ok(true)));
    let ours: BTreeSet<&str> = ours.map(|(name, _)| name.as_str()).collect();
    if let Err(error) = remove_group(kernel, group, &ours, expedite) {
        tracing::warn!(%error, "links are removed one by one, which takes longer");
        return None;
    }
    let each = names.iter().zip(joined);
    Some(
        each.map(|(name, joined)| match joined {
            Ok(was_there) => Ok(was_there),
            Err(_) => kernel.delete_by_name(name),
        })
        .collect(),
    )
}

/// Removes a group, if nothing else is in it.
fn remove_group<K: LinkGroups, G>(
    kernel: &mut K,
    group: u32,
    ours: &BTreeSet<&str>,
    expedite: &impl Fn() -> G,
) -> Result<(), GroupError> {
    if ours.is_empty() {
        return Ok(());
    }
    // The kernel asks for no names: another program may use the number, or copy what it sees at a link.
    let members = kernel.group_members(group)?;
    match members.into_iter().find(|it| !ours.contains(it.as_str())) {
        Some(name) => Err(GroupError::Shared { name }),
        None => {
            let _expedited = expedite();
            pause("del.expedited");
            Ok(kernel.delete_group(group).map(drop)?)
        }
    }
}

/// A group number as it is used once, of those that nobody chooses by hand.
fn random_group() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d]) & 0x3fff_ffff | 0x4000_0000
}

/// A group of links cannot be removed as one.
#[derive(Debug, thiserror::Error)]
enum GroupError {
    /// The kernel refused.
    #[error(transparent)]
    Netdev(#[from] Error),
    /// An interface that podnet did not put there is in it.
    #[error("interface {name} is in the group of links to be removed and is not podnet's")]
    Shared {
        /// Its name.
        name: String,
    },
}

#[cfg(test)]
mod tests;
