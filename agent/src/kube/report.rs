//! From what happens to the pods of this node to what is written about them.

use api::selection::{Family, Target};
use api::status::{
    AttachmentStatus, NETWORK_STATUS_ANNOTATION, POD_NETWORK_STATUS_ANNOTATION,
    PodNetworkAddresses, StatusAddress, StatusDns, write_network_status, write_pod_network_status,
};
use book::pods::{AttachedNetwork, PodChange, PodNetworks};
use book::record::PodIdentity;
use telemetry::chain;
use tokio::sync::mpsc;

use super::events::{EventWriter, Note, Reason};
use super::status::{Annotations, StatusWriter};

/// Writes about what is there, and about every change, for as long as changes come.
pub(super) async fn follow(
    (status, events): (&StatusWriter, &EventWriter),
    present: Vec<PodNetworks>,
    mut changes: mpsc::UnboundedReceiver<PodChange>,
) {
    for networks in present {
        publish(status, &networks);
    }
    while let Some(change) = changes.recv().await {
        match change {
            PodChange::Attached { networks, new } => {
                publish(status, &networks);
                let added = networks.attachments.iter().filter(|_| new);
                for attached in added {
                    say(
                        events,
                        &networks.pod,
                        Reason::AddedInterface,
                        added_text(attached),
                    );
                }
            }
            PodChange::Refused {
                pod,
                reason,
                missing,
            } => {
                let word = if missing {
                    Reason::NoNetworkFound
                } else {
                    Reason::FailedAddingInterface
                };
                say(events, &pod, word, reason);
            }
            PodChange::Warned { pod, text } => {
                say(events, &pod, Reason::DefaultNetworkMoved, text);
            }
            PodChange::Left { pod, reason } => {
                say(events, &pod, Reason::FailedRemovingInterface, reason);
            }
            PodChange::Detached { key, pod } => {
                status.forget((&pod.namespace, &pod.name), key.container.as_str());
            }
        }
    }
}

fn publish(status: &StatusWriter, networks: &PodNetworks) {
    let pod = &networks.pod;
    match annotations(&networks.attachments) {
        Ok(annotations) => status.set(
            (&pod.namespace, &pod.name),
            pod.uid.as_deref(),
            networks.key.container.as_str(),
            annotations,
        ),
        Err(error) => {
            tracing::error!(namespace = pod.namespace, pod = pod.name, error = %chain(&error), "the pod gets no network status");
        }
    }
}

fn say(events: &EventWriter, pod: &PodIdentity, reason: Reason, text: String) {
    events.say(Note {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        reason,
        text,
    });
}

/// As multus words it (NPWG-X4).
fn added_text(attached: &AttachedNetwork) -> String {
    let ips: Vec<String> = attached.addresses.iter().map(ToString::to_string).collect();
    format!(
        "Add {} [{}] from {}",
        attached.interface,
        ips.join(" "),
        status_name(attached)
    )
}

/// Names an attachment's network as NPWG §5.3.1 has it.
///
/// The name is that of the object that the pod names, with its namespace where it has one. A default
/// network of other plugins goes by its configuration.
pub fn status_name(attached: &AttachedNetwork) -> String {
    match &attached.target {
        Target::PodNetwork(_) => attached.network.clone(),
        Target::Attachment { namespace, name } | Target::Definition { namespace, name } => {
            format!("{namespace}/{name}")
        }
    }
}

/// Both lists, for a pod with these attachments.
fn annotations(attachments: &[AttachedNetwork]) -> Result<Annotations, api::status::StatusError> {
    let statuses: Vec<AttachmentStatus> = attachments.iter().map(status).collect();
    let addresses: Vec<PodNetworkAddresses> = attachments.iter().filter_map(pod_network).collect();
    Ok(Annotations::from([
        (NETWORK_STATUS_ANNOTATION, write_network_status(&statuses)?),
        (
            POD_NETWORK_STATUS_ANNOTATION,
            write_pod_network_status(&addresses)?,
        ),
    ]))
}

fn status(attached: &AttachedNetwork) -> AttachmentStatus {
    let ips = attached.addresses.iter().map(|ip| StatusAddress {
        address: ip.addr(),
        prefix_len: Some(ip.prefix()),
    });
    AttachmentStatus {
        interface: Some(attached.interface.clone()),
        ips: ips.collect(),
        mac: attached.mac.as_deref().and_then(|mac| mac.parse().ok()),
        mtu: attached.mtu,
        // One entry is the default, and it is the one with the pod's own address (NPWG §5.3.5), also
        // for a pod that has left the cluster's default network out.
        default: attached.is_primary,
        dns: StatusDns {
            nameservers: attached.dns.nameservers.clone(),
            domain: attached.dns.domain.clone(),
            search: attached.dns.search.clone(),
        },
        gateway: attached.gateways.clone(),
        default_route: attached.default_route.clone().unwrap_or_default(),
        device_info: attached.device_info.clone(),
        ..AttachmentStatus::minimal(status_name(attached))
    }
}

/// The entry of KEP-3698, which knows `PodNetwork`s only (KEP-STS-01).
fn pod_network(attached: &AttachedNetwork) -> Option<PodNetworkAddresses> {
    let network = match &attached.target {
        Target::PodNetwork(name) => name.clone(),
        _ if attached.delegated => return None,
        Target::Attachment { .. } | Target::Definition { .. } => attached.network.clone(),
    };
    let mut default_routes: Vec<Family> = attached
        .gateways
        .iter()
        .map(|gateway| Family::of(*gateway))
        .collect();
    if attached.is_default_gateway && default_routes.is_empty() {
        // Through the interface itself, without a next hop.
        default_routes = vec![Family::V4, Family::V6];
    }
    Some(PodNetworkAddresses {
        network,
        interface: attached.interface.clone(),
        ips: attached.addresses.iter().map(|ip| ip.addr()).collect(),
        default_routes,
    })
}

