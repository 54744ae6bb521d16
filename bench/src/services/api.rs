//! Measure Services that an API server tells an agent of.

use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::stream::{self, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Node as ApiNode, Pod as ApiPod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::apiserver::{self, ApiServer, Door};
use testbed::{Network, Node, Pod, Setup};
use tokio::runtime::Runtime;

use super::{ENDPOINTS, PATIENCE, arrives, server, service, size};
use crate::case::{Bench, Known, ROUNDS, Run, agent_of, millis, names};
use crate::report::{Better, Case};
use crate::sandbox::Side;
use crate::series::{MEDIAN, P99, percentile};
use crate::traffic::order::SERVICE_PORT;
use crate::{cpu, interrupt};

/// Services from an API server.
pub(crate) const CASE: Known = Known {
    name: "services-api",
    title: "Services from an API server",
    about: "A kube-apiserver with etcd, and the agent of one node that follows it. 10,000 Services of a network, each with a port of UDP and ten endpoints in \
            an EndpointSlice, are written by sixteen requests at a time. In force is the time from the last answer to the first packet of \
            the last Service. A change is one of an EndpointSlice, from before its request to the first of three datagrams in a row at the endpoint \
            that it names, with a rest before it: an agent that has just written a change lets others have the processor; the request alone is shown, too. A restart is kill -9 and a new agent, until all Services are in force as they are written. \
            Watches, and bytes of events, are those of the API server's own metrics for Services and EndpointSlices, less those of before the agent's start; \
            the server watches both itself, so half of the events are the agent's.",
    run: Run::Alone(run),
};

const AGENT: &str = "podnet";
/// The network, its Services' namespace, and the node.
const NETWORK: &str = "served";
/// Services that are written at once.
const AT_ONCE: usize = 16;
/// Number of the first Service: the server has some addresses before.
const FIRST: usize = 1000;
/// Metrics of the server: requests that last, and sizes of events.
const WATCHED: [&str; 2] = [
    "apiserver_longrunning_requests",
    "apiserver_watch_events_sizes_sum",
];
/// Labels of what is counted.
const RESOURCES: [&str; 2] = ["resource=\"services\"", "resource=\"endpointslices\""];
/// Rest before a change.
const REST: Duration = Duration::from_millis(250);
/// How often the agent is asked how far it is.
const LOOK: Duration = Duration::from_millis(250);

/// A server, and a node that follows it.
struct Scene {
    node: Node,
    objects: Objects,
    /// Watches, and bytes of events, before there was an agent.
    before: [f64; 2],
    // They are gone after the node.
    _door: Door,
    server: ApiServer,
}

/// The API, as an administrator has it.
struct Objects {
    runtime: Runtime,
    client: Client,
}

impl Objects {
    fn of(server: &ApiServer) -> Result<Self> {
        let runtime = Runtime::new()?;
        let file = Kubeconfig::read_from(server.kubeconfig())?;
        let config = runtime.block_on(Config::from_custom_kubeconfig(
            file,
            &KubeConfigOptions::default(),
        ))?;
        let client = runtime.block_on(async { Client::try_from(config) })?;
        Ok(Self { runtime, client })
    }

    fn run<T>(&self, steps: impl Future<Output = kube::Result<T>>) -> Result<T> {
        Ok(self.runtime.block_on(steps)?)
    }
}

/// Runs kubectl as the administrator; returns what it prints.
fn kubectl(server: &ApiServer, arguments: &[&str]) -> Result<String> {
    let output = server.kubectl(arguments);
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("kubectl {arguments:?}: {words}");
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Reads the number of watches of Services and slices, and bytes of events.
fn watched(server: &ApiServer) -> Result<[f64; 2]> {
    let text = kubectl(server, &["get", "--raw", "/metrics"])?;
    Ok(WATCHED.map(|name| sum(&text, name)))
}

/// Sums a metric of the server over Services and EndpointSlices.
fn sum(text: &str, name: &str) -> f64 {
    let is_of = |line: &&str| {
        let rest = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{'));
        rest && RESOURCES.iter().any(|resource| line.contains(resource))
    };
    let values = text.lines().filter(is_of);
    values
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// An object of its kind.
fn object<K: DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

/// A Service of the network.
fn service_object(number: usize) -> Result<Service> {
    let address = service(FIRST + number).to_string();
    object(json!({
        "metadata": {"name": format!("s{number}"), "labels": {"podnet.dev/network": NETWORK}},
        "spec": {"clusterIP": address, "ports": [{"name": "u", "port": SERVICE_PORT, "protocol": "UDP"}]},
    }))
}

/// The slice of a Service with these endpoints.
fn slice_object(number: usize, endpoints: &[String]) -> Result<EndpointSlice> {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|ip| json!({"addresses": [ip]}))
        .collect();
    object(json!({
        "metadata": {"name": format!("s{number}"), "labels": {
            "podnet.dev/network": NETWORK, "kubernetes.io/service-name": format!("s{number}"),
        }},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "u", "port": SERVICE_PORT, "protocol": "UDP"}],
    }))
}

impl Scene {
    fn set(programs: &Path) -> Result<Self> {
        let server = ApiServer::start(programs, &[]);
        let objects = Objects::of(&server)?;
        server.install_definitions();
        let (client, params) = (objects.client.clone(), PostParams::default());
        let namespace: Namespace = object(json!({"metadata": {"name": NETWORK}}))?;
        let this: ApiNode = object(json!({"metadata": {"name": NETWORK}}))?;
        objects.run(async {
            Api::all(client.clone()).create(&params, &namespace).await?;
            Api::all(client.clone()).create(&params, &this).await
        })?;
        let before = watched(&server)?;
        let setup = Setup::empty()
            .cluster(NETWORK, &server.kubeconfig())
            .args(&["--default-network=none"])
            .stopped();
        let node = Node::start(setup);
        let door = Door::open(node.netns(), server.port());
        node.start_agent();
        let network = Network::l3(NETWORK, &["10.20.0.0/16"]).services(&["10.96.0.0/16"]);
        let file = node.path("network.yaml");
        std::fs::write(&file, network.yaml())?;
        let file = file.to_str().context("a path that is text")?;
        kubectl(&server, &["apply", "--server-side", "--filename", file])?;
        // No controller runs here; it would give the number.
        let number = json!({"status": {"networkID": 0x00a9_0101}}).to_string();
        let merge = ["--subresource=status", "--type=merge", "--patch", &number];
        kubectl(
            &server,
            &[&["patch", "podnetwork", NETWORK][..], &merge].concat(),
        )?;
        Ok(Self {
            node,
            objects,
            before,
            _door: door,
            server,
        })
    }
}

/// Puts a pod on the network; returns its end.
fn attach(objects: &Objects, node: &Node, name: &str, sandbox: &Pod<'_>) -> Result<Side> {
    let list = json!([{"name": NETWORK}]).to_string();
    let pod: ApiPod = object(json!({
        "metadata": {"name": name, "annotations": {"podnet.dev/networks": list}},
        "spec": {
            "nodeName": NETWORK,
            "containers": [{"name": "main", "image": "none.example/none:0"}],
        },
    }))?;
    let pods: Api<ApiPod> = Api::namespaced(objects.client.clone(), NETWORK);
    let made = objects.run(pods.create(&PostParams::default(), &pod))?;
    let uid = made.metadata.uid.context("a UID")?;
    let args = sandbox.kubernetes_args(NETWORK, name, &uid);
    let conf = json!({
        "cniVersion": "1.1.0",
        "name": "podnet",
        "type": "podnet",
        "fromPod": true,
        "socket": node.socket(),
    });
    let call = sandbox.call("ADD", "eth0").env("CNI_ARGS", &args);
    let call = call.conf(&conf);
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        let outcome = call.run();
        if outcome.success {
            let port = sandbox.port(NETWORK, "eth0", outcome.result());
            return Ok(Side::of_port(&port));
        }
        // The agent hears of the network in a moment.
        if begun.elapsed() > PATIENCE {
            bail!("no pod on the network within {PATIENCE:?}: {outcome}");
        }
        thread::sleep(LOOK);
    }
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[AGENT]);
    let Some(programs) = apiserver::programs() else {
        let why = std::env::var("PODNET_NO_KUBERNETES");
        let why = why.unwrap_or_else(|_| "PODNET_KUBERNETES names no programs".to_owned());
        case.skip("kube-apiserver", &why);
        return Ok(());
    };
    bench.progress.stage("setting up");
    let scene = Scene::set(&programs)?;
    let node = &scene.node;
    let pods = ["a", "b"].map(|name| (name, node.pod(name)));
    let [a, b] = pods
        .each_ref()
        .map(|(name, pod)| attach(&scene.objects, node, name, pod));
    let sides = [a?, b?];
    let count = size(bench, 10_000);
    let memory = |case: &mut Case, what: &str| -> Result<()> {
        let bytes = cpu::memory_of(agent_of(&scene.node)?)?;
        case.measure(
            "",
            &format!("Agent's memory (RSS), {what}"),
            "MiB",
            Better::Less,
        )
        .put(AGENT, 0, bytes);
        Ok(())
    };
    memory(case, "no Services")?;
    serve(bench, case, (&scene, &sides), count)?;
    memory(case, "all Services")?;
    change(bench, case, (&scene, &sides), count / 2)?;
    let [watches, bytes] = watched(&scene.server)?;
    case.measure("", "Watches of the agent", "watches", Better::Less)
        .put(AGENT, 0, watches - scene.before[0]);
    case.measure("", "Events to all watchers", "MB", Better::Less)
        .put(AGENT, 0, (bytes - scene.before[1]) / 1e6);
    restart(case, &scene)?;
    memory(case, "after a restart")
}

