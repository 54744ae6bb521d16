//! Container images as files: an archive in the OCI image layout, with one layer.
//!
//! image-spec 1.1, "Image Layout". No container tool makes it. The same content gives the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use crate::cross;
use crate::vm::shared_libraries;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The content at a path of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Directory(u32),
    File(u32, Vec<u8>),
    Link(String),
}

/// An image in the making.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// By path, without the leading slash: parents come before their children.
    entries: BTreeMap<String, Entry>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    /// Of another machine than this one.
    architecture: Option<&'static str>,
}

impl Image {
    /// Without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// A directory with these permissions; parents of what else is added have 0755.
    pub fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        self.add(path, Entry::Directory(mode))
    }

    /// A file with these permissions.
    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> &mut Self {
        self.add(path, Entry::File(mode, content.into()))
    }

    /// An image for a machine of that architecture, as Go calls it.
    pub fn of(architecture: &'static str) -> Self {
        Self {
            architecture: Some(architecture),
            ..Self::default()
        }
    }

    /// Adds a program of this machine, with its shared libraries at their own paths.
    ///
    /// # Errors
    /// A file cannot be read, or a library is missing.
    pub fn program(&mut self, path: &str, from: &Path) -> Result<&mut Self> {
        self.copy(path, from)?;
        for library in shared_libraries(from)? {
            self.copy(&library.to_string_lossy(), &library)?;
        }
        Ok(self)
    }

    /// Adds a file of this machine as a program.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.file(path, 0o755, content);
        Ok(())
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> &mut Self {
        self.add(path, Entry::Link(target.to_owned()))
    }

    /// Sets the command that runs, whatever arguments a container gives.
    pub fn entrypoint(&mut self, words: &[&str]) -> &mut Self {
        self.entrypoint = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Sets the command without arguments, or the entrypoint's arguments.
    ///
    /// It is for containers that give no arguments.
    pub fn command(&mut self, words: &[&str]) -> &mut Self {
        self.command = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Whether there is something at this path.
    #[cfg(test)]
    pub fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path.trim_matches('/'))
    }

    fn add(&mut self, path: &str, entry: Entry) -> &mut Self {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            let parent = self.entries.entry(path[..at].to_owned());
            parent.or_insert(Entry::Directory(0o755));
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }

    /// Writes the archive; `name` is the image's reference, `registry/repository:tag`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, path: &Path) -> Result<()> {
        let archive = self.archive(name).context("packing an image")?;
        // Nobody sees half of it.
        let part = path.with_extension("part");
        let mut file =
            fs::File::create(&part).with_context(|| format!("creating {}", part.display()))?;
        file.write_all(&archive)
            .with_context(|| format!("writing {}", part.display()))?;
        fs::rename(&part, path).with_context(|| format!("renaming to {}", path.display()))
    }

    fn archive(&self, name: &str) -> io::Result<Vec<u8>> {
        let layer = self.layer()?;
        let config = self.config(&digest(&layer)).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": [descriptor(LAYER, &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut described = descriptor(MANIFEST, &manifest);
        described["platform"] = json!({"architecture": self.architecture(), "os": "linux"});
        let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        described["annotations"] = json!({
            // containerd names what it imports so; others take the tag.
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [described]});

        let mut tar = Builder::new(Vec::new());
        let mut add = |path: &str, content: &[u8]| -> io::Result<()> {
            append(&mut tar, path, &Entry::File(0o644, content.to_vec()))
        };
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add("index.json", index.to_string().as_bytes())?;
        for blob in [&manifest, &config, &layer] {
            let hash = digest(blob);
            let hash = hash.strip_prefix("sha256:").unwrap_or(&hash);
            add(&format!("blobs/sha256/{hash}"), blob)?;
        }
        tar.into_inner()
    }

    fn layer(&self) -> io::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            append(&mut tar, path, entry)?;
        }
        tar.into_inner()
    }

    fn architecture(&self) -> &'static str {
        self.architecture.unwrap_or_else(cross::own_architecture)
    }

    fn config(&self, layer: &str) -> Value {
        let mut run = json!({"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]});
        for (key, words) in [("Entrypoint", &self.entrypoint), ("Cmd", &self.command)] {
            if !words.is_empty() {
                run[key] = json!(words);
            }
        }
        json!({
            "architecture": self.architecture(),
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [layer]},
        })
    }
}

fn append(tar: &mut Builder<Vec<u8>>, path: &str, entry: &Entry) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    match entry {
        Entry::Directory(mode) => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(*mode);
            header.set_size(0);
            tar.append_data(&mut header, format!("{path}/"), io::empty())
        }
        Entry::File(mode, content) => {
            header.set_entry_type(EntryType::Regular);
            header.set_mode(*mode);
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, content.as_slice())
        }
        Entry::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            tar.append_link(&mut header, path, target)
        }
    }
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(content), "size": content.len()})
}

fn digest(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(path, content);
        }
        files
    }

    fn image() -> Image {
        let mut image = Image::new();
        image
            .file("/usr/bin/one", 0o755, "1")
            .link("/bin/two", "/usr/bin/one")
            .directory("/tmp", 0o1777)
            .entrypoint(&["/usr/bin/one"]);
        image
    }

    /// image-spec 1.1, "Image Layout": every digest names the blob that has it.
    #[test]
    fn each_descriptor_leads_to_a_blob_of_its_digest_and_size() {
        let files = files(&image().archive("localhost/one:2").unwrap());
        assert_eq!(files["oci-layout"], br#"{"imageLayoutVersion":"1.0.0"}"#);
        let blob = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().unwrap().replace(':', "/");
            let content = &files[&format!("blobs/{name}")];
            assert_eq!(descriptor["size"], content.len());
            assert_eq!(descriptor["digest"], digest(content));
            content.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let first = &index["manifests"][0];
        assert_eq!(
            first["annotations"]["io.containerd.image.name"],
            "localhost/one:2"
        );
        assert_eq!(
            first["annotations"]["org.opencontainers.image.ref.name"],
            "2"
        );
        let manifest: Value = serde_json::from_slice(&blob(first)).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/one"]));
    }

    #[test]
    fn parents_come_before_their_children_and_keep_their_modes() {
        let layer = image().layer().unwrap();
        let mut archive = tar::Archive::new(layer.as_slice());
        let entries: Vec<(String, u32)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let path = entry.path().unwrap().to_string_lossy().into_owned();
                (path, entry.header().mode().unwrap())
            })
            .collect();
        let expected = [
            ("bin/", 0o755),
            ("bin/two", 0o777),
            ("tmp/", 0o1777),
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("usr/bin/one", 0o755),
        ];
        assert_eq!(
            entries,
            expected.map(|(path, mode)| (path.to_owned(), mode))
        );
    }

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let archive = || image().archive("localhost/one:2").unwrap();
        assert_eq!(archive(), archive());
    }
}
