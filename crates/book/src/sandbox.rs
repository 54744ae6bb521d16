//! The namespace of a pod: found again by its path, and known again by its inode.

use std::path::Path;

use netdev::Netns;
use rustix::io::Errno;

use crate::record::Sandbox;

impl Sandbox {
    /// The namespace that a runtime has named by this path.
    pub fn of(path: &str, netns: &Netns) -> Self {
        let id = netns.identity();
        Self {
            path: path.to_owned(),
            dev: id.dev,
            ino: id.ino,
        }
    }

    /// True when this is the namespace, whatever it is called.
    pub fn is(&self, netns: &Netns) -> bool {
        let id = netns.identity();
        (self.dev, self.ino) == (id.dev, id.ino)
    }

    /// The namespace; none when another one is at its path.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(&self) -> Result<Option<Netns>, netdev::Error> {
        let netns = Netns::open(Path::new(&self.path))?;
        Ok(self.is(&netns).then_some(netns))
    }

    /// True when the namespace is surely not there any more.
    ///
    /// Where the directory of namespaces is missing nothing is sure: the agent may be in a container that
    /// does not have it. Nor is it while the kernel cannot tell; to ask takes no descriptor, of which there
    /// may be none left.
    pub fn is_gone(&self) -> bool {
        match rustix::fs::stat(Path::new(&self.path)) {
            Ok(stat) => (self.dev, self.ino) != (stat.st_dev, stat.st_ino),
            Err(error) => is_absent(error) && self.would_be_seen(),
        }
    }

    fn would_be_seen(&self) -> bool {
        let path = Path::new(&self.path);
        // A process has a directory of its own, which goes with it.
        path.starts_with("/proc") || path.parent().is_some_and(Path::exists)
    }
}

/// True when the kernel says that no such file, or no such process, exists.
fn is_absent(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::SRCH)
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
        // What a runtime leaves for a moment when it unmounts one.
        assert!(at("/proc/self/status").is_gone());
        let path = "/proc/self/ns/net";
        assert!(!Sandbox::of(path, &Netns::open(Path::new(path)).unwrap()).is_gone());
    }

    /// ATT-12: an agent without descriptors takes no namespace for gone.
    ///
    /// Pods were removed while they ran, because the agent had no descriptor to look for them.
    #[test]
    fn a_namespace_that_cannot_be_looked_for_is_not_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cni-1");
        // An error of another kind than "not there" for each process, whatever its rights.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert!(!at(&path.display().to_string()).is_gone());
        for (errno, absent) in [
            (Errno::NOENT, true),
            (Errno::NOTDIR, true),
            (Errno::SRCH, true),
            (Errno::MFILE, false),
            (Errno::NFILE, false),
            (Errno::NOMEM, false),
            (Errno::ACCESS, false),
        ] {
            assert_eq!(is_absent(errno), absent, "{errno}");
        }
        proof::of!("ATT-12");
    }
}
