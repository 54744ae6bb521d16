//! Build programs from Go modules, at one version each, into their directories.

pub mod oracle;
pub mod suite;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step::{capture, execute, say, succeeds};

/// Kubernetes' version; the staging modules have one of their own.
pub const KUBERNETES: &str = "v1.36.2";
const STAGING: &str = "v0.36.2";
/// containerd's version, which fits the Kubernetes release.
///
/// A kubelet asks its runtime for what came with containerd 2.
pub const CONTAINERD: &str = "v2.1.9";
/// Helm's version; its charts of `apiVersion: v2` are those of Helm 4 too.
pub const HELM: &str = "v3.22.0";
/// The reference CNI plugins.
const PLUGINS: &str = "v1.9.1";

/// Programs of Kubernetes in one binary, and the files of Go that it is made of.
#[derive(Debug)]
struct Build {
    /// Before the version in the name of its directory.
    prefix: &'static str,
    programs: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    /// The cost of the build that a user should expect.
    cost: &'static str,
}

/// The programs that serve, read and store the API, and bind its pods to nodes.
const API: Build = Build {
    prefix: "kubernetes-api",
    programs: &["etcd", "kube-apiserver", "kube-scheduler", "kubectl"],
    files: &[("main.go", include_str!("kubernetes.go"))],
    cost: "5 minutes on two cores",
};

/// A whole cluster.
const CLUSTER: Build = Build {
    prefix: "kubernetes",
    programs: &[
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    ],
    files: &[
        ("main.go", include_str!("kubernetes.go")),
        ("nodes.go", include_str!("kubernetes_nodes.go")),
    ],
    cost: "7 minutes on two cores",
};

/// Builds Kubernetes and the etcd it is tested with.
///
/// Returns a directory with a link for each program.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
pub fn kubernetes(under: &Path) -> Result<PathBuf> {
    CLUSTER.install(under)
}

/// Builds the programs that the API alone needs, three quarters of the work.
///
/// If all of Kubernetes was built before, that is taken.
///
/// # Errors
/// As [`kubernetes`].
pub fn kubernetes_api(under: &Path) -> Result<PathBuf> {
    match CLUSTER.built(under) {
        Some(all) => Ok(all),
        None => API.install(under),
    }
}

impl Build {
    fn dir(&self, under: &Path) -> PathBuf {
        under.join(format!("{}-{KUBERNETES}", self.prefix))
    }

    /// Returns the directory if all programs are in it.
    fn built(&self, under: &Path) -> Option<PathBuf> {
        let dir = self.dir(under);
        // A build by a podnet of another age may have made fewer.
        let all = is_complete(&dir) && self.programs.iter().all(|name| dir.join(name).is_file());
        all.then_some(dir)
    }

    fn install(&self, under: &Path) -> Result<PathBuf> {
        if let Some(dir) = self.built(under) {
            return Ok(dir);
        }
        let dir = self.dir(under);
        let source = source()?;
        let module = dir.join("module");
        fs::create_dir_all(&module).with_context(|| format!("creating {}", module.display()))?;
        fs::write(module.join("go.mod"), go_mod(&staging_modules(&source)?))?;
        for (name, text) in self.files {
            fs::write(module.join(name), text)?;
        }
        say(format!(
            "building {} {KUBERNETES} from their Go modules ({}, 2 GiB)",
            self.programs.join(", "),
            self.cost
        ));
        execute(&mut Self::compile(&dir, &module)).context("building Kubernetes")?;
        for name in self.programs {
            let link = dir.join(name);
            // Left by a build that was stopped here.
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink("kubernetes", &link)
                .with_context(|| format!("linking {}", link.display()))?;
        }
        complete(&dir)
    }

    fn compile(dir: &Path, module: &Path) -> Command {
        let mut build = go(module);
        build
            .args(["build", "-mod=mod", "-buildvcs=false", "-trimpath"])
            .args(["-ldflags", &version_flags()])
            .arg("-o")
            .arg(dir.join("kubernetes"))
            .arg(".");
        build
    }
}

/// Returns the linker flags with a Kubernetes program's version.
fn version_flags() -> String {
    let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
    let base = "k8s.io/component-base/version";
    [
        "-s -w".to_owned(),
        format!("-X {base}.gitVersion={KUBERNETES}"),
        format!("-X {base}.gitMajor=1 -X {base}.gitMinor={minor}"),
        format!("-X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}"),
    ]
    .join(" ")
}

