//! Directory of the switch.
//!
//! The switch reads the memory of pods, so nothing else on the node is this user's.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::Path;

use uswitch::SwitchUser;

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
