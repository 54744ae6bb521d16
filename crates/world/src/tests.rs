use std::fs;
use std::time::Instant;

use super::*;

fn manifest(name: &str, subnet: &str) -> String {
    format!(
        "apiVersion: podnet.dev/v1alpha1\n\
         kind: PodNetwork\n\
         metadata: {{name: {name}}}\n\
         spec:\n  provider: podnet.dev/ebpf\n  \
         parametersRefs: [{{group: podnet.dev, kind: PodNetworkParameters, name: {name}}}]\n\
         ---\n\
         apiVersion: podnet.dev/v1alpha1\n\
         kind: PodNetworkParameters\n\
         metadata: {{name: {name}}}\n\
         spec: {{mode: L2, subnets: [{subnet}]}}\n"
    )
}

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn names(world: &World) -> Vec<&str> {
    world.resolved.network_names().collect()
}

#[test]
fn yaml_yml_and_json_files_are_read_and_others_are_not() {
    let json = r#"{"apiVersion":"podnet.dev/v1alpha1","kind":"PodNetwork",
        "metadata":{"name":"json"},"spec":{"provider":"podnet.dev/ebpf"}}"#;
    let directory = directory(&[
        ("a.yaml", &manifest("yaml", "10.1.0.0/24")),
        ("b.yml", &manifest("yml", "10.2.0.0/24")),
        ("c.json", json),
        ("d.yaml.bak", &manifest("bak", "10.4.0.0/24")),
        ("README", "not a manifest"),
    ]);
    let world = World::read(directory.path()).unwrap();
    assert_eq!(names(&world), ["json", "yaml", "yml"]);
    assert_eq!(world.broken, [""; 0]);
}

/// KEP-P1-06: definitions of a directory give networks their parameters.
#[test]
fn a_network_of_a_file_has_the_parameters_of_a_definition_of_another() {
    let network = "apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {name: blue}\nspec:\n  \
        provider: podnet.dev/ebpf\n  parametersRefs: [{group: k8s.cni.cncf.io, \
        kind: NetworkAttachmentDefinition, name: a, namespace: ops}]\n";
    let definition = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
        metadata: {name: a, namespace: ops}\n\
        spec: {config: '{\"type\": \"podnet\", \"parameters\": {\"mode\": \"L2\", \"mtu\": 1400}}'}\n";
    let directory = directory(&[("a.yaml", network), ("b.yaml", definition)]);
    let world = World::read(directory.path()).unwrap();
    assert_eq!(world.broken, [""; 0]);
    assert_eq!(world.network("blue").unwrap().mtu, 1400);
    proof::of!("KEP-P1-06");
}

#[test]
fn an_empty_directory_is_an_empty_world() {
    let directory = directory(&[]);
    assert_eq!(World::read(directory.path()).unwrap(), World::default());
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let directory = directory(&[]);
    assert!(World::read(&directory.path().join("missing")).is_err());
}

#[test]
fn a_broken_file_and_a_broken_document_keep_the_others() {
    let two = format!("{}---\nkind: [\n", manifest("blue", "10.1.0.0/24"));
    let directory = directory(&[
        ("a.yaml", "\t: no yaml"),
        ("b.yaml", &two),
        ("c.yaml", &manifest("red", "10.2.0.0/24")),
    ]);
    fs::write(directory.path().join("d.yaml"), [0xff, 0xfe]).unwrap();
    let world = World::read(directory.path()).unwrap();
    assert_eq!(names(&world), ["blue", "red"]);
    assert_eq!(world.broken.len(), 3, "{:?}", world.broken);
    for (problem, file) in world.broken.iter().zip(["a.yaml", "b.yaml", "d.yaml"]) {
        assert!(problem.contains(file), "{problem} does not name {file}");
    }
    assert!(world.network("blue").is_ok() && world.network("red").is_ok());
}

/// A refusal names the unreadable files, as one may define the missing object.
#[test]
fn a_refusal_names_the_files_that_could_not_be_read() {
    let directory = directory(&[("a.yaml", "\t: no yaml")]);
    let error = World::read(directory.path())
        .unwrap()
        .network("blue")
        .unwrap_err();
    assert!(error.to_string().contains("a.yaml"), "{error}");
}

#[test]
fn files_are_read_in_the_order_of_their_names() {
    let directory = directory(&[
        ("b.yaml", &manifest("blue", "10.2.0.0/24")),
        ("a.yaml", &manifest("blue", "10.1.0.0/24")),
    ]);
    let error = World::read(directory.path())
        .unwrap()
        .network("blue")
        .unwrap_err()
        .to_string();
    let (first, second) = (error.find("a.yaml").unwrap(), error.find("b.yaml").unwrap());
    assert!(first < second, "{error}");
}

#[test]
fn only_another_world_is_a_change() {
    let current = Current::default();
    let directory = directory(&[("a.yaml", &manifest("blue", "10.1.0.0/24"))]);
    let read = || World::read(directory.path()).unwrap();
    assert!(current.set(read()));
    assert!(!current.set(read()), "the same files, read again");
    fs::write(
        directory.path().join("a.yaml"),
        manifest("blue", "10.9.0.0/24"),
    )
    .unwrap();
    assert!(current.set(read()), "another subnet");
    fs::write(directory.path().join("b.yaml"), "\t: no yaml").unwrap();
    assert!(current.set(read()), "a broken file");
}

#[test]
fn a_request_keeps_the_world_it_began_with() {
    let current = Current::default();
    let directory = directory(&[("a.yaml", &manifest("blue", "10.1.0.0/24"))]);
    current.set(World::read(directory.path()).unwrap());
    let begun = current.get();
    current.set(World::default());
    assert!(begun.network("blue").is_ok());
    assert!(current.get().network("blue").is_err());
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn changes_are_followed_from_the_first_reading_on() {
    let directory = directory(&[("a.yaml", &manifest("blue", "10.1.0.0/24"))]);
    let path = directory.path().to_owned();
    let current = Arc::new(Current::default());
    current.set(World::read(&path).unwrap());
    let policies = Arc::new(PolicyCurrent::default());
    // Between the first reading and the watch.
    fs::write(path.join("b.yaml"), manifest("red", "10.2.0.0/24")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let following = tokio::spawn(follow(
            Manifests::of(&path),
            Arc::clone(&current),
            (Arc::clone(&policies), Arc::default()),
            || false,
        ));
        eventually("what came before the watch", || {
            current.get().network("red").is_ok()
        })
        .await;

        // As editors and ConfigMaps do it: a new file takes the place of the old one.
        fs::write(path.join(".draft"), manifest("green", "10.3.0.0/24")).unwrap();
        fs::rename(path.join(".draft"), path.join("b.yaml")).unwrap();
        eventually("a replaced file", || current.get().network("green").is_ok()).await;
        assert!(current.get().network("red").is_err());

        let policy =
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web}\n";
        fs::write(path.join("c.yaml"), policy).unwrap();
        eventually("a policy", || policies.get().policies.len() == 1).await;

        fs::remove_file(path.join("a.yaml")).unwrap();
        eventually("a removed file", || current.get().network("blue").is_err()).await;
        following.abort();
    });
}
