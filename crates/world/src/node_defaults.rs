//! Tell which nodes of a cluster have a default network of their own.

use std::collections::BTreeMap;

use api::DEFAULT_NETWORK;

use crate::DefaultNetwork;

/// Annotations of nodes about their default network, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDefaults(BTreeMap<String, String>);

impl NodeDefaults {
    /// Notes the annotation of a node.
    pub fn insert(&mut self, node: String, text: String) {
        self.0.insert(node, text);
    }

    /// Names the networks of ours that nodes have.
    pub fn networks(&self) -> Vec<String> {
        let own = self.0.values().filter_map(|text| text.parse().ok());
        own.filter_map(|own: DefaultNetwork| own.pod_network().map(ToOwned::to_owned))
            .collect()
    }

    /// Returns the default network of a node that has its own.
    ///
    /// A node with an annotation that cannot be understood has none: it refuses its pods.
    pub fn of(&self, node: &str) -> Option<DefaultNetwork> {
        let text = self.0.get(node)?;
        Some(text.parse().unwrap_or(DefaultNetwork::None))
    }

    /// Returns why pods without a list may get the network `default`, if they may.
    ///
    /// Only an annotation of each node says that they do not: the nodes' options are theirs.
    pub fn taking_default<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a String>,
    ) -> Option<String> {
        let leads_away = |node: &String| {
            let own = self.0.get(node).map(|text| text.parse());
            matches!(own, Some(Ok(own)) if DefaultNetwork::pod_network(&own) != Some(DEFAULT_NETWORK))
        };
        let mut nodes = nodes.into_iter().peekable();
        if nodes.peek().is_none() {
            return Some("there is no Node that has another default network".to_owned());
        }
        let node = nodes.find(|node| !leads_away(node))?;
        Some(format!("pods without a list may get it on node {node}"))
    }
}
