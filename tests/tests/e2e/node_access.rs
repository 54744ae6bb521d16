//! Test that kubelets and API servers reach pods with an isolated network alone.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::commands::{kubectl, on_node};
use super::corner::{Corner, KEP, pod_fields};
use super::objects::{Kind, NODE, POD, condition, until};

const POLICY: Kind = ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies");

/// Serves files of /www by HTTP at port 8080 of the pod.
const SERVE: &str = "mkdir -p /www && hostname > /www/name && touch /www/ready && httpd -f -p 8080 -h /www; sleep 1000000";

/// Answers one call of each connection by gRPC's health protocol, at port 9000.
///
/// `SERVING` while /www/ready is there. Frames of HTTP/2 (RFC 9113): settings and their acknowledgement; when the
/// client has called, on stream 1, status 200 of `application/grpc`, the message, and the trailer `grpc-status: 0`,
/// which are written without compression (RFC 7541).
const ANSWER: &str = r#"printf '\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0'
sleep 1
printf '\0\0\24\1\4\0\0\0\1\210\17\20\20application/grpc'
if [ -e /www/ready ]; then state='\1'; else state='\2'; fi
printf "\0\0\7\0\0\0\0\0\1\0\0\0\0\2\10$state"
printf '\0\0\17\1\5\0\0\0\1\0\13grpc-status\0010'
sleep 1
"#;

/// A pod as [`probed`], by gRPC alone.
fn called(node: &str, network: &str) -> Value {
    let list = json!([{"name": network}]).to_string();
    let mut pod = pod_fields(node, &[(KEP, list)]);
    let container = &mut pod["spec"]["containers"][0];
    let serve = "mkdir -p /www && touch /www/ready && printf '%s' \"$ANSWER\" > /www/answer && exec nc -ll -p 9000 -e sh /www/answer";
    container["command"] = json!(["sh", "-c", serve]);
    container["env"] = json!([{"name": "ANSWER", "value": ANSWER}]);
    container["readinessProbe"] = json!({
        "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 5, "grpc": {"port": 9000},
    });
    pod
}

