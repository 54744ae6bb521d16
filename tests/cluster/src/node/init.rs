//! The first process of a node, as an init system.
//!
//! It makes the file system that its programs see, starts them, and starts them again when they end.
//!
//! The root is an overlay of the machine's own, so that `/etc`, `/opt` and `/run` are the node's.
//! What a real node keeps on disk (`/var/lib`, `/var/log`, `/etc/cni`, `/opt/cni`) is in the
//! node's directory and survives its reboot.

use std::collections::HashMap;
use std::env;
use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, unmount,
};
use rustix::process::{Pid, WaitOptions, pivot_root, wait};
use rustix::system::sethostname;

use super::{Spec, config};
use crate::cgroup;
use xtask::step::{execute, say, succeeds};

/// Files that the node keeps: name in its directory, and path on the node.
const KEPT: [(&str, &str); 4] = [
    ("var-lib", "var/lib"),
    ("var-log", "var/log"),
    ("etc-cni", "etc/cni"),
    ("opt-cni", "opt/cni"),
];

/// Settings of the whole machine that a kubelet wants so; it writes files instead.
const MACHINE_SETTINGS: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often containerd is asked whether it is there, and how many times.
const STEP: Duration = Duration::from_millis(100);
const ATTEMPTS: u32 = 600;

/// Makes the node whose directory this is; returns only if that fails.
///
/// # Errors
/// A mount or a program is refused.
pub(crate) fn run(dir: &Path) -> xtask::Done {
    if std::process::id() != 1 {
        bail!("this is for the first process of a node; `cluster up` starts it");
    }
    let spec = Spec::read(dir)?;
    sethostname(spec.name.as_bytes()).context("the node's host name")?;
    let root = overlay(&spec).context("the node's root")?;
    system(&root)?;
    cgroups(&root.join("sys/fs/cgroup")).context("the node's cgroups")?;
    kept(&spec, &root)?;
    pivot(&root).context("changing to the node's root")?;
    files(&spec)?;

    let programs = programs(&spec);
    let mut running = HashMap::new();
    let [runtime, others @ ..] = programs.as_slice() else {
        bail!("a node without programs");
    };
    running.insert(runtime.start(&spec)?, runtime);
    import(&spec)?;
    fs::write(spec.ready(), "").context("saying that the node is ready")?;
    for program in others {
        running.insert(program.start(&spec)?, program);
    }
    supervise(&spec, running)
}

/// Mounts an overlay of the machine's root whose changes are in memory.
fn overlay(spec: &Spec) -> Result<PathBuf> {
    let base = spec.dir.join("root");
    fs::create_dir_all(&base).with_context(|| format!("creating {}", base.display()))?;
    file_system("tmpfs", &base, Some(c"mode=0755"))?;
    let [upper, work, root] = ["upper", "work", "root"].map(|name| base.join(name));
    for dir in [&upper, &work, &root] {
        fs::create_dir(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let options = format!(
        "lowerdir=/,upperdir={},workdir={}\0",
        upper.display(),
        work.display()
    );
    let options = CStr::from_bytes_with_nul(options.as_bytes()).context("a path with a NUL")?;
    file_system("overlay", &root, Some(options))?;
    Ok(root)
}

/// Mounts the file systems of every system.
fn system(root: &Path) -> Result<()> {
    file_system("proc", &root.join("proc"), None)?;
    // Anew, to show the links of this network namespace.
    file_system("sysfs", &root.join("sys"), None)?;
    file_system("bpf", &root.join("sys/fs/bpf"), Some(c"mode=0700"))?;
    mount_bind_recursive("/dev", root.join("dev")).context("mounting /dev")?;
    file_system("tmpfs", &root.join("run"), Some(c"mode=0755"))?;
    fs::create_dir_all(root.join("run/netns")).context("creating /run/netns")?;
    file_system("tmpfs", &root.join("tmp"), Some(c"mode=1777"))?;

    let settings = root.join("run/machine-settings");
    fs::create_dir(&settings).context("creating a directory in /run")?;
    for (key, value) in MACHINE_SETTINGS {
        let file = settings.join(key.replace('/', "."));
        fs::write(&file, value)?;
        mount_bind(&file, root.join("proc/sys").join(key))
            .with_context(|| format!("hiding {key}"))?;
    }
    // Every start of a node is a new boot, for its kubelet alone: containers have a /proc of their own, with the
    // machine's, and what runs beside them (plugins) must see the same as they do.
    fs::copy("/proc/sys/kernel/random/uuid", settings.join("boot_id")).context("a boot ID")?;
    Ok(())
}

/// Runs the kubelet with a boot ID of its own; its other mounts stay the node's.
const WITH_BOOT_ID: &str = "mount --make-private /proc && \
     mount --bind /run/machine-settings/boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// Mounts the controllers as this control group namespace has them.
fn cgroups(at: &Path) -> Result<()> {
    file_system("tmpfs", at, Some(c"mode=0755"))?;
    for name in cgroup::controllers()? {
        let dir = at.join(&name);
        fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let options = format!("{name}\0");
        let options = CStr::from_bytes_with_nul(options.as_bytes()).context("a NUL in a name")?;
        file_system("cgroup", &dir, Some(options))?;
    }
    Ok(())
}

/// Mounts what the node shares with the machine and what it keeps.
fn kept(spec: &Spec, root: &Path) -> Result<()> {
    let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    // The directory of the node is below the shared one: first that, or it would be hidden.
    let shared = below(&spec.shared);
    fs::create_dir_all(&shared).with_context(|| format!("creating {}", shared.display()))?;
    mount_bind(&spec.shared, &shared)
        .with_context(|| format!("mounting {}", spec.shared.display()))?;
    for (name, path) in KEPT {
        let (from, to) = (spec.dir.join(name), root.join(path));
        for dir in [&from, &to] {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        mount_bind(&from, &to).with_context(|| format!("mounting {path}"))?;
    }
    for dir in ["etc/cni/net.d", "opt/cni/bin"] {
        fs::create_dir_all(root.join(dir)).with_context(|| format!("creating /{dir}"))?;
    }
    Ok(())
}

/// Leaves the machine's root.
fn pivot(root: &Path) -> Result<()> {
    env::set_current_dir(root)?;
    // The old root is mounted over the new one, and goes away from there.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    env::set_current_dir("/")?;
    // As systemd has it: containers may ask for mounts to propagate.
    mount_change(
        "/",
        MountPropagationFlags::SHARED | MountPropagationFlags::REC,
    )?;
    Ok(())
}

/// Writes what the node's programs read.
fn files(spec: &Spec) -> Result<()> {
    let [v4, v6] = spec.addresses;
    let name = &spec.name;
    let hosts = format!("127.0.0.1 localhost\n::1 localhost\n{v4} {name}\n{v6} {name}\n");
    // 32 digits that are the node's own.
    let digits = name
        .bytes()
        .fold(0_u128, |id, byte| id << 8 | u128::from(byte));
    for (path, content) in [
        ("/etc/hosts", hosts),
        ("/etc/hostname", format!("{name}\n")),
        ("/etc/resolv.conf", String::new()),
        ("/etc/machine-id", format!("{digits:032x}\n")),
        ("/run/containerd.toml", config::containerd()),
        ("/run/kubelet.json", config::kubelet(spec).to_string()),
        ("/run/kube-proxy.json", config::kube_proxy(spec).to_string()),
    ] {
        // The machine's may be a link to somewhere else.
        let _ = fs::remove_file(path);
        fs::write(path, content).with_context(|| format!("writing {path}"))?;
    }
    for entry in fs::read_dir(&spec.plugins).context("the CNI plugins")? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let to = Path::new("/opt/cni/bin").join(entry.file_name());
            fs::copy(entry.path(), &to).with_context(|| format!("writing {}", to.display()))?;
        }
    }
    Ok(())
}

/// A program of the node.
#[derive(Debug)]
struct Program {
    name: &'static str,
    path: PathBuf,
    args: Vec<String>,
}

impl Program {
    fn start(&self, spec: &Spec) -> Result<Pid> {
        let path = spec.logs.join(format!("{}-{}.log", spec.name, self.name));
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        let mut command = Command::new(&self.path);
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", search_path(spec))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", self.path.display()))?;
        i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process without a number")
    }
}

