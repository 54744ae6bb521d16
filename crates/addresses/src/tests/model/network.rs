//! The network of all pods, in the forms that it takes during a walk.

use std::sync::Arc;

use api::NetworkAttachmentDefinition;
use overview::view::{View, meaning};
use serde_json::json;
use world::World;

/// The network of all pods.
pub(super) const BLUE: &str = "blue";

/// One subnet, and what of it is excluded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    subnet: &'static str,
    exclude: &'static [&'static str],
}

/// Forms of the network in one walk; all of them have the same addresses.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) forms: &'static [Form],
    /// Number of addresses that pods can have.
    pub(super) capacity: usize,
    /// Addresses that pods ask for by name.
    pub(super) named: [u8; 3],
}

const SMALL: Form = Form {
    subnet: "10.10.0.0/29",
    exclude: &[],
};
const SINGLE: Form = Form {
    subnet: "10.10.0.0/28",
    exclude: &[],
};
const PAIRS: Form = Form {
    subnet: "10.10.0.0/27",
    exclude: &[],
};
/// Two blocks of seven and eight addresses, which both nodes want.
const WIDE: Form = Form {
    subnet: "10.10.0.0/24",
    exclude: &[
        "10.10.0.8/29",
        "10.10.0.24/29",
        "10.10.0.32/27",
        "10.10.0.64/26",
        "10.10.0.128/25",
    ],
};
/// The addresses of [`SINGLE`] in one block.
const WHOLE: Form = Form {
    subnet: "10.10.0.0/24",
    exclude: &[
        "10.10.0.15/32",
        "10.10.0.16/28",
        "10.10.0.32/27",
        "10.10.0.64/26",
        "10.10.0.128/25",
    ],
};
/// The addresses of [`SINGLE`] in blocks of two.
const MIDDLE: Form = Form {
    subnet: "10.10.0.0/27",
    exclude: &["10.10.0.15/32", "10.10.0.16/28"],
};

/// Shapes of walks: nodes of a small network soon want blocks of each other.
pub(super) const SHAPES: [Shape; 6] = [
    Shape {
        forms: &[SMALL],
        capacity: 6,
        named: [2, 3, 6],
    },
    Shape {
        forms: &[SINGLE],
        capacity: 14,
        named: [2, 3, 14],
    },
    Shape {
        forms: &[PAIRS],
        capacity: 30,
        named: [2, 3, 6],
    },
    Shape {
        forms: &[WIDE],
        capacity: 15,
        named: [2, 3, 16],
    },
    // Blocks of different lengths overlap while the nodes see different forms.
    Shape {
        forms: &[SINGLE, WHOLE],
        capacity: 14,
        named: [2, 3, 14],
    },
    Shape {
        forms: &[WHOLE, MIDDLE, SINGLE],
        capacity: 14,
        named: [2, 3, 14],
    },
];

impl Form {
    /// Makes what an agent has read of the network.
    pub(super) fn world(&self) -> Arc<World> {
        let exclude = self.exclude.join(", ");
        let manifests = format!(
            r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {{name: blue}}
spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, kind: PodNetworkParameters, name: p}}]}}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {{name: p}}
spec: {{mode: L2, subnets: [{}], exclude: [{exclude}]}}
"#,
            self.subnet
        );
        let objects: Vec<_> = api::parse_manifests("model", &manifests)
            .into_iter()
            .map(|object| object.unwrap())
            .collect();
        Arc::new(World {
            resolved: api::resolve(objects),
            ..World::default()
        })
    }

    /// Makes what the controller has read of the network.
    pub(super) fn view(&self) -> View {
        let reference = json!({"group": "podnet.dev", "kind": "PodNetworkParameters", "name": "p"});
        let network = json!({
            "apiVersion": "podnet.dev/v1alpha1",
            "kind": "PodNetwork",
            "metadata": {"name": BLUE, "uid": "blue-uid", "resourceVersion": "1", "generation": 1},
            "spec": {"provider": "podnet.dev/ebpf", "parametersRefs": [reference]},
        });
        let parameters = json!({
            "apiVersion": "podnet.dev/v1alpha1",
            "kind": "PodNetworkParameters",
            "metadata": {"name": "p", "uid": "p-uid", "resourceVersion": "1", "generation": 1},
            "spec": {"mode": "L2", "subnets": [self.subnet], "exclude": self.exclude},
        });
        let definition: NetworkAttachmentDefinition = serde_json::from_value(json!({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": BLUE, "namespace": "shop"},
            "spec": {"config": ""},
        }))
        .unwrap();
        View {
            networks: [(
                BLUE.to_owned(),
                Arc::new(serde_json::from_value(network).unwrap()),
            )]
            .into(),
            network_parameters: vec![Arc::new(serde_json::from_value(parameters).unwrap())],
            definitions: [(("shop".to_owned(), BLUE.to_owned()), meaning(&definition))].into(),
            ..View::default()
        }
    }
}
