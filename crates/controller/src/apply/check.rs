//! Ask the API server itself before a write that cannot be undone.
//!
//! A copy may be a moment behind.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    ClaimHolder, NETWORK_LABEL, PodNetworkAttachment, PodNetworkEndpointSlice, PortUser,
    label_value,
};
use cluster::brief;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt as _};
use overview::pod::Pod;
use overview::usage::Usage;
use overview::view::View;
use serde::de::DeserializeOwned;

use super::PATIENCE;
use crate::plan::ObjectStep;
use crate::ports::has_port;
use crate::reclaim::keeps;

/// Objects in one answer.
const PAGE: u32 = 500;

/// All objects of a kind that can be read, as they are now.
///
/// # Errors
/// Why they cannot be listed.
pub(super) async fn list<K>(client: &Client) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = in_time(api.list(&params)).await?;
        found.extend(page.items.into_iter().filter_map(|object| object.0.ok()));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Names of all nodes, as they are now.
///
/// # Errors
/// Why they cannot be listed.
pub(super) async fn nodes(client: &Client) -> Result<Vec<String>, String> {
    let api: Api<Node> = Api::all(client.clone());
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = in_time(api.list_metadata(&params)).await?;
        found.extend(page.items.iter().map(kube::ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Returns true when nothing uses the object of a step, by the API server's answer.
///
/// Definitions are taken from the copies: an attachment through one stays known from the status of its
/// pod.
///
/// # Errors
/// The reason for which that is not known.
pub(super) async fn is_unused(
    client: &Client,
    step: &ObjectStep,
    view: &View,
) -> Result<bool, String> {
    let pods = list::<Pod>(client).await?.into_iter();
    let attachments = list::<PodNetworkAttachment>(client).await?.into_iter();
    let now = View {
        definitions: view.definitions.clone(),
        nodes: view.nodes.clone(),
        node_defaults: view.node_defaults.clone(),
        rules: view.rules.clone(),
        attachments: attachments
            .map(|it| {
                (
                    (it.namespace().unwrap_or_default(), it.name_any()),
                    Arc::new(it),
                )
            })
            .collect(),
        pods: pods
            .map(|it| {
                (
                    (it.namespace().to_owned(), it.name().to_owned()),
                    Arc::new(it),
                )
            })
            .collect(),
        ..View::default()
    };
    let usage = Usage::of(&now);
    Ok(match &step.namespace {
        None => usage.network_user(&step.name).is_none(),
        Some(namespace) => !usage
            .attachments
            .contains_key(&(namespace.clone(), step.name.clone())),
    })
}

/// True when there is no such node any more, and no pod on one of its name.
///
/// # Errors
/// Why that is not known.
pub(super) async fn node_is_gone(client: &Client, name: &str, uid: &str) -> Result<bool, String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = in_time(nodes.get_metadata_opt(name)).await?;
    if node.is_some_and(|node| node.uid().as_deref() == Some(uid)) {
        return Ok(false);
    }
    let pods: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default()
        .fields(&format!("spec.nodeName={name}"))
        .limit(1);
    Ok(in_time(pods.list(&params)).await?.items.is_empty())
}

/// Copies a view without its nodes and their pods.
pub(super) fn without_nodes(view: &View) -> View {
    View {
        networks: view.networks.clone(),
        attachments: view.attachments.clone(),
        network_parameters: view.network_parameters.clone(),
        attachment_parameters: view.attachment_parameters.clone(),
        vpcs: view.vpcs.clone(),
        definitions: view.definitions.clone(),
        definition_parameters: view.definition_parameters.clone(),
        blocks: view.blocks.clone(),
        rules: view.rules.clone(),
        ..View::default()
    }
}

/// Adds a node, if it is there, and its pods, as they are now.
///
/// # Errors
/// Why they cannot be read.
pub(super) async fn read_node(client: &Client, name: &str, view: &mut View) -> Result<(), String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(node) = in_time(nodes.get_metadata_opt(name)).await? else {
        return Ok(());
    };
    let pods: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={name}"));
    for pod in in_time(pods.list(&params)).await?.items {
        let key = (pod.namespace().to_owned(), pod.name().to_owned());
        view.pods.insert(key, Arc::new(pod));
    }
    view.add_node(&node);
    Ok(())
}

/// True when there is no such pod any more.
///
/// # Errors
/// Why that is not known.
pub(super) async fn pod_is_gone(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<bool, String> {
    is_gone::<Pod>(Api::namespaced(client.clone(), namespace), name, uid).await
}

/// True when a claim or a Port is gone, or has other addresses.
///
/// # Errors
/// Why that is not known.
pub(super) async fn has_left<K>(
    client: &Client,
    holder: &ClaimHolder,
    address: &str,
    addresses_of: fn(&K) -> BTreeSet<IpAddr>,
) -> Result<bool, String>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + DeserializeOwned
        + Clone
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), &holder.namespace);
    let found = in_time(api.get_opt(&holder.name)).await?;
    let found = found.filter(|found| found.uid().as_ref() == Some(&holder.uid));
    Ok(!found.is_some_and(|found| keeps(&addresses_of(&found), address)))
}

/// Addresses of members by network, as their nodes say; each network is read once.
///
/// Nodes say so in the slices of networks that span them, whatever the lists of pods say by now.
#[derive(Debug, Default)]
pub(super) struct Members(BTreeMap<String, Result<BTreeSet<IpAddr>, String>>);

impl Members {
    /// True when a member of a network has this address.
    ///
    /// # Errors
    /// Why that is not known.
    pub(super) async fn has(
        &mut self,
        client: &Client,
        network: &str,
        address: &str,
    ) -> Result<bool, String> {
        let Ok(address) = address.parse::<IpAddr>() else {
            return Ok(false);
        };
        let read = match self.0.entry(network.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(addresses_of_members(client, network).await),
        };
        let has = read.as_ref().map(|members| members.contains(&address));
        has.map_err(Clone::clone)
    }
}

async fn addresses_of_members(client: &Client, network: &str) -> Result<BTreeSet<IpAddr>, String> {
    let slices: Api<PodNetworkEndpointSlice> = Api::all(client.clone());
    let of_network = format!("{NETWORK_LABEL}={}", label_value(network));
    let mut params = ListParams::default().labels(&of_network).limit(PAGE);
    let mut members = BTreeSet::new();
    loop {
        let page = in_time(slices.list(&params)).await?;
        let of_network = page.items.iter().filter(|it| it.spec.network == network);
        let ips = of_network.flat_map(|it| &it.spec.endpoints);
        members.extend(
            ips.flat_map(|it| &it.ips)
                .filter_map(|ip| ip.parse::<IpAddr>().ok()),
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(members),
        }
    }
}

/// True when the pod of a Port has ended, or is gone.
///
/// # Errors
/// Why that is not known.
pub(super) async fn user_has_ended(
    client: &Client,
    namespace: &str,
    user: &PortUser,
) -> Result<bool, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = in_time(pods.get_opt(&user.pod)).await?;
    Ok(found.is_none_or(|pod| !has_port(&pod, user)))
}

async fn is_gone<K>(api: Api<K>, name: &str, uid: &str) -> Result<bool, String>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let object = in_time(api.get_metadata_opt(name)).await?;
    Ok(object.is_none_or(|object| object.uid().as_deref() != Some(uid)))
}

async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(|error| brief(&error)),
        Err(_) => Err("no answer from the API server".to_owned()),
    }
}
