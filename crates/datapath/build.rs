//! Puts the eBPF object into the crate, or an empty file where it has not been built.
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=PODNET_EBPF_OBJECT");
    let out = PathBuf::from(env::var("OUT_DIR")?).join("podnet-ebpf.o");
    match env::var_os("PODNET_EBPF_OBJECT").filter(|path| !path.is_empty()) {
        Some(object) => {
            println!(
                "cargo::rerun-if-changed={}",
                PathBuf::from(&object).display()
            );
            fs::copy(&object, &out).map_err(|error| {
                format!(
                    "PODNET_EBPF_OBJECT={}: {error}",
                    PathBuf::from(&object).display()
                )
            })?;
        }
        // A plain `cargo build` needs no BPF toolchain; the agent says at start what is missing.
        None => fs::write(&out, [])?,
    }
    Ok(())
}
