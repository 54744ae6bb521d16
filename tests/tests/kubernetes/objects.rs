//! podnet's definitions in the shared API server, and objects of their kinds.

use std::process::Output;
use std::sync::OnceLock;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, Resource};
use kube::{Client, Error};
use serde_json::{Value, json};
use testbed::apiserver::ApiServer;

use super::scene::Scene;

/// A server that has the definitions of `deploy/crds`.
pub(crate) fn set(test: &str) -> Option<Scene> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let scene = Scene::set(test)?;
    INSTALLED.get_or_init(|| scene.server.install_definitions());
    Some(scene)
}

/// Runs kubectl as the administrator, as [`ApiServer::kubectl`].
pub(crate) fn kubectl(server: &ApiServer, arguments: &[&str]) -> Output {
    server.kubectl(arguments)
}

/// Objects of a kind, untyped, so that a test can write what no type would let it.
#[derive(Clone)]
pub(crate) struct Objects {
    api: Api<DynamicObject>,
    resource: ApiResource,
}

impl Objects {
    /// Cluster-scoped objects of kind `K`.
    pub(crate) fn all<K: Resource<DynamicType = ()>>(client: &Client) -> Self {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::all_with(client.clone(), &resource);
        Self { api, resource }
    }

    /// Objects of kind `K` in one namespace.
    pub(crate) fn of<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Self {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::namespaced_with(client.clone(), namespace, &resource);
        Self { api, resource }
    }

    fn object(&self, name: &str, rest: Value) -> DynamicObject {
        let mut object = DynamicObject::new(name, &self.resource);
        object.data = rest;
        object
    }

    /// Makes an object with these fields besides its metadata.
    pub(crate) async fn create(&self, name: &str, rest: Value) -> Result<Value, String> {
        let object = self.object(name, rest);
        answer(self.api.create(&PostParams::default(), &object).await)
    }

    /// Asks what making an object with this spec would give; nothing is made.
    pub(crate) async fn try_spec(&self, name: &str, spec: &Value) -> Result<Value, String> {
        let object = self.object(name, json!({ "spec": spec }));
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        answer(self.api.create(&params, &object).await)
    }

    /// Merges a patch into an object.
    pub(crate) async fn merge(&self, name: &str, patch: Value) -> Result<Value, String> {
        let params = PatchParams::default();
        answer(self.api.patch(name, &params, &Patch::Merge(patch)).await)
    }

    /// Merges a patch into the status of an object.
    pub(crate) async fn merge_status(&self, name: &str, status: Value) -> Result<Value, String> {
        let params = PatchParams::default();
        let patch = Patch::Merge(json!({ "status": status }));
        answer(self.api.patch_status(name, &params, &patch).await)
    }

    /// The names of the objects a field selector finds.
    pub(crate) async fn names(&self, selector: &str) -> Vec<String> {
        let params = kube::api::ListParams::default().fields(selector);
        let list = self
            .api
            .list(&params)
            .await
            .expect("the objects can be listed");
        list.items
            .into_iter()
            .filter_map(|object| object.metadata.name)
            .collect()
    }
}

/// The object, or the server's words when it says that a value is invalid.
fn answer(result: kube::Result<DynamicObject>) -> Result<Value, String> {
    match result {
        Ok(object) => Ok(serde_json::to_value(object).expect("an object is JSON")),
        Err(Error::Api(status)) if status.code == 422 || status.code == 409 => Err(status.message),
        Err(other) => unreachable!("no answer about the object: {other:?}"),
    }
}

/// Tries each spec of a table: the field and words of its refusal, or none.
pub(crate) async fn check_specs(
    objects: &Objects,
    name: &str,
    table: &[(Value, Option<[&str; 2]>)],
) {
    for (spec, refusal) in table {
        let answer = objects.try_spec(name, spec).await;
        let Some(words) = refusal else {
            assert!(answer.is_ok(), "{spec} was refused: {answer:?}");
            continue;
        };
        let Err(message) = answer else {
            unreachable!("{spec} was taken; expected {words:?}");
        };
        for word in words {
            assert!(
                message.contains(word),
                "{spec}: {word:?} is not in: {message}"
            );
        }
    }
}
