//! A cpio archive in the "newc" format, what Linux unpacks as its initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;

/// Writes entries as they come; parent directories go before their first child.
pub(crate) struct Archive<W> {
    out: W,
    inode: u32,
    directories: BTreeSet<String>,
}

struct Entry<'a> {
    path: &'a str,
    mode: u32,
    device: (u32, u32),
    content: &'a [u8],
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            inode: 0,
            directories: BTreeSet::new(),
        }
    }

    /// A directory anyone may enter.
    pub(crate) fn directory(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || !self.directories.insert(path.to_owned()) {
            return Ok(());
        }
        self.parent(path)?;
        self.entry(&Entry {
            path,
            mode: DIRECTORY | 0o755,
            device: (0, 0),
            content: &[],
        })
    }

    /// A regular file with these permission bits.
    pub(crate) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parent(path)?;
        self.entry(&Entry {
            path,
            mode: REGULAR | permissions,
            device: (0, 0),
            content,
        })
    }

    /// A character device; no right to `mknod` is needed to write one into an archive.
    pub(crate) fn character(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parent(path)?;
        let device = (major, minor);
        self.entry(&Entry {
            path,
            mode: CHARACTER | 0o600,
            device,
            content: &[],
        })
    }

    /// Writes the trailer and gives the writer back.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(&Entry {
            path: "TRAILER!!!",
            mode: 0,
            device: (0, 0),
            content: &[],
        })?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parent(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.directory(parent),
            None => Ok(()),
        }
    }

    fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let too_big = |_| io::Error::new(io::ErrorKind::FileTooLarge, entry.path.to_owned());
        let size = u32::try_from(entry.content.len()).map_err(too_big)?;
        let name_size = u32::try_from(entry.path.len() + 1).map_err(too_big)?;
        self.inode += 1;
        // inode, mode, uid, gid, links, mtime, size, device, rdevice, name size, checksum
        let fields = [
            self.inode,
            entry.mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            entry.device.0,
            entry.device.1,
            name_size,
            0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(entry.path.as_bytes())?;
        self.out.write_all(b"\0")?;
        self.pad(header.len() + entry.path.len() + 1)?;
        self.out.write_all(entry.content)?;
        self.pad(entry.content.len())
    }

    /// Header with name, and content, each end at a multiple of four bytes.
    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out
            .write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_entry_is_laid_out_as_the_kernel_reads_it() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a", 0o644, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        // Field 1: mode 0100644; field 6: size 5; field 11: name size 2 ("a" and its NUL).
        assert!(text.starts_with("07070100000001000081a4"), "{text}");
        assert_eq!(&text[6 + 6 * 8..6 + 7 * 8], "00000005");
        assert_eq!(&text[6 + 11 * 8..6 + 12 * 8], "00000002");
        assert_eq!(&text[110..112], "a\0");
        assert_eq!(&text[112..120], "hello\0\0\0");
        assert_eq!(&text[120..126], "070701");
        assert_eq!(text.len() % 4, 0);
    }

    #[test]
    fn a_parent_directory_comes_once_and_before_its_children() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/lib/x/one", 0o644, b"").unwrap();
        archive.file("lib/x/two", 0o644, b"").unwrap();
        archive.character("dev/tty", 5, 0).unwrap();
        let text = String::from_utf8(archive.finish().unwrap()).unwrap();
        let at = |name: &str| text.find(name).unwrap();
        assert!(
            at("lib\0") < at("lib/x\0") && at("lib/x\0") < at("lib/x/one\0"),
            "{text}"
        );
        assert_eq!(text.matches("lib/x\0").count(), 1);
        assert!(at("dev\0") < at("dev/tty\0"), "{text}");
    }

    #[test]
    fn another_cpio_reads_the_archive() {
        if !crate::step::succeeds(Command::new("busybox").args(["cpio", "--help"])) {
            println!("SKIP vm::cpio::tests::another_cpio_reads_the_archive: needs busybox");
            return;
        }
        let mut archive = Archive::new(Vec::new());
        archive.file("bin/tool", 0o755, &[7; 1001]).unwrap();
        archive.character("dev/console", 5, 1).unwrap();
        let bytes = archive.finish().unwrap();
        let mut child = Command::new("busybox")
            .args(["cpio", "-t"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "bin\nbin/tool\ndev\ndev/console\n"
        );
    }
}
