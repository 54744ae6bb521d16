//! The namespace of a pod: found again by its path, and known again by its inode.

use std::path::Path;

use netdev::Netns;

use crate::record::Sandbox;

impl Sandbox {
    /// The namespace that a runtime has named by this path.
    pub(crate) fn of(path: &str, netns: &Netns) -> Self {
        let id = netns.identity();
        Self {
            path: path.to_owned(),
            dev: id.dev,
            ino: id.ino,
        }
    }

    /// True when this is the namespace, whatever it is called.
    pub(crate) fn is(&self, netns: &Netns) -> bool {
        let id = netns.identity();
        (self.dev, self.ino) == (id.dev, id.ino)
    }

    /// The namespace; none when another one is at its path.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn open(&self) -> Result<Option<Netns>, netdev::Error> {
        let netns = Netns::open(Path::new(&self.path))?;
        Ok(self.is(&netns).then_some(netns))
    }

    /// True when the namespace is surely not there any more. Where the directory of namespaces is
    /// missing nothing is sure: the agent may be in a container that does not have it.
    pub(crate) fn is_gone(&self) -> bool {
        let path = Path::new(&self.path);
        match self.open() {
            Ok(netns) => netns.is_none(),
            // A process has a directory of its own, which goes with it.
            Err(_) => path.starts_with("/proc") || path.parent().is_some_and(Path::exists),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Sandbox {
        Sandbox {
            path: path.to_owned(),
            dev: 1,
            ino: 1,
        }
    }

    #[test]
    fn a_namespace_is_gone_only_where_namespaces_can_be_seen() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().display();
        assert!(at(&format!("{dir}/cni-1")).is_gone());
        assert!(!at(&format!("{dir}/not-mounted/cni-1")).is_gone());
        // No process has this number (`PID_MAX_LIMIT`, linux/threads.h).
        assert!(at("/proc/4194305/ns/net").is_gone());
        // This one is there, but another.
        assert!(at("/proc/self/ns/net").is_gone());
    }
}
