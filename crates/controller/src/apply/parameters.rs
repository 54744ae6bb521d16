//! Write the status of parameters.

use api::{AttachmentParameters, PodNetworkParameters};
use futures_util::StreamExt as _;
use futures_util::stream;
use kube::core::ApiResource;

use super::{AT_ONCE, Executor};
use crate::parameters::Steps;
use crate::plan::ObjectStep;

/// The most statuses of parameters that are written in one pass.
///
/// Users of namespaces decide how many there are, and pods wait for a pass to end. Each write is seen as a
/// change, and leads to the next pass.
const A_PASS: usize = 256;

impl Executor {
    /// Writes the status of parameters, of networks first.
    ///
    /// Returns true when all that was tried is done.
    pub(super) async fn parameters(&self, steps: &Steps) -> bool {
        let of = |resource: ApiResource, steps: &[ObjectStep]| {
            let steps = steps.iter().take(A_PASS).cloned();
            let each = steps.map(|step| (resource.clone(), step));
            each.collect::<Vec<_>>()
        };
        let networks = ApiResource::erase::<PodNetworkParameters>(&());
        let mut all = of(networks, &steps.networks);
        let attachments = ApiResource::erase::<AttachmentParameters>(&());
        all.extend(of(attachments, &steps.attachments));
        all.truncate(A_PASS);
        let written = stream::iter(all).map(|(resource, step)| async move {
            let api = self.api(&resource, &step);
            self.status(&api, &resource, &step, &step.version).await
        });
        let written = written.buffer_unordered(AT_ONCE);
        written.fold(true, async |all, done| all & done).await
    }
}
