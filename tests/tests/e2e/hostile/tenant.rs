//! Attack as a tenant with pods and NetworkAttachmentDefinitions in a namespace.
//!
//! The tenant may make these and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::Aim;
use crate::e2e::corner::{KEP, NPWG, pod_fields};
use crate::e2e::objects::{DEFINITION, NAMESPACE, Objects, POD};

const NAME: &str = "e2e-hostile-tenant";
/// An annotation as long as the others that means nothing to anything.
const MEANINGLESS: &str = "example.com/networks";
/// As many names as the annotations of a pod have room for (256 KiB).
const NAMES: usize = 36_000;

/// Makes and deletes wrong objects until told to stop; returns their number.
///
/// They have lists that are too long, that name a network again and again or that cannot be read, and
/// plugins that are not there.
pub(super) fn attack(network: &str, aim: Aim, stop: &AtomicBool) -> usize {
    let objects = Objects::connect();
    objects.make(NAMESPACE, ("", NAME), json!({}));
    let config = json!({"cniVersion": "1.0.0", "name": "nowhere", "type": "no-such-plugin"});
    let spec = json!({"spec": {"config": config.to_string()}});
    objects.make(DEFINITION, (NAME, "nowhere"), spec);
    let long: Vec<String> = (0..NAMES).map(|n| format!("{n:x}")).collect();
    let again = vec![json!({"name": network}); 2000];
    let lists = [
        (NPWG, long.join(",")),
        (KEP, json!(again).to_string()),
        (NPWG, "nowhere".to_owned()),
        (NPWG, "[{\"name\":".repeat(5000)),
        (
            KEP,
            json!([{"name": "default", "isDefaultGW": true}, {"name": network}]).to_string(),
        ),
    ];
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        for (index, (key, list)) in lists.iter().enumerate() {
            let name = format!("bad-{index}");
            for node in ["n1", "n2"] {
                let place = (NAME, &*format!("{name}-{node}"));
                let key = match aim {
                    Aim::Podnet => key,
                    Aim::Nothing => MEANINGLESS,
                };
                // Refused or not: what matters is what it does to others.
                let done = objects.create(POD, place, pod_fields(node, &[(key, list.clone())]));
                made += usize::from(done.is_ok());
                // NPWG's list may be changed after the webhook has seen the pod.
                if done.is_ok() {
                    let later = match aim {
                        Aim::Podnet => NPWG,
                        Aim::Nothing => MEANINGLESS,
                    };
                    let patch = json!({"metadata": {"annotations": {later: lists[0].1.clone()}}});
                    let _ = objects.patch(POD, place, &patch);
                }
            }
        }
        for pod in objects.list(POD, NAME) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let _ = objects.delete(POD, (NAME, name));
        }
    }
    objects.delete_wait(NAMESPACE, ("", NAME));
    made
}
