//! `src/generated` is what `proto` says; `BLESS=1` rewrites it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost_build::{Config, Method, Service, ServiceGenerator};
use protox::prost_reflect::prost_types::FileDescriptorSet;

/// Descriptions and what is made of them, in packages of their names.
const FILES: [&str; 2] = ["device_plugin_v1beta1.proto", "pod_resources_v1.proto"];

#[test]
fn messages_are_those_of_the_kubelets_descriptions() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated = tempfile::tempdir().unwrap();
    let descriptions = protox::compile(FILES, [crate_dir.join("proto")]).unwrap();
    Config::new()
        .out_dir(generated.path())
        // They are for another language's documentation, and in `proto`.
        .disable_comments(["."])
        .service_generator(Box::new(Paths))
        .compile_fds(with_names_for_people(descriptions))
        .unwrap();
    let mut stale = Vec::new();
    for made in files(generated.path()) {
        let text = fs::read_to_string(&made).unwrap();
        let kept = crate_dir
            .join("src/generated")
            .join(made.file_name().unwrap());
        if fs::read_to_string(&kept).unwrap_or_default() == text {
            continue;
        }
        if env::var_os("BLESS").is_some() {
            fs::write(&kept, text).unwrap();
        } else {
            stale.push(kept);
        }
    }
    assert!(
        stale.is_empty(),
        "{stale:?} are stale: run BLESS=1 cargo test -p kubelet --test generated"
    );
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("the directory");
    entries.map(|entry| entry.expect("a file").path()).collect()
}

/// Renames `available_deviceIDs` in the descriptions to `available_device_ids`.
///
/// It would become `available_device_i_ds`. Only numbers of fields are sent.
fn with_names_for_people(mut descriptions: FileDescriptorSet) -> FileDescriptorSet {
    let messages = descriptions
        .file
        .iter_mut()
        .flat_map(|file| &mut file.message_type);
    for field in messages.flat_map(|message| &mut message.field) {
        if let Some(name) = &mut field.name {
            *name = name.replace("deviceIDs", "device_ids");
        }
    }
    descriptions
}

/// A constant for each call, by which it is asked for.
struct Paths;

impl ServiceGenerator for Paths {
    fn generate(&mut self, service: Service, text: &mut String) {
        for Method {
            proto_name, name, ..
        } in &service.methods
        {
            let path = format!("/{}.{}/{proto_name}", service.package, service.proto_name);
            text.push_str(&format!(
                "/// Path of the call `{proto_name}` of `{}`.\npub const {}: &str = \"{path}\";\n",
                service.proto_name,
                name.to_uppercase()
            ));
        }
    }
}
