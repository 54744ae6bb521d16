use std::collections::BTreeMap;
use std::fs;

use remotes::{Remotes, Served};

use super::Files;

const SLICE: &str = r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkEndpointSlice
metadata: {name: blue.n2.0}
spec:
  network: blue
  networkID: 7
  node: n2
  vteps: [192.0.2.2]
  endpoints:
    - {mac: "02:00:00:00:00:07", ips: [10.0.0.7], since: "2026-01-02T03:04:05Z"}
"#;

#[test]
fn a_directory_that_cannot_be_listed_is_told_and_takes_nobody_away() {
    let parent = tempfile::tempdir().unwrap();
    let shared = parent.path().join("shared");
    let remotes = Remotes::new("n1");
    let served = Served {
        id: 7,
        transport: api::Transport::Vxlan,
        routed: false,
        subnets: Vec::new(),
    };
    remotes.serve(BTreeMap::from([("blue".to_owned(), served)]));
    let mut files = Files::new(shared.join("n1.yaml"));
    files.read(&shared, &remotes).unwrap_err();

    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("n2.yaml"), SLICE).unwrap();
    files.read(&shared, &remotes).unwrap();
    assert_eq!(remotes.endpoints(7).len(), 1);

    fs::rename(&shared, parent.path().join("away")).unwrap();
    files.read(&shared, &remotes).unwrap_err();
    assert_eq!(remotes.endpoints(7).len(), 1, "nobody said that it is gone");

    fs::create_dir(&shared).unwrap();
    files.read(&shared, &remotes).unwrap();
    assert!(remotes.endpoints(7).is_empty());
}
