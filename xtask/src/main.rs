//! `cargo xtask <verb>`: builds, checks and tests podnet; one file per verb.
//!
//! It refuses to know what podnet does: it starts compilers, test binaries and virtual
//! machines, and judges them by exit codes and by the lines they print.
//!
//! ```sh
//! cargo xtask build --release        # target/release/podnet-agent and target/release/podnet
//! cargo xtask test --tier unit       # what needs neither root nor the BPF toolchain
//! cargo xtask vm 5.10 6.1 -- cni     # privileged tests named *cni* on Debian's kernels
//! ```

mod bench;
mod build;
mod build_ebpf;
mod cluster;
mod conformance;
mod crdgen;
mod demo;
mod fuzz;
mod image;
mod install;
mod interop;
mod manifests;
mod oci;
mod step;
mod test;
mod tidy;
mod vm;
mod workspace;

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
    /// Measure podnet beside its peers, with a table, a JSON file and an HTML page
    Bench(bench::Options),
    /// Build the agent (with its eBPF object) and the static CNI binary
    Build(build::Options),
    /// Build the eBPF object, installing the toolchain it needs
    BuildEbpf(build_ebpf::Options),
    /// Run a real Kubernetes on this machine, its nodes in namespaces
    Cluster(cluster::Options),
    /// Write docs/conformance.md anew: every requirement, and the tests that name it
    Conformance(conformance::Options),
    /// Write the CustomResourceDefinitions in deploy/crds anew
    Crdgen(crdgen::Options),
    /// Watch podnet at work on a scratch node: who reaches whom, spoofing, restarts, clean-up
    Demo(demo::Options),
    /// Feed made-up input to what reads that of others, and keep what reaches new code
    Fuzz(fuzz::Options),
    /// Pack podnet's container image as an archive
    Image(image::Options),
    /// Write deploy/install.yaml and other manifests anew
    Manifests(manifests::Options),
    /// Run every check and test, tier by tier
    Test(test::Options),
    /// Check sizes, unsafe code, layering and generated files
    Tidy(tidy::Options),
    /// Run the privileged tests on Debian kernels in QEMU
    Vm(vm::Options),
}

fn main() -> ExitCode {
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
        Verb::Manifests(options) => manifests::run(&options).map(|()| ExitCode::SUCCESS),
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
type Done = Result<ExitCode>;