/// Writes all Services, and waits until the last one is in force.
fn serve(
    bench: &Bench<'_>,
    case: &mut Case,
    (scene, [a, b]): (&Scene, &[Side; 2]),
    count: usize,
) -> Result<()> {
    bench.progress.stage("Services");
    let client = scene.objects.client.clone();
    let services: Api<Service> = Api::namespaced(client.clone(), NETWORK);
    let slices: Api<EndpointSlice> = Api::namespaced(client, NETWORK);
    let params = PostParams::default();
    let pairs = (0..count).map(|number| {
        let is_real = number == count / 2 || number + 1 == count;
        let endpoints = match is_real {
            true => vec![b.ip.to_string()],
            false => (0..ENDPOINTS)
                .map(|at| {
                    let host = (number * ENDPOINTS + at) % 60_000 + 4_000;
                    format!("10.20.{}.{}", host >> 8, host & 0xff)
                })
                .collect(),
        };
        Ok::<_, anyhow::Error>((service_object(number)?, slice_object(number, &endpoints)?))
    });
    let pairs: Vec<_> = pairs.collect::<Result<_>>()?;
    let begun = Instant::now();
    scene.objects.run(async {
        stream::iter(pairs.iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |(service, slice)| async {
                services.create(&params, service).await?;
                slices.create(&params, slice).await.map(drop)
            })
            .await
    })?;
    case.measure("", "Written", "ms", Better::Less)
        .put(AGENT, 0, millis(begun.elapsed()));
    let written = Instant::now();
    let to = IpAddr::from(service(FIRST + count - 1));
    let servers = [server(b)?, server(a)?];
    let arrived = arrives(a, (to, &servers[0], &servers[1]), written)?;
    case.measure("", "In force after the last answer", "ms", Better::Less)
        .put(AGENT, 0, millis(arrived));
    Ok(())
}

