//! Plugins of others that fail.

use ::kubelet::PodResourcesClient;
use cni_spec::{CniError, CniVersion, Command, ErrorCode, SpecError};

use super::{Case, absent, denied, no_json, text};
use crate::devices::assigned::AssignedError;
use crate::error::AgentError;
use delegate::error::DelegateError;

pub(super) fn all() -> Vec<Case> {
    let mut all: Vec<Case> = errors()
        .into_iter()
        .chain(failed())
        .map(|(name, it)| (name, it.into()))
        .collect();
    let source = DelegateError::Absent {
        plugin: text("portmap"),
        searched: vec!["/opt/cni/bin".into()],
    };
    all.push(("host ports", AgentError::HostPorts { source }));
    all.push(("devices", devices().into()));
    all
}

/// Of a socket that is not there.
fn devices() -> AssignedError {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = PodResourcesClient::new("/nonexistent/kubelet.sock".into());
    AssignedError {
        namespace: text("shop"),
        name: text("web-0"),
        source: runtime.block_on(client.pod("shop", "web-0")).unwrap_err(),
    }
}

fn failed() -> Vec<(&'static str, DelegateError)> {
    let failed = |code, details| DelegateError::Failed {
        plugin: text("bridge"),
        command: Command::Add,
        error: CniError::new(CniVersion::LATEST, ErrorCode(code), "no", details),
    };
    vec![
        ("plugin: failed with 3", failed(3, "")),
        ("plugin: failed with 7", failed(7, "why")),
        ("plugin: failed with 11", failed(11, "")),
        ("plugin: failed with 50", failed(50, "")),
        ("plugin: failed with 51", failed(51, "")),
        ("plugin: failed with 999", failed(999, "")),
    ]
}

fn errors() -> Vec<(&'static str, DelegateError)> {
    let plugin = || text("bridge");
    let crashed = |output: &str| DelegateError::Crashed {
        plugin: text("bridge"),
        command: Command::Del,
        status: text("exit status: 1"),
        output: text(output),
    };
    vec![
        (
            "plugin: name",
            DelegateError::Name {
                plugin: text("../x"),
            },
        ),
        (
            "plugin: absent",
            DelegateError::Absent {
                plugin: plugin(),
                searched: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            },
        ),
        (
            "plugin: start",
            DelegateError::Start {
                plugin: plugin(),
                source: absent(),
            },
        ),
        (
            "plugin: speak",
            DelegateError::Speak {
                plugin: plugin(),
                source: denied(),
            },
        ),
        (
            "plugin: timed out",
            DelegateError::TimedOut {
                plugin: plugin(),
                command: Command::Add,
                seconds: 60,
            },
        ),
        ("plugin: crashed", crashed("no such device")),
        ("plugin: crashed in silence", crashed("")),
        (
            "plugin: result",
            DelegateError::Result {
                plugin: plugin(),
                source: SpecError::NoNetwork,
            },
        ),
        (
            "plugin: version",
            DelegateError::Version {
                network: text("lan"),
                found: text("9.9.9"),
            },
        ),
        (
            "plugin: capability",
            DelegateError::Capability {
                key: "ips",
                network: text("lan"),
                capability: "ips",
            },
        ),
        ("plugin: too long", DelegateError::TooLong { most: 65536 }),
        (
            "plugin: configuration",
            DelegateError::Conf {
                plugin: plugin(),
                source: no_json(),
            },
        ),
    ]
}
