//! Read and write the claims of addresses: `IPAMClaim`s and `Port`s.

use ::addresses::{ClaimWrite, FoundClaim};
use api::{IpamClaim, Port, PortUser};
use book::ledger::{ClaimKind, ClaimRef};
use cluster::brief;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::server::{ANSWER, answer, no_answer, patched};

/// The API server's side of claims.
pub(super) struct Claims<'a>(pub(super) &'a Client);

impl Claims<'_> {
    /// Reads a claim, if there is one.
    ///
    /// # Errors
    /// The API server's words, in one line.
    pub(super) async fn read(&self, claim: &ClaimRef) -> Result<Option<FoundClaim>, String> {
        let name = &claim.object.name;
        Ok(match claim.kind {
            ClaimKind::IpamClaim => {
                let found = answer(self.api::<IpamClaim>(claim).get_opt(name)).await?;
                found.map(Into::into)
            }
            ClaimKind::Port => {
                let found = answer(self.api::<Port>(claim).get_opt(name)).await?;
                found.map(Into::into)
            }
        })
    }

    /// Writes the status of a claim; false when the claim is not as it was read.
    ///
    /// # Errors
    /// The API server's words, in one line.
    pub(super) async fn write(&self, write: &ClaimWrite) -> Result<bool, String> {
        let mut status = json!({"ips": write.ips});
        if let Some(port) = &write.port {
            if let Some(mac) = port.mac {
                status["mac"] = mac.to_string().into();
            }
            status["user"] = json!(port.user);
            status["epoch"] = port.epoch.into();
        }
        let body = json!({
            "metadata": {"uid": write.uid, "resourceVersion": write.version},
            "status": status,
        });
        let written = match write.claim.kind {
            ClaimKind::IpamClaim => self.patch::<IpamClaim>(&write.claim, body).await?,
            ClaimKind::Port => self.patch::<Port>(&write.claim, body).await?,
        };
        if written {
            let (claim, ips) = (&write.claim, &write.ips);
            tracing::info!(%claim, ?ips, "the claim has its addresses");
        }
        Ok(written)
    }

    /// Returns whether a pod has not ended.
    ///
    /// # Errors
    /// The API server's words, in one line.
    pub(super) async fn runs(&self, namespace: &str, user: &PortUser) -> Result<bool, String> {
        let pods: Api<Pod> = Api::namespaced(self.0.clone(), namespace);
        let found = answer(pods.get_opt(&user.pod)).await?;
        Ok(found.is_some_and(|pod| {
            let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
            let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
            let node = pod.spec.as_ref().and_then(|it| it.node_name.as_ref());
            // What a status says of a pod of another node is no word of that node.
            pod.uid().as_ref() == Some(&user.uid) && node == Some(&user.node) && !has_ended
        }))
    }

    fn api<K>(&self, claim: &ClaimRef) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.0.clone(), &claim.object.namespace)
    }

    async fn patch<K>(&self, claim: &ClaimRef, body: Value) -> Result<bool, String>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let (api, patch, params) = (self.api::<K>(claim), Patch::Merge(body), patched());
        let request = api.patch_status(&claim.object.name, &params, &patch);
        match timeout(ANSWER, request).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(false),
            Ok(Err(error)) => Err(brief(&error)),
            Err(_) => Err(no_answer()),
        }
    }
}
