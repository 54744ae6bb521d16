//! Extended resources: what a port on a network is counted by.
//!
//! A network whose ports are sockets has the resource `podnet.dev/NAME`. A `NetworkAttachmentDefinition`
//! of a network of ours can name another one by `k8s.v1.cni.cncf.io/resourceName`, and then has devices
//! of that one, if it is in the domain [`DOMAIN`]; resources of other domains are other device plugins'.

use std::collections::{BTreeMap, BTreeSet};

use api::nad::{Definition, Meaning, NetworkRef, read_definition};
use api::selection::Target;
use api::{Attachment, Interface, InterfaceKind};

use crate::World;

/// The domain of all resources of ours.
pub const DOMAIN: &str = "podnet.dev";
/// Where a container has the directories of its devices.
const IN_CONTAINER: &str = "/run/podnet";
/// Longest name of a resource behind its domain, bytes; of Kubernetes.
const NAME_MAX: usize = 63;

/// The resource of a network; none when its name is too long for one.
pub fn of_network(network: &str) -> Option<String> {
    let is_name = !network.is_empty() && network.len() <= NAME_MAX;
    is_name.then(|| format!("{DOMAIN}/{network}"))
}

/// True for a resource whose devices are ours.
pub fn is_ours(resource: &str) -> bool {
    let name = resource
        .strip_prefix(DOMAIN)
        .and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        name.len() <= NAME_MAX
            && name.chars().all(is_inner)
            && is_outer(name.chars().next())
            && is_outer(name.chars().next_back())
    })
}

/// A resource of ours without its domain; another one as a single name.
pub fn short(resource: &str) -> String {
    let name = resource
        .strip_prefix(DOMAIN)
        .and_then(|rest| rest.strip_prefix('/'));
    name.unwrap_or(resource).replace('/', "-")
}

/// The directory of a device in its container.
pub fn in_container(resource: &str, device: &str) -> String {
    format!("{IN_CONTAINER}/{}/{device}", short(resource))
}

/// Returns the path in a container below which the map of a device is pinned.
///
/// It is next to the device's own directory, where no pod can put anything in its place.
pub fn map_in_container(resource: &str, device: &str) -> String {
    format!("{}.map", in_container(resource, device))
}

/// The variable in which a container finds the names of its devices.
pub fn variable(resource: &str) -> String {
    let name = short(resource).to_ascii_uppercase();
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    format!("PODNET_DEVICE_{name}")
}

/// The resource and kind of port behind an object that a pod can name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    /// None: no network of ours.
    network: Option<String>,
    resource: String,
    /// The kind of the port.
    kind: InterfaceKind,
}

/// Networks and maps that the devices of a resource serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// The networks they lead to.
    pub networks: BTreeSet<String>,
    /// Some are ports of AF_XDP, which have a map.
    pub has_maps: bool,
}

/// Health and maps of a resource's devices, as the kubelet is told of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its devices can be used.
    pub is_healthy: bool,
    /// A container gets the directory of their maps too.
    pub has_maps: bool,
}

/// Returns the name of the resource by which an attachment to `target` is counted.
///
/// `None` for an interface of the kernel that no resource is named for, and for targets that cannot be
/// attached to.
pub fn of_target(world: &World, target: &Target) -> Option<String> {
    let counted = match target {
        Target::PodNetwork(network) => of_port(world, network, None),
        Target::Attachment { namespace, name } => {
            let found = world.resolved.attachment(namespace, name).ok()?;
            of_attachment(world, found)
        }
        Target::Definition { namespace, name } => of_definition(world, namespace, name),
    };
    counted.map(|counted| counted.resource)
}

/// The resources of a node and what each is for, once the networks are known.
pub fn all(world: &World) -> Option<BTreeMap<String, Uses>> {
    if !world.unread.is_empty() {
        return None;
    }
    let networks = world.resolved.network_names();
    let of_networks = networks.filter_map(|network| of_port(world, network, None));
    let attachments = world.resolved.attachments();
    let of_attachments = attachments.filter_map(|found| of_attachment(world, found));
    let definitions = world.definitions.keys();
    let of_definitions =
        definitions.filter_map(|(namespace, name)| of_definition(world, namespace, name));
    let mut all: BTreeMap<String, Uses> = BTreeMap::new();
    for counted in of_networks.chain(of_attachments).chain(of_definitions) {
        let Some(network) = counted.network.filter(|_| is_ours(&counted.resource)) else {
            continue;
        };
        let uses = all.entry(counted.resource).or_default();
        uses.networks.insert(network);
        uses.has_maps |= counted.kind == InterfaceKind::AfXdp;
    }
    Some(all)
}

/// A port on a network, by its own wish or the network's.
fn of_port(world: &World, network: &str, asked: Option<Interface>) -> Option<Counted> {
    let definition = world.resolved.definition(network)?;
    let port = asked.unwrap_or(definition.interface);
    if port.is_veth() {
        return None;
    }
    Some(Counted {
        network: Some(network.to_owned()),
        resource: of_network(network)?,
        kind: port.kind,
    })
}

