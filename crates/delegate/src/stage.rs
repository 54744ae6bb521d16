//! Enter the host's root and become a plugin, in a hidden subcommand.
//!
//! The agent's own root is that of its container, and plugins look for the files and programs of the
//! node.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use cni_spec::{CniError, CniVersion, ErrorCode};

use super::process::{BUSY_ATTEMPTS, BUSY_PAUSE};

/// Becomes `program` below `host_root`; returns only when that fails.
///
/// The failure is printed on stdout as a plugin would print it.
///
/// # Errors
/// Always: the returned error is why the plugin does not run.
pub fn exec(host_root: &Path, program: &Path) -> io::Error {
    let error = match enter(host_root) {
        Ok(()) => become_plugin(program),
        Err(error) => error,
    };
    let told = CniError::new(
        CniVersion::LATEST,
        ErrorCode::IO_FAILURE,
        format!("cannot execute {}", program.display()),
        error.to_string(),
    );
    if let Ok(text) = serde_json::to_string(&told) {
        // With stdout closed there is nobody to tell.
        let _ = writeln!(io::stdout(), "{text}");
    }
    error
}

fn enter(host_root: &Path) -> io::Result<()> {
    rustix::process::chroot(host_root)?;
    rustix::process::chdir("/")?;
    Ok(())
}

fn become_plugin(program: &Path) -> io::Error {
    for _ in 1..BUSY_ATTEMPTS {
        let error = Command::new(program).exec();
        if error.kind() != io::ErrorKind::ExecutableFileBusy {
            return error;
        }
        std::thread::sleep(BUSY_PAUSE);
    }
    Command::new(program).exec()
}