/// Changes the pod that a slice names, and waits until datagrams go there.
fn change(
    bench: &Bench<'_>,
    case: &mut Case,
    (scene, [a, b]): (&Scene, &[Side; 2]),
    number: usize,
) -> Result<()> {
    bench.progress.stage("slices");
    let (rounds, changes) = (bench.rounds(ROUNDS), bench.size(40, 4));
    bench.progress.expect(rounds);
    let slices: Api<EndpointSlice> = Api::namespaced(scene.objects.client.clone(), NETWORK);
    let name = format!("s{number}");
    let to = IpAddr::from(service(FIRST + number));
    // The first pod is a client, and its own endpoint in turn.
    let servers = [server(a)?, server(b)?];
    let mut all = Vec::new();
    for round in 0..rounds {
        let (mut times, mut answers) = (Vec::new(), Vec::new());
        for change in 0..changes {
            interrupt::check()?;
            thread::sleep(REST);
            let ip = [a.ip, b.ip][change % 2].to_string();
            let patch = Patch::Merge(json!({"endpoints": [{"addresses": [ip]}]}));
            let params = PatchParams::default();
            let begun = Instant::now();
            scene.objects.run(slices.patch(&name, &params, &patch))?;
            answers.push(millis(begun.elapsed()));
            let sockets = (to, &servers[change % 2], &servers[1 - change % 2]);
            times.push(millis(arrives(a, sockets, begun)?));
        }
        for (what, times) in [
            ("Slice to packet, p50", &mut times),
            ("The request of that, p50", &mut answers),
        ] {
            times.sort_by(f64::total_cmp);
            case.measure("", what, "ms", Better::Less)
                .put(AGENT, round, percentile(times, MEDIAN));
        }
        all.extend(times);
        bench.progress.step();
    }
    all.sort_by(f64::total_cmp);
    case.measure("", "Slice to packet, p99 of all", "ms", Better::Less)
        .put(AGENT, 0, percentile(&all, P99));
    Ok(())
}