fn of_attachment(world: &World, found: &Attachment) -> Option<Counted> {
    of_port(world, &found.network, found.request.interface)
}

fn of_definition(world: &World, namespace: &str, name: &str) -> Option<Counted> {
    let object = world
        .definitions
        .get(&(namespace.to_owned(), name.to_owned()))?;
    let definition = read_definition(&Definition {
        namespace,
        name,
        annotations: &object.annotations,
        config: &object.config,
    });
    // What is wrong with it is told to the pods that name it.
    let definition = definition.ok()?;
    let (network, asked) = match definition.meaning {
        Meaning::ByName(network) => (Some(network), None),
        Meaning::Own(own) => match own.network {
            NetworkRef::PodNetwork(network) => (Some(network), own.request.interface),
            NetworkRef::Attachment { namespace, name } => {
                let found = world.resolved.attachment(&namespace, &name).ok()?;
                let asked = own.request.interface.or(found.request.interface);
                (Some(found.network.clone()), asked)
            }
        },
        Meaning::Delegate(_) => (None, None),
    };
    let known = network
        .as_deref()
        .and_then(|it| world.resolved.definition(it));
    let of_network = known.map(|it| it.interface);
    let kind = asked.or(of_network).map(|port| port.kind);
    let network = network.filter(|_| known.is_some());
    match definition.resource_name {
        Some(resource) => Some(Counted {
            network,
            resource,
            kind: kind.unwrap_or(InterfaceKind::Veth),
        }),
        None => of_port(world, &network?, asked),
    }
}

