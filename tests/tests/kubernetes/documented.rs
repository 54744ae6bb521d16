//! Run commands of docs/operations.md, as they are written.
//!
//! No kubelet and no controller manager is here: a stand-in does what these would do for the commands to
//! end. What becomes of nodes is tested in a cluster (`e2e::uninstall`).

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testbed::apiserver::{self, ApiServer};
use testbed::documented;

use super::chart::Helm;
use super::objects::kubectl;

const PAGE: &str = "docs/operations.md";
const SYSTEM: &str = "--namespace=podnet-system";
/// Between two looks of the stand-in.
const STEP: Duration = Duration::from_millis(100);

/// Runs documented commands in the root of the repository.
///
/// The first one that fails ends them.
#[track_caller]
fn run(server: &ApiServer, block: &str, helm: Option<&Path>) {
    let script = documented::commands(PAGE, block);
    let programs = apiserver::programs().expect("there is a server, so there are its programs");
    let path = env::var_os("PATH").unwrap_or_default();
    let own = [Some(programs.as_path()), helm.and_then(Path::parent)];
    let all = own.into_iter().flatten().map(Path::to_path_buf);
    let path = env::join_paths(all.chain(env::split_paths(&path))).expect("a PATH");
    let cache = tempfile::tempdir().expect("a directory");
    let output = Command::new("bash")
        .args(["-e", "-c", &script])
        .current_dir(documented::root())
        .env("PATH", path)
        .env("HOME", cache.path())
        .env("KUBECONFIG", server.kubeconfig())
        .env("KUBECACHEDIR", cache.path())
        .output()
        .expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{block}: {}: {said}",
        output.status
    );
}

/// Objects of podnet's namespace, and the namespace.
fn objects(server: &ApiServer, kinds: &str) -> Vec<Value> {
    let output = kubectl(server, &["get", kinds, SYSTEM, "--output=json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Sees new workloads, and lets deleted objects go, as controllers do.
fn stand_in(server: &ApiServer) {
    for object in objects(server, "daemonsets,deployments") {
        let part = |at: &str| object.pointer(at).cloned().unwrap_or_default();
        let kind = part("/kind").as_str().unwrap_or_default().to_lowercase();
        let name = part("/metadata/name");
        let target = format!("{kind}/{}", name.as_str().unwrap_or_default());
        let patch = |patch: &str, further: &[&str]| {
            let patch = format!("--patch={patch}");
            let mut words = vec!["patch", &target, SYSTEM, "--type=merge", &patch];
            words.extend(further);
            // It may be gone meanwhile.
            kubectl(server, &words);
        };
        if !part("/metadata/deletionTimestamp").is_null() {
            patch(r#"{"metadata":{"finalizers":null}}"#, &[]);
        } else if part("/status/observedGeneration") != part("/metadata/generation") {
            let seen = part("/metadata/generation");
            let status = format!(r#"{{"status":{{"observedGeneration":{seen}}}}}"#);
            patch(&status, &["--subresource=status"]);
        }
    }
    let output = kubectl(
        server,
        &["get", "namespace", "podnet-system", "--output=json"],
    );
    let mut namespace: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if !namespace["metadata"]["deletionTimestamp"].is_null() {
        namespace["spec"]["finalizers"] = Value::Array(Vec::new());
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), namespace.to_string()).expect("a file");
        let path = file.path().display().to_string();
        let at = "--raw=/api/v1/namespaces/podnet-system/finalize";
        kubectl(server, &["replace", at, "--filename", &path]);
    }
}

/// Runs steps while a stand-in looks after the objects.
fn attended<T>(server: &ApiServer, steps: impl FnOnce() -> T) -> T {
    /// Says that it is over, also when a step panics.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                stand_in(server);
                thread::sleep(STEP);
            }
        });
        let _over = Over(&over);
        steps()
    })
}

/// Names of what is left of podnet in the cluster.
fn left(server: &ApiServer) -> String {
    let kinds = "crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,\
                 validatingwebhookconfigurations,mutatingwebhookconfigurations,namespaces";
    let output = kubectl(server, &["get", kinds, "--output=name"]);
    let all = String::from_utf8(output.stdout).expect("UTF-8");
    let ours = all.lines().filter(|name| name.contains("podnet"));
    ours.collect::<Vec<_>>().join("\n")
}

/// PAIN-BOOT-3
#[test]
fn the_documented_commands_install_podnet_and_leave_nothing_of_it() {
    let Some(programs) = apiserver::programs_for(testbed::test_name!()) else {
        return;
    };
    let server = ApiServer::start(&programs, &[]);
    attended(&server, || {
        run(&server, "install", None);
        assert!(left(&server).contains("podnetworks.podnet.dev"));
        run(&server, "uninstall", None);
        assert_eq!(left(&server), "");
    });
    proof::of!("PAIN-BOOT-3");
}

#[test]
fn the_documented_commands_of_helm_install_podnet_and_leave_nothing_of_it() {
    let test = testbed::test_name!();
    let Some(helm) = Helm::find(test) else {
        return;
    };
    let Some(programs) = apiserver::programs_for(test) else {
        return;
    };
    let server = ApiServer::start(&programs, &[]);
    attended(&server, || {
        run(&server, "helm-install", Some(helm.program()));
        assert!(left(&server).contains("podnetworks.podnet.dev"));
        run(&server, "helm-uninstall", Some(helm.program()));
        assert_eq!(left(&server), "");
        run(&server, "install", None);
        run(&server, "helm-take-over", Some(helm.program()));
        run(&server, "helm-uninstall", Some(helm.program()));
        assert_eq!(left(&server), "");
    });
}
