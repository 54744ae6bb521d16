//! The fixture itself: what the other tests of this binary stand on.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, PostParams};

use super::scene::{self, Scene};

/// Kubernetes API, `/version`.
#[test]
fn the_server_is_a_kubernetes_that_podnet_supports() {
    let Some(scene) = Scene::set(testbed::test_name!()) else {
        return;
    };
    let version = scene
        .run(|client| async move { client.apiserver_version().await })
        .expect("the server answers");
    assert_eq!(version.major, "1", "{version:?}");
    let minor: u32 = version.minor.parse().expect("a number");
    assert!(
        minor >= 30,
        "ValidatingAdmissionPolicy is v1 since 1.30: {version:?}"
    );
}

/// Kubernetes API, namespaces: what one test makes, others do not see.
#[test]
fn a_namespace_can_be_made_and_has_objects_of_its_own() {
    let Some(scene) = Scene::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let one = scene::namespace(&client, "own-objects-1").await;
        let other = scene::namespace(&client, "own-objects-2").await;
        let mut map = ConfigMap::default();
        map.metadata.name = Some("mine".to_owned());
        let maps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
        maps(&one)
            .create(&PostParams::default(), &map)
            .await
            .expect("an object can be made");
        assert!(
            maps(&one)
                .get_opt("mine")
                .await
                .expect("readable")
                .is_some()
        );
        assert!(
            maps(&other)
                .get_opt("mine")
                .await
                .expect("readable")
                .is_none()
        );
    });
}

/// Kubernetes RBAC: certificates stand for users, and rights of users differ.
#[test]
fn a_user_who_is_no_administrator_is_refused() {
    let Some(scene) = Scene::set(testbed::test_name!()) else {
        return;
    };
    let refused = scene.run(|_| async {
        let client: Client = scene::client(scene.server, "kube-proxy").await;
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("not-allowed".to_owned());
        Api::all(client)
            .create(&PostParams::default(), &namespace)
            .await
    });
    match refused {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403, "{status:?}"),
        other => panic!("not refused: {other:?}"),
    }
}
