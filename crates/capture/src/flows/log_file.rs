//! Keeps the flow log within a size: a file, and the one before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Mode of the file: its lines are about traffic of all pods.
const MODE: u32 = 0o600;

/// Place of the flow log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// Writes pieces of whole lines.
#[derive(Debug)]
pub struct LogFile {
    place: Place,
    /// Bytes of the file at which another is begun.
    most: u64,
}

impl LogFile {
    /// Knows a place; a file has at most `most` bytes, and so has the one before it.
    #[must_use]
    pub const fn new(place: Place, most: u64) -> Self {
        Self { place, most }
    }

    /// Makes the file, so that a wrong path is known at the start.
    ///
    /// Looks at the place of the file before it, too.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn check(&self) -> io::Result<()> {
        match &self.place {
            Place::Stdout => Ok(()),
            Place::File(path) => {
                open(path)?;
                let before = before(path);
                match fs::metadata(&before) {
                    // A directory takes no file in its place, and each interval after that would be lost.
                    Ok(found) if !found.is_file() => Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!(
                            "{} is no regular file: move it away, a full file gets this name",
                            before.display()
                        ),
                    )),
                    Ok(_) => Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Appends whole lines.
    ///
    /// The file is opened each time: another program may have moved it away. A single piece larger than the
    /// limit has a file of its own.
    ///
    /// # Errors
    /// When they cannot be written; a part of them may have been.
    pub fn append(&self, lines: &[u8]) -> io::Result<()> {
        match &self.place {
            Place::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
            Place::File(path) => {
                let mut file = open(path)?;
                let size = file.metadata()?.len();
                let more = u64::try_from(lines.len()).unwrap_or(u64::MAX);
                if size > 0 && size.saturating_add(more) > self.most {
                    fs::rename(path, before(path))?;
                    file = open(path)?;
                } else if size > 0 && !ends_a_line(&mut file)? {
                    // An agent was killed, or the disk was full, in the middle of a line.
                    file.write_all(b"\n")?;
                }
                file.write_all(lines)
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(MODE)
        .open(path)?;
    // A write to a pipe blocks when it is not read, and has no size.
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    Ok(file)
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Returns the path of the file before this one.
fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
