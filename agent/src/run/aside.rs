//! Runs the tasks of paths to other nodes on a thread with a runtime of its own.
//!
//! They wait for the lock of the tables. While a worker of the agent's runtime waits for a lock, it may be that no other
//! one looks at sockets and signals.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use reach::Ended;
use tokio::sync::oneshot;

use crate::node::Node;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Aside {
    ended: oneshot::Receiver<Ended>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Aside {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the kernel refuses it, or what its runtime needs.
    pub(super) fn run(node: Arc<Node>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (told, ended) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let work = async move {
            tokio::select! {
                end = node.reach.work() => {
                    let _ = told.send(end);
                }
                _ = stopped => {}
            }
        };
        let thread = Builder::new().name("podnet-reach".to_owned());
        let thread = thread.spawn(move || runtime.block_on(work))?;
        Ok(Self {
            ended,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Waits for the end of one of the tasks; `None` when the thread died.
    pub(super) async fn ended(&mut self) -> Option<Ended> {
        (&mut self.ended).await.ok()
    }
}

impl Drop for Aside {
    /// Waits for the thread.
    ///
    /// It has the node, and the store is closed with the last holder of that.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}
