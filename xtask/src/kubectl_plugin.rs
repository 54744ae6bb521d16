//! `cargo xtask kubectl-plugin`: builds `kubectl podnet` as it is given to users.
//!
//! For each machine an archive with the static binary and the licence; and the manifest by which krew
//! installs them, with the digests of these very archives.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

use crate::build;
use crate::cross::{self, Machine};
use crate::step::say;
use crate::workspace;

/// The binary, which kubectl finds by its name.
const BINARY: &str = "kubectl-podnet";
/// krew's name of the plugin, and of the manifest's file.
const PLUGIN: &str = "podnet";
const LICENSE: &str = "LICENSE-APACHE";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Machine to build for, as aarch64-unknown-linux-gnu; this one when not given
    ///
    /// It may be repeated.
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// Where the archives will be, for krew
    #[arg(
        long,
        value_name = "URL",
        default_value = "https://podnet.dev/releases"
    )]
    releases: String,
    /// Directory of the results, by default target/kubectl-plugin
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// An archive, and the machine it is for.
#[derive(Debug)]
struct Archive {
    architecture: &'static str,
    name: String,
    digest: String,
}

/// Builds archives and manifest.
pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = options
        .output
        .clone()
        .unwrap_or_else(|| workspace::target().join("kubectl-plugin"));
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut machines = Vec::new();
    for target in &options.target {
        machines.push(Machine::find(target)?);
    }
    if machines.is_empty() {
        machines.push(None);
    }
    let mut archives = Vec::new();
    for machine in &machines {
        let binary = build::kubectl_plugin(machine.as_ref())?;
        let own = cross::own_architecture();
        let architecture = machine.as_ref().map_or(own, |machine| machine.architecture);
        let known = folder.join(architecture).join(BINARY);
        fs::create_dir_all(folder.join(architecture))
            .and_then(|()| fs::copy(&binary, &known))
            .with_context(|| format!("writing {}", known.display()))?;
        archives.push(pack(&folder, architecture, &known)?);
        say(format!("{} is static", known.display()));
    }
    let path = folder.join(format!("{PLUGIN}.yaml"));
    let text = manifest(env!("CARGO_PKG_VERSION"), &options.releases, &archives)?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    say(format!("{} is krew's manifest", path.display()));
    Ok(())
}

/// Writes the archive of a binary: the same content gives the same bytes.
fn pack(folder: &Path, architecture: &'static str, binary: &Path) -> Result<Archive> {
    let name = format!("{BINARY}-linux-{architecture}.tar.gz");
    let compressed = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    let mut tar = Builder::new(compressed);
    let license = workspace::root().join(LICENSE);
    for (path, from, mode) in [(BINARY, binary, 0o755), ("LICENSE", &license, 0o644)] {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        let mut header = Header::new_gnu();
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content.as_slice())
            .with_context(|| format!("packing {name}"))?;
    }
    let bytes = tar
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .with_context(|| format!("packing {name}"))?;
    let path = folder.join(&name);
    fs::write(&path, &bytes).with_context(|| format!("writing {}", path.display()))?;
    let mut digest = String::new();
    for byte in Sha256::digest(&bytes) {
        write!(digest, "{byte:02x}").context("a string takes everything")?;
    }
    Ok(Archive {
        architecture,
        name,
        digest,
    })
}

/// krew's `Plugin`, krew.googlecontainertools.github.com/v1alpha2.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Plugin<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    version: String,
    homepage: &'a str,
    short_description: &'a str,
    description: &'a str,
    platforms: Vec<Platform<'a>>,
}

#[derive(Serialize)]
struct Platform<'a> {
    selector: Selector<'a>,
    uri: String,
    sha256: &'a str,
    files: [Copied<'a>; 2],
    bin: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector<'a> {
    match_labels: Labels<'a>,
}

#[derive(Serialize)]
struct Labels<'a> {
    os: &'a str,
    arch: &'a str,
}

#[derive(Serialize)]
struct Copied<'a> {
    from: &'a str,
    to: &'a str,
}

/// The manifest of archives that are below a URL.
fn manifest(version: &str, releases: &str, archives: &[Archive]) -> Result<String> {
    let copied = |from| Copied { from, to: "." };
    let platforms = archives.iter().map(|archive| Platform {
        selector: Selector {
            match_labels: Labels {
                os: "linux",
                arch: archive.architecture,
            },
        },
        uri: format!(
            "{}/v{version}/{}",
            releases.trim_end_matches('/'),
            archive.name
        ),
        sha256: &archive.digest,
        files: [copied(BINARY), copied("LICENSE")],
        bin: BINARY,
    });
    let plugin = Plugin {
        api_version: "krew.googlecontainertools.github.com/v1alpha2",
        kind: "Plugin",
        metadata: Metadata { name: PLUGIN },
        spec: Spec {
            version: format!("v{version}"),
            homepage: "https://podnet.dev",
            short_description: "Look into the networks of pods",
            description: "Shows networks, attachments and drops of podnet's agents, explains \
                          decisions about pods, follows packets from pod to pod, captures them, \
                          and collects the state of a cluster. It needs the right to create \
                          pods/exec in podnet's namespace.\n",
            platforms: platforms.collect(),
        },
    };
    serde_saphyr::to_string(&plugin).context("krew's manifest")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use serde_json::Value;

    use super::*;

    fn packed(dir: &Path) -> Archive {
        let binary = dir.join("built");
        fs::write(&binary, "a program").unwrap();
        pack(dir, "amd64", &binary).unwrap()
    }

    /// krew installs no plugin without a licence in its archive.
    #[test]
    fn the_archive_has_the_program_and_its_licence_and_is_the_same_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let archive = packed(dir.path());
        let bytes = fs::read(dir.path().join(&archive.name)).unwrap();
        assert_eq!(packed(dir.path()).digest, archive.digest);
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let mut files = Vec::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let path = entry.path().unwrap().display().to_string();
            files.push((path, entry.header().mode().unwrap(), text));
        }
        assert_eq!(
            files[0],
            ("kubectl-podnet".into(), 0o755, "a program".into())
        );
        assert_eq!(files[1].0, "LICENSE");
        assert!(files[1].2.contains("Apache License"));
    }

    #[test]
    fn krew_gets_the_digest_and_the_place_of_each_archive() {
        let dir = tempfile::tempdir().unwrap();
        let archive = packed(dir.path());
        let sum = std::process::Command::new("sha256sum")
            .arg(dir.path().join(&archive.name))
            .output()
            .unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap();
        let text = manifest("1.2.3", "https://example.com/files/", &[archive]).unwrap();
        let plugin: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(plugin["metadata"]["name"], "podnet");
        let spec = &plugin["spec"];
        assert_eq!(spec["version"], "v1.2.3");
        assert!(spec["shortDescription"].as_str().unwrap().len() < 50);
        let platform = &spec["platforms"][0];
        assert_eq!(
            platform["uri"],
            "https://example.com/files/v1.2.3/kubectl-podnet-linux-amd64.tar.gz"
        );
        assert!(
            sum.starts_with(platform["sha256"].as_str().unwrap()),
            "{sum}"
        );
        assert_eq!(platform["selector"]["matchLabels"]["arch"], "amd64");
        assert_eq!(platform["bin"], "kubectl-podnet");
    }
}
