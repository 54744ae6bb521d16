//! Write the archive: a compressed tar, with a limit of all it holds.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

use super::Item;
use crate::error::PluginError;

/// An archive in the making; a file is there when all of it is.
pub(super) struct Archive {
    tar: Builder<GzEncoder<File>>,
    path: PathBuf,
    part: PathBuf,
    stem: String,
    left: u64,
    errors: Vec<String>,
}

impl Archive {
    /// Begins an archive of so many bytes at most; all is below the directory `stem`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn create(path: &Path, stem: &str, limit: u64) -> Result<Self, PluginError> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        // Names of pods and addresses are for its owner.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&part)
            .map_err(|source| failed("create", &part, source))?;
        Ok(Self {
            tar: Builder::new(GzEncoder::new(file, Compression::default())),
            path: path.to_owned(),
            part,
            stem: stem.to_owned(),
            left: limit,
            errors: Vec::new(),
        })
    }

    /// Adds a file, or writes down why it is missing.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(super) fn add(&mut self, (name, text): Item) -> Result<(), PluginError> {
        let mut text = match text {
            Ok(text) => text,
            Err(error) => {
                self.errors.push(format!("{name}: missing: {error}"));
                return Ok(());
            }
        };
        if text.cut {
            self.errors
                .push(format!("{name}: cut by --file-limit: its end is missing"));
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        if text.bytes.len() > left {
            self.errors
                .push(format!("{name}: cut by --total-limit: its end is missing"));
            text.bytes.truncate(left);
        }
        self.left -= text.bytes.len() as u64;
        self.write(&name, &text.bytes)
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), PluginError> {
        let mut header = Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(bytes.len() as u64);
        // The name comes from the API server: a path that leads elsewhere is refused by the library.
        let path = format!("{}/{name}", self.stem);
        self.tar
            .append_data(&mut header, path, bytes)
            .map_err(|source| failed("write", &self.part, source))
    }

    /// Ends the archive; returns the number of parts that are missing or cut.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn finish(mut self) -> Result<usize, PluginError> {
        let mut errors = std::mem::take(&mut self.errors);
        let number = errors.len();
        errors.push(String::new());
        self.write("errors.txt", errors.join("\n").as_bytes())?;
        let ended = self.tar.into_inner().and_then(GzEncoder::finish);
        ended
            .and_then(|file| file.sync_all())
            .map_err(|source| failed("write", &self.part, source))?;
        fs::rename(&self.part, &self.path)
            .map_err(|source| failed("rename", &self.part, source))?;
        Ok(number)
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> PluginError {
    PluginError::File {
        operation,
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::kubectl::Text;

    fn files(path: &Path) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let mut tar = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.insert(name, text);
        }
        files
    }

    fn text(bytes: &str, cut: bool) -> Result<Text, PluginError> {
        Ok(Text {
            bytes: bytes.into(),
            cut,
        })
    }

    #[test]
    fn the_archive_never_holds_more_than_its_limit_and_names_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dump.tar.gz");
        let mut archive = Archive::create(&path, "dump", 10).unwrap();
        let missing = PluginError::NoAgents {
            namespace: "x".to_owned(),
        };
        for item in [
            ("a".to_owned(), text("12345678", false)),
            ("b".to_owned(), Err(missing)),
            ("c".to_owned(), text("12345", true)),
            ("d".to_owned(), text("1", false)),
        ] {
            archive.add(item).unwrap();
        }
        assert!(!path.exists());
        assert_eq!(archive.finish().unwrap(), 4);
        let files = files(&path);
        assert_eq!(files["dump/a"], "12345678");
        assert_eq!(files["dump/c"], "12");
        assert_eq!(files["dump/d"], "");
        let errors = &files["dump/errors.txt"];
        for words in [
            "b: missing: no pod of podnet-agent is in namespace x",
            "c: cut by --file-limit",
            "c: cut by --total-limit",
            "d: cut by --total-limit",
        ] {
            assert!(errors.contains(words), "{words}: {errors}");
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Archive::create(Path::new("/nowhere/dump"), "dump", 1)
            .map(|_| ())
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot create /nowhere/dump.part"),
            "{error}"
        );
    }
}
