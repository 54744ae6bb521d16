//! `cargo xtask image`: writes podnet's container image to a file.
//!
//! No container tool is needed. In it are the agent with its libraries, and the CNI binary that it
//! installs on nodes. The eBPF object is inside the agent.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::build::{self, Built};
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
    /// The archive to write, by default target/podnet-image.tar
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Builds the binaries and packs them.
pub(crate) fn run(options: &Options) -> crate::Done {
    check_name(&options.name)?;
    let built = build::everything(true)?;
    let path = options
        .output
        .clone()
        .unwrap_or_else(|| workspace::target().join("podnet-image.tar"));
    let image = image(&built)?;
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
        .program(CNI, &built.cni)?
        .directory("/tmp", 0o1777)
        .entrypoint(&[AGENT]);
    Ok(image)
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

    /// `deploy/Dockerfile` makes the same image, and nothing here can build it.
    ///
    /// It is for users with a container tool.
    #[test]
    fn the_dockerfile_puts_the_same_programs_in_the_same_places() {
        let read = |name: &str| std::fs::read_to_string(workspace::root().join(name)).unwrap();
        let file = read("deploy/Dockerfile");
        assert!(
            file.ends_with(&format!("ENTRYPOINT [\"{AGENT}\"]\n")),
            "{file}"
        );
        let copy = file
            .lines()
            .find(|line| line.starts_with("COPY --from=build"));
        let mut words: Vec<&str> = copy.unwrap().split_whitespace().skip(2).collect();
        let directory = words.pop().unwrap();
        let places: Vec<String> = words
            .iter()
            .filter_map(|from| from.strip_prefix("/out/"))
            .map(|name| format!("{directory}{name}"))
            .collect();
        assert_eq!(places, [AGENT, CNI]);
        // The compiler that the workspace asks for.
        let manifest = read("Cargo.toml");
        let version = manifest
            .lines()
            .find_map(|line| line.strip_prefix("rust-version = "));
        let wanted = format!("/rust:{}-", version.unwrap().trim_matches('"'));
        assert!(file.contains(&wanted), "{wanted} is not in {file}");
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