/// The source of Kubernetes, as its module has it.
///
/// # Errors
/// No Go, no module proxy.
pub fn source() -> Result<PathBuf> {
    module("k8s.io/kubernetes", KUBERNETES)
}

/// `containerd`, its shim and `ctr`.
///
/// # Errors
/// As [`kubernetes`].
pub fn containerd(under: &Path) -> Result<PathBuf> {
    let dir = under.join(format!("containerd-{CONTAINERD}"));
    let version = "github.com/containerd/containerd/v2/version";
    build_programs(
        &dir,
        ("github.com/containerd/containerd/v2", CONTAINERD),
        &[
            "-ldflags",
            &format!("-s -w -X {version}.Version={CONTAINERD}"),
            // File systems that want libraries of C, or that no cluster here has.
            "-tags",
            "no_btrfs no_devmapper no_zfs",
        ],
        &[
            "./cmd/containerd",
            "./cmd/containerd-shim-runc-v2",
            "./cmd/ctr",
        ],
    )
}

/// Builds the reference plugins: `loopback` for containerd, others to compare with.
///
/// # Errors
/// As [`kubernetes`].
pub fn plugins(under: &Path) -> Result<PathBuf> {
    let dir = under.join(format!("cni-plugins-{PLUGINS}"));
    let version = "github.com/containernetworking/plugins/pkg/utils/buildversion";
    build_programs(
        &dir,
        ("github.com/containernetworking/plugins", PLUGINS),
        &[
            "-ldflags",
            &format!("-s -w -X {version}.BuildVersion={PLUGINS}"),
        ],
        &[
            "./plugins/main/bridge",
            "./plugins/main/loopback",
            "./plugins/main/macvlan",
            "./plugins/main/ptp",
            "./plugins/ipam/host-local",
            "./plugins/ipam/static",
            "./plugins/meta/bandwidth",
            "./plugins/meta/firewall",
            "./plugins/meta/portmap",
            "./plugins/meta/tuning",
        ],
    )
}

/// Builds `helm`, and returns the program's path.
///
/// # Errors
/// As [`kubernetes`].
pub fn helm(under: &Path) -> Result<PathBuf> {
    let dir = under.join(format!("helm-{HELM}"));
    let version = "helm.sh/helm/v3/internal/version";
    // A chart says which Kubernetes it is for, and is rendered for that unless another is named.
    let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
    let capabilities = "helm.sh/helm/v3/pkg/chartutil";
    let built = build_programs(
        &dir,
        ("helm.sh/helm/v3", HELM),
        &[
            "-ldflags",
            &format!(
                "-s -w -X {version}.version={HELM} -X {capabilities}.k8sVersionMajor=1 \
                 -X {capabilities}.k8sVersionMinor={minor}"
            ),
        ],
        &["./cmd/helm"],
    )?;
    Ok(built.join("helm"))
}

/// Builds packages of a module whose own `go.mod` says all that is needed.
fn build_programs(
    dir: &Path,
    (path, version): (&str, &str),
    flags: &[&str],
    packages: &[&str],
) -> Result<PathBuf> {
    if is_complete(dir) {
        return Ok(dir.to_owned());
    }
    build_from(
        &module(path, version)?,
        dir,
        (path, version),
        flags,
        packages,
    )
}

/// Builds as [`build_programs`], of a source that may be changed.
fn build_from(
    source: &Path,
    dir: &Path,
    (path, version): (&str, &str),
    flags: &[&str],
    packages: &[&str],
) -> Result<PathBuf> {
    say(format!("building {path} {version} from its Go module"));
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut build = go(source);
    build
        .args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath"])
        .args(flags)
        // A directory: each program gets the name of its package.
        .arg("-o")
        .arg(dir)
        .args(packages);
    execute(&mut build).with_context(|| format!("building {path}"))?;
    complete(dir)
}

