//! Call shell scripts as plugins, in real processes.
//!
//! Each script writes down its input and gives the answer it was prepared with.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use api::nad::PluginChain;
use cni_spec::{ContainerId, IfName};
use tempfile::TempDir;

use super::prepare::{Wishes, prepare};
use super::*;

const SCRIPT: &str = r#"#!/bin/sh
log=LOG; me=${0##*/}
echo "$me $CNI_COMMAND" >> "$log/order"
cat > "$log/$me.$CNI_COMMAND.stdin"
env | grep -v '^_=' | grep -v '^PWD=' | grep -v '^SHLVL=' | sort > "$log/$me.$CNI_COMMAND.env"
run=$log/$me.$CNI_COMMAND.run
if [ -e "$run" ]; then . "$run"; fi
"#;

struct Scene {
    dir: TempDir,
    runner: Runner,
}

impl Scene {
    fn new(plugins: &[&str]) -> Self {
        Self::with_patience(plugins, Duration::from_secs(60))
    }

    fn with_patience(plugins: &[&str], patience: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["log", "bin", "other"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let scene = Self {
            runner: Runner::new("/".into(), patience, 2),
            dir,
        };
        for plugin in plugins {
            scene.install("bin", plugin);
        }
        scene
    }

    fn install(&self, bin: &str, plugin: &str) {
        let log = self.dir.path().join("log");
        let text = SCRIPT.replace("LOG", log.to_str().unwrap());
        let path = self.dir.path().join(bin).join(plugin);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Sets the script that a plugin runs for a command.
    fn on(&self, plugin: &str, command: &str, run: &str) {
        fs::write(self.log(&format!("{plugin}.{command}.run")), run).unwrap();
    }

    fn log(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("log").join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    fn stdin(&self, plugin: &str, command: &str) -> Value {
        serde_json::from_str(&self.read(&format!("{plugin}.{command}.stdin"))).unwrap()
    }

    fn order(&self) -> Vec<String> {
        self.read("order").lines().map(ToOwned::to_owned).collect()
    }

    fn path(&self) -> String {
        let bin = |name: &str| self.dir.path().join(name).display().to_string();
        format!("{}:{}", bin("other"), bin("bin"))
    }

    fn chain(&self, version: &str, plugins: &[&str]) -> Delegation {
        let plugins: Vec<Value> = plugins
            .iter()
            .map(|plugin| json!({"type": plugin}))
            .collect();
        let list = json!({"cniVersion": version, "name": "lan", "plugins": plugins});
        self.list(&list)
    }

    fn list(&self, list: &Value) -> Delegation {
        let chain = PluginChain::parse(&list.to_string(), "lan").unwrap();
        let mut delegation = prepare(&chain, &Wishes::default()).unwrap();
        delegation.path = self.path();
        delegation.args = "IgnoreUnknown=1;K8S_POD_NAME=p".to_owned();
        delegation
    }

    async fn add(&self, delegation: &Delegation) -> Result<Option<RawJson>, DelegateError> {
        let mut delegation = delegation.clone();
        let added = add(&self.runner, &mut delegation, &attachment(&key(), &trace())).await;
        added.map_err(|failure| failure.error)
    }

    async fn del(&self, delegation: &Delegation) -> Result<(), DelegateError> {
        let mut delegation = delegation.clone();
        del(&self.runner, &mut delegation, &attachment(&key(), &trace())).await
    }
}

fn key() -> AttachmentKey {
    AttachmentKey {
        container: ContainerId::new("c1").unwrap(),
        ifname: IfName::new("net1").unwrap(),
    }
}

fn trace() -> TraceContext {
    TraceContext {
        traceparent: "00-1-1-01".to_owned(),
        ..TraceContext::default()
    }
}

fn attachment<'a>(key: &'a AttachmentKey, trace: &'a TraceContext) -> Attachment<'a> {
    Attachment {
        key,
        netns: "/run/netns/p",
        trace,
    }
}

fn answer(version: &str, ip: &str) -> String {
    let result = json!({"cniVersion": version, "ips": [{"address": ip}], "x": 1});
    format!("echo '{result}'")
}

/// CNI-DLG-01, CNI-DLG-02, NPWG-4.1.2.1.5.1, CNI-ENV-10
#[tokio::test]
async fn a_plugin_gets_the_environment_of_cni_and_nothing_else() {
    let scene = Scene::new(&["a"]);
    scene.add(&scene.chain("1.0.0", &["a"])).await.unwrap();
    let env = scene.read("a.ADD.env");
    let names: Vec<&str> = env
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    let wanted = [
        "CNI_ARGS",
        "CNI_COMMAND",
        "CNI_CONTAINERID",
        "CNI_IFNAME",
        "CNI_NETNS",
        "CNI_PATH",
        "PATH",
        "TRACEPARENT",
    ];
    assert_eq!(names, wanted);
    for line in [
        "CNI_COMMAND=ADD",
        "TRACEPARENT=00-1-1-01",
        "CNI_CONTAINERID=c1",
        "CNI_IFNAME=net1",
        "CNI_NETNS=/run/netns/p",
        "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=p",
        &format!("CNI_PATH={}", scene.path()),
    ] {
        assert!(env.lines().any(|found| found == line), "{line}: {env}");
    }
    let conf = scene.stdin("a", "ADD");
    assert_eq!(
        conf,
        json!({"type": "a", "cniVersion": "1.0.0", "name": "lan"})
    );
    proof::of!("CNI-DLG-01", "CNI-DLG-02", "NPWG-4.1.2.1.5.1", "CNI-ENV-10");
}

/// CNI SPEC §3: each plugin gets the previous result; the last is the chain's.
///
/// The fields of a result stay as they were printed.
#[tokio::test]
async fn results_are_handed_on_and_the_last_one_counts() {
    let scene = Scene::new(&["a", "b", "c"]);
    scene.on("a", "ADD", &answer("1.0.0", "10.0.0.1/24"));
    scene.on("b", "ADD", &answer("1.0.0", "10.0.0.2/24"));
    let result = scene
        .add(&scene.chain("1.0.0", &["a", "b", "c"]))
        .await
        .unwrap();
    assert_eq!(scene.order(), ["a ADD", "b ADD", "c ADD"]);
    assert_eq!(scene.stdin("a", "ADD").get("prevResult"), None);
    let previous = scene.stdin("b", "ADD")["prevResult"].clone();
    assert_eq!(previous["ips"][0]["address"], "10.0.0.1/24");
    assert_eq!(previous["x"], 1);
    // One that prints nothing has changed nothing.
    let result: Value = result.unwrap().read().unwrap();
    assert_eq!(result["ips"][0]["address"], "10.0.0.2/24");
}

/// NPWG-7.1, CNI-RES-03: a result of another version becomes one of the config's.
#[tokio::test]
async fn a_result_of_another_version_is_converted() {
    let scene = Scene::new(&["a", "b"]);
    let old = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.1/24"}});
    scene.on("a", "ADD", &format!("echo '{old}'"));
    scene.add(&scene.chain("0.4.0", &["a", "b"])).await.unwrap();
    let previous = &scene.stdin("b", "ADD")["prevResult"];
    assert_eq!(previous["cniVersion"], "0.4.0");
    assert_eq!(
        previous["ips"][0],
        json!({"version": "4", "address": "10.0.0.1/24"})
    );
    proof::of!("NPWG-7.1", "CNI-RES-03");
}

/// CNI-RES-04: attachments without addresses.
#[tokio::test]
async fn a_plugin_may_have_no_result() {
    for printed in ["", "echo null", "echo '{}'"] {
        let scene = Scene::new(&["a"]);
        scene.on("a", "ADD", printed);
        let result = scene.add(&scene.chain("1.0.0", &["a"])).await.unwrap();
        assert_eq!(result, None, "{printed}");
    }
    proof::of!("CNI-RES-04");
}

/// CNI-DLG-05, NPWG-7.2a: the failing plugin too, last to first.
#[tokio::test]
async fn a_failed_add_is_followed_by_del_of_all_that_was_attempted() {
    let scene = Scene::new(&["a", "b", "c"]);
    scene.on("a", "ADD", &answer("1.0.0", "10.0.0.1/24"));
    scene.on(
        "b",
        "ADD",
        r#"echo '{"code":11,"msg":"later","details":"why"}'; exit 1"#,
    );
    scene.on("b", "DEL", "exit 1");
    let error = scene
        .add(&scene.chain("1.0.0", &["a", "b", "c"]))
        .await
        .unwrap_err();
    assert_eq!(scene.order(), ["a ADD", "b ADD", "b DEL", "a DEL"]);
    let DelegateError::Failed { plugin, error, .. } = error else {
        panic!("{error}");
    };
    let (key, trace) = (key(), trace());
    let again = add(
        &scene.runner,
        &mut scene.chain("1.0.0", &["b"]),
        &attachment(&key, &trace),
    )
    .await;
    assert!(!again.unwrap_err().clean, "DEL of b fails");
    assert_eq!((plugin.as_str(), error.code.0), ("b", 11));
    assert_eq!(
        (error.msg.as_str(), error.details.as_str()),
        ("later", "why")
    );
    assert_eq!(scene.stdin("a", "DEL").get("prevResult"), None);
    proof::of!("CNI-DLG-05", "NPWG-7.2a", "CNI-ERR-02", "CNI-ADD-05");
}

/// No object on stdout; then whatever was said counts.
#[tokio::test]
async fn what_a_plugin_says_without_an_error_object_is_kept() {
    let scene = Scene::new(&["a"]);
    for (run, said) in [
        ("echo on-stdout; echo beside >&2; exit 3", "on-stdout"),
        ("echo on-stderr >&2; exit 3", "on-stderr"),
        ("exit 3", "said nothing"),
        ("kill -9 $$", "signal: 9"),
    ] {
        scene.on("a", "ADD", run);
        let error = scene.add(&scene.chain("1.0.0", &["a"])).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    scene.on("a", "ADD", "echo no JSON");
    let error = scene.add(&scene.chain("1.0.0", &["a"])).await.unwrap_err();
    assert!(matches!(error, DelegateError::Result { .. }), "{error}");
    proof::of!("CNI-ERR-02");
}

/// CNI-DEL-06, CNI-DEL-08, NPWG-7.2b: `DEL` runs last to first, past every failure.
///
/// A plugin that is gone is a failure too.
#[tokio::test]
async fn del_goes_on_and_reports_the_last_error() {
    let scene = Scene::new(&["a", "b", "d"]);
    let mut delegation = scene.chain("0.4.0", &["a", "b", "gone", "d"]);
    delegation.result = Some(RawJson::parse(r#"{"cniVersion":"0.4.0","x":1.10}"#).unwrap());
    scene.on("b", "DEL", "exit 1");
    let error = scene.del(&delegation).await.unwrap_err();
    assert_eq!(scene.order(), ["d DEL", "b DEL", "a DEL"]);
    assert!(error.to_string().contains("plugin b "), "{error}");
    let stdin = scene.read("a.DEL.stdin");
    assert!(
        stdin.contains(r#""prevResult":{"cniVersion":"0.4.0","x":1.10}"#),
        "{stdin}"
    );
    delegation.version = CniVersion::V0_3_1;
    scene.on("b", "DEL", "");
    let error = scene.del(&delegation).await.unwrap_err();
    assert!(matches!(error, DelegateError::Absent { .. }), "{error}");
    assert_eq!(scene.stdin("a", "DEL").get("prevResult"), None);
    proof::of!("CNI-DEL-06", "CNI-DEL-08", "NPWG-7.2b");
}

/// ATT-17: `DEL` is for plugins that were executed and have not completed it.
#[tokio::test]
async fn only_plugins_with_something_left_are_told_del() {
    let scene = Scene::new(&["a", "b", "c"]);
    let bin = scene.dir.path().join("bin");
    scene.on("a", "ADD", &format!("rm {}/b", bin.display()));
    let mut delegation = scene.chain("1.0.0", &["a", "b", "c"]);
    check_installed(&scene.runner, &delegation).unwrap();
    let (key, trace) = (key(), trace());
    let attachment = attachment(&key, &trace);
    let added = add(&scene.runner, &mut delegation, &attachment).await;
    let failure = added.unwrap_err();
    assert!(
        matches!(failure.error, DelegateError::Absent { .. }),
        "{failure:?}"
    );
    assert!(failure.clean && delegation.is_settled(), "{delegation:?}");
    assert_eq!(scene.order(), ["a ADD", "a DEL"]);
    let error = check_installed(&scene.runner, &delegation).unwrap_err();
    assert!(error.to_string().contains("plugin b "), "{error}");
    // A program that is no program does not start.
    let text = "\u{7f}ELF";
    fs::write(bin.join("b"), text).unwrap();
    fs::set_permissions(bin.join("b"), fs::Permissions::from_mode(0o755)).unwrap();
    scene.on("a", "ADD", "");
    scene.on("a", "DEL", "exit 1");
    let mut delegation = scene.chain("1.0.0", &["a", "b", "c"]);
    let added = add(&scene.runner, &mut delegation, &attachment).await;
    assert!(!added.unwrap_err().clean, "DEL of a fails");
    assert_eq!(delegation.unsettled().collect::<Vec<_>>(), ["a"]);
    scene.on("a", "DEL", "");
    for _ in 0..2 {
        del(&scene.runner, &mut delegation, &attachment)
            .await
            .unwrap();
    }
    assert_eq!(scene.order().len(), 5, "{:?}", scene.order());
    proof::of!("ATT-17");
}

/// CNI-ERR-08, CNI-GC-05, CNI-ST-02: commands follow version and config.
///
/// A command that a version does not have, or that the configuration does not want, is not given.
#[tokio::test]
async fn commands_need_a_version_that_has_them() {
    for (version, wanted) in [
        ("0.3.1", &[][..]),
        ("0.4.0", &["a CHECK"]),
        ("1.0.0", &["a CHECK"]),
        ("1.1.0", &["a CHECK", "a STATUS", "a GC"]),
    ] {
        let scene = Scene::new(&["a"]);
        let delegation = scene.chain(version, &["a"]);
        let (key, trace) = (key(), trace());
        let attachment = attachment(&key, &trace);
        check(&scene.runner, &delegation, &attachment)
            .await
            .unwrap();
        status(&scene.runner, &delegation).await.unwrap();
        assert!(gc(&scene.runner, &delegation, &[]).await.is_empty());
        assert_eq!(scene.order(), wanted, "{version}");
    }
    let scene = Scene::new(&["a"]);
    let delegation = scene.list(&json!({
        "cniVersion": "1.1.0", "disableCheck": "true", "disableGC": true, "plugins": [{"type": "a"}],
    }));
    let (key, trace) = (key(), trace());
    let attachment = attachment(&key, &trace);
    check(&scene.runner, &delegation, &attachment)
        .await
        .unwrap();
    assert!(gc(&scene.runner, &delegation, &[]).await.is_empty());
    assert_eq!(scene.order(), [""; 0]);
    proof::of!("CNI-ERR-08", "CNI-GC-05", "CNI-ST-02", "CNI-CONF-01");
}

#[tokio::test]
async fn gc_has_both_lists_and_no_container() {
    let scene = Scene::new(&["a"]);
    let delegation = scene.chain("1.1.0", &["a"]);
    let failures = gc(&scene.runner, &delegation, &[key()]).await;
    assert!(failures.is_empty(), "{failures:?}");
    let list = json!([{"containerID": "c1", "ifname": "net1"}]);
    let conf = scene.stdin("a", "GC");
    assert_eq!(conf["cni.dev/valid-attachments"], list);
    assert_eq!(conf["cni.dev/attachments"], list);
    let env = scene.read("a.GC.env");
    assert!(
        env.contains("CNI_CONTAINERID=\n") && env.contains("CNI_IFNAME=\n"),
        "{env}"
    );
    proof::of!("CNI-GC-03");
}

/// CNI-GC-04: every plugin is told, and every failure comes back.
#[tokio::test]
async fn gc_goes_on_past_failures_and_tells_each() {
    let scene = Scene::new(&["a", "b", "d"]);
    scene.on("a", "GC", "echo one >&2; exit 1");
    scene.on("d", "GC", "echo two >&2; exit 1");
    let delegation = scene.chain("1.1.0", &["a", "b", "gone", "d"]);
    let failures = gc(&scene.runner, &delegation, &[]).await;
    assert_eq!(scene.order(), ["a GC", "b GC", "d GC"]);
    let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    for (told, word) in told.iter().zip(["one", "gone", "two"]) {
        assert!(told.contains(word), "{word}: {told}");
    }
    proof::of!("CNI-GC-04");
}

/// CNI-CONF-06, CNI-CONF-10
#[tokio::test]
async fn a_plugin_is_the_first_program_of_its_name_in_cni_path() {
    let scene = Scene::new(&["a"]);
    let other = scene.dir.path().join("other");
    // Not a program.
    fs::write(other.join("a"), "").unwrap();
    let found = scene.runner.find("a", &scene.path()).unwrap();
    assert_eq!(found, scene.dir.path().join("bin/a"));
    fs::remove_file(other.join("a")).unwrap();
    fs::create_dir(other.join("a")).unwrap();
    assert_eq!(scene.runner.find("a", &scene.path()).unwrap(), found);
    fs::remove_dir(other.join("a")).unwrap();
    scene.install("other", "a");
    assert_eq!(
        scene.runner.find("a", &scene.path()).unwrap(),
        other.join("a")
    );
    for bad in ["../bin/a", "/bin/sh", "", ".", "..", "a/"] {
        let error = scene.runner.find(bad, &scene.path()).unwrap_err();
        assert!(
            matches!(error, DelegateError::Name { .. }),
            "{bad}: {error}"
        );
    }
    let error = scene.runner.find("b", &scene.path()).unwrap_err();
    // CNI-ERR-06: no words that a runtime forgives.
    assert!(!error.to_string().contains("not found"), "{error}");
    assert!(error.to_string().contains("other"), "{error}");
    proof::of!("CNI-CONF-06", "CNI-CONF-10", "CNI-ERR-06");
}

/// With a plugin directory of the agent, a request chooses no program.
#[tokio::test]
async fn cni_path_of_a_request_is_ignored_where_the_agent_has_a_directory() {
    let mut scene = Scene::new(&["a"]);
    let other = scene.dir.path().join("other");
    let taken = scene.dir.path().join("taken");
    let script = format!("#!/bin/sh\ntouch {}\n", taken.display());
    for plugin in ["a", "b"] {
        fs::write(other.join(plugin), &script).unwrap();
        fs::set_permissions(other.join(plugin), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let bin = scene.dir.path().join("bin");
    scene.runner = Runner::new("/".into(), Duration::from_secs(60), 2).with_plugins(Some(&bin));
    let env = PluginEnv {
        path: other.display().to_string(),
        ..PluginEnv::default()
    };
    let called = scene.runner.call("a", Command::Add, &env, "{}").await;
    assert!(called.is_ok(), "{called:?}");
    let told = scene.read("a.ADD.env");
    let path = format!("CNI_PATH={}\n", bin.display());
    assert!(told.contains(&path), "{told}");
    let absent = scene.runner.call("b", Command::Add, &env, "{}").await;
    assert!(
        matches!(absent, Err(DelegateError::Absent { .. })),
        "{absent:?}"
    );
    assert!(!taken.exists());
}

/// CNI-DLG-07: it is killed, and so is what it has started.
#[tokio::test]
async fn a_plugin_that_does_not_end_is_killed_with_its_children() {
    let scene = Scene::with_patience(&["a"], Duration::from_secs(3));
    scene.on("a", "ADD", "sleep 1000 & echo $! > \"$log/child\"; wait");
    let error = scene.add(&scene.chain("1.0.0", &["a"])).await.unwrap_err();
    assert!(matches!(error, DelegateError::TimedOut { .. }), "{error}");
    let child = scene.read("child");
    let process = Path::new("/proc").join(child.trim());
    // Killed, and at most not yet buried by whoever inherited it.
    let state = || fs::read_to_string(process.join("stat")).unwrap_or_default();
    let gone = |stat: &str| stat.is_empty() || stat.contains(") Z ");
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while !gone(&state()) && std::time::Instant::now() < patience {
        tokio::task::yield_now().await;
    }
    assert!(gone(&state()), "{}", state());
    proof::of!("CNI-DLG-07");
}

/// CNI-DLG-06: a program that is just being written.
#[tokio::test]
async fn a_busy_program_is_tried_again() {
    let scene = Scene::new(&["a"]);
    let path = scene.dir.path().join("bin/a");
    // The kernel refuses programs that are open for writing; a script's own file is not what it
    // runs, so this one must be a real program.
    fs::copy("/bin/true", &path).unwrap();
    let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let delegation = scene.chain("1.0.0", &["a"]);
    let release = async {
        tokio::time::sleep(process::BUSY_PAUSE / 2).await;
        drop(writer);
    };
    let (result, ()) = tokio::join!(scene.add(&delegation), release);
    assert_eq!(result.unwrap(), None);
    proof::of!("CNI-DLG-06");
}

/// PAIN-MEM-1
#[tokio::test]
async fn no_more_plugins_run_at_once_than_allowed() {
    let scene = Scene::new(&["a"]);
    scene.on(
        "a",
        "ADD",
        "echo start >> \"$log/run\"; sleep 0.2; echo end >> \"$log/run\"",
    );
    let delegation = scene.chain("1.0.0", &["a"]);
    let all = (0..6).map(|_| scene.add(&delegation));
    let results = futures_util::future::join_all(all).await;
    assert!(results.iter().all(Result::is_ok));
    let run = scene.read("run");
    let mut running = 0_i32;
    for line in run.lines() {
        running += if line == "start" { 1 } else { -1 };
        assert!(running <= 2, "{run}");
    }
    proof::of!("PAIN-MEM-1");
}

/// A plugin has ended although a child of it keeps its pipes open.
#[tokio::test]
async fn a_plugin_that_leaves_a_child_behind_has_ended() {
    let scene = Scene::new(&["a"]);
    scene.on(
        "a",
        "ADD",
        &format!(
            "{}; sleep 1000 & echo $! > \"$log/child\"",
            answer("1.0.0", "10.0.0.1/24")
        ),
    );
    let result = scene.add(&scene.chain("1.0.0", &["a"])).await.unwrap();
    assert!(result.is_some());
    let child = scene.read("child").trim().parse().unwrap();
    let child = rustix::process::Pid::from_raw(child).unwrap();
    // It was not killed: some plugins start what must go on.
    assert!(rustix::process::kill_process(child, rustix::process::Signal::KILL).is_ok());
}
