//! `cargo xtask vm <version>… --cluster`: a cluster on Debian's kernels, in QEMU.
//!
//! The machine sees the root of the one outside, read-only, by virtio-fs: the programs of Kubernetes, podnet's
//! image and the tests are built outside. Its cluster is that of `cargo xtask cluster`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail};

use super::{boot, initramfs, kernel};
use crate::step::{capture, say, show};
use crate::test::{Place, Reader, Report, Tally};
use crate::{cluster, install, workspace};

/// Memory of the machine, MiB: a control plane, two nodes, and their files.
const MEMORY: u32 = 8192;
/// Files that serve the root: of QEMU itself, and as a package of their own.
const SERVERS: [&str; 2] = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];
/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// The name under which the machine mounts the root.
const TAG: &str = "outside";

/// Boots one kernel after the other, and runs the tests in a cluster there.
///
/// # Errors
/// Something cannot be built.
pub(super) fn run(versions: &[String], filter: &[String]) -> crate::Done {
    if filter.is_empty() {
        bail!("name tests of tests/tests/e2e: `cargo xtask vm 5.10 --cluster -- e2e::reach`");
    }
    let command = command(filter)?;
    let mut report = Report::new()?;
    for version in versions {
        let place = Place::Kernel(version.clone());
        report.stage(&format!("cluster on {version}"), &place, |tally| {
            test(version, &command, tally)
        });
    }
    Ok(report.close())
}

/// Builds all that the cluster needs, and returns the command that tests it.
fn command(filter: &[String]) -> Result<String> {
    let mut prepare = cluster::program(cluster::RELEASE)?;
    let prepared = capture(prepare.arg("prepare"))?;
    // The last lines; it has told of its work before.
    let mut lines = prepared.lines().rev();
    let (Some(binary), Some(image)) = (lines.next(), lines.next()) else {
        bail!("`{}` said {prepared:?}", show(&prepare));
    };
    let program = prepare.get_program().to_string_lossy().into_owned();
    let words = [&program, "test", "--image", image, "--binary", binary, "--"];
    let words = words.into_iter().chain(filter.iter().map(String::as_str));
    let line: Vec<String> = words.map(quoted).collect();
    let kept = quoted(&crate::kubernetes::dir().to_string_lossy());
    // What nodes write is in memory, and no part of the overlay: overlays of theirs cannot be on one.
    Ok(format!(
        "(cd {root} && mkdir /run/kept && cp -a {kept}/. /run/kept && rm -rf /run/kept/run && \
         mount --bind /run/kept {kept} && {test})",
        root = quoted(&workspace::root().to_string_lossy()),
        test = line.join(" "),
    ))
}

/// A word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn test(version: &str, command: &str, tally: &mut Tally) -> Result<()> {
    super::tools()?;
    let kernel = kernel::fetch(version)?;
    let initramfs = initramfs::of_cluster(&kernel, command)?;
    let server = Server::start(&kernel.dir)?;
    let machine = server.machine();
    let mut reader = Reader::default();
    let mut code = None;
    let ended = boot::boot(&kernel, &initramfs, &machine, None, |line| {
        if let Some(word) = line.strip_prefix("PODNET-VM exit ") {
            code = word.parse::<i32>().ok();
        }
        if reader.line(line) {
            println!("[{version}] {line}");
        }
    });
    let found = reader.finish();
    let passed = found.passed;
    tally.add(found);
    match (ended, code) {
        (Ok(_), Some(0)) if passed > 0 => Ok(()),
        (Ok(_), Some(0)) => bail!("no test ran"),
        (ended, code) => {
            boot::show_kernel_log(&kernel);
            ended?;
            bail!("the cluster's program in the machine ended with {code:?}")
        }
    }
}

/// The program that serves the root of this machine.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// It is not installed, or ends.
    fn start(dir: &Path) -> Result<Self> {
        let find = || SERVERS.iter().map(Path::new).find(|path| path.is_file());
        if find().is_none() {
            install::apt(&["virtiofsd".to_owned()])?;
        }
        let program = find().context("no virtiofsd of QEMU; install the package virtiofsd")?;
        let socket = dir.join("outside.sock");
        // Left by a run that was stopped.
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(program);
        command
            .arg(format!("--socket-path={}", socket.display()))
            .args([
                "-o",
                "source=/",
                "-o",
                "sandbox=chroot",
                "-o",
                "cache=always",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        say(show(&command));
        let child = command
            .spawn()
            .with_context(|| format!("cannot start `{}`", show(&command)))?;
        let mut server = Self { child, socket };
        let end = Instant::now() + PATIENCE;
        while !server.socket.exists() {
            if let Some(status) = server.child.try_wait()? {
                bail!("`{}` ended: {status}", show(&command));
            }
            if Instant::now() > end {
                bail!("`{}` does not listen", show(&command));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// The machine that mounts it; its memory is shared with the server.
    fn machine(&self) -> boot::Machine {
        let arguments = [
            "-object",
            &format!("memory-backend-memfd,id=memory,size={MEMORY}M,share=on"),
            "-machine",
            "memory-backend=memory",
            "-chardev",
            &format!("socket,id=outside,path={}", self.socket.display()),
            "-device",
            &format!("vhost-user-fs-pci,chardev=outside,tag={TAG}"),
        ];
        boot::Machine {
            memory: MEMORY,
            arguments: arguments.map(str::to_owned).into(),
        }
    }
}

/// It ends with the machine; after a failure it is there still.
impl Drop for Server {
    fn drop(&mut self) {
        // Already gone, or ours to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_shell_as_they_are() {
        assert_eq!(quoted("/a b"), "'/a b'");
        let mut echo = Command::new("sh");
        echo.args(["-c", &format!("printf %s {}", quoted("it's $HOME"))]);
        assert_eq!(capture(&mut echo).unwrap(), "it's $HOME");
    }
}