/// A pod on this network alone that its kubelet probes there.
fn probed(node: &str, network: &str) -> Value {
    let list = json!([{"name": network}]).to_string();
    let mut pod = pod_fields(node, &[(KEP, list)]);
    let container = &mut pod["spec"]["containers"][0];
    container["command"] = json!(["sh", "-c", SERVE]);
    let probe = |way: Value| {
        let mut probe = json!({"periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 3});
        probe
            .as_object_mut()
            .expect("an object")
            .extend(way.as_object().expect("an object").clone());
        probe
    };
    container["startupProbe"] = probe(json!({
        "failureThreshold": 60, "tcpSocket": {"port": 8080},
    }));
    container["readinessProbe"] = probe(json!({"httpGet": {"path": "/ready", "port": 8080}}));
    container["livenessProbe"] = probe(json!({"tcpSocket": {"port": 8080}}));
    pod
}

fn network(corner: &Corner, suffix: &str, subnets: &[&str], access: &str) -> String {
    corner.network_with(
        suffix,
        json!({
            "mode": "L3", "subnets": subnets, "gateway": "First",
            "transport": {"type": "VXLAN"}, "nodeAccess": access,
        }),
    )
}

fn is_ready(corner: &Corner, pod: &str) -> bool {
    condition(&corner.object(pod), "Ready").is_some_and(|it| it == "True")
}

fn restarts(corner: &Corner, pod: &str) -> u64 {
    let object = corner.object(pod);
    let count = &object["status"]["containerStatuses"][0]["restartCount"];
    count.as_u64().unwrap_or_default()
}

/// KEP-P3-1: startup, readiness and liveness, by HTTP, TCP and gRPC.
#[test]
fn kubelets_probe_pods_on_a_network_that_says_so() {
    let corner = Corner::new("probes");
    let open = network(
        &corner,
        "open",
        &["10.115.0.0/24", "fd10:115::/64"],
        "Local",
    );
    let closed = network(&corner, "closed", &["10.116.0.0/24"], "None");
    for (name, node, network) in [
        ("p1", "n1", &open),
        ("p2", "n2", &open),
        ("shut", "n1", &closed),
    ] {
        corner.create(name, &probed(node, network));
    }
    corner.create("rpc", &called("n2", &open));
    for pod in ["p1", "p2", "rpc"] {
        assert_eq!(corner.ready(pod).len(), 1);
        let address = corner.object(pod)["status"]["podIP"].clone();
        let address = address.as_str().expect("an address");
        assert!(address.starts_with("10.115.0."), "{address}");
    }
    // What is not opened stays shut: its kubelet says so.
    until("a probe of the closed network's pod to fail", || {
        let object = corner.objects.get(POD, (&corner.name, "shut"))?;
        let status = &object["status"]["containerStatuses"][0];
        (status["started"] == false && restarts(&corner, "shut") > 0).then_some(())
    });
    assert!(!is_ready(&corner, "shut"));
    // Probes tell what they shall: of both pods, each by its own node.
    corner.run("p2", &["rm", "/www/ready"]);
    until("p2 to be unready", || {
        (!is_ready(&corner, "p2")).then_some(())
    });
    assert!(is_ready(&corner, "p1"));
    corner.run("p2", &["touch", "/www/ready"]);
    until("p2 to be ready", || is_ready(&corner, "p2").then_some(()));
    corner.run("rpc", &["rm", "/www/ready"]);
    until("rpc to be unready", || {
        (!is_ready(&corner, "rpc")).then_some(())
    });
    corner.run("rpc", &["touch", "/www/ready"]);
    until("rpc to be ready", || is_ready(&corner, "rpc").then_some(()));
    // A policy that isolates the pod from all others does not from its own node (A-NP-35).
    let policy = json!({
        "metadata": {"annotations": {"podnet.dev/networks": open}},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    });
    corner
        .objects
        .make(POLICY, (&corner.name, "closed"), policy);
    let address = corner.object("p2")["status"]["podIP"].clone();
    let address = address.as_str().expect("an address").to_owned();
    let fetch = format!("wget -q -T 2 -O - http://{address}:8080/name || echo none");
    until("the policy to be in force", || {
        (corner.run("p1", &["sh", "-c", &fetch]).trim() == "none").then_some(())
    });
    // The pods do not reach the nodes by it: the kubelet's port, at any address of theirs.
    let own = on_node("n1", "ip -4 -o address show | sed 's,/.*,,; s/.* //'");
    let own: Vec<&str> = own
        .split_whitespace()
        .filter(|it| *it != "127.0.0.1")
        .collect();
    assert!(own.iter().any(|it| it.starts_with("10.115.0.")), "{own:?}");
    for address in own {
        let connect = format!("nc -w 2 {address} 10250 < /dev/null && echo connected || echo none");
        let said = corner.run("p1", &["sh", "-c", &connect]);
        assert_eq!(said.trim(), "none", "{address}");
    }
    corner.run("p1", &["rm", "/www/ready"]);
    until("p1 to be unready", || {
        (!is_ready(&corner, "p1")).then_some(())
    });
    corner.run("p1", &["touch", "/www/ready"]);
    until("p1 to be ready", || is_ready(&corner, "p1").then_some(()));
    // Liveness: a server that is gone is started again.
    let before = restarts(&corner, "p1");
    corner.run("p1", &["killall", "httpd"]);
    until("p1 to be restarted", || {
        (restarts(&corner, "p1") > before).then_some(())
    });
    until("p1 to be ready once more", || {
        is_ready(&corner, "p1").then_some(())
    });
    proof::of!("KEP-P3-1");
}

/// The agent on the machine of the control plane, with a Node object of its own.
struct ControlNode<'a> {
    corner: &'a Corner,
    agent: Child,
    directory: PathBuf,
}

/// Its name: after those of the nodes of the cluster.
const CONTROL: &str = "e2e-control";

/// A command of the tested agent, with its places in a directory.
fn agent(verb: &str, directory: &Path) -> Command {
    let program = env::current_exe().expect("this program");
    let release = program.ancestors().nth(2).expect("target/release");
    let mut command = Command::new(release.join("podnet-agent"));
    command
        .arg(verb)
        .arg("--socket")
        .arg(directory.join("run/agent.sock"))
        .arg("--state-dir")
        .arg(directory.join("state"))
        .args(["--bpffs", "/sys/fs/bpf/podnet-e2e-control"]);
    command
}

impl<'a> ControlNode<'a> {
    /// Starts it: this test runs in the network of the API server.
    fn start(corner: &'a Corner) -> Self {
        let addresses = kubectl(&[
            "get",
            "--raw",
            "/api/v1/namespaces/default/endpoints/kubernetes",
        ]);
        let endpoints: Value = serde_json::from_str(&addresses.expect("endpoints")).expect("JSON");
        let address = endpoints["subsets"][0]["addresses"][0]["ip"].clone();
        // No label of the operating system: DaemonSets leave it alone.
        let node = json!({"spec": {"unschedulable": true}});
        corner.objects.make(NODE, ("", CONTROL), node);
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        let patch = status.to_string();
        kubectl(&[
            "patch",
            "node",
            CONTROL,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ])
        .expect("the addresses of the node");
        let directory = env::temp_dir().join(format!("podnet-{CONTROL}"));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        let log = File::create(directory.join("log")).expect("a log");
        let mut command = agent("run", &directory);
        command
            .args(["--default-network=delegate", "--start-switch=false"])
            .args(["--node-name", CONTROL, "--admin", "127.0.0.1:19464"])
            .arg("--kubeconfig")
            .arg(env::var_os("KUBECONFIG").expect("an administrator"))
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .stdin(Stdio::null());
        let agent = command.spawn().expect("podnet-agent beside this program");
        Self {
            corner,
            agent,
            directory,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for ControlNode<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the agent of the control plane:\n{}", self.log());
        }
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let cleaned = agent("cleanup", &self.directory).output();
        let _ = self.corner.objects.delete(NODE, ("", CONTROL));
        let _ = fs::remove_dir_all(&self.directory);
        let cleaned = cleaned.expect("cleanup");
        if !std::thread::panicking() {
            assert!(cleaned.status.success(), "{cleaned:?}");
        }
    }
}

/// KEP-P3-3: an API server on a node reaches pods of all nodes.
#[test]
fn an_api_server_reaches_pods_on_a_network_that_all_nodes_have() {
    let corner = Corner::new("called");
    let open = network(&corner, "open", &["10.117.0.0/24"], "All");
    let closed = network(&corner, "closed", &["10.118.0.0/24"], "Local");
    for (name, node, network) in [
        ("a1", "n1", &open),
        ("a2", "n2", &open),
        ("shut", "n1", &closed),
    ] {
        let mut pod = probed(node, network);
        // Ready by themselves: what is asked here is the API server.
        let container = &mut pod["spec"]["containers"][0];
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            container.as_object_mut().expect("an object").remove(probe);
        }
        corner.create(name, &pod);
    }
    for pod in ["a1", "a2", "shut"] {
        assert_eq!(corner.ready(pod).len(), 1);
    }
    let asks = |pod: &str| {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{pod}:8080/proxy/name",
            corner.name
        );
        kubectl(&["get", "--raw", &path, "--request-timeout=5s"])
    };
    assert!(
        asks("a1").is_err(),
        "the API server has no way to the network yet"
    );
    let control = ControlNode::start(&corner);
    for pod in ["a1", "a2"] {
        until(&format!("the API server to reach {pod}"), || {
            asks(pod).is_ok_and(|said| said.trim() == pod).then_some(())
        });
    }
    assert!(asks("shut").is_err(), "a network of nodes with pods alone");
    // To a policy it is an address outside of the pods: one that blocks of addresses allow.
    let policy = |ingress: Value| {
        json!({
            "metadata": {"annotations": {"podnet.dev/networks": open}},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": ingress},
        })
    };
    corner
        .objects
        .make(POLICY, (&corner.name, "closed"), policy(json!([])));
    until("the policy to be in force", || {
        asks("a2").is_err().then_some(())
    });
    let block =
        json!([{"from": [{"ipBlock": {"cidr": "10.117.0.0/24"}}], "ports": [{"port": 8080}]}]);
    corner
        .objects
        .make(POLICY, (&corner.name, "open"), policy(block));
    until("the API server to be let in", || {
        asks("a2")
            .is_ok_and(|said| said.trim() == "a2")
            .then_some(())
    });
    drop(control);
    proof::of!("KEP-P3-3");
}
