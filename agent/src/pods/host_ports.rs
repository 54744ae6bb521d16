//! Maps host ports of a pod whose first network the node routes for.
//!
//! The reference plugin `portmap` does it, as the last plugin of a chain would (CNI CONVENTIONS.md,
//! `portMappings`).

use std::sync::Arc;

use api::RawJson;
use book::pods::record::PodRecord;
use cni_spec::{CniVersion, NetConf, TraceContext};
use delegate::error::DelegateError;
use delegate::{self, Attachment};
use delegate::{Delegation, PluginConf};
use serde_json::{Value, json};
use telemetry::failpoint::reached;

use crate::error::AgentError;
use crate::node::Node;
use crate::request::Asked;

/// `type` of the plugin and name of its executable.
const PLUGIN: &str = "portmap";
/// Version that every release of the plugin in use speaks.
///
/// Newer versions have no feature that it would need.
const NEWEST: CniVersion = CniVersion::V1_0_0;

impl Node {
    /// Maps the host ports of the request, when podnet makes the first interface.
    ///
    /// The record has the mapping before the plugin is called, so every effect of the plugin is undone.
    ///
    /// # Errors
    /// When the plugin is not on the node, or fails.
    pub(super) async fn map_ports(
        self: &Arc<Self>,
        record: &mut PodRecord,
        asked: Asked<'_>,
    ) -> Result<(), AgentError> {
        // Where a gateway leads to the network, ports are mapped with the attachment.
        let ours = record.primary().is_some_and(|it| it.delegation().is_none())
            && self.is_routed_here(record);
        if asked.conf.runtime.port_mappings.is_empty() || !ours {
            return Ok(());
        }
        let version = asked.conf.head.cni_version.min(NEWEST);
        let result = self.primary_result(record)?.to_version(version)?;
        let conf = conf(asked.conf, version, &result);
        let config = RawJson::parse(&conf.to_string()).map_err(|source| DelegateError::Conf {
            plugin: PLUGIN.to_owned(),
            source,
        })?;
        record.host_ports = Some(Delegation {
            network: asked.conf.head.name.clone(),
            version,
            disable_check: false,
            disable_gc: true,
            plugins: vec![PluginConf {
                plugin: PLUGIN.to_owned(),
                config,
                settled: false,
            }],
            args: asked.request.args.clone(),
            path: asked.request.path.clone(),
            device_info_file: None,
            device_plugin_file: None,
            device_info: None,
            result: None,
        });
        self.book.save_pod(record).await?;
        self.book.pods().update(record);
        reached("pod.ports-recorded");
        let Some(delegation) = &mut record.host_ports else {
            return Ok(());
        };
        let attachment = Attachment {
            key: &record.key,
            netns: &asked.request.netns,
            trace: &asked.invocation.trace,
        };
        match delegate::add(&self.delegates, delegation, &attachment).await {
            Ok(_) => {
                reached("pod.ports-mapped");
                Ok(())
            }
            Err(failure) => {
                self.book.pods().update(record);
                Err(AgentError::HostPorts {
                    source: failure.error,
                })
            }
        }
    }

    /// True when the node routes for the network of a pod's first interface.
    fn is_routed_here(&self, record: &PodRecord) -> bool {
        let ledger = self.book.ledger();
        let primary = ledger.get(&record.key);
        primary.is_some_and(|entry| entry.record.network.by_node)
    }

    /// Takes the host ports of a pod away, and notes that in the record.
    ///
    /// # Errors
    /// When the plugin is gone, or fails.
    pub(super) async fn unmap_ports(
        &self,
        record: &mut PodRecord,
        netns: &str,
    ) -> Result<(), AgentError> {
        let Some(delegation) = &mut record.host_ports else {
            return Ok(());
        };
        let attachment = Attachment {
            key: &record.key,
            netns,
            trace: &TraceContext::default(),
        };
        let done = delegate::del(&self.delegates, delegation, &attachment).await;
        done.map_err(|source| AgentError::HostPorts { source })
    }

    /// Whether the host ports of a pod are as they were mapped.
    ///
    /// # Errors
    /// When they are not.
    pub(super) async fn check_ports(
        &self,
        record: &PodRecord,
        trace: &TraceContext,
    ) -> Result<(), AgentError> {
        let Some(delegation) = &record.host_ports else {
            return Ok(());
        };
        let attachment = Attachment {
            key: &record.key,
            netns: &record.sandbox.path,
            trace,
        };
        let done = delegate::check(&self.delegates, delegation, &attachment).await;
        done.map_err(|source| AgentError::HostPorts { source })
    }
}

/// Configuration of the plugin, with the result of podnet as `prevResult`.
fn conf(asked: &NetConf, version: CniVersion, result: &Value) -> Value {
    let mappings = asked.runtime.port_mappings.iter().map(|mapping| {
        let mut value = json!({
            "hostPort": mapping.host_port,
            "containerPort": mapping.container_port,
            "protocol": mapping.protocol,
        });
        if let Some(ip) = mapping.host_ip {
            value["hostIP"] = ip.to_string().into();
        }
        value
    });
    json!({
        "cniVersion": version.as_str(),
        "name": asked.head.name,
        "type": PLUGIN,
        // The node itself, and the pod by its own host port.
        "snat": true,
        "runtimeConfig": {"portMappings": mappings.collect::<Vec<_>>()},
        "prevResult": result,
    })
}