/// Kills the agent, and waits until all Services are in force by the next one.
fn restart(case: &mut Case, scene: &Scene) -> Result<()> {
    scene.node.kill_9();
    let begun = Instant::now();
    scene.node.start_agent();
    loop {
        let text = scene
            .node
            .http("/metrics")
            .map_or_else(String::new, |it| it.1);
        let applied = |line: &str| {
            let count = line.strip_prefix("podnet_service_apply_seconds_count")?;
            count.trim().parse::<f64>().ok()
        };
        if text.lines().filter_map(applied).any(|count| count > 0.0) {
            break;
        }
        interrupt::check()?;
        if begun.elapsed() > PATIENCE {
            bail!("the next agent has not put the Services in force within {PATIENCE:?}");
        }
        thread::sleep(LOOK);
    }
    case.measure("", "In force after a restart", "ms", Better::Less)
        .put(AGENT, 0, millis(begun.elapsed()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_services_and_slices_and_nothing_else() {
        let text = "# TYPE a counter\na{resource=\"services\",verb=\"WATCH\"} 2\n\
                    a{resource=\"endpointslices\"} 1.5e+01\na{resource=\"apiservices\"} 7\n\
                    a_more{resource=\"services\"} 4\n";
        assert!((sum(text, "a") - 17.0).abs() < f64::EPSILON);
    }

    #[test]
    fn objects_are_of_their_kinds_and_belong_together() {
        let (service, slice) = (
            service_object(7).unwrap(),
            slice_object(7, &["10.20.0.1".to_owned()]).unwrap(),
        );
        let labels = slice.metadata.labels.unwrap();
        assert_eq!(
            labels["kubernetes.io/service-name"],
            service.metadata.name.unwrap()
        );
        assert_eq!(labels["podnet.dev/network"], NETWORK);
        assert_eq!(slice.endpoints.unwrap().len(), 1);
        let ip = service.spec.unwrap().cluster_ip.unwrap();
        assert!(ip.starts_with("10.96."), "{ip}");
    }
}
