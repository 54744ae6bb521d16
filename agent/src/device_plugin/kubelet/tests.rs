//! With the kubelet's own side of the protocol, over the sockets that it has.

use std::future::Future;

use ::kubelet::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, HEALTHY,
    ListAndWatchResponse, PreferredAllocationRequest, RegisterRequest, UNHEALTHY,
};
use ::kubelet::peer;
use datapath::PinDir;
use ports::directories::ensure_map;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::*;

/// Long enough for a busy machine; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => unreachable!("not in time: {what}"),
    }
}

fn directories(run: &Path) -> Directories {
    Directories::new(&run.join("agent.sock"), &PinDir::new(run.join("pins")))
}

/// A node with a kubelet's directory.
struct Scene {
    place: PluginPlace,
    wanted: watch::Sender<Wanted>,
    run: tempfile::TempDir,
    work: JoinHandle<Result<(), notify::Error>>,
}

fn offer(is_healthy: bool) -> Offer {
    Offer {
        is_healthy,
        has_maps: false,
    }
}

fn wanted(resources: &[(&str, bool)]) -> Wanted {
    let all = resources.iter();
    Some(
        all.map(|(name, is_healthy)| ((*name).to_owned(), offer(*is_healthy)))
            .collect(),
    )
}

impl Scene {
    fn start(first: Wanted) -> Self {
        let run = tempfile::tempdir().unwrap();
        let place = PluginPlace {
            plugins: run.path().join("device-plugins"),
            directories: directories(run.path()),
            number: 12,
        };
        fs::create_dir(&place.plugins).unwrap();
        let (wanted, wanting) = watch::channel(first);
        let work = tokio::spawn(follow(place.clone(), wanting));
        Self {
            place,
            wanted,
            run,
            work,
        }
    }

    fn kubelet(&self) -> (peer::Socket, UnboundedReceiver<RegisterRequest>) {
        peer::registry(&self.place.plugins.join(KUBELET_SOCKET)).unwrap()
    }

    /// All sockets but the kubelet's.
    fn sockets(&self) -> Vec<String> {
        let files = fs::read_dir(&self.place.plugins).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != KUBELET_SOCKET).collect();
        names.sort();
        names
    }

    fn of(&self, endpoint: &str) -> PathBuf {
        self.place.plugins.join(endpoint)
    }

    /// The socket goes without the agent's knowing, as when the kubelet starts.
    fn wipe(&self) {
        for name in self.sockets() {
            fs::remove_file(self.of(&name)).unwrap();
        }
    }
}

async fn registered(heard: &mut UnboundedReceiver<RegisterRequest>) -> RegisterRequest {
    soon("a registration", heard.recv()).await.unwrap()
}

fn health(list: &ListAndWatchResponse) -> Vec<&str> {
    let all: std::collections::BTreeSet<&str> = list
        .devices
        .iter()
        .map(|device| device.health.as_str())
        .collect();
    all.into_iter().collect()
}

/// DP-1, DP-2, S003-02
#[tokio::test]
async fn a_resource_is_registered_and_its_devices_follow_the_health_of_its_networks() {
    let scene = Scene::start(wanted(&[("podnet.dev/blue", false)]));
    let (_kubelet, mut heard) = scene.kubelet();
    let request = registered(&mut heard).await;
    assert_eq!(request.version, "v1beta1");
    assert_eq!(request.resource_name, "podnet.dev/blue");
    assert_eq!(request.endpoint, "podnet-blue.sock");
    let socket = scene.of(&request.endpoint);
    let options = peer::options(&socket).await.unwrap();
    assert_eq!(request.options, Some(options));
    assert!(options.get_preferred_allocation_available && !options.pre_start_required);

    let mut lists = peer::list_and_watch(&socket).await.unwrap();
    let list = soon("the devices", lists.message()).await.unwrap().unwrap();
    assert_eq!(list.devices.len(), 12);
    assert_eq!(list.devices[11].id, "11");
    assert_eq!(health(&list), [UNHEALTHY]);
    scene
        .wanted
        .send_replace(wanted(&[("podnet.dev/blue", true)]));
    let list = soon("the change", lists.message()).await.unwrap().unwrap();
    assert_eq!(health(&list), [HEALTHY]);
    assert!(heard.try_recv().is_err(), "that needs no registration");
    proof::of!("DP-1", "DP-2", "S003-02");
}

