//! Make pods and watch their times.
//!
//! Requests go through one `kubectl proxy`, so that no program has to start while the time runs.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::node::config::METRICS;
use crate::place::{self, CONTROL};
use crate::{control, kubectl};
use xtask::step::execute;

/// The proxy, in the network namespace of the control plane.
const PROXY: &str = "127.0.0.1:8001";
/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// containerd's metric of the time of all plugins of an ADD.
const ADD: &str = "containerd_cri_network_plugin_operations_duration_seconds_seconds";

/// Times of pods, seconds.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Times {
    /// From before the request to `Ready`, of each pod.
    ready: Vec<f64>,
    /// Sum and number of ADDs as the runtimes saw them.
    add: (f64, f64),
}

impl Times {
    /// Takes those of another round.
    pub(super) fn add(&mut self, other: Self) {
        self.ready.extend(other.ready);
        self.add = (self.add.0 + other.add.0, self.add.1 + other.add.1);
    }

    /// The time that so many percent of the pods do not exceed.
    fn percent(&self, share: usize) -> f64 {
        let mut sorted = self.ready.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let index = (sorted.len() * share).div_ceil(100).saturating_sub(1);
        sorted.get(index.min(last)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, most, worst] = [50, 90, 100].map(|share| self.percent(share));
        let (sum, count) = self.add;
        let mean = if count > 0.0 {
            sum / count * 1000.0
        } else {
            0.0
        };
        write!(f, "{median:.2} s, {most:.2} s, {worst:.2} s; {mean:.0} ms")
    }
}

/// Makes pods and sees them get ready.
#[derive(Debug)]
pub(super) struct Observer {
    proxy: Child,
    path: String,
    annotation: String,
}

impl Drop for Observer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

impl Observer {
    /// Starts the proxy; pods get a list of these networks.
    ///
    /// # Errors
    /// The proxy cannot be started.
    pub(super) fn start(namespace: &str, networks: &[&str]) -> Result<Self> {
        let mut command = kubectl()?;
        command.args(["proxy", "--port=8001"]).stdout(Stdio::null());
        let proxy = command.spawn().context("starting kubectl proxy")?;
        let observer = Self {
            proxy,
            path: format!("/api/v1/namespaces/{namespace}/pods"),
            annotation: networks.join(","),
        };
        control::wait_for("kubectl proxy", PATIENCE, || {
            // Pods need it, and a new namespace gets it a moment later.
            let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            let asked = proxy_stream().and_then(|proxy| request(proxy, "GET", &account, ""));
            Ok(asked.is_ok())
        })?;
        Ok(observer)
    }

    /// Makes pods at once, waits until all are ready, and deletes them.
    ///
    /// # Errors
    /// A request is refused, or a pod does not get ready.
    pub(super) fn round(&mut self, name: &str, count: usize) -> Result<Times> {
        let before = additions()?;
        let events = proxy_stream()?;
        events.set_read_timeout(Some(PATIENCE))?;
        (&events).write_all(head("GET", &format!("{}?watch=true", self.path), 0).as_bytes())?;
        let mut made = BTreeMap::new();
        for number in 0..count {
            let name = format!("{name}-{number}");
            let body = self.pod(&name).to_string();
            let now = Instant::now();
            request(proxy_stream()?, "POST", &self.path, &body)?;
            made.insert(name, now);
        }
        let ready = watch(&events, made)?;
        let after = additions()?;
        let delete = ["delete", "pods", "--all", "--timeout=120s", "-o=name", "-n"];
        execute(kubectl()?.args(delete).arg(super::NAMESPACE))?;
        Ok(Times {
            ready,
            add: (after.0 - before.0, after.1 - before.1),
        })
    }

    fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {"k8s.v1.cni.cncf.io/networks": self.annotation},
            },
            "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "pause",
                    "image": "localhost/pause:1",
                    "imagePullPolicy": "Never",
                }],
            },
        })
    }
}

/// Reads events until all pods are ready; seconds from when each was made.
fn watch(events: &TcpStream, mut made: BTreeMap<String, Instant>) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    // After the head, each line is an event: HTTP/1.0 has no chunks.
    for line in BufReader::new(events).lines() {
        let line = line.context("waiting for pods to get ready")?;
        let now = Instant::now();
        if let Some(name) = ready_pod(&line)
            && let Some(begin) = made.remove(&name)
        {
            times.push(now.duration_since(begin).as_secs_f64());
        }
        if made.is_empty() {
            return Ok(times);
        }
    }
    bail!(
        "the API server ended the watch; {} pods are not ready",
        made.len()
    )
}

/// The pod of an event, if it is ready.
fn ready_pod(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    let pod = &event["object"];
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    let name = pod["metadata"]["name"].as_str()?;
    (ready["status"] == "True").then(|| name.to_owned())
}

fn proxy_stream() -> Result<TcpStream> {
    connect(CONTROL, PROXY)
}

/// A connection inside the network namespace of a part.
fn connect(part: &str, address: &str) -> Result<TcpStream> {
    let stream = place::netns(part)?.run_in(|| TcpStream::connect(address))?;
    stream.with_context(|| format!("connecting to {address} in {part}"))
}

fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// One request, and the answer to it, with its head.
fn request(mut stream: TcpStream, method: &str, path: &str, body: &str) -> Result<String> {
    let head = head(method, path, body.len());
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let code = answer.split(' ').nth(1).unwrap_or_default();
    if !code.starts_with('2') {
        bail!("{method} {path}: {answer}");
    }
    Ok(answer)
}

/// Sum of seconds and number of ADDs so far, on all nodes.
fn additions() -> Result<(f64, f64)> {
    let mut total = (0.0, 0.0);
    for node in place::nodes() {
        let runtime = connect(&node, METRICS)?;
        let text = request(runtime, "GET", "/v1/metrics", "")?;
        total.0 += value(&text, "sum");
        total.1 += value(&text, "count");
    }
    Ok(total)
}

/// 0 before the first ADD.
fn value(metrics: &str, kind: &str) -> f64 {
    let name = format!("{ADD}_{kind}{{operation_type=\"set_up_pod\"}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&name));
    found.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_middle_of_many_and_the_worst() {
        let mut times = Times::default();
        for tenths in (1..=10).rev() {
            let ready = vec![f64::from(tenths) / 10.0];
            times.add(Times {
                ready,
                add: (0.05, 1.0),
            });
        }
        assert_eq!(times.to_string(), "0.50 s, 0.90 s, 1.00 s; 50 ms");
    }

    #[test]
    fn a_pod_is_ready_when_its_condition_says_so() {
        let event = |status: &str| {
            let conditions = json!([{"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": status}]);
            let object = json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}});
            json!({"type": "MODIFIED", "object": object}).to_string()
        };
        assert_eq!(ready_pod(&event("True")), Some("a".to_owned()));
        assert_eq!(ready_pod(&event("False")), None);
        assert_eq!(ready_pod("HTTP/1.0 200 OK"), None);
    }

    #[test]
    fn the_time_of_plugins_is_read_from_the_metrics_of_the_runtime() {
        let text = format!("{ADD}_sum{{operation_type=\"set_up_pod\"}} 1.25\n{ADD}_count 3\n");
        assert!((value(&text, "sum") - 1.25).abs() < f64::EPSILON);
        assert!(value(&text, "count").abs() < f64::EPSILON);
    }
}