/// Returns all resources, with whether their devices can be used.
///
/// They can while the node serves and all networks of the resource take attachments.
pub fn offers(world: &World, is_ready: bool) -> Option<BTreeMap<String, Offer>> {
    let resources = all(world)?.into_iter();
    let offer = |uses: Uses| Offer {
        is_healthy: is_ready && uses.networks.iter().all(|it| world.network(it).is_ok()),
        has_maps: uses.has_maps,
    };
    Some(resources.map(|(name, uses)| (name, offer(uses))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Networks with ports of both kinds, and what can be said of them elsewhere.
    const OBJECTS: &str = r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: kernel}
spec: {mode: L2, subnets: [10.0.0.0/24]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: shared-memory}
spec: {mode: L2, subnets: [10.0.0.0/24], interface: {type: Memif}}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: xdp}
spec: {mode: L3, subnets: [10.1.0.0/24], interface: {type: AFXDP, queues: 2}}
---
apiVersion: podnet.dev/v1alpha1
kind: AttachmentParameters
metadata: {namespace: shop, name: as-memif}
spec: {interface: {type: Memif}}
---
apiVersion: podnet.dev/v1alpha1
kind: AttachmentParameters
metadata: {namespace: shop, name: as-veth}
spec: {interface: {type: Veth}}
"#;

    fn network(name: &str, parameters: &str) -> String {
        format!(
            "---\napiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
             spec:\n  enabled: true\n  provider: podnet.dev/ebpf\n  parametersRefs:\n    \
             - {{group: podnet.dev, kind: PodNetworkParameters, name: {parameters}}}\n"
        )
    }

    fn attachment(name: &str, network: &str, parameters: &str) -> String {
        format!(
            "---\napiVersion: podnet.dev/v1alpha1\nkind: PodNetworkAttachment\n\
             metadata: {{namespace: shop, name: {name}}}\nspec:\n  podNetworkName: {network}\n  \
             parametersRefs:\n    \
             - {{group: podnet.dev, kind: AttachmentParameters, name: {parameters}, namespace: shop}}\n"
        )
    }

    fn definition(
        name: &str,
        annotations: &[(&str, &str)],
        config: &str,
    ) -> ((String, String), crate::Definition) {
        let annotations = annotations.iter();
        let definition = crate::Definition {
            annotations: annotations
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            config: config.to_owned(),
        };
        (("shop".to_owned(), name.to_owned()), definition)
    }

    const NAMED: &str = "k8s.v1.cni.cncf.io/resourceName";

    fn world() -> World {
        let long = "l".repeat(64);
        let text = [
            OBJECTS.to_owned(),
            network("blue", "kernel"),
            network("mem", "shared-memory"),
            network("fast", "xdp"),
            network("lost", "nowhere"),
            network(&long, "xdp"),
            attachment("mem-on-blue", "blue", "as-memif"),
            attachment("veth-on-mem", "mem", "as-veth"),
        ]
        .concat();
        let objects = api::parse_manifests("objects", &text).into_iter();
        let objects = objects.map(|object| object.expect("a manifest"));
        World {
            resolved: api::resolve(objects),
            definitions: BTreeMap::from([
                definition("mem", &[], ""),
                definition("blue", &[], ""),
                definition(
                    "pool",
                    &[(NAMED, "podnet.dev/pool")],
                    r#"{"cniVersion":"1.0.0","type":"podnet","podNetwork":"blue"}"#,
                ),
                definition(
                    "mine",
                    &[(
                        "podnet.dev/config",
                        r#"{"podNetwork":"blue","interface":{"type":"AFXDP"}}"#,
                    )],
                    "",
                ),
                definition(
                    "by-attachment",
                    &[(
                        "podnet.dev/config",
                        r#"{"podNetworkAttachment":"shop/mem-on-blue"}"#,
                    )],
                    "",
                ),
                definition(
                    "theirs",
                    &[(NAMED, "vendor.example/vf")],
                    r#"{"cniVersion":"1.0.0","type":"sriov"}"#,
                ),
                definition(
                    "ours-for-theirs",
                    &[(NAMED, "podnet.dev/theirs")],
                    r#"{"cniVersion":"1.0.0","type":"sriov"}"#,
                ),
                definition("broken", &[(NAMED, "podnet.dev/broken")], "{"),
            ]),
            ..World::default()
        }
    }

    /// S003-02: one resource a network, and those that definitions name.
    #[test]
    fn networks_whose_ports_are_sockets_have_a_resource() {
        let found = all(&world()).expect("everything is read");
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|(name, uses)| {
                let networks = uses.networks.iter().map(String::as_str).collect();
                (name.as_str(), networks)
            })
            .collect();
        let expected = [
            ("podnet.dev/blue", vec!["blue"]),
            ("podnet.dev/fast", vec!["fast"]),
            ("podnet.dev/mem", vec!["mem"]),
            ("podnet.dev/pool", vec!["blue"]),
        ];
        assert_eq!(found, expected);
        let unread = World::unread(vec!["podnetworks are not read yet".to_owned()]);
        assert_eq!(all(&unread), None, "nothing is taken away for that");
        proof::of!("S003-02");
    }

    /// S003-01, S003-05
    #[test]
    fn an_attachment_is_counted_by_what_it_names_else_by_its_network() {
        let world = world();
        let of = |target: Target| of_target(&world, &target);
        let network = |name: &str| of(Target::PodNetwork(name.to_owned()));
        let named = |name: &str| (String::from("shop"), name.to_owned());
        let attachment = |name: &str| {
            let (namespace, name) = named(name);
            of(Target::Attachment { namespace, name })
        };
        let definition = |name: &str| {
            let (namespace, name) = named(name);
            of(Target::Definition { namespace, name })
        };
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(network("mem"), is("podnet.dev/mem"));
        for nothing in ["blue", "lost", "absent"] {
            assert_eq!(network(nothing), None, "{nothing}");
        }
        assert_eq!(attachment("mem-on-blue"), is("podnet.dev/blue"));
        assert_eq!(attachment("veth-on-mem"), None);
        assert_eq!(attachment("absent"), None);
        assert_eq!(definition("mem"), is("podnet.dev/mem"));
        assert_eq!(definition("pool"), is("podnet.dev/pool"));
        assert_eq!(definition("mine"), is("podnet.dev/blue"));
        assert_eq!(definition("by-attachment"), is("podnet.dev/blue"));
        assert_eq!(definition("theirs"), is("vendor.example/vf"));
        for nothing in ["blue", "broken", "absent"] {
            assert_eq!(definition(nothing), None, "{nothing}");
        }
        proof::of!("S003-01", "S003-05");
    }

    #[test]
    fn devices_can_be_used_while_the_node_serves_and_their_networks_take_attachments() {
        let mut world = world();
        let offer = |world: &World, ready, name: &str| offers(world, ready).expect("read")[name];
        let healthy = |world: &World, ready| offer(world, ready, "podnet.dev/mem").is_healthy;
        assert!(offer(&world, true, "podnet.dev/fast").has_maps);
        assert!(!offer(&world, true, "podnet.dev/mem").has_maps);
        assert!(healthy(&world, true));
        assert!(!healthy(&world, false));
        // What is disabled takes no attachments, and stays a network.
        let disabled = network("mem", "shared-memory").replace("enabled: true", "enabled: false");
        let text = [OBJECTS.to_owned(), disabled].concat();
        let objects = api::parse_manifests("objects", &text).into_iter();
        world.resolved = api::resolve(objects.map(|object| object.expect("a manifest")));
        world.definitions.clear();
        assert!(!healthy(&world, true));
    }

    #[test]
    fn names_of_resources_are_what_kubernetes_takes() {
        for good in ["podnet.dev/blue", "podnet.dev/a.b-c_D9", "podnet.dev/1"] {
            assert!(is_ours(good), "{good}");
        }
        let long = format!("podnet.dev/{}", "l".repeat(64));
        for bad in [
            "podnet.dev/",
            "podnet.dev",
            "podnet.devil/blue",
            "vendor.example/blue",
            "podnet.dev/-a",
            "podnet.dev/a-",
            "podnet.dev/a/b",
            "podnet.dev/..",
            &long,
        ] {
            assert!(!is_ours(bad), "{bad}");
        }
        assert_eq!(of_network(&"l".repeat(64)), None);
        assert_eq!(variable("podnet.dev/my-net.v2"), "PODNET_DEVICE_MY_NET_V2");
        assert_eq!(in_container("podnet.dev/blue", "7"), "/run/podnet/blue/7");
        assert_eq!(
            map_in_container("podnet.dev/blue", "7"),
            "/run/podnet/blue/7.map"
        );
    }
}
