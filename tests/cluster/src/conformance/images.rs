//! Make the images of the pods that the tests start, under the tests' names.
//!
//! They are made of programs of this machine and of the tests' own source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::super::golang::suite::{self as programs, AGNHOST, TESTS};
use super::super::{binaries, golang, images};
use xtask::install;
use xtask::oci::Image;
use xtask::step::{capture, say};

/// Packages of the programs below; most machines have the first half.
const PACKAGES: [&str; 9] = [
    "bash",
    "dash",
    "iproute2",
    "libc-bin",
    "bind9-dnsutils",
    "curl",
    "iperf",
    "netcat-openbsd",
    "wget",
];
/// Programs that must not be busybox's: name in the image, name on the machine.
///
/// A busybox that is the shell would run its own `nc` and `ip`, whatever `PATH` says, and a static one
/// that looks up names with the libraries of an image ends with a segmentation fault.
const PROGRAMS: [(&str, &str); 12] = [
    ("bash", "bash"),
    ("curl", "curl"),
    ("dig", "dig"),
    ("getent", "getent"),
    ("ip", "ip"),
    ("iperf", "iperf"),
    ("nc", "nc.openbsd"),
    ("nslookup", "nslookup"),
    ("sh", "dash"),
    ("ss", "ss"),
    ("host", "host"),
    ("wget", "wget"),
];
/// Where Debian has them.
const PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";
/// With the user that a test of groups expects.
const PASSWD: &str = "user-defined-in-image:x:1000:1000::/home:/bin/sh\n";
const GROUP: &str =
    "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";

/// Writes the possible images of the tests' list, and returns their archives.
///
/// # Errors
/// A package cannot be installed, a program read, or a file written.
pub(super) fn write(suite: &Path, dir: &Path) -> Result<Vec<PathBuf>> {
    packages()?;
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let sources = sources()?;
    let version = fs::read_to_string(sources.join("VERSION")).context("the version of agnhost")?;
    let list = capture(Command::new(suite.join(TESTS)).arg("--list-images"))?;
    let mut archives = Vec::new();
    for (kind, name) in wanted(&list, version.trim()) {
        let image = match kind {
            Kind::Agnhost => agnhost(&suite.join(AGNHOST), Sctp::Kernel)?,
            Kind::Names => tools()?,
            Kind::Busybox => images::busybox(&binaries::busybox(&binaries::dir())?)?,
            Kind::Pause => images::pause(&binaries::pause(&binaries::dir())?)?,
        };
        let archive = archive(dir, name);
        image.write(name, &archive)?;
        archives.push(archive);
    }
    Ok(archives)
}

/// Writes an image of agnhost under a name that others' tests have for it.
///
/// `program` is its file. `more` are programs that they have in it, too: their names in the image, and files.
///
/// # Errors
/// As [`write`].
pub(super) fn write_agnhost(
    name: &str,
    (program, sctp): (&Path, Sctp),
    more: &[(&str, &Path)],
    dir: &Path,
) -> Result<PathBuf> {
    packages()?;
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut image = agnhost(program, sctp)?;
    for (place, program) in more {
        image.program(place, program)?;
    }
    let archive = archive(dir, name);
    image.write(name, &archive)?;
    Ok(archive)
}

/// The file of an image; of some there are two tags.
fn archive(dir: &Path, name: &str) -> PathBuf {
    let file = name.rsplit('/').next().unwrap_or(name).replace(':', "-");
    dir.join(format!("{file}.tar"))
}

/// The source of agnhost.
fn sources() -> Result<PathBuf> {
    Ok(golang::source()?.join("test/images").join(AGNHOST))
}

/// Installs the packages of the programs that go into images.
fn packages() -> Result<()> {
    let packages = PACKAGES.map(String::from);
    let missing = install::missing(&packages);
    if !missing.is_empty() {
        let list: Vec<&str> = missing.iter().map(|package| package.as_str()).collect();
        say(format!(
            "programs of Debian go into the images of the tests; their packages stay on this machine until \
             `apt-get purge {}`",
            list.join(" ")
        ));
    }
    install::apt(&packages)
}

/// Whether containers that serve SCTP have to run where the kernel has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sctp {
    /// As the kernel does it.
    Kernel,
    /// They wait instead, so that their pods get ready.
    Waits,
}

/// The place of agnhost where [`FRONT`] has its name.
const BEHIND: &str = "/agnhost-2";
/// In front of agnhost on a kernel without SCTP, where a server of SCTP ports ends.
const FRONT: &str = "#!/bin/sh
# This kernel has no SCTP. A porter that serves nothing else would end: it waits.
if [ \"$1\" = porter ]; then
    served=$(env | grep -c '^SERVE_')
    sctp=$(env | grep -c '^SERVE_SCTP_PORT_')
    if [ \"$sctp\" -gt 0 ] && [ \"$served\" = \"$sctp\" ]; then
        exec /agnhost-2 pause
    fi
fi
exec /agnhost-2 \"$@\"
";

/// The kind of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Agnhost,
    /// Everything that asks for names, with glibc.
    Names,
    Busybox,
    Pause,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Agnhost, Self::Names, Self::Busybox, Self::Pause];

    /// The last part of its name, before the tag.
    fn repository(self) -> &'static str {
        match self {
            Self::Agnhost => AGNHOST,
            Self::Names => "glibc-dns-testing",
            Self::Busybox => "busybox",
            Self::Pause => "pause",
        }
    }
}

