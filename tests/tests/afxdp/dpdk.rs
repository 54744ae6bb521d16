//! Run DPDK's testpmd in a pod, by `use_cni` and by `use_pinned_map`.
//!
//! It checks the control socket and the map by code of others, which runs as an unprivileged user with
//! the capabilities that DPDK cannot do without.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testbed::kubelet::Kubelet;
use testbed::{Network, traffic, wait};

use super::scene::{attach, setup, socket_path};

/// Capabilities of testpmd, which opens its own sockets and locks much memory.
const CAPABILITIES: &str = "-all,+net_raw,+ipc_lock";
/// Loaded before it, because it looks for drivers where it was built.
const DRIVERS: [&str; 2] = ["librte_net_af_xdp.so.", "librte_mempool_ring.so."];

/// A running testpmd that echoes by swapping both addresses; ended when dropped.
struct Testpmd {
    child: Child,
    log: PathBuf,
}

/// How it gets its sockets in.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// By the control socket.
    Control,
    /// By the map in a directory that its container has mounted.
    Map(&'a Path),
}

/// Arguments of unshare that mount a directory over another one, for one command.
///
/// The mount is in a namespace of the command.
const UNSHARE: [&str; 6] = [
    "--mount",
    "--propagation=private",
    "sh",
    "-c",
    "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"",
    "sh",
];

impl Testpmd {
    fn start(root: &Path, port: &testbed::Port, way: Way<'_>, directory: &Path) -> Self {
        let libraries = directory_of(root, "librte_eal.so.");
        let drivers = DRIVERS.map(|name| find(root, name).display().to_string());
        // Others than root cannot get to where the node of a test keeps it; pods have it mounted.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("permissions");
        let log = directory.join("testpmd.log");
        let output = File::create(&log).expect("a log can be written");
        let place = directory.join("map");
        let (mut command, by) = match way {
            Way::Control => {
                let socket = directory.join("afxdp.sock");
                fs::hard_link(socket_path(port), &socket).expect("a second name");
                let command = Command::new("env");
                (command, format!("use_cni=1,dp_path={}", socket.display()))
            }
            Way::Map(mounted) => {
                fs::create_dir(&place).expect("a directory");
                let mut command = Command::new("unshare");
                command.args(UNSHARE).arg(mounted).arg(&place);
                let map = place.join("xsks_map");
                let by = format!("use_pinned_map=1,dp_path={}", map.display());
                (command, by)
            }
        };
        command
            .args([
                "setpriv",
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
            .arg(format!("--vdev=net_af_xdp0,iface={},{by}", port.ifname))
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

/// Finds the file below a directory whose name starts so, by its shortest name.
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

/// Asserts that testpmd echoes a kernel pod's datagrams, and again when restarted.
///
/// It has one queue, because DPDK 24.11 believes that a veth has no more.
fn assert_echo(root: &Path, fast: &testbed::Port, way: Way<'_>, plain: &testbed::Port) {
    let mut buffer = [0; 2048];
    for _ in 0..2 {
        let directory = tempfile::tempdir().expect("a directory");
        let mut testpmd = Testpmd::start(root, fast, way, directory.path());
        let socket = traffic::udp(plain, plain.v4().into());
        socket
            .set_read_timeout(Some(wait::PATIENCE / 300))
            .expect("a timeout");
        wait::until_true("testpmd to answer", || {
            testpmd.assert_running();
            socket.send_to(b"first", (fast.v4(), 4242)).expect("sent");
            socket.recv_from(&mut buffer).is_ok()
        });
        for flow in 0..32_u8 {
            let socket = traffic::udp(plain, plain.v4().into());
            let sent = vec![flow; usize::from(flow) * 40 + 1];
            socket.send_to(&sent, (fast.v4(), 4242)).expect("sent");
            let (came, from) = socket.recv_from(&mut buffer).expect("an answer");
            let expected = (&sent[..], (fast.v4(), 4242).into());
            assert_eq!((&buffer[..came], from), expected);
        }
        testpmd.assert_running();
    }
}

/// Where testpmd is; none, and the test is skipped, where it is not.
fn testpmd(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PODNET_DPDK_AFXDP").map(PathBuf::from);
    if root.is_none() {
        testbed::skip::skip(test, "needs testpmd with use_cni");
    }
    root
}

#[test]
fn testpmd_gets_its_socket_in_and_sends_back_what_comes() {
    let node = testbed::node!(setup());
    let Some(root) = testpmd(testbed::test_name!()) else {
        return;
    };
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let (pf, pp) = (
        attach(&node, &fast, "blue", "fast-blue"),
        plain.attach("blue", "net1"),
    );
    assert_echo(&root, &pf, Way::Control, &pp);
    fast.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}

/// A container with a device has its map, and no other container has it.
///
/// The map stays with the port and goes with it.
#[test]
fn the_map_of_a_port_is_where_the_container_of_its_device_has_it_mounted() {
    let kubelet = Kubelet::new();
    let dir = kubelet.dir().to_str().expect("a path in UTF-8");
    let network = Network::l2("fast", &["10.10.0.0/24"]).interface("AFXDP");
    let node = testbed::node!(setup().network(&network).args(&["--kubelet-dir", dir]));
    let plugins: Vec<_> = (0..2).map(|_| kubelet.registered()).collect();
    let plugin = plugins.iter().find(|it| it.0 == "podnet.dev/fast");
    let given = kubelet.allocate(plugin.expect("a resource"), "fast", &["3", "4"]);
    let mounted = |id: &str| {
        let path = format!("/run/podnet/fast/{id}.map");
        let mut mounts = given.mounts.iter();
        let found = mounts.find(|mount| mount.container_path == path);
        PathBuf::from(&found.expect("a mount of that device").host_path)
    };
    let files = |id: &str| fs::read_dir(mounted(id)).expect("a directory").count();
    assert_eq!((files("3"), files("4")), (0, 0));

    let (pod, plain) = (node.pod("fast"), node.pod("plain"));
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=fast";
    let call = pod.call("ADD", "net1").env("CNI_ARGS", args);
    let result = call.conf(&node.conf("fast")).run().result();
    let fast = pod.port("fast", "net1", result);
    let map = mounted("3").join("xsks_map");
    let mode = fs::metadata(&map).expect("a map").permissions().mode();
    assert_eq!((mode & 0o777, files("4")), (0o666, 0));
    let told = fs::read_to_string(socket_path(&fast).with_file_name("net1.json"));
    let told: serde_json::Value = serde_json::from_str(&told.expect("a file")).expect("JSON");
    assert_eq!(told["afxdp"]["map"], "/run/podnet/fast/3.map/xsks_map");

    // It is missed, and made anew, when somebody takes it away.
    fs::remove_file(&map).expect("removed");
    node.restart();
    wait::until_true("the map to be back", || map.exists());
    if let Some(root) = testpmd(testbed::test_name!()) {
        let client = plain.attach("fast", "net1");
        assert_echo(&root, &fast, Way::Map(&mounted("3")), &client);
        plain.detach("fast", "net1");
    }
    pod.detach("fast", "net1");
    assert_eq!(files("3"), 0);
    node.assert_empty();
}