/// Builds a program of one file of ours, which uses modules of others.
///
/// `sources` are `go.mod` and `main.go`; returns the program's path.
///
/// # Errors
/// No Go, no module proxy, or the compiler refuses.
fn of_one_file(
    dir: &Path,
    name: &str,
    (requirement, source): (&str, &str),
    what: &str,
) -> Result<PathBuf> {
    let program = dir.join(name);
    if is_complete(dir) {
        return Ok(program);
    }
    let module = dir.join("module");
    fs::create_dir_all(&module).with_context(|| format!("creating {}", module.display()))?;
    fs::write(module.join("go.mod"), requirement)?;
    fs::write(module.join("main.go"), source)?;
    say(format!("building {what} from its Go module"));
    let mut build = go(&module);
    build
        .args(["build", "-mod=mod", "-buildvcs=false", "-trimpath"])
        .args(["-ldflags", "-s -w", "-o"])
        .arg(&program)
        .arg(".");
    execute(&mut build).with_context(|| format!("building {what}"))?;
    complete(dir)?;
    Ok(program)
}

/// Where the source of a module is after its download.
fn module(path: &str, version: &str) -> Result<PathBuf> {
    if !succeeds(Command::new("go").arg("version")) {
        bail!("{path} is built with Go, and there is no Go in PATH");
    }
    let module = format!("{path}@{version}");
    let text = capture(Command::new("go").args(["mod", "download", "-json", &module]))
        .with_context(|| format!("downloading {module}; `go env GOPROXY` says from where"))?;
    let found: Value = serde_json::from_str(&text).context("`go mod download` printed no JSON")?;
    let dir = found["Dir"].as_str();
    Ok(dir.context("`go mod download` names no directory")?.into())
}

/// A `go` command in a directory, for programs that run in any file system.
fn go(dir: &Path) -> Command {
    let mut command = Command::new("nice");
    command.arg("go").current_dir(dir).env("CGO_ENABLED", "0");
    command
}

/// Lists the modules in the tree of Kubernetes, where replaces lead to directories.
fn staging_modules(source: &Path) -> Result<Vec<String>> {
    let text = capture(
        Command::new("go")
            .args(["mod", "edit", "-json"])
            .arg(source.join("go.mod")),
    )?;
    let module: Value = serde_json::from_str(&text).context("`go mod edit` printed no JSON")?;
    let replaces = module["Replace"].as_array().into_iter().flatten();
    let staging = replaces.filter_map(|replace| {
        let is_staging = replace["New"]["Path"].as_str()?.starts_with("./staging/");
        let path = replace["Old"]["Path"].as_str()?;
        is_staging.then(|| path.to_owned())
    });
    let staging: Vec<String> = staging.collect();
    if staging.is_empty() {
        bail!("the go.mod of Kubernetes {KUBERNETES} replaces no staging modules");
    }
    Ok(staging)
}

/// Writes a module that depends on Kubernetes.
///
/// Go ignores the replaces of dependencies, so the staging modules are replaced here, by their published
/// versions.
fn go_mod(staging: &[String]) -> String {
    let replaces: String = staging
        .iter()
        .map(|path| format!("\t{path} => {path} {STAGING}\n"))
        .collect();
    format!(
        "module podnet.dev/kubernetes\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes {KUBERNETES}\n\n\
         replace (\n{replaces})\n"
    )
}

/// Written last: a build that was stopped is made again.
fn marker(dir: &Path) -> PathBuf {
    dir.join(".complete")
}

fn is_complete(dir: &Path) -> bool {
    marker(dir).is_file()
}

fn complete(dir: &Path) -> Result<PathBuf> {
    fs::write(marker(dir), "").with_context(|| format!("completing {}", dir.display()))?;
    Ok(dir.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_pinned_to_their_published_versions() {
        let text = go_mod(&["k8s.io/api".to_owned(), "k8s.io/kubelet".to_owned()]);
        assert!(
            text.contains("\nrequire k8s.io/kubernetes v1.36.2\n"),
            "{text}"
        );
        assert!(
            text.ends_with(
                "replace (\n\tk8s.io/api => k8s.io/api v0.36.2\n\
                 \tk8s.io/kubelet => k8s.io/kubelet v0.36.2\n)\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn the_versions_of_kubernetes_and_its_staging_modules_are_of_one_release() {
        assert_eq!(KUBERNETES.strip_prefix("v1."), STAGING.strip_prefix("v0."));
    }

    #[test]
    fn every_program_is_known_to_its_binary() {
        for build in [API, CLUSTER] {
            let text: String = build.files.iter().map(|(_, text)| *text).collect();
            for name in build.programs {
                assert!(text.contains(&format!("\"{name}\"")), "{name} of {build:?}");
            }
        }
    }
}
