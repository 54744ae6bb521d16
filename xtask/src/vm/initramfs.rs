//! Pack the virtual machine: busybox, modules, podnet, tests, their libraries.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::parts::Part;
use super::{TestBinary, modules};
use crate::build::Built;

const INIT: &str = include_str!("init.sh");
/// The first process of a machine with a cluster.
const CLUSTER: &str = include_str!("cluster.sh");

/// Programs of the host that tests run, with their libraries.
///
/// busybox stands in for those that are not there. The shell is among them because busybox's own prefers
/// its applets to `PATH`.
const PROGRAMS: [&str; 3] = ["/bin/sh", "/sbin/ip", "/sbin/tc"];

/// Writes the archive and returns its path.
///
/// Parts are run in their order; once the machine has run for `end`, the one that runs is cut short and
/// none is begun.
pub(super) fn build(
    kernel: &Kernel,
    built: &Built,
    tests: &[TestBinary],
    parts: &[Part],
    end: Option<Duration>,
) -> Result<PathBuf> {
    let path = kernel.dir.join("initramfs.cpio");
    let mut pack = Pack::create(&path)?;
    pack.system(INIT).context("the initramfs' own files")?;
    let names: String = parts
        .iter()
        .map(|part| format!("{} {}\n", part.label, part.program))
        .collect();
    let end = end.map_or_else(String::new, |it| it.as_secs().to_string());
    pack.list("podnet/tests", &names)?;
    pack.list("podnet/end", &format!("{end}\n"))?;
    for part in parts {
        let lines = part.arguments.iter().map(|word| format!("{word}\n"));
        pack.list(
            &format!("podnet/parts/{}", part.label),
            &lines.collect::<String>(),
        )?;
    }
    pack.modules(kernel, &modules::collect(&kernel.modules)?)?;
    pack.program(&busybox()?, "bin/busybox")?;
    pack.program(&built.agent, "podnet/podnet-agent")?;
    pack.program(&built.cni, "podnet/podnet")?;
    pack.copy(&built.object, "podnet/podnet-ebpf.o", 0o644)?;
    let runs = |test: &&TestBinary| parts.iter().any(|part| part.program == test.name);
    for test in tests.iter().filter(runs) {
        pack.program(&test.path, &format!("tests/{}", test.name))?;
    }
    for program in PROGRAMS
        .iter()
        .map(Path::new)
        .filter(|program| program.exists())
    {
        pack.program(program, &program.to_string_lossy())?;
    }
    pack.finish(&path)?;
    Ok(path)
}

/// Writes the archive of a machine with a cluster and returns its path.
///
/// Its root is that of the machine outside, and it runs `command` there, a line of the shell.
pub(super) fn of_cluster(kernel: &Kernel, command: &str) -> Result<PathBuf> {
    let path = kernel.dir.join("cluster.cpio");
    let mut pack = Pack::create(&path)?;
    pack.system(CLUSTER).context("the initramfs' own files")?;
    pack.list("podnet/command", &format!("{command}\n"))?;
    pack.modules(kernel, &modules::of_cluster(&kernel.modules)?)?;
    pack.program(&busybox()?, "bin/busybox")?;
    pack.finish(&path)?;
    Ok(path)
}

struct Pack {
    archive: Archive<BufWriter<File>>,
    libraries: BTreeSet<PathBuf>,
}

impl Pack {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self {
            archive: Archive::new(BufWriter::new(file)),
            libraries: BTreeSet::new(),
        })
    }

    fn system(&mut self, init: &str) -> Result<()> {
        self.archive.character("dev/console", 5, 1)?;
        for dir in [
            "proc", "sys", "tmp", "run", "root", "sbin", "usr/bin", "usr/sbin", "var/lib",
        ] {
            self.archive.directory(dir)?;
        }
        self.archive.file("init", 0o755, init.as_bytes())?;
        self.archive
            .file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
        self.archive.file("etc/group", 0o644, b"root:x:0:\n")?;
        self.archive
            .file("etc/hosts", 0o644, b"127.0.0.1 localhost\n::1 localhost\n")?;
        Ok(())
    }

    fn list(&mut self, path: &str, lines: &str) -> Result<()> {
        Ok(self.archive.file(path, 0o644, lines.as_bytes())?)
    }

    fn modules(&mut self, kernel: &Kernel, modules: &[modules::Module]) -> Result<()> {
        let base = format!("lib/modules/{}", kernel.release);
        let mut order = String::new();
        for module in modules {
            let path = format!("{base}/{}", module.path);
            self.archive.file(&path, 0o644, &module.content)?;
            order.push_str(&format!("/{path}\n"));
        }
        self.archive
            .file("podnet/modules", 0o644, order.as_bytes())?;
        let dependencies = modules::dependency_file(modules);
        self.archive.file(
            &format!("{base}/modules.dep"),
            0o644,
            dependencies.as_bytes(),
        )?;
        Ok(())
    }

    /// Adds the libraries of all programs, and ends the file.
    fn finish(mut self, path: &Path) -> Result<()> {
        for library in std::mem::take(&mut self.libraries) {
            self.copy(&library, &library.to_string_lossy(), 0o755)?;
        }
        let size = self.archive.finish().and_then(|mut file| {
            file.flush()?;
            Ok(file.get_ref().metadata()?.len())
        });
        let size = size.with_context(|| format!("writing {}", path.display()))?;
        crate::step::say(format!("{} ({} MiB)", path.display(), size >> 20));
        Ok(())
    }

    fn program(&mut self, from: &Path, to: &str) -> Result<()> {
        self.libraries.extend(shared_libraries(from)?);
        self.copy(from, to, 0o755)
    }

    fn copy(&mut self, from: &Path, to: &str, permissions: u32) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.archive
            .file(to, permissions, &content)
            .with_context(|| format!("packing {}", from.display()))
    }
}

fn busybox() -> Result<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .context("no busybox in /bin or /usr/bin; install busybox-static")
}

/// Lists the shared libraries of a program, with its interpreter; none if static.
///
/// # Errors
/// A library is missing, or `ldd` cannot run.
pub(crate) fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .context("cannot start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        // How ldd says "static" about a program without dynamic relocations.
        let error = String::from_utf8_lossy(&output.stderr);
        if text.contains("not a dynamic executable") || error.contains("not a dynamic executable") {
            return Ok(Vec::new());
        }
        bail!("ldd {}: {}", program.display(), error.trim());
    }
    parse_ldd(&text).with_context(|| format!("libraries of {}", program.display()))
}

fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        let Some((what, _address)) = line.trim().rsplit_once(" (0x") else {
            if line.contains("not found") {
                bail!("{}", line.trim());
            }
            continue;
        };
        let path = what.rsplit_once(" => ").map_or(what, |(_, path)| path);
        // The vDSO has no path: it comes with the kernel.
        if path.starts_with('/') {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_interpreter_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007f12)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f12)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f12)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse_ldd(text).unwrap(), expected.map(PathBuf::from));
    }

    #[test]
    fn a_static_program_has_no_libraries() {
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse_ldd("\tlibz3.so.4 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libz3.so.4"), "{error}");
    }
}
