//! Stdin, stdout and stderr, without the conveniences that hide a lost answer.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cni_spec::{CniError, CniVersion, ErrorCode, MAX_FRAME};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};
use rustix::io::Errno;
use serde_json::value::RawValue;

/// Longest `VERSION` request read, in bytes; the rest says nothing we need.
const PEEK_MAX: usize = 64 << 10;

/// Longest wait for a `VERSION` request; after it the newest version is answered.
const PEEK_PATIENCE: Duration = Duration::from_millis(100);

/// Reads the whole of stdin.
pub(crate) fn read_stdin() -> Result<String, CniError> {
    let fail =
        |code, msg: &str, details: String| CniError::new(CniVersion::LATEST, code, msg, details);
    let limit = u64::try_from(MAX_FRAME).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let stdin = io::stdin().lock();
    if let Err(source) = stdin.take(limit + 1).read_to_end(&mut bytes) {
        let msg = "the network configuration could not be read from stdin";
        return Err(fail(ErrorCode::IO_FAILURE, msg, source.to_string()));
    }
    if bytes.len() > MAX_FRAME {
        let msg = "the network configuration on stdin is too large";
        let details = format!("at most {MAX_FRAME} bytes are taken");
        return Err(fail(ErrorCode::INVALID_CONFIG, msg, details));
    }
    String::from_utf8(bytes).map_err(|source| {
        let msg = "the network configuration on stdin is not JSON";
        fail(ErrorCode::DECODING_FAILURE, msg, source.to_string())
    })
}

/// Reads the first JSON value of stdin within [`PEEK_PATIENCE`] (CNI-VER-01).
///
/// A caller may keep stdin open, or send nothing.
pub(crate) fn peek_stdin() -> String {
    let stdin = io::stdin();
    let end = Instant::now() + PEEK_PATIENCE;
    let mut bytes = Vec::new();
    let mut chunk = [0_u8; 4096];
    while bytes.len() < PEEK_MAX && serde_json::from_slice::<&RawValue>(&bytes).is_err() {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Err(Errno::INTR) => continue,
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
        match rustix::io::read(&stdin, &mut chunk) {
            Err(Errno::INTR) => {}
            Ok(count @ 1..) => bytes.extend(chunk.iter().take(count)),
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Writes all of it to stdout, or says that it did not get there.
pub(crate) fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    let stdout = io::stdout();
    let fd = stdout.as_fd();
    if was_closed(fd)? {
        return Err(Errno::BADF.into());
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(fd, rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
                poll(&mut fds, None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Tells whether stdout was closed when the process was started.
///
/// Rust's runtime then opens `/dev/null` in its place, for reading and writing; a shell's `>/dev/null`
/// opens it for writing only.
fn was_closed(fd: impl AsFd + Copy) -> io::Result<bool> {
    let stat = fstat(fd)?;
    let null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3);
    Ok(null && fcntl_getfl(fd)? & OFlags::RWMODE == OFlags::RDWR)
}

/// Writes a line for people, if there is a reader.
pub(crate) fn log(line: &str) {
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}
