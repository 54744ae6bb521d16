//! Release Ports whose pods have ended.

use api::Port;
use kube::api::Patch;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{Executor, Outcome, check, manager};

impl Executor {
    /// Removes the pod from the status of a Port; true when it is done.
    ///
    /// Nothing waits for that: a node that has another pod for the Port looks itself whether this one has ended.
    pub(super) async fn release(&self, port: &Port) -> bool {
        let (namespace, name) = (port.namespace().unwrap_or_default(), port.name_any());
        let Some(user) = port.status.as_ref().and_then(|status| status.user.as_ref()) else {
            return true;
        };
        match check::user_has_ended(&self.client, &namespace, user).await {
            Ok(true) => {}
            // The copies will say so.
            Ok(false) => return true,
            Err(error) => {
                tracing::warn!(
                    namespace,
                    port = name,
                    error,
                    "the pod of the Port cannot be read, so the Port stays that pod's"
                );
                return false;
            }
        }
        let api: Api<Port> = Api::namespaced(self.client.clone(), &namespace);
        let patch = json!({
            "metadata": {"uid": port.uid(), "resourceVersion": port.resource_version()},
            "status": {"user": null},
        });
        let (params, patch) = (manager(), Patch::Merge(patch));
        let request = api.patch_status(&name, &params, &patch);
        let (outcome, _) = self.write("Port", &name, request).await;
        if outcome == Outcome::Written {
            let pod = &user.pod;
            tracing::info!(
                namespace,
                port = name,
                pod,
                "the Port of a pod that has ended is released"
            );
        }
        outcome.is_done()
    }
}
