//! Names of Services: CoreDNS, deployed by the manifest that Kubernetes has for it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::super::node::config::{DNS, DOMAIN};
use super::super::{binaries, golang, kubectl, node, place};
use xtask::oci::Image;
use xtask::step::{execute, say};

/// In the source of Kubernetes.
const MANIFEST: &str = "cluster/addons/dns/coredns/coredns.yaml.base";
const IMAGE: &str = "localhost/coredns:1";
const MEMORY: &str = "170Mi";
/// Where names outside the cluster go; nodes of ours have nobody to ask.
const FORWARD: &str =
    "        forward . /etc/resolv.conf {\n            max_concurrent 1000\n        }\n";
/// For all names, in the manifest.
const ALL: &str = "    .:53 {\n";

/// Starts CoreDNS and waits until it answers.
///
/// # Errors
/// It cannot be built, or does not get ready.
pub(super) fn install() -> Result<()> {
    let program = golang::suite::coredns(&binaries::dir())?;
    let archive = place::dir().join("coredns.tar");
    let mut image = Image::new();
    image
        .program("/coredns", &program)?
        .entrypoint(&["/coredns"]);
    image.write(IMAGE, &archive)?;
    for name in &place::nodes() {
        node::import(name, &archive)?;
    }
    let path = golang::source()?.join(MANIFEST);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let manifest = place::dir().join("coredns.yaml");
    write(&manifest, &adapted(&text)?)?;
    say("starting CoreDNS");
    execute(kubectl()?.args(["apply", "-f"]).arg(&manifest))?;
    let mut wait = kubectl()?;
    wait.args(["-n", "kube-system", "rollout", "status"])
        .args(["deployment/coredns", "--timeout=120s"]);
    execute(&mut wait).context("CoreDNS does not get ready")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Adapts the manifest to our cluster and our image.
///
/// A name outside the cluster does not exist in it.
fn adapted(text: &str) -> Result<String> {
    let ours = format!(
        "    .:53 {{\n        errors\n        template ANY ANY {{\n            rcode NXDOMAIN\n        \
         }}\n    }}\n    {DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{\n"
    );
    for (part, times) in [(ALL, 1), (FORWARD, 1), ("        image: ", 1)] {
        if text.matches(part).count() != times {
            bail!("{MANIFEST} has changed: not {times} of `{}`", part.trim());
        }
    }
    let text = text
        .replace(ALL, &ours)
        .replace(FORWARD, "")
        .replace("__DNS__DOMAIN__", DOMAIN)
        .replace("__DNS__SERVER__", DNS)
        .replace("__DNS__MEMORY__LIMIT__", MEMORY);
    let lines = text.lines().map(|line| {
        let of = line
            .find("image: ")
            .filter(|_| line.starts_with("        image: "));
        of.map_or_else(
            || line.to_owned(),
            |at| format!("{}image: {IMAGE}", &line[..at]),
        )
    });
    // It is a comment where the file is complete.
    let lines = lines.filter(|line| !line.contains("__MACHINE_GENERATED_WARNING__"));
    let text: String = lines.map(|line| line + "\n").collect();
    if let Some(left) = text.lines().find(|line| line.contains("__")) {
        bail!("{MANIFEST} has changed: `{}` is new", left.trim());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# __MACHINE_GENERATED_WARNING__\n\n  Corefile: |\n    .:53 {\n        errors\n        \
                        kubernetes __DNS__DOMAIN__ in-addr.arpa ip6.arpa {\n        }\n        forward . \
                        /etc/resolv.conf {\n            max_concurrent 1000\n        }\n    }\n        image: \
                        example.test/coredns:v1\n            memory: __DNS__MEMORY__LIMIT__\n  clusterIP: \
                        __DNS__SERVER__\n";

    #[test]
    fn the_manifest_gets_our_image_and_addresses_and_asks_nobody_outside() {
        let text = adapted(TEXT).unwrap();
        for line in [
            "    cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {",
            "        kubernetes cluster.local in-addr.arpa ip6.arpa {",
            "        image: localhost/coredns:1",
            "  clusterIP: 10.96.0.10",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
        assert!(!text.contains("forward"), "{text}");
    }

    #[test]
    fn a_manifest_that_has_changed_is_not_guessed_at() {
        assert!(adapted(&TEXT.replace("forward", "proxy")).is_err());
        let error = adapted(&format!("{TEXT}  x: __NEW__\n")).unwrap_err();
        assert!(error.to_string().contains("__NEW__"), "{error}");
    }
}
