//! The images of every node: the one that holds a pod's namespaces, and a busybox.
//!
//! Made here, from files: no registry is asked for anything.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::binaries::Binaries;
use xtask::oci::Image;
use xtask::step::capture;

/// The image of sandboxes.
pub(super) const PAUSE: &str = "localhost/pause:1";
/// The image of test pods.
const BUSYBOX: &str = "localhost/busybox:1";
/// The same under the name that the examples of `deploy/examples` have for it.
const BUSYBOX_OF_EXAMPLES: &str = "docker.io/library/busybox:1.37";

/// Users of images with a shell.
pub(super) const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
pub(super) const GROUP: &str = "root:x:0:\nnobody:x:65534:\n";

/// Writes the archives into a directory.
///
/// # Errors
/// A program cannot be read, or a file not written.
pub(super) fn write(binaries: &Binaries, dir: &Path) -> Result<()> {
    pause(&binaries.pause)?.write(PAUSE, &dir.join("pause.tar"))?;
    let busybox = busybox(&binaries.busybox)?;
    busybox.write(BUSYBOX, &dir.join("busybox.tar"))?;
    busybox.write(BUSYBOX_OF_EXAMPLES, &dir.join("busybox-of-examples.tar"))
}

/// Makes the image that holds a pod's namespaces.
///
/// # Errors
/// The program cannot be read.
pub(super) fn pause(program: &Path) -> Result<Image> {
    let mut pause = Image::new();
    pause.program("/pause", program)?.entrypoint(&["/pause"]);
    Ok(pause)
}

/// A busybox under all its names.
///
/// # Errors
/// The program cannot be read, or does not say its names.
pub(super) fn busybox(program: &Path) -> Result<Image> {
    let mut busybox = Image::new();
    busybox
        .program("/bin/busybox", program)?
        .directory("/root", 0o700)
        .directory("/tmp", 0o1777)
        .directory("/var/run", 0o755)
        .file("/etc/passwd", 0o644, PASSWD)
        .file("/etc/group", 0o644, GROUP)
        .command(&["sh"]);
    let applets = capture(Command::new(program).arg("--list"))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        busybox.link(&format!("/bin/{applet}"), "busybox");
    }
    Ok(busybox)
}
