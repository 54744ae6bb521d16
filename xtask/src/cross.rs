//! Build for another machine than this one, with Debian's cross compiler.
//!
//! Rust's standard library is the installed one of the target, else built from its source, which the
//! kernel programs need anyway: no download but those of cargo and apt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{self, Rustc};
use crate::step::{capture, say};

/// Targets of podnet: name, architecture as Go calls it, Debian's name of tools.
const TARGETS: [(&str, &str, &str); 2] = [
    ("x86_64-unknown-linux-gnu", "amd64", "x86-64-linux-gnu"),
    ("aarch64-unknown-linux-gnu", "arm64", "aarch64-linux-gnu"),
];

/// Another machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Rust's name of the target.
    pub(crate) triple: &'static str,
    /// Architecture, as images name it.
    pub(crate) architecture: &'static str,
    /// Before the names of Debian's tools for it.
    tools: String,
    /// Directory of its libraries.
    libraries: PathBuf,
    /// Whether the standard library is built with what needs it.
    from_source: bool,
}

impl Machine {
    /// Finds the machine of a target, and installs the tools for it.
    ///
    /// `None` when it is this one.
    ///
    /// # Errors
    /// The target is none of podnet's, or its tools cannot be installed.
    pub(crate) fn find(target: &str) -> Result<Option<Self>> {
        let (triple, architecture, debian) = known(target)?;
        let host = Rustc::query()?;
        if triple.split('-').next() == Some(host.arch.as_str()) {
            return Ok(None);
        }
        let packages = [
            format!("gcc-{debian}"),
            format!("libc6-dev-{architecture}-cross"),
        ];
        install::apt(&packages).with_context(|| format!("tools to build for {triple}"))?;
        let from_source = !install::has_rust_std(triple)?;
        if from_source {
            install::rust_src()?;
            say(format!(
                "there is no standard library for {triple}: it is built from its source"
            ));
        }
        let tools = debian.replace("x86-64", "x86_64");
        Ok(Some(Self {
            triple,
            architecture,
            libraries: Path::new("/usr").join(&tools).join("lib"),
            tools,
            from_source,
        }))
    }

    /// Makes a cargo command one that builds for the machine.
    pub(crate) fn apply(&self, command: &mut Command) {
        let name = self.triple.replace('-', "_");
        let compiler = format!("{}-gcc", self.tools);
        command
            .args(["--target", self.triple])
            .env(
                format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()),
                &compiler,
            )
            // For the C and the assembly of ring.
            .env(format!("CC_{name}"), &compiler);
        if self.from_source {
            // As for the kernel programs: -Z on the stable compiler.
            command
                .args(["-Z", "build-std=std,panic_abort"])
                .env("RUSTC_BOOTSTRAP", "1");
        }
    }

    /// Shared libraries of a program of the machine, by their places in an image.
    ///
    /// # Errors
    /// A library is not among those of the cross compiler.
    pub(crate) fn libraries(&self, program: &Path) -> Result<BTreeMap<String, PathBuf>> {
        let mut found = BTreeMap::new();
        let mut left = vec![program.to_owned()];
        while let Some(file) = left.pop() {
            let mut readelf = Command::new(format!("{}-readelf", self.tools));
            let text = capture(readelf.args(["--dynamic", "--wide"]).arg(&file))?;
            for name in needed(&text) {
                let place = format!("/lib/{name}");
                if found.contains_key(&place) {
                    continue;
                }
                let library = self.libraries.join(name);
                if !library.is_file() {
                    bail!(
                        "{} needs {name}, which is not in {}",
                        file.display(),
                        self.libraries.display()
                    );
                }
                left.push(library.clone());
                found.insert(place, library);
            }
        }
        Ok(found)
    }
}

/// The architecture of this machine, as images name it.
pub fn own_architecture() -> &'static str {
    let own = std::env::consts::ARCH;
    TARGETS
        .iter()
        .find(|(triple, ..)| triple.split('-').next() == Some(own))
        .map_or(own, |(_, architecture, _)| architecture)
}

fn known(target: &str) -> Result<(&'static str, &'static str, &'static str)> {
    let found = TARGETS.iter().find(|(triple, ..)| *triple == target);
    found.copied().with_context(|| {
        let names: Vec<&str> = TARGETS.iter().map(|(triple, ..)| *triple).collect();
        format!(
            "podnet is not built for {target}: write --target {}",
            names.join(" or --target ")
        )
    })
}

/// Libraries of `readelf --dynamic`.
///
/// A line is ` 0x0001 (NEEDED)  Shared library: [libc.so.6]`.
fn needed(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_readelf() {
        let text = "Dynamic section at offset 0x1:\n  Tag  Type  Name/Value\n \
                    0x01 (NEEDED)   Shared library: [libgcc_s.so.1]\n \
                    0x01 (NEEDED)   Shared library: [libc.so.6]\n \
                    0x0e (SONAME)   Library soname: [x.so]\n";
        assert_eq!(needed(text), ["libgcc_s.so.1", "libc.so.6"]);
    }

    #[test]
    fn a_target_that_is_none_of_podnet_s_is_refused_with_those_that_are() {
        let error = known("riscv64gc-unknown-linux-gnu")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "podnet is not built for riscv64gc-unknown-linux-gnu: write --target \
             x86_64-unknown-linux-gnu or --target aarch64-unknown-linux-gnu"
        );
    }

    #[test]
    fn this_machine_is_no_other_one() {
        let own = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        assert!(Machine::find(&own).unwrap().is_none());
        assert!(["amd64", "arm64"].contains(&own_architecture()));
    }

    #[test]
    fn a_build_for_another_machine_names_its_compiler_and_may_build_the_library() {
        let machine = |from_source| Machine {
            triple: "aarch64-unknown-linux-gnu",
            architecture: "arm64",
            tools: "aarch64-linux-gnu".to_owned(),
            libraries: PathBuf::new(),
            from_source,
        };
        for (from_source, arguments) in [(false, 2), (true, 4)] {
            let mut command = Command::new("cargo");
            machine(from_source).apply(&mut command);
            assert_eq!(command.get_args().count(), arguments);
            let mut variables = command.get_envs();
            assert!(variables.any(|(name, value)| {
                name == "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"
                    && value == Some("aarch64-linux-gnu-gcc".as_ref())
            }));
        }
    }
}
