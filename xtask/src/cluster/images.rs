//! The images every node has: what holds a pod's namespaces, and a busybox to look around with.
//! Made here, from files: no registry is asked for anything.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::binaries::Binaries;
use crate::oci::Image;
use crate::step::capture;

/// The image of sandboxes.
pub(super) const PAUSE: &str = "localhost/pause:1";
/// The image of test pods.
const BUSYBOX: &str = "localhost/busybox:1";

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnobody:x:65534:\n";

/// Writes both archives into a directory.
///
/// # Errors
/// A program cannot be read, or a file not written.
pub(super) fn write(binaries: &Binaries, dir: &Path) -> Result<()> {
    let mut pause = Image::new();
    pause
        .program("/pause", &binaries.pause)?
        .entrypoint(&["/pause"]);
    pause.write(PAUSE, &dir.join("pause.tar"))?;

    let mut busybox = Image::new();
    busybox
        .program("/bin/busybox", &binaries.busybox)?
        .directory("/root", 0o700)
        .directory("/tmp", 0o1777)
        .directory("/var/run", 0o755)
        .file("/etc/passwd", 0o644, PASSWD)
        .file("/etc/group", 0o644, GROUP)
        .command(&["sh"]);
    let applets = capture(Command::new(&binaries.busybox).arg("--list"))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        busybox.link(&format!("/bin/{applet}"), "busybox");
    }
    busybox.write(BUSYBOX, &dir.join("busybox.tar"))
}
