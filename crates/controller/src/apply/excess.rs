//! Blocks that nodes have taken beyond what their pods can need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::IpBlock;
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use overview::view::View;

use super::addresses::only;
use super::{AT_ONCE, Executor, MANAGER, Note, Outcome, check};
use crate::bars;
use crate::excess::{Excess, GRACE, Suspects, after};
use crate::reclaim::BlockStep;

/// Nodes whose pods are listed again in one pass; the next pass has the others.
const NODES_A_PASS: usize = 16;
/// Blocks that are taken back in one pass.
const BLOCKS_A_PASS: usize = 256;

impl Executor {
    /// Asks for excess blocks, and takes those back that were asked for in vain.
    ///
    /// The API server's nodes and pods have to confirm them.
    ///
    /// Returns true when nothing is left to be done, and the blocks that are marked now.
    pub(super) async fn excess(
        &self,
        suspects: &Suspects,
        view: &View,
    ) -> (bool, Vec<Arc<IpBlock>>) {
        if suspects.found.is_empty() {
            return (self.bar(&[]).await, Vec::new());
        }
        let nodes = suspects.found.iter().map(|excess| excess.node.as_str());
        let nodes: BTreeSet<&str> = nodes.collect();
        let mut now = check::without_nodes(view);
        for node in nodes.into_iter().take(NODES_A_PASS) {
            if let Err(error) = check::read_node(&self.client, node, &mut now).await {
                tracing::warn!(
                    node,
                    error,
                    "the IPBlocks that the node needs are not known, so none is taken back"
                );
                return (false, Vec::new());
            }
        }
        let confirmed = suspects.confirmed(&now);
        // First, or it takes anew what becomes free.
        let barred = self.bar(&confirmed).await;
        let time = after(Timestamp::now(), GRACE);
        let blocks = confirmed.iter().flat_map(|excess| &excess.blocks);
        let blocks: Vec<Arc<IpBlock>> = blocks.take(BLOCKS_A_PASS).cloned().collect();
        let marks: Vec<(bool, Arc<IpBlock>)> = stream::iter(blocks)
            .map(|block| async move { (self.block(&block, BlockStep::Mark(time)).await, block) })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let all_marked = marks.iter().all(|(done, _)| *done);
        let marked = marks.into_iter().filter(|(done, _)| *done);
        let marked = marked.map(|(_, block)| block).collect();
        let blocks = confirmed.iter().flat_map(|excess| &excess.withheld);
        let blocks: Vec<Arc<IpBlock>> = blocks.take(BLOCKS_A_PASS).cloned().collect();
        let revoked: Vec<(Outcome, Arc<IpBlock>)> = stream::iter(blocks)
            .map(|block| async move { (self.revoke(&block).await, block) })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (outcome, block) in &revoked {
            if *outcome == Outcome::Written {
                self.metrics.revoked.inc();
                *counts.entry(block.spec.node.as_str()).or_default() += 1;
            }
        }
        for (node, count) in counts {
            let uid = now.nodes.get(node).cloned();
            self.tell_of_excess(node, uid, count, &confirmed).await;
        }
        // What is left is looked at again when the copies know of what is gone.
        let revoked = revoked.iter().all(|(outcome, _)| outcome.is_done());
        let done = barred && all_marked && revoked && !confirmed.is_empty();
        (done, marked)
    }

    /// Bars these nodes from further blocks, and says of which nodes that has ended.
    async fn bar(&self, confirmed: &[Excess]) -> bool {
        let now = Timestamp::now();
        let mut bars = self.bars.lock().await;
        for excess in confirmed {
            bars.add(&excess.node, &excess.network, now);
        }
        let Some(data) = bars.unwritten(now) else {
            return true;
        };
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Apply(bars::object(&self.namespace, &data));
        let params = PatchParams::apply(MANAGER).force();
        let request = api.patch(bars::NAME, &params, &patch);
        let (outcome, _) = self.write("ConfigMap", bars::NAME, request).await;
        match outcome {
            Outcome::Written => true,
            // Older manifests do not have it. What can be done without it is done.
            _ if data.is_empty() => true,
            _ => {
                bars.forget_written();
                false
            }
        }
    }

    async fn revoke(&self, block: &IpBlock) -> Outcome {
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let name = block.name_any();
        let params = only(block.uid(), None);
        let request = api.delete(&name, &params);
        let (outcome, _) = self.write("IPBlock", &name, request).await;
        if outcome == Outcome::Written {
            let node = &block.spec.node;
            tracing::debug!(
                block = name,
                node,
                "an IPBlock beyond the limit of the node is taken back"
            );
        }
        outcome
    }

    /// One Event and one line for a node in ten minutes, however many blocks it takes.
    async fn tell_of_excess(&self, node: &str, uid: Option<String>, count: u64, all: &[Excess]) {
        let mut of_node = all.iter().filter(|excess| excess.node == node);
        let Some(first) = of_node.next() else {
            return;
        };
        let note = Note {
            about: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                uid,
                ..ObjectReference::default()
            },
            reason: "TooManyBlocks",
            action: "TakeBack",
            is_warning: true,
            varies: true,
            text: text(first, of_node.count()),
        };
        if self.say(&note).await {
            let text = note.text;
            tracing::warn!(node, taken_back = count, "{text}");
        }
    }
}

fn text(excess: &Excess, others: usize) -> String {
    let Excess {
        node,
        network,
        family,
        kept,
        needed,
        blocks,
        withheld,
    } = excess;
    let taken = kept + blocks.len() + withheld.len();
    let others = match others {
        0 => String::new(),
        1 => ", and so with one more network".to_owned(),
        count => format!(", and so with {count} more networks"),
    };
    format!(
        "node {node} has taken {taken} {family} IPBlocks of PodNetwork {network} and may have {kept}: its \
         pods can need {needed} addresses; the others are taken back{others}; see --spare-blocks"
    )
}