/// The runtime is the first: the kubelet wants it, and its images.
fn programs(spec: &Spec) -> [Program; 3] {
    let [v4, v6] = spec.addresses;
    let kubeconfig = spec.pki.join(format!("kubelet-{}.kubeconfig", spec.name));
    [
        Program {
            name: "containerd",
            path: spec.containerd.join("containerd"),
            args: vec!["--config=/run/containerd.toml".to_owned()],
        },
        Program {
            name: "kubelet",
            path: "/usr/bin/unshare".into(),
            args: vec![
                "--mount".to_owned(),
                "--propagation=unchanged".to_owned(),
                "sh".to_owned(),
                "-c".to_owned(),
                WITH_BOOT_ID.to_owned(),
                "kubelet".to_owned(),
                spec.kubernetes.join("kubelet").display().to_string(),
                "--config=/run/kubelet.json".to_owned(),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--hostname-override={}", spec.name),
                format!("--node-ip={v4},{v6}"),
                "--v=2".to_owned(),
            ],
        },
        Program {
            name: "kube-proxy",
            path: spec.kubernetes.join("kube-proxy"),
            args: vec!["--config=/run/kube-proxy.json".to_owned()],
        },
    ]
}

/// containerd looks for its shim in `PATH`.
fn search_path(spec: &Spec) -> String {
    format!(
        "{}:{}:{PATH}",
        spec.containerd.display(),
        spec.kubernetes.display()
    )
}

/// Waits for containerd and gives it the images.
fn import(spec: &Spec) -> Result<()> {
    let ctr = || Command::new(spec.containerd.join("ctr"));
    let mut attempts = (0..ATTEMPTS).map(|_| {
        let answers = succeeds(ctr().arg("version"));
        if !answers {
            thread::sleep(STEP);
        }
        answers
    });
    if !attempts.any(|answers| answers) {
        bail!("containerd does not answer; see its log");
    }
    for entry in fs::read_dir(&spec.images).context("the images")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tar") {
            execute(
                ctr()
                    .args(["--namespace", "k8s.io", "images", "import"])
                    .arg(path),
            )?;
        }
    }
    Ok(())
}

/// Waits for processes that end, orphans included, and restarts programs.
///
/// Orphans are those of containers.
fn supervise(spec: &Spec, mut running: HashMap<Pid, &Program>) -> xtask::Done {
    loop {
        let ended = wait(WaitOptions::empty()).context("waiting for a process")?;
        let Some((pid, status)) = ended else { continue };
        if let Some(program) = running.remove(&pid) {
            say(format!("{} ended: {status:?}", program.name));
            // One that cannot start must not keep the machine busy.
            thread::sleep(STEP);
            running.insert(program.start(spec)?, program);
        }
    }
}

fn file_system(kind: &str, at: &Path, options: Option<&CStr>) -> Result<()> {
    mount(kind, at, kind, MountFlags::empty(), options)
        .with_context(|| format!("mounting {kind} on {}", at.display()))
}
