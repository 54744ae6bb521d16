//! Blocks and reservations of addresses, and slices of members.

use api::{Holder, IpBlock, IpReservation, PodNetworkEndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, ResourceExt as _};
use overview::view::{addresses_of, addresses_of_port};
use serde_json::json;

use super::{Executor, Outcome, check, manager};
use crate::reclaim::{BlockStep, is_left, labels_of_nodes};

impl Executor {
    /// Does one step about a block; true when it is done.
    pub(super) async fn block(&self, block: &IpBlock, step: BlockStep) -> bool {
        let name = block.name_any();
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let time = match step {
            BlockStep::Wait(_) => return true,
            BlockStep::Delete => return self.take_back(&api, block).await,
            BlockStep::Mark(time) => Some(time.to_string()),
            BlockStep::Unmark => None,
        };
        let patch = json!({
            "metadata": {"uid": block.uid(), "resourceVersion": block.resource_version()},
            "status": {"reclaimAfter": time},
        });
        let (params, patch) = (manager(), Patch::Merge(patch));
        let request = api.patch_status(&name, &params, &patch);
        let (outcome, _) = self.write("IPBlock", &name, request).await;
        if outcome == Outcome::Written {
            let node = &block.spec.node;
            tracing::info!(
                block = name,
                node,
                reclaim_after = time,
                "the IPBlock of a node that is gone is marked, to be taken back"
            );
        }
        outcome.is_done()
    }

    async fn take_back(&self, api: &Api<IpBlock>, block: &IpBlock) -> bool {
        let name = block.name_any();
        let spec = &block.spec;
        match check::node_is_gone(&self.client, &spec.node, &spec.node_uid).await {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::warn!(
                    block = name,
                    error,
                    "the node of the IPBlock cannot be read, so the block stays"
                );
                return false;
            }
        }
        // Its node may have answered since.
        let params = only(block.uid(), block.resource_version());
        let request = api.delete(&name, &params);
        let (outcome, _) = self.write("IPBlock", &name, request).await;
        if outcome == Outcome::Written {
            tracing::info!(
                block = name,
                node = spec.node,
                "the IPBlock of a node that is gone is taken back"
            );
        }
        outcome.is_done()
    }

    /// Deletes a reservation whose holder is gone.
    ///
    /// A pod may have an address that outlives pods though its list does not say so any more: its node says so.
    pub(super) async fn reservation(
        &self,
        reservation: &IpReservation,
        members: &mut check::Members,
    ) -> bool {
        let name = reservation.name_any();
        let spec = &reservation.spec;
        let (client, address) = (&self.client, &spec.address);
        let Some(holder) = spec.holder() else {
            return true;
        };
        let is_member = match &holder {
            Holder::Pod(_) => Ok(false),
            Holder::Claim(_) | Holder::Port(_) => members.has(client, &spec.network, address).await,
        };
        let gone = match (is_member, holder) {
            (Err(why), _) => Err(why),
            // Its slice tells when it has gone.
            (Ok(true), _) => return true,
            (Ok(false), Holder::Pod(pod)) => {
                check::pod_is_gone(client, &pod.namespace, &pod.name, &pod.uid).await
            }
            (Ok(false), Holder::Claim(claim)) => {
                check::has_left(client, &claim, address, addresses_of).await
            }
            (Ok(false), Holder::Port(port)) => {
                check::has_left(client, &port, address, addresses_of_port).await
            }
        };
        match gone {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::warn!(
                    reservation = name,
                    error,
                    "the holder of the IPReservation cannot be read, so the reservation stays"
                );
                return false;
            }
        }
        let api: Api<IpReservation> = Api::all(self.client.clone());
        let params = only(reservation.uid(), None);
        let request = api.delete(&name, &params);
        let (outcome, _) = self.write("IPReservation", &name, request).await;
        if outcome == Outcome::Written {
            tracing::info!(
                reservation = name,
                "the IPReservation of a holder that is gone is removed"
            );
        }
        outcome.is_done()
    }
}

impl Executor {
    /// Deletes slices whose nodes are gone.
    pub(super) async fn slices(&self, slices: &[ObjectMeta]) -> bool {
        if slices.is_empty() {
            return true;
        }
        // One that has come a moment ago may have written already.
        let nodes = match check::nodes(&self.client).await {
            Ok(nodes) => labels_of_nodes(nodes.iter().map(String::as_str)),
            Err(error) => {
                tracing::warn!(
                    error,
                    "the nodes of the cluster cannot be read, so no slice is removed"
                );
                return false;
            }
        };
        let api: Api<PodNetworkEndpointSlice> = Api::all(self.client.clone());
        let mut done = true;
        for slice in slices.iter().filter(|slice| is_left(slice, &nodes)) {
            let name = slice.name.clone().unwrap_or_default();
            let params = only(slice.uid.clone(), None);
            let request = api.delete(&name, &params);
            let (outcome, _) = self.write("PodNetworkEndpointSlice", &name, request).await;
            if outcome == Outcome::Written {
                tracing::info!(slice = name, "the slice of a node that is gone is removed");
            }
            done &= outcome.is_done();
        }
        done
    }
}

pub(super) fn only(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid,
        resource_version,
    })
}
