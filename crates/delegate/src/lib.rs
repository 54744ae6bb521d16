//! Call other plugins as a runtime does (CNI SPEC §3, §4; libcni beyond the spec).
//!
//! One call is [`process`]; the configuration on stdin is [`prepare`]; here is the order: `ADD` and
//! `CHECK` first to last with the result handed on, `DEL` last to first, and `DEL` after a failed `ADD`
//! for every plugin that was attempted (CNI-DLG-05).

use api::{RawJson, RawObject};
use cni_spec::{AttachmentKey, CniResult, CniVersion, Command, SpecError, TraceContext};
use serde_json::{Value, json};

mod delegation;
pub mod device_info;
pub mod error;
pub mod prepare;
pub mod process;
pub mod stage;
#[cfg(test)]
mod tests;

pub use self::delegation::{Delegation, PluginConf};
use error::DelegateError;
use process::{PluginEnv, Runner};

/// One attachment, as its plugins are told of it.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    /// Container and interface.
    pub key: &'a AttachmentKey,
    /// `CNI_NETNS`; empty when the namespace is gone.
    pub netns: &'a str,
    /// The caller's trace.
    pub trace: &'a TraceContext,
}

impl Attachment<'_> {
    fn env(&self, delegation: &Delegation) -> PluginEnv {
        PluginEnv {
            container: self.key.container.to_string(),
            netns: self.netns.to_owned(),
            ifname: self.key.ifname.to_string(),
            args: delegation.args.clone(),
            path: delegation.path.clone(),
            trace: self.trace.clone(),
        }
    }
}

/// An `ADD` that failed.
#[derive(Debug)]
pub struct AddFailure {
    /// Of the first plugin that failed.
    pub error: DelegateError,
    /// True when every plugin that was called has done its `DEL`: nothing is left.
    pub clean: bool,
}

/// Checks that every plugin is on the node, before anything is recorded or called.
///
/// # Errors
/// For the first one that is not.
pub fn check_installed(runner: &Runner, delegation: &Delegation) -> Result<(), DelegateError> {
    let env = PluginEnv {
        path: delegation.path.clone(),
        ..PluginEnv::default()
    };
    for plugin in &delegation.plugins {
        runner.find(&plugin.plugin, env.search_path())?;
    }
    Ok(())
}

/// Calls `ADD`, first plugin to last, and returns the last one's result.
///
/// The result has the version of the configuration. It is absent when the last plugin has none, as
/// plugins for devices without addresses do (CNI-RES-04). After a failure the plugins of which nothing
/// is left are noted.
///
/// # Errors
/// Of the first plugin that fails; it and those before it were told `DEL` by then.
pub async fn add(
    runner: &Runner,
    delegation: &mut Delegation,
    attachment: &Attachment<'_>,
) -> Result<Option<RawJson>, AddFailure> {
    let env = attachment.env(delegation);
    let mut previous = None;
    for (index, plugin) in delegation.plugins.iter().enumerate() {
        let done = step(runner, delegation, plugin, &env, previous.as_ref()).await;
        match done {
            Ok(result) => previous = result.or(previous),
            Err(error) => {
                let attempted = index + usize::from(!error.is_before_start());
                delegation.settle_from(attempted);
                // There is no result, as after any ADD that failed (MEAS-05).
                let clean = remove(runner, delegation, &env, None).await.is_ok();
                return Err(AddFailure { error, clean });
            }
        }
    }
    Ok(previous)
}

async fn step(
    runner: &Runner,
    delegation: &Delegation,
    plugin: &PluginConf,
    env: &PluginEnv,
    previous: Option<&RawJson>,
) -> Result<Option<RawJson>, DelegateError> {
    let stdin = stdin(plugin, previous, &[])?;
    let printed = runner
        .call(&plugin.plugin, Command::Add, env, &stdin)
        .await?;
    result(plugin, delegation.version, &printed)
}

/// Checks the printed result, and converts it to the configuration's version.
fn result(
    plugin: &PluginConf,
    version: CniVersion,
    printed: &str,
) -> Result<Option<RawJson>, DelegateError> {
    let wrong = |source| DelegateError::Result {
        plugin: plugin.plugin.clone(),
        source,
    };
    let syntax = |source| wrong(SpecError::ConfigSyntax { source });
    if printed.trim().is_empty() {
        return Ok(None);
    }
    let value: Value = serde_json::from_str(printed).map_err(syntax)?;
    if value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(None);
    }
    let parsed = CniResult::parse(&value, version).map_err(wrong)?;
    let spoken = value.get("cniVersion").and_then(Value::as_str);
    let text = if spoken == Some(version.as_str()) {
        printed.to_owned()
    } else {
        parsed.to_version(version).map_err(wrong)?.to_string()
    };
    RawJson::parse(text.trim()).map(Some).map_err(syntax)
}