/// Lists the names of `--list-images` that our images can stand for.
///
/// Of agnhost there are older ones, too.
fn wanted<'a>(list: &'a str, agnhost: &str) -> Vec<(Kind, &'a str)> {
    let names = list.lines().map(str::trim);
    names
        .filter_map(|name| {
            let (path, tag) = name.rsplit_once(':')?;
            let repository = path.rsplit('/').next()?;
            let mut kinds = Kind::ALL.into_iter();
            let kind = kinds.find(|kind| kind.repository() == repository)?;
            (kind != Kind::Agnhost || tag == agnhost).then_some((kind, name))
        })
        .collect()
}

/// A busybox whose shell and network programs are Debian's.
fn tools() -> Result<Image> {
    let mut image = images::busybox(&binaries::busybox(&binaries::dir())?)?;
    for (name, program) in PROGRAMS {
        image.program(&format!("/bin/{name}"), &find(program)?)?;
    }
    image.file("/etc/nsswitch.conf", 0o644, NSSWITCH);
    Ok(image)
}

fn agnhost(program: &Path, sctp: Sctp) -> Result<Image> {
    let mut image = tools()?;
    match sctp {
        Sctp::Kernel => image.program("/agnhost", program)?.link(BEHIND, "agnhost"),
        Sctp::Waits => image
            .program(BEHIND, program)?
            .file("/agnhost", 0o755, FRONT),
    };
    image
        .program("/coredns", &programs::coredns(&binaries::dir())?)?
        .link("/usr/local/bin/iperf", "/bin/iperf")
        .directory("/uploads", 0o755)
        .file("/etc/passwd", 0o644, format!("{}{PASSWD}", images::PASSWD))
        .file("/etc/group", 0o644, format!("{}{GROUP}", images::GROUP))
        .entrypoint(&["/agnhost"])
        .command(&["pause"]);
    for name in ["localhost.crt", "localhost.key"] {
        let path = sources()?.join("porter").join(name);
        let content = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        image.file(&format!("/{name}"), 0o644, content);
    }
    Ok(image)
}

fn find(program: &str) -> Result<PathBuf> {
    let mut places = PLACES.iter().map(|dir| Path::new(dir).join(program));
    match places.find(|path| path.is_file()) {
        // Not through a link: `nc` may be one to somewhere in /etc.
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("the path of {program}")),
        None => bail!("no {program} on this machine, though its package is installed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_list_those_are_made_that_are_known_and_agnhost_in_its_own_version_only() {
        let list = "example.test/e2e/agnhost:2.55\nexample.test/e2e/agnhost:2.63.0\n\
                    example.test/e2e/busybox:1.37.0-1\nexample.test/etcd:3.6.8-0\n\
                    example.test/pause:3.10.2\n";
        let found = wanted(list, "2.63.0");
        assert_eq!(
            found,
            [
                (Kind::Agnhost, "example.test/e2e/agnhost:2.63.0"),
                (Kind::Busybox, "example.test/e2e/busybox:1.37.0-1"),
                (Kind::Pause, "example.test/pause:3.10.2"),
            ]
        );
    }

    #[test]
    fn in_front_of_agnhost_only_a_server_of_nothing_but_sctp_waits() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let behind = dir.path().join("behind");
        fs::write(&behind, "#!/bin/sh\necho \"$@\"\n").unwrap();
        fs::set_permissions(&behind, fs::Permissions::from_mode(0o755)).unwrap();
        let front = dir.path().join("front");
        fs::write(&front, FRONT.replace(BEHIND, behind.to_str().unwrap())).unwrap();
        let run = |words: &[&str], environment: &[&str]| {
            let mut command = Command::new("sh");
            command.arg(&front).args(words);
            command.envs(environment.iter().map(|name| (name, "foo")));
            capture(&mut command).unwrap()
        };
        assert_eq!(run(&["porter"], &["SERVE_SCTP_PORT_9003"]), "pause\n");
        for (words, environment) in [
            (&["porter"][..], &[][..]),
            (&["porter"], &["SERVE_PORT_80"]),
            (&["porter"], &["SERVE_SCTP_PORT_9003", "SERVE_PORT_80"]),
            (&["connect", "a b"], &["SERVE_SCTP_PORT_9003"]),
        ] {
            assert_eq!(
                run(words, environment),
                format!("{}\n", words.join(" ")),
                "{environment:?}"
            );
        }
    }
}
