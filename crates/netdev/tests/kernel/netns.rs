//! Namespaces and visits to them.

use netdev::{Error, NamedNetns, Netns, NetnsId};

use crate::Scene;

#[test]
fn a_visit_does_not_move_the_visitor() {
    let Some(scene) = Scene::set() else { return };
    let before = Netns::current().expect("open").identity();
    let inside = scene
        .pod
        .run_in(|| Netns::current().expect("open").identity())
        .expect("entered");
    assert_eq!(inside, scene.pod.identity());
    assert_ne!(inside, before);
    assert_eq!(Netns::current().expect("open").identity(), before);
    assert!(!scene.pod.same_as_current().expect("comparable"));
}

#[tokio::test]
async fn a_panic_during_a_visit_reaches_the_caller() {
    let Some(scene) = Scene::set() else { return };
    let pod = scene.pod.clone();
    let visit = tokio::spawn(async move { pod.enter(|| panic!("in the pod")).await });
    let panic = visit.await.expect_err("a panic").into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the pod"));
}

#[test]
fn a_named_namespace_is_its_file_and_goes_with_it() {
    if Scene::set().is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("netns/blue");
    let named = NamedNetns::create(&path).expect("a namespace");
    assert_eq!(
        Netns::open(&path).expect("open").identity(),
        named.netns().identity()
    );
    assert_ne!(
        named.netns().identity(),
        Netns::current().expect("open").identity()
    );
    let again = NamedNetns::create(&path).expect_err("refused");
    assert!(again.is_exists(), "{again:?}");
    assert!(
        Netns::open(&path).is_ok(),
        "the refusal left the first one alone"
    );
    named.delete().expect("deleted");
    assert!(!path.exists());
    assert!(
        NamedNetns::remove(&path)
            .expect_err("nothing there")
            .is_gone()
    );

    let kept = NamedNetns::create(&path).expect("a namespace").keep();
    assert_eq!(
        Netns::open(&path).expect("open").identity(),
        kept.identity()
    );
    NamedNetns::remove(&path).expect("removed");
    drop(NamedNetns::create(&path).expect("a namespace"));
    assert!(!path.exists());
}

#[test]
fn a_connection_is_of_the_namespace_of_who_connected_whatever_the_file() {
    let Some(scene) = Scene::set() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let connect = || std::os::unix::net::UnixStream::connect(&path).expect("connected");
    for netns in [&scene.node, &scene.pod] {
        let _peer = netns.run_in(connect).expect("the namespace");
        let (accepted, _) = listener.accept().expect("accepted");
        let found = NetnsId::of_socket(&accepted).expect("a socket");
        assert_eq!(found, netns.identity());
    }
    let file = std::fs::File::open("/proc/self/status").expect("a file");
    let error = NetnsId::of_socket(&file).expect_err("no socket");
    assert!(matches!(error, Error::InspectNetns { .. }), "{error}");
}