/// DP-3, S003-08
#[tokio::test]
async fn a_container_gets_the_directories_and_names_of_its_devices() {
    let scene = Scene::start(wanted(&[("podnet.dev/my-net", true)]));
    let (_kubelet, mut heard) = scene.kubelet();
    let socket = scene.of(&registered(&mut heard).await.endpoint);
    let ids = |ids: &[&str]| -> Vec<String> { ids.iter().map(ToString::to_string).collect() };
    let asked = ContainerPreferredAllocationRequest {
        available_device_ids: ids(&["10", "7", "2", "9"]),
        must_include_device_ids: ids(&["9"]),
        allocation_size: 3,
    };
    let request = PreferredAllocationRequest {
        container_requests: vec![asked],
    };
    let preferred = peer::preferred(&socket, request).await.unwrap();
    assert_eq!(preferred.container_responses[0].device_ids, ["9", "2", "7"]);

    let left = scene
        .place
        .directories
        .ensure("podnet.dev/my-net", "2")
        .unwrap();
    fs::write(left.join("file"), "of the pod before").unwrap();
    let request = |devices: &[&[&str]]| AllocateRequest {
        container_requests: devices
            .iter()
            .map(|one| ContainerAllocateRequest {
                devices_ids: ids(one),
            })
            .collect(),
    };
    let given = peer::allocate(&socket, request(&[&["10", "2"], &["0"]]))
        .await
        .unwrap();
    let [first, second] = &given.container_responses[..] else {
        unreachable!("one answer for each container");
    };
    assert_eq!(first.envs["PODNET_DEVICE_MY_NET"], "2,10");
    assert_eq!(second.envs["PODNET_DEVICE_MY_NET"], "0");
    let mounts: Vec<(&str, &str, bool)> = first
        .mounts
        .iter()
        .map(|mount| {
            (
                mount.container_path.as_str(),
                mount.host_path.as_str(),
                mount.read_only,
            )
        })
        .collect();
    let host = |id: &str| {
        scene
            .run
            .path()
            .join("devices/my-net")
            .join(id)
            .join("files")
    };
    let (two, ten) = (host("2"), host("10"));
    let expected = [
        ("/run/podnet/my-net/2", two.to_str().unwrap(), false),
        ("/run/podnet/my-net/10", ten.to_str().unwrap(), false),
    ];
    assert_eq!(mounts, expected);
    assert!(
        ten.is_dir() && fs::read_dir(&two).unwrap().next().is_none(),
        "empty"
    );

    let refused = peer::allocate(&socket, request(&[&["12"]]))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("podnet.dev/my-net has no device 12"),
        "{refused}"
    );
    proof::of!("DP-3", "S003-08");
}

/// DP-3: the pinned map that DPDK opens by `use_pinned_map` has its own directory.
#[tokio::test]
async fn a_container_with_ports_of_af_xdp_gets_the_directory_of_their_map() {
    let scene = Scene::start(wanted(&[("podnet.dev/blue", true)]));
    let (_kubelet, mut heard) = scene.kubelet();
    registered(&mut heard).await;
    // As after a change of the network.
    let with_maps = Offer {
        is_healthy: true,
        has_maps: true,
    };
    let offers = BTreeMap::from([("podnet.dev/blue".to_owned(), with_maps)]);
    scene.wanted.send_replace(Some(offers));
    let socket = scene.of(&registered(&mut heard).await.endpoint);
    let left = scene.place.directories.of_map("podnet.dev/blue", "4");
    ensure_map(&left).unwrap();
    fs::write(left.join("xsks_map"), "of the pod before").unwrap();
    let request = AllocateRequest {
        container_requests: vec![ContainerAllocateRequest {
            devices_ids: vec!["4".to_owned()],
        }],
    };
    let given = peer::allocate(&socket, request).await.unwrap();
    let mounts = &given.container_responses[0].mounts;
    let paths = mounts.iter().map(|mount| mount.container_path.as_str());
    let expected = ["/run/podnet/blue/4", "/run/podnet/blue/4.map"];
    assert_eq!(paths.collect::<Vec<_>>(), expected);
    assert_eq!(Path::new(&mounts[1].host_path), left);
    assert!(left.is_dir() && !left.join("xsks_map").exists());
    proof::of!("DP-3");
}