/// Calls `DEL`, last plugin to first, past failures, and notes those that succeed.
///
/// Only plugins of which something may be left are called.
///
/// # Errors
/// The last failure there was.
pub async fn del(
    runner: &Runner,
    delegation: &mut Delegation,
    attachment: &Attachment<'_>,
) -> Result<(), DelegateError> {
    let env = attachment.env(delegation);
    let result = delegation.result.clone();
    remove(runner, delegation, &env, result.as_ref()).await
}

async fn remove(
    runner: &Runner,
    delegation: &mut Delegation,
    env: &PluginEnv,
    result: Option<&RawJson>,
) -> Result<(), DelegateError> {
    // CNI-DEL-06: older ones do not know it.
    let result = result.filter(|_| delegation.version >= CniVersion::V0_4_0);
    let mut outcome = Ok(());
    for plugin in delegation.plugins.iter_mut().rev() {
        if plugin.settled {
            continue;
        }
        let stdin = stdin(plugin, result, &[]);
        let done = match stdin {
            Ok(stdin) => {
                let called = runner.call(&plugin.plugin, Command::Del, env, &stdin);
                called.await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => plugin.settled = true,
            Err(error) => {
                tracing::warn!(network = delegation.network, %error, "a plugin failed DEL; the others are called");
                outcome = Err(error);
            }
        }
    }
    outcome
}

/// Calls `CHECK`, first plugin to last.
///
/// Does nothing for configurations that do not have the command or do not want it.
///
/// # Errors
/// Of the first plugin that is not content.
pub async fn check(
    runner: &Runner,
    delegation: &Delegation,
    attachment: &Attachment<'_>,
) -> Result<(), DelegateError> {
    if delegation.disable_check || delegation.version < CniVersion::first_with(Command::Check) {
        return Ok(());
    }
    let env = attachment.env(delegation);
    for plugin in &delegation.plugins {
        let stdin = stdin(plugin, delegation.result.as_ref(), &[])?;
        runner
            .call(&plugin.plugin, Command::Check, &env, &stdin)
            .await?;
    }
    Ok(())
}

/// `STATUS`, first to last; nothing for configurations older than it.
///
/// # Errors
/// Of the first plugin that could not serve an `ADD`.
pub async fn status(runner: &Runner, delegation: &Delegation) -> Result<(), DelegateError> {
    if delegation.version < CniVersion::first_with(Command::Status) {
        return Ok(());
    }
    let env = PluginEnv {
        path: delegation.path.clone(),
        ..PluginEnv::default()
    };
    for plugin in &delegation.plugins {
        let stdin = stdin(plugin, None, &[])?;
        runner
            .call(&plugin.plugin, Command::Status, &env, &stdin)
            .await?;
    }
    Ok(())
}

/// Calls `GC` with the valid attachments; all others of the network are stale.
///
/// Does nothing for configurations that do not have the command or do not want it. Every plugin is told,
/// whatever the others answer. Returns each failure.
pub async fn gc(
    runner: &Runner,
    delegation: &Delegation,
    valid: &[AttachmentKey],
) -> Vec<DelegateError> {
    if delegation.disable_gc || delegation.version < CniVersion::first_with(Command::Gc) {
        return Vec::new();
    }
    let env = PluginEnv {
        path: delegation.path.clone(),
        ..PluginEnv::default()
    };
    let list = json!(valid);
    // Under the key of the specification, and the one libcni wrote before it (CNI-GC-01).
    let lists = [
        ("cni.dev/valid-attachments", &list),
        ("cni.dev/attachments", &list),
    ];
    let mut failures = Vec::new();
    for plugin in &delegation.plugins {
        let called = async {
            let stdin = stdin(plugin, None, &lists)?;
            runner.call(&plugin.plugin, Command::Gc, &env, &stdin).await
        };
        failures.extend(called.await.err());
    }
    failures
}

/// A configuration with what belongs to one call of it.
fn stdin(
    plugin: &PluginConf,
    previous: Option<&RawJson>,
    more: &[(&str, &Value)],
) -> Result<String, DelegateError> {
    let complete = || {
        let mut conf: RawObject = plugin.config.read()?;
        if let Some(previous) = previous {
            conf.set("prevResult", previous)?;
        }
        for (key, value) in more {
            conf.set(key, value)?;
        }
        serde_json::to_string(&conf)
    };
    complete().map_err(|source| DelegateError::Conf {
        plugin: plugin.plugin.clone(),
        source,
    })
}
