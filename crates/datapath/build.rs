//! Embed the eBPF objects in the crate, or empty files where they are not built.
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The program of an AF_XDP port; built into the directory of the other object.
const PORT: &str = "podnet-xsk.o";
/// The programs of a capture, there too.
const TAP: &str = "podnet-tap.o";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=PODNET_EBPF_OBJECT");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    match env::var_os("PODNET_EBPF_OBJECT").filter(|path| !path.is_empty()) {
        Some(object) => {
            let object = PathBuf::from(object);
            for beside in [PORT, TAP] {
                embed(&object.with_file_name(beside), &out.join(beside))?;
            }
            embed(&object, &out.join("podnet-ebpf.o"))?;
        }
        // A plain `cargo build` needs no BPF toolchain; the agent says at start what is missing.
        None => {
            fs::write(out.join("podnet-ebpf.o"), [])?;
            fs::write(out.join(PORT), [])?;
            fs::write(out.join(TAP), [])?;
        }
    }
    Ok(())
}

fn embed(object: &Path, out: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-changed={}", object.display());
    fs::copy(object, out)
        .map(|_| ())
        .map_err(|error| format!("PODNET_EBPF_OBJECT: {}: {error}", object.display()))
}