#[cfg(test)]
mod tests {
    use api::selection::Source;
    use cni_spec::{Dns, IpPrefix};
    use serde_json::{Value, json};

    use super::*;

    fn attached(target: Target, network: &str, interface: &str, ips: &[&str]) -> AttachedNetwork {
        AttachedNetwork {
            source: Source::Npwg,
            target,
            network: network.to_owned(),
            delegated: false,
            interface: interface.to_owned(),
            mac: Some("02:00:00:00:00:01".to_owned()),
            addresses: ips
                .iter()
                .map(|ip| ip.parse::<IpPrefix>().unwrap())
                .collect(),
            gateways: Vec::new(),
            default_route: None,
            is_default_gateway: false,
            is_primary: false,
            mtu: Some(1500),
            dns: Dns::default(),
            device_info: None,
        }
    }

    fn pod() -> [AttachedNetwork; 3] {
        let named = |name: &str| (String::from("shop"), String::from(name));
        let (namespace, name) = named("fast-blue");
        let mut eth0 = attached(
            Target::PodNetwork("default".to_owned()),
            "default",
            "eth0",
            &["10.0.0.5/32", "fd00::5/128"],
        );
        eth0.is_primary = true;
        eth0.is_default_gateway = true;
        eth0.gateways = vec!["169.254.1.1".parse().unwrap(), "fe80::1".parse().unwrap()];
        let net1 = attached(
            Target::Attachment { namespace, name },
            "blue",
            "net1",
            &["10.1.0.7/24"],
        );
        let (namespace, name) = named("storage");
        let mut net2 = attached(
            Target::Definition { namespace, name },
            "macvlan-x",
            "net2",
            &[],
        );
        net2.delegated = true;
        [eth0, net1, net2]
    }

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    /// NPWG-5.3.1, NPWG-5.3.5, KEP-STS-01, KEP-STS-05
    #[test]
    fn both_lists_name_the_networks_as_their_readers_know_them() {
        let written = annotations(&pod()).unwrap();
        let npwg = read(&written[NETWORK_STATUS_ANNOTATION]);
        let brief: Vec<Value> = npwg
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                json!([
                    entry["name"],
                    entry["interface"],
                    entry["ips"],
                    entry["default"]
                ])
            })
            .collect();
        assert_eq!(
            json!(brief),
            json!([
                ["default", "eth0", ["10.0.0.5", "fd00::5"], true],
                ["shop/fast-blue", "net1", ["10.1.0.7"], false],
                ["shop/storage", "net2", null, false],
            ])
        );
        assert_eq!(
            read(&written[POD_NETWORK_STATUS_ANNOTATION]),
            json!([
                {"name": "default", "interfaceName": "eth0", "ip": "10.0.0.5", "isDefaultGW": true},
                {"name": "default", "interfaceName": "eth0", "ip": "fd00::5", "isDefaultGW": true},
                {"name": "blue", "interfaceName": "net1", "ip": "10.1.0.7"},
            ])
        );
        proof::of!("NPWG-5.3.1", "NPWG-5.3.5", "KEP-STS-01", "KEP-STS-05");
    }

    /// NPWG-5.3.6, NPWG-5.3.7, NPWG-5-W3: A status has DNS, default routes and devices.
    #[test]
    fn the_annotation_has_dns_default_routes_and_devices_of_who_has_them() {
        let [mut eth0, net1, mut net2] = pod();
        // Its default routes went to the last network, by the pod's list.
        eth0.gateways = Vec::new();
        eth0.dns.nameservers = vec!["10.0.0.53".to_owned()];
        eth0.dns.domain = Some("shop.example".to_owned());
        let gateways: Vec<std::net::IpAddr> = vec!["10.9.0.1".parse().unwrap()];
        (net2.gateways, net2.default_route) = (gateways.clone(), Some(gateways));
        let device = r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:04:00.5"}}"#;
        net2.device_info = Some(api::RawJson::parse(device).unwrap());
        let written = annotations(&[eth0, net1, net2]).unwrap();
        let npwg = read(&written[NETWORK_STATUS_ANNOTATION]);
        let of = |key: &str| [&npwg[0][key], &npwg[1][key], &npwg[2][key]].map(Clone::clone);
        let dns = json!({"nameservers": ["10.0.0.53"], "domain": "shop.example"});
        assert_eq!(of("dns"), [dns, json!({}), json!({})]);
        let routes = json!(["10.9.0.1"]);
        assert_eq!(
            of("default-route"),
            [Value::Null, Value::Null, routes.clone()]
        );
        assert_eq!(of("gateway"), [Value::Null, Value::Null, routes]);
        assert_eq!(of("device-info"), [Value::Null, Value::Null, read(device)]);
        proof::of!("NPWG-5.3.6", "NPWG-5.3.7", "NPWG-5-W3");
    }

    /// NPWG-X4
    #[test]
    fn an_added_interface_is_told_as_multus_does() {
        let [eth0, net1, net2] = pod();
        assert_eq!(
            added_text(&eth0),
            "Add eth0 [10.0.0.5/32 fd00::5/128] from default"
        );
        assert_eq!(
            added_text(&net1),
            "Add net1 [10.1.0.7/24] from shop/fast-blue"
        );
        assert_eq!(added_text(&net2), "Add net2 [] from shop/storage");
        proof::of!("NPWG-X4");
    }
}
