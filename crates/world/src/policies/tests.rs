use std::fs;
use std::path::Path;

use super::*;
use crate::{Manifests, World};

const WEB: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
    metadata: {name: web, namespace: a, annotations: {podnet.dev/networks: blue}}\nspec: {}\n";
const ALL: &str = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
    metadata: {name: all}\nspec: {tier: Admin}\n";
const SPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {team: x}}\n";

fn read(directory: &Path) -> (World, PolicyWorld) {
    let (world, policies, _) = Manifests::of(directory).read().unwrap();
    (world, policies)
}

fn policies(directory: &Path) -> PolicyWorld {
    read(directory).1
}

#[test]
fn policies_and_namespaces_of_a_directory_are_no_broken_networks() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("a.yaml", &format!("{ALL}---\n{SPACE}"));
    write("b.yaml", WEB);
    let (world, policies) = read(directory.path());
    assert_eq!(world.broken, [""; 0]);
    let names: Vec<String> = policies.policies.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["NetworkPolicy a/web", "ClusterNetworkPolicy all"]);
    assert_eq!(
        policies.namespaces["a"]["team"], "x",
        "{:?}",
        policies.namespaces
    );
    assert!(policies.names_networks());
    assert_eq!((policies.broken.len(), policies.unread.len()), (0, 0));
}

#[test]
fn what_is_not_obeyed_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("a.yaml", &WEB.replace("blue", "Blue"));
    write(
        "b.yaml",
        &format!("{}---\n{}", WEB, ALL.replace("v1alpha2", "v1")),
    );
    let read = policies(directory.path());
    assert_eq!(read.policies.len(), 1);
    assert!(
        !read.names_networks(),
        "the first counts, which names nothing"
    );
    let told = [
        "is written twice",
        "names no network",
        "\"Blue\" is not a DNS-1123 name",
        "write policy.networking.k8s.io/v1alpha2",
    ];
    assert_eq!(read.broken.len(), told.len(), "{:?}", read.broken);
    for words in told {
        assert!(
            read.broken.iter().any(|line| line.contains(words)),
            "{words}: {:?}",
            read.broken
        );
    }
}

#[test]
fn only_other_policies_wake_who_follows_them() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), WEB).unwrap();
    let current = PolicyCurrent::default();
    let mut changes = current.changes();
    assert!(current.set(policies(directory.path())));
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    // The same objects in files of other names and order.
    fs::remove_file(directory.path().join("a.yaml")).unwrap();
    fs::write(directory.path().join("z.yaml"), WEB).unwrap();
    assert!(!current.set(policies(directory.path())));
    assert!(!changes.has_changed().unwrap());
    fs::write(
        directory.path().join("z.yaml"),
        WEB.replace("blue", "green"),
    )
    .unwrap();
    assert!(current.set(policies(directory.path())));
    assert!(changes.has_changed().unwrap());
    assert_eq!(current.get().policies.len(), 1);
}

/// A world that is made of the same copies shares them.
#[test]
fn worlds_share_the_pods_that_did_not_change() {
    let pod = Arc::new(PodFacts::default());
    let pods: BTreeMap<_, _> = [(("a".to_owned(), "b".to_owned()), Arc::clone(&pod))].into();
    let world = || PolicyWorld {
        pods: pods.clone(),
        ..PolicyWorld::default()
    };
    let current = PolicyCurrent::default();
    assert!(current.set(world()));
    assert!(!current.set(world().sorted()));
    let known = current.get();
    assert!(known.pods.values().all(|known| Arc::ptr_eq(known, &pod)));
}