/// DP-4: the kubelet removes all sockets when it starts.
#[tokio::test]
async fn a_kubelet_that_starts_again_is_told_anew() {
    let scene = Scene::start(wanted(&[
        ("podnet.dev/blue", true),
        ("podnet.dev/red", true),
    ]));
    let (kubelet, mut heard) = scene.kubelet();
    let told = async |heard: &mut UnboundedReceiver<RegisterRequest>| {
        let mut names = [
            registered(heard).await.resource_name,
            registered(heard).await.resource_name,
        ];
        names.sort();
        names
    };
    let both = ["podnet.dev/blue", "podnet.dev/red"];
    assert_eq!(told(&mut heard).await, both);

    kubelet.close().await;
    scene.wipe();
    let (_kubelet, mut heard) = scene.kubelet();
    assert_eq!(told(&mut heard).await, both);
    for name in ["podnet-blue.sock", "podnet-red.sock"] {
        let mut lists = peer::list_and_watch(&scene.of(name)).await.unwrap();
        let list = soon("the devices", lists.message()).await.unwrap().unwrap();
        assert_eq!(health(&list), [HEALTHY]);
    }
    proof::of!("DP-4");
}

/// DP-5: and of a network that comes, without a kubelet's knowing of it before.
#[tokio::test]
async fn a_resource_goes_with_its_network_and_all_sockets_with_the_agent() {
    let scene = Scene::start(None);
    let (_kubelet, mut heard) = scene.kubelet();
    scene
        .wanted
        .send_replace(wanted(&[("podnet.dev/blue", true)]));
    let blue = scene.of(&registered(&mut heard).await.endpoint);
    let mut lists = peer::list_and_watch(&blue).await.unwrap();
    soon("the devices", lists.message()).await.unwrap().unwrap();

    scene
        .wanted
        .send_replace(wanted(&[("podnet.dev/red", true)]));
    assert_eq!(registered(&mut heard).await.resource_name, "podnet.dev/red");
    let end = soon("the end of the list", lists.message()).await;
    assert!(matches!(end, Ok(None) | Err(_)), "{end:?}");
    assert_eq!(scene.sockets(), ["podnet-red.sock"]);
    assert!(peer::options(&blue).await.is_err());

    // What is not known takes nothing away.
    scene.wanted.send_replace(None);
    scene.wanted.send_replace(wanted(&[
        ("podnet.dev/red", true),
        ("podnet.dev/new", true),
    ]));
    assert_eq!(registered(&mut heard).await.resource_name, "podnet.dev/new");
    assert!(heard.try_recv().is_err(), "red is known already");

    scene.work.abort();
    let ended = soon("the end", async { (&mut { scene.work }).await }).await;
    assert!(ended.unwrap_err().is_cancelled());
    let left = fs::read_dir(&scene.place.plugins).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, [KUBELET_SOCKET]);
    proof::of!("DP-5");
}

/// DP-4: a file at the socket's place is no kubelet that listens.
#[tokio::test]
async fn a_kubelet_that_does_not_answer_is_tried_again() {
    let scene = Scene::start(wanted(&[("podnet.dev/blue", true)]));
    let socket = scene.place.plugins.join(KUBELET_SOCKET);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    soon("our socket", async {
        while scene.sockets().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The same file, so that no event tells of it.
    let (_kubelet, mut heard) = scene.kubelet();
    assert_eq!(
        registered(&mut heard).await.resource_name,
        "podnet.dev/blue"
    );
    proof::of!("DP-4");
}

#[test]
fn a_socket_has_a_path_that_sockets_can_have() {
    let place = |plugins: &str| PluginPlace {
        plugins: PathBuf::from(plugins),
        directories: directories(Path::new("/run/podnet")),
        number: 1,
    };
    let long = format!("podnet.dev/{}", "l".repeat(63));
    let usual = place("/var/lib/kubelet/device-plugins").socket(&long);
    assert_eq!(usual.as_os_str().len(), PATH_MAX);
    let deep = place("/var/lib/some/distribution/kubelet/device-plugins");
    let (one, other) = (
        deep.socket(&long),
        deep.socket(&format!("{}x", &long[..long.len() - 1])),
    );
    assert!(one.as_os_str().len() <= PATH_MAX);
    assert_ne!(one, other);
}
