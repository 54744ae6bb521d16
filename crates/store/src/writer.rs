//! The thread that writes, and the promise a caller waits on.

use std::{
    future::Future,
    pin::Pin,
    sync::mpsc,
    task::{Context, Poll},
};

use redb::Database;
use tokio::sync::oneshot;

use crate::{
    batch::{Batch, Change},
    error::StoreError,
    store::Shared,
};

/// The most batches in one commit: bounds how long the first waits for the last.
const GROUP_MAX: usize = 1024;

/// A batch on its way, with its submitter's end of the promise.
pub(crate) struct Submission {
    pub(crate) batch: Batch,
    pub(crate) done: oneshot::Sender<Result<(), StoreError>>,
}

/// The promise that a batch is durable: await it, or call [`wait`](Self::wait).
///
/// Dropping it does not take the batch back.
#[derive(Debug)]
#[must_use = "a batch is durable only once this says so"]
pub struct Pending(pub(crate) oneshot::Receiver<Result<(), StoreError>>);

impl Pending {
    /// Blocks until the batch is durable.
    ///
    /// From async code await the `Pending` instead: tokio does not let its worker threads block.
    ///
    /// # Errors
    /// The batch was refused or its commit failed.
    pub fn wait(self) -> Result<(), StoreError> {
        self.0.blocking_recv().unwrap_or(Err(StoreError::Stopped))
    }
}

impl Future for Pending {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|received| received.unwrap_or(Err(StoreError::Stopped)))
    }
}

/// Writes whatever comes until every sender is gone and nothing is left.
pub(crate) fn run(shared: &Shared, submissions: &mpsc::Receiver<Submission>) {
    while let Ok(first) = submissions.recv() {
        let mut group = vec![first];
        // Whatever came in while the last commit was on its way to the disk shares the next one.
        group.extend(submissions.try_iter().take(GROUP_MAX - 1));
        let result = match shared.error() {
            Some(error) => Err(error),
            None => {
                let written = shared.write(group.iter().map(|submission| &submission.batch));
                if let Err(error) = &written {
                    // What a failed commit left behind is unknown: a later one must not build on it.
                    shared.fail(error.clone());
                }
                written
            }
        };
        for submission in group {
            // A submitter that no longer waits has lost nothing.
            drop(submission.done.send(result.clone()));
        }
    }
}

/// One durable transaction.
pub(crate) fn write<'a>(
    database: &Database,
    changes: impl Iterator<Item = &'a Change>,
) -> Result<(), redb::Error> {
    let mut changes = changes.peekable();
    if changes.peek().is_none() {
        return Ok(());
    }
    // redb's default is one flush for each commit, and checksums tell a torn one after a crash.
    let transaction = database.begin_write()?;
    for change in changes {
        let mut table = transaction.open_table(change.table.definition())?;
        match &change.value {
            Some(value) => table.insert(change.key.as_slice(), value.as_slice()),
            None => table.remove(change.key.as_slice()),
        }?;
    }
    Ok(transaction.commit()?)
}
