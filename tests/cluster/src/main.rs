//! `podnet-cluster`: a real Kubernetes on this machine, its nodes in namespaces.
//!
//! It has everything but a network for pods: that is podnet's to bring, as on any cluster. `cargo xtask
//! cluster` builds and starts it.

mod bench;
mod cgroup;
mod conformance;
mod control;
mod images;
mod launch;
mod name;
mod native;
mod network;
mod node;
mod place;
mod reference;
mod test;
mod tier;
mod tour;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use testbed::pki::{NodeName, Pki};

use xtask::kubernetes::{self as binaries, Binaries, golang};
use xtask::step::{self, execute, is_root, say, succeeds};

use self::name::ClusterName;
use self::place::CONTROL;

#[derive(Parser)]
#[command(
    name = "cargo xtask cluster",
    about = "Runs a real Kubernetes on this machine"
)]
struct Options {
    /// Name of the cluster; several run side by side
    #[arg(long, global = true, value_name = "NAME", env = name::VARIABLE, default_value = name::DEFAULT)]
    name: ClusterName,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start a control plane and nodes; their parts are built or downloaded first
    Up(Up),
    /// End everything and remove it, whatever state it is in
    Down {
        /// Also when another checkout has made it
        #[arg(long)]
        force: bool,
    },
    /// Show what runs
    Status,
    /// Run kubectl as an administrator
    Kubectl {
        /// Arguments of kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a command on a node, or in the network of the control plane (`cp`)
    Exec {
        /// n1, n2, … or cp
        node: String,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Put images on every node
    LoadImage {
        /// Archives in the OCI image layout, or as `docker save` writes them
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Say why this machine can have no nodes, if so
    #[command(hide = true)]
    Check,
    /// The tests in tests/tests/e2e as a tier of `cargo xtask test`, with their output
    #[command(hide = true)]
    Tier {
        /// Only tests whose name contains one of these
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Install podnet and run the tests in tests/tests/e2e
    Test(test::Options),
    /// Measure pods with two more networks, with podnet and with Multus
    Bench(bench::Options),
    /// Run Kubernetes' own tests of a cluster's network, in the cluster that is up
    Conformance(conformance::Options),
    /// Cut the power of a node and start it again
    Reboot {
        /// n1, n2, …
        node: String,
    },
    /// Take the tour of docs/tour.md, in a cluster of its own
    Tour(tour::Options),
    /// Build all that `test` needs, and print image and test program
    #[command(hide = true)]
    Prepare,
    /// Become a command in a part of the cluster
    #[command(hide = true)]
    Enter(launch::Options),
    /// Be the first process of a node
    #[command(hide = true)]
    NodeInit {
        /// The node's directory
        dir: PathBuf,
    },
}

#[derive(Args)]
struct Up {
    /// How many nodes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=i64::from(network::MOST_NODES)))]
    nodes: u8,
    /// The network of the pods
    #[arg(long, visible_alias = "default", value_enum, default_value = "none")]
    cni: Cni,
    /// Image of podnet, for a cluster that has it; by default one is built
    #[arg(long, value_name = "ARCHIVE")]
    image: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cni {
    /// None: nodes get ready when something installs one
    None,
    /// The reference bridge plugin
    Reference,
    /// The reference bridge plugin, with podnet in front of it for further networks
    Delegate,
    /// podnet itself
    Native,
}

fn main() -> ExitCode {
    run(&Options::parse()).unwrap_or_else(|error| {
        eprintln!("podnet: error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs one verb.
fn run(options: &Options) -> xtask::Done {
    name::choose(&options.name);
    if !is_root() {
        bail!("a cluster needs root: namespaces, mounts and control groups");
    }
    match &options.verb {
        Verb::Up(options) => up(options),
        Verb::Down { force } => {
            if !force {
                name::check_owner()?;
            }
            place::remove()?;
            say("nothing of a cluster is left");
            Ok(ExitCode::SUCCESS)
        }
        Verb::Status => status(),
        Verb::Kubectl { arguments } => replace(kubectl()?.args(arguments)),
        Verb::Exec { node, command } => exec(node, command),
        Verb::LoadImage { archives } => load(archives),
        Verb::Check => {
            if let Err(why) = cgroup::check() {
                println!("{why:#}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Tier { filter } => tier::run(filter).map(|()| ExitCode::SUCCESS),
        Verb::Bench(options) => bench::run(options),
        Verb::Test(options) => test::run(options),
        Verb::Conformance(options) => conformance::run(options),
        Verb::Reboot { node } => {
            node::reboot(node)?;
            say(format!("{node} runs again"));
            Ok(ExitCode::SUCCESS)
        }
        Verb::Tour(options) => tour::run(options),
        Verb::Prepare => test::prepare(),
        Verb::Enter(options) => launch::enter(options),
        Verb::NodeInit { dir } => node::init::run(dir),
    }
}

fn up(options: &Up) -> xtask::Done {
    cgroup::check()?;
    let binaries = Binaries::install()?;
    place::create()?;
    let started = start(&binaries, options);
    if started.is_err() {
        say("what was started is left to be looked at; `cargo xtask cluster down` removes it");
    }
    started?;
    execute(kubectl()?.args(["get", "nodes", "-o", "wide"]))?;
    say("`cargo xtask cluster kubectl …` talks to it, `cluster exec n1 …` runs on a node");
    say(format!(
        "{} is for programs in its network: `cluster exec cp …`",
        Pki::open(&place::pki()).kubeconfig("admin").display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn start(binaries: &Binaries, options: &Up) -> Result<()> {
    let nodes: Vec<(String, network::Addresses)> = (1..=options.nodes)
        .map(|index| (format!("n{index}"), network::node(index)))
        .collect();
    let named: Vec<NodeName> = nodes
        .iter()
        .map(|(name, addresses)| NodeName {
            name: name.clone(),
            addresses: addresses.map(|address| address.to_string()).into(),
        })
        .collect();
    images::write(binaries, &place::dir().join("images"))?;
    control::start(binaries, &named)?;
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    say(format!(
        "starting containerd, kubelet and kube-proxy on {}",
        names.join(", ")
    ));
    for (name, addresses) in &nodes {
        node::create(binaries, name, *addresses)?;
    }
    for name in &names {
        node::wait_for_runtime(name)?;
        node::wait_for_object(name, kubectl)?;
    }
    if options.cni == Cni::Native {
        native::install(options.image.clone())?;
    }
    if matches!(options.cni, Cni::Reference | Cni::Delegate) {
        reference::install(kubectl)?;
        control::wait_for("the nodes to get ready", Duration::from_secs(300), || {
            let ready = [
                "wait",
                "--for=condition=Ready",
                "nodes",
                "--all",
                "--timeout=5s",
            ];
            Ok(succeeds(kubectl()?.args(ready)))
        })?;
    }
    if options.cni == Cni::Delegate {
        let archive = options.image.clone().map_or_else(test::image, Ok)?;
        test::install(&archive, &xtask::workspace::root().join(test::MANIFEST))?;
    }
    Ok(())
}

fn status() -> xtask::Done {
    let contents = place::contents();
    if contents.is_empty() {
        say("no cluster");
        return Ok(ExitCode::SUCCESS);
    }
    for line in contents {
        say(line);
    }
    for name in place::nodes() {
        match place::init_of(&name) {
            Ok(pid) => say(format!("{name} runs; its first process is {pid}")),
            Err(_) => say(format!("{name} does not run")),
        }
    }
    let Ok(mut kubectl) = kubectl() else {
        return Ok(ExitCode::SUCCESS);
    };
    replace(kubectl.args(["get", "nodes,pods", "--all-namespaces", "-o", "wide"]))
}

fn exec(node: &str, words: &[OsString]) -> xtask::Done {
    let mut command = if node == CONTROL {
        place::netns(CONTROL)?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", place::netns_path(CONTROL).display()))
            .arg("--");
        command
    } else {
        place::enter(node)?
    };
    replace(command.args(words))
}

fn load(archives: &[PathBuf]) -> xtask::Done {
    let nodes = place::nodes();
    if nodes.is_empty() {
        bail!("there is no cluster; `cargo xtask cluster up` starts one");
    }
    for node in &nodes {
        for archive in archives {
            node::import(node, archive)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A `kubectl` of an administrator of the running cluster.
fn kubectl() -> Result<Command> {
    control::kubectl(&kubernetes()?)
}

/// Where the programs of the running cluster are.
fn kubernetes() -> Result<PathBuf> {
    let Some(first) = place::nodes().first().cloned() else {
        bail!("there is no cluster; `cargo xtask cluster up` starts one");
    };
    let dir: &Path = &place::node(&first);
    Ok(node::Spec::read(dir)?.kubernetes)
}

/// Becomes another program: its exit code and its terminal are the user's.
fn replace(command: &mut Command) -> xtask::Done {
    let error = command.exec();
    bail!("cannot start `{}`: {error}", step::show(command))
}
