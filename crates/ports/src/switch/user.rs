//! User of the switch, and its directory.
//!
//! The switch reads the memory of pods, so nothing else on the node is this user's.

use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::str::FromStr;

/// User and group of the switch, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchUser {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Default for SwitchUser {
    /// Numbers that no distribution gives to anybody.
    fn default() -> Self {
        Self {
            uid: 60900,
            gid: 60900,
        }
    }
}

impl fmt::Display for SwitchUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// A user that is not written as one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the text is not USER:GROUP; write the numbers of both, as 60900:60900")]
pub struct NotAUser;

impl FromStr for SwitchUser {
    type Err = NotAUser;

    fn from_str(text: &str) -> Result<Self, NotAUser> {
        let (uid, gid) = text.split_once(':').ok_or(NotAUser)?;
        let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
        Ok(Self {
            uid: number(uid).ok_or(NotAUser)?,
            gid: number(gid).ok_or(NotAUser)?,
        })
    }
}

/// Makes the directory of the switch its user's alone.
///
/// Without it a switch that is not started as root cannot listen, and says so itself.
pub(super) fn make_directory(path: &Path, user: SwitchUser) {
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    let made = parent
        .and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(path))
        .and_then(|()| {
            // Only root could put a link in its place.
            let found = fs::symlink_metadata(path)?;
            found
                .is_dir()
                .then_some(())
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotADirectory))
        })
        .and_then(|()| chown(path, Some(user.uid), Some(user.gid)))
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700)));
    if let Err(error) = made {
        let path = path.display();
        tracing::warn!(%path, %user, %error, "the directory of the switch cannot be made");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_two_numbers() {
        let user = SwitchUser { uid: 1, gid: 2 };
        assert_eq!("1:2".parse(), Ok(user));
        assert_eq!(user.to_string(), "1:2");
        for bad in ["", "1", "1:", "root:root", "1:2:3", "-1:1", "4294967295:1"] {
            assert_eq!(bad.parse::<SwitchUser>(), Err(NotAUser), "{bad}");
        }
    }

    /// ATT-08: manifest and agent mean the same user, and the same directory.
    #[test]
    fn the_manifest_has_the_user_and_the_directory_that_the_agent_makes() {
        let manifest = include_str!("../../../../deploy/base/switch.yaml");
        let user = SwitchUser::default();
        for line in [
            format!("runAsUser: {}", user.uid),
            format!("runAsGroup: {}", user.gid),
            "runAsNonRoot: true".to_owned(),
            "hostPath: {path: /run/podnet/switch, type: Directory}".to_owned(),
        ] {
            let found = manifest.lines().filter(|found| found.trim() == line);
            assert_eq!(found.count(), 1, "{line}");
        }
        let directory = super::super::own_directory(Path::new("/run/podnet/agent.sock"));
        assert_eq!(directory, Path::new("/run/podnet/switch"));
        proof::of!("ATT-08");
    }
}
