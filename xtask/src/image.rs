//! `cargo xtask image`: writes podnet's container image to a file.
//!
//! No container tool is needed. In it are the agent with its libraries, and the CNI binary that it
//! installs on nodes. The eBPF object is inside the agent.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::build::{self, Built};
use crate::cross::Machine;
use crate::oci::Image;
use crate::step::say;
use crate::workspace;

/// Where the image has them; the manifests in deploy/ know these paths.
const AGENT: &str = "/usr/bin/podnet-agent";
const CNI: &str = "/usr/bin/podnet";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The image's reference
    #[arg(long, default_value = "localhost/podnet:dev")]
    name: String,
    /// The archive to write, by default target/podnet-image.tar, and with --target
    /// target/podnet-image-ARCHITECTURE.tar
    #[arg(long)]
    output: Option<PathBuf>,
    /// Machine to build for, as aarch64-unknown-linux-gnu; this one when not given
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

/// Builds the binaries and packs them.
pub(crate) fn run(options: &Options) -> crate::Done {
    check_name(&options.name)?;
    let machine = match &options.target {
        Some(target) => Machine::find(target)?,
        None => None,
    };
    let (image, file) = match &machine {
        None => (
            image(&build::named_or_built()?)?,
            "podnet-image.tar".to_owned(),
        ),
        Some(machine) => (
            image_of(machine, &build::for_machine(true, machine)?)?,
            format!("podnet-image-{}.tar", machine.architecture),
        ),
    };
    let path = options
        .output
        .clone()
        .unwrap_or_else(|| workspace::target().join(file));
    image.write(&options.name, &path)?;
    say(format!("{} is in {}", options.name, path.display()));
    say("cargo xtask cluster load-image puts it on the nodes");
    Ok(ExitCode::SUCCESS)
}

/// The image of these binaries.
fn image(built: &Built) -> Result<Image> {
    let mut image = Image::new();
    image
        .program(AGENT, &built.agent)?
        .program(CNI, &built.cni)?;
    Ok(complete(image))
}

/// The same for another machine, with the libraries of the compiler for it.
fn image_of(machine: &Machine, built: &Built) -> Result<Image> {
    let mut image = Image::of(machine.architecture);
    for (path, program) in [(AGENT, &built.agent), (CNI, &built.cni)] {
        image.copy(path, program)?;
        for (place, library) in machine.libraries(program)? {
            image.copy(&place, &library)?;
        }
    }
    Ok(complete(image))
}

fn complete(mut image: Image) -> Image {
    image.directory("/tmp", 0o1777).entrypoint(&[AGENT]);
    image
}

/// Checks that a reference has a tag.
///
/// Without one, a kubelet would look for a newer image.
fn check_name(name: &str) -> Result<()> {
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((repository, tag)) if !repository.is_empty() && !tag.is_empty() => Ok(()),
        _ => bail!("`{name}` has no tag: write `registry/repository:tag`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::shared_libraries;

    #[test]
    fn the_image_has_the_binaries_and_what_they_are_linked_with() {
        let own = std::env::current_exe().unwrap();
        let libraries = shared_libraries(&own).unwrap();
        assert!(!libraries.is_empty(), "the test itself is linked with libc");
        let built = Built {
            agent: own.clone(),
            cni: own,
            object: PathBuf::new(),
        };
        let image = image(&built).unwrap();
        for path in [AGENT, CNI] {
            assert!(image.has(path), "{path}");
        }
        for library in libraries {
            assert!(
                image.has(&library.to_string_lossy()),
                "{}",
                library.display()
            );
        }
    }

    #[test]
    fn a_name_without_a_tag_is_refused() {
        for (name, good) in [
            ("localhost/podnet:dev", true),
            ("localhost:5000/podnet:1.0", true),
            ("localhost:5000/podnet", false),
            ("podnet", false),
            ("podnet:", false),
        ] {
            assert_eq!(check_name(name).is_ok(), good, "{name}");
        }
    }
}
