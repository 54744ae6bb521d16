//! `cargo xtask <verb>`: builds, checks and tests podnet; one file per verb.
//!
//! It refuses to know what podnet does: it starts compilers, test binaries and virtual
//! machines, and judges them by exit codes and by the lines they print. It links none of podnet's
//! packages, so that the first verb of a clean clone begins within seconds: the demo, the cluster and the
//! bench are programs of their own, which verbs build and start.
//!
//! ```sh
//! cargo xtask build --release        # target/release/podnet-agent and target/release/podnet
//! cargo xtask build --release --target aarch64-unknown-linux-gnu    # the same for another machine
//! cargo xtask test --tier unit       # what needs neither root nor the BPF toolchain
//! cargo xtask vm 5.10 6.1 -- cni     # privileged tests named *cni* on Debian's kernels
//! ```

pub mod bench;
mod build;
mod build_ebpf;
mod cluster;
mod conformance;
mod crdgen;
mod cross;
mod demo;
mod fuzz;
mod image;
pub mod install;
mod interop;
mod kubectl_plugin;
pub mod kubernetes;
mod manifests;
mod matrix;
pub mod oci;
mod policy_oracle;
pub mod step;
pub mod test;
mod tidy;
mod vm;
pub mod workspace;

pub use cross::own_architecture;
pub use vm::kernel_version;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build and test verbs of podnet")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure podnet and its peers, and make reports and documents of runs
    Bench(bench::Options),
    /// Build the agent (with its eBPF object) and the static CNI binary
    Build(build::Options),
    /// Build the eBPF object, installing the toolchain it needs
    BuildEbpf(build_ebpf::Options),
    /// Run a real Kubernetes on this machine, its nodes in namespaces
    Cluster(cluster::Options),
    /// Rewrite docs/conformance.md: every requirement, and the tests that name it
    Conformance(conformance::Options),
    /// Rewrite the CustomResourceDefinitions in deploy/crds
    Crdgen(crdgen::Options),
    /// Watch podnet at work on a scratch node: isolation, spoofing, restarts, clean-up
    Demo(demo::Options),
    /// Feed made-up input to what reads that of others, and keep what reaches new code
    Fuzz(fuzz::Options),
    /// Pack podnet's container image as an archive
    Image(image::Options),
    /// Build `kubectl podnet`, static, with its archive and manifest for krew
    KubectlPlugin(kubectl_plugin::Options),
    /// Rewrite deploy/install.yaml, the Helm chart and other manifests
    Manifests(manifests::Options),
    /// Compare what network policies mean with cyclonus, an engine of others
    PolicyOracle(policy_oracle::Options),
    /// Run every check and test, tier by tier
    Test(test::Options),
    /// Check sizes, unsafe code, layering and generated files
    Tidy(tidy::Options),
    /// Run the privileged tests on Debian kernels in QEMU
    Vm(vm::Options),
}

/// Runs the verb of the command line.
pub fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Bench(options) => bench::run(&options),
        Verb::Build(options) => build::run(&options).map(|_| ExitCode::SUCCESS),
        Verb::BuildEbpf(options) => build_ebpf::run(&options).map(|_| ExitCode::SUCCESS),
        Verb::Cluster(options) => cluster::run(&options),
        Verb::Conformance(options) => conformance::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::Crdgen(options) => crdgen::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::Demo(options) => demo::run(&options),
        Verb::Fuzz(options) => fuzz::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::Image(options) => image::run(&options),
        Verb::KubectlPlugin(options) => kubectl_plugin::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::Manifests(options) => manifests::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::PolicyOracle(options) => policy_oracle::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::Test(options) => test::run(&options),
        Verb::Tidy(options) => tidy::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::Vm(options) => vm::run(&options),
    };
    done.unwrap_or_else(|error| report(&error))
}

fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("podnet: error: {error:#}");
    ExitCode::FAILURE
}

/// The result every verb gives to `main`.
pub type Done = Result<ExitCode>;
