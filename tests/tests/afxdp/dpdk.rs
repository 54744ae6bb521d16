//! DPDK's testpmd as the program of a pod, by `use_cni`: as somebody else's code expects the control socket, run
//! as nobody with what DPDK cannot do without.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tests::{traffic, wait};

use super::scene::{attach, setup, socket_path};

/// What it takes: it opens its sockets itself, and locks more memory than anybody may.
const CAPABILITIES: &str = "-all,+net_raw,+ipc_lock";
/// Loaded before it, for it looks for drivers where it was built.
const DRIVERS: [&str; 2] = ["librte_net_af_xdp.so.", "librte_mempool_ring.so."];

/// A running testpmd that swaps both addresses, and so is an echo; ended when this is dropped.
struct Testpmd {
    child: Child,
    log: PathBuf,
}

impl Testpmd {
    fn start(root: &Path, port: &tests::Port, directory: &Path) -> Self {
        let libraries = directory_of(root, "librte_eal.so.");
        let drivers = DRIVERS.map(|name| find(root, name).display().to_string());
        // Others than root cannot get to where the node of a test keeps it; pods have it mounted.
        let socket = directory.join("afxdp.sock");
        fs::hard_link(socket_path(port), &socket).expect("a second name");
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("permissions");
        let log = directory.join("testpmd.log");
        let output = File::create(&log).expect("a log can be written");
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--no-new-privs",
            ])
            .arg(format!("--inh-caps={CAPABILITIES}"))
            .arg(format!("--ambient-caps={CAPABILITIES}"))
            .arg(format!("--bounding-set={CAPABILITIES}"))
            // It may want a newer C library than the machine has.
            .arg(find(&libraries, "ld-linux"))
            .arg("--library-path")
            .arg(&libraries)
            .args(["--preload", &drivers.join(":")])
            .arg(root.join("usr/bin/dpdk-testpmd"))
            .args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry"])
            .args([
                "--iova-mode=va",
                "--file-prefix=podnet-afxdp",
                "--lcores",
                "0@0,1@0",
            ])
            .arg(format!(
                "--vdev=net_af_xdp0,iface={},use_cni=1,dp_path={}",
                port.ifname,
                socket.display()
            ))
            .args([
                "--",
                "--forward-mode=5tswap",
                "--port-topology=loop",
                "--auto-start",
            ])
            .arg("--no-mlockall")
            // A queue takes some thousands to receive into, and does not start with less.
            .arg("--total-num-mbufs=8192")
            .env("RUNTIME_DIRECTORY", directory)
            .env("LIBXDP_OBJECT_PATH", libraries.join("bpf"))
            // It ends when there is nothing more to read.
            .stdin(Stdio::piped())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output);
        let child = port.netns.run_in(move || command.spawn());
        Self {
            child: child.expect("entered").expect("testpmd can be started"),
            log,
        }
    }

    fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child of ours") {
            let log = fs::read(&self.log).unwrap_or_default();
            panic!("testpmd ended: {status}\n{}", String::from_utf8_lossy(&log));
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file below a directory whose name begins so: a link by its short name, not the file by its long one.
fn find(below: &Path, name: &str) -> PathBuf {
    let mut directories = vec![below.to_path_buf()];
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(name) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    found.sort_by_key(|path| path.as_os_str().len());
    found.into_iter().next().expect("a file of that name")
}

fn directory_of(root: &Path, name: &str) -> PathBuf {
    find(root, name)
        .parent()
        .expect("it is in one")
        .to_path_buf()
}

/// Datagrams of a kernel pod go through DPDK and come back as they were. Then once more: applications are started
/// again. One queue, for DPDK 24.11 believes that a veth has no more.
#[test]
fn testpmd_gets_its_socket_in_and_sends_back_what_comes() {
    let node = tests::node!(setup());
    let Some(root) = std::env::var_os("PODNET_DPDK_AFXDP").map(PathBuf::from) else {
        tests::skip::skip(tests::test_name!(), "needs testpmd with use_cni");
        return;
    };
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let (pf, pp) = (
        attach(&node, &fast, "blue", "fast-blue"),
        plain.attach("blue", "net1"),
    );
    let mut buffer = [0; 2048];
    for _ in 0..2 {
        let directory = tempfile::tempdir().expect("a directory");
        let mut testpmd = Testpmd::start(&root, &pf, directory.path());
        let socket = traffic::udp(&pp, pp.v4().into());
        socket
            .set_read_timeout(Some(wait::PATIENCE / 300))
            .expect("a timeout");
        wait::until_true("testpmd to answer", || {
            testpmd.assert_running();
            socket.send_to(b"first", (pf.v4(), 4242)).expect("sent");
            socket.recv_from(&mut buffer).is_ok()
        });
        for flow in 0..32_u8 {
            let socket = traffic::udp(&pp, pp.v4().into());
            let sent = vec![flow; usize::from(flow) * 40 + 1];
            socket.send_to(&sent, (pf.v4(), 4242)).expect("sent");
            let (came, from) = socket.recv_from(&mut buffer).expect("an answer");
            assert_eq!((&buffer[..came], from), (&sent[..], (pf.v4(), 4242).into()));
        }
        testpmd.assert_running();
    }
    fast.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}
