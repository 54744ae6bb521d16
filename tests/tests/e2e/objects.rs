//! Objects of any kind, as JSON, asked for one request at a time.

use std::time::{Duration, Instant};

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config, Error};
use serde_json::{Value, json};

/// Limit of waits that depend on kubelets and schedulers; it measures nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks.
const STEP: Duration = Duration::from_millis(100);

/// Looks again and again until `probe` returns something.
///
/// # Panics
/// After [`PATIENCE`], naming `what`.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(STEP);
    }
}

/// A kind: group and version, name, plural.
pub(crate) type Kind = (&'static str, &'static str, &'static str);

pub(crate) const BLOCK: Kind = ("podnet.dev/v1alpha1", "IPBlock", "ipblocks");
pub(crate) const CLAIM: Kind = ("k8s.cni.cncf.io/v1alpha1", "IPAMClaim", "ipamclaims");
pub(crate) const DAEMON_SET: Kind = ("apps/v1", "DaemonSet", "daemonsets");
pub(crate) const DEFINITION: Kind = (
    "k8s.cni.cncf.io/v1",
    "NetworkAttachmentDefinition",
    "network-attachment-definitions",
);
pub(crate) const DEPLOYMENT: Kind = ("apps/v1", "Deployment", "deployments");
pub(crate) const EVENT: Kind = ("events.k8s.io/v1", "Event", "events");
pub(crate) const NAMESPACE: Kind = ("v1", "Namespace", "namespaces");
pub(crate) const NETWORK: Kind = ("podnet.dev/v1alpha1", "PodNetwork", "podnetworks");
pub(crate) const NODE: Kind = ("v1", "Node", "nodes");
pub(crate) const PARAMETERS: Kind = (
    "podnet.dev/v1alpha1",
    "PodNetworkParameters",
    "podnetworkparameters",
);
pub(crate) const POD: Kind = ("v1", "Pod", "pods");
pub(crate) const SERVICE: Kind = ("v1", "Service", "services");

/// A client of an administrator.
pub(crate) struct Objects {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Objects {
    /// Reads the kubeconfig that `KUBECONFIG` names.
    pub(crate) fn connect() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(async {
            let file = Kubeconfig::read().expect("KUBECONFIG names a kubeconfig");
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await;
            Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
        });
        Self { client, runtime }
    }

    /// Objects of a kind in a namespace; `""` for those without.
    fn api(&self, (version, kind, plural): Kind, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let client = self.client.clone();
        if namespace.is_empty() {
            Api::all_with(client, &resource)
        } else {
            Api::namespaced_with(client, namespace, &resource)
        }
    }

    /// Makes an object with these fields besides type and name.
    pub(crate) fn create(
        &self,
        kind: Kind,
        (namespace, name): (&str, &str),
        mut fields: Value,
    ) -> Result<Value, String> {
        fields["apiVersion"] = kind.0.into();
        fields["kind"] = kind.1.into();
        fields["metadata"]["name"] = name.into();
        let object: DynamicObject = serde_json::from_value(fields).expect("an object");
        let api = self.api(kind, namespace);
        let made = self
            .runtime
            .block_on(api.create(&PostParams::default(), &object));
        answer(made)
    }

    /// As [`Self::create`].
    ///
    /// # Panics
    /// If it is refused.
    #[track_caller]
    pub(crate) fn make(&self, kind: Kind, place: (&str, &str), fields: Value) {
        let made = self.create(kind, place, fields);
        assert!(made.is_ok(), "{} {place:?}: {made:?}", kind.1);
    }

    /// The object, if it is there.
    pub(crate) fn get(&self, kind: Kind, (namespace, name): (&str, &str)) -> Option<Value> {
        let api = self.api(kind, namespace);
        let found = self.runtime.block_on(api.get_opt(name));
        let found = found.expect("an answer about an object")?;
        Some(serde_json::to_value(found).expect("an object is JSON"))
    }

    /// All objects of a kind; in all namespaces for `""`.
    pub(crate) fn list(&self, kind: Kind, namespace: &str) -> Vec<Value> {
        let api = self.api(kind, namespace);
        let list = self.runtime.block_on(api.list(&ListParams::default()));
        let items = list.expect("a list of objects").items;
        items
            .into_iter()
            .map(|one| serde_json::to_value(one).expect("an object is JSON"))
            .collect()
    }

    /// Merges fields into an object. The server's words where it refuses.
    pub(crate) fn patch(
        &self,
        kind: Kind,
        (namespace, name): (&str, &str),
        fields: &Value,
    ) -> Result<Value, String> {
        let api = self.api(kind, namespace);
        let merge = Patch::Merge(fields);
        let params = PatchParams::default();
        answer(self.runtime.block_on(api.patch(name, &params, &merge)))
    }

    /// Asks for an object to be deleted; a missing one counts as deleted.
    ///
    /// Returns the server's words otherwise.
    pub(crate) fn delete(&self, kind: Kind, (namespace, name): (&str, &str)) -> Result<(), String> {
        let api = self.api(kind, namespace);
        match self
            .runtime
            .block_on(api.delete(name, &DeleteParams::background()))
        {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.code == 404 => Ok(()),
            Err(Error::Api(status)) => Err(status.message),
            Err(other) => unreachable!("no answer about {name}: {other:?}"),
        }
    }

    /// Deletes an object and waits until it is gone.
    #[track_caller]
    pub(crate) fn delete_wait(&self, kind: Kind, place: (&str, &str)) {
        let deleted = self.delete(kind, place);
        assert_eq!(deleted, Ok(()), "{} {place:?}", kind.1);
        until(&format!("{} {place:?} to be gone", kind.1), || {
            self.get(kind, place).is_none().then_some(())
        });
    }
}

/// The object, or the server's words.
fn answer(result: kube::Result<DynamicObject>) -> Result<Value, String> {
    match result {
        Ok(object) => Ok(serde_json::to_value(object).expect("an object is JSON")),
        Err(Error::Api(status)) => Err(status.message),
        Err(other) => unreachable!("no answer about an object: {other:?}"),
    }
}

/// The `status` of a condition.
pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|one| one["type"] == name)?;
    found["status"].as_str()
}

/// Where a `PodNetwork` finds the parameters of its own name.
pub(crate) fn network_spec(name: &str) -> Value {
    json!({"spec": {
        "provider": "podnet.dev/ebpf",
        "parametersRefs": [{"group": "podnet.dev", "kind": "PodNetworkParameters", "name": name}],
    }})
}
