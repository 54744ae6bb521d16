//! Tests that cannot run here say so; `xtask` decides whether that was expected.

use std::fs::OpenOptions;
use std::io::Write;

/// Where `xtask` wants to be told of skipped tests.
const LOG: &str = "PODNET_SKIP_LOG";

/// Says that `test` does not run, and why.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os(LOG) {
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .expect("the file PODNET_SKIP_LOG names can be written");
        log.write_all(line.as_bytes())
            .expect("the file PODNET_SKIP_LOG names can be written");
    }
}

/// True, and said, when the kernel has no TCX links (6.6).
pub fn without_tcx(test: &str) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let missing = version < (6, 6);
    if missing {
        skip(test, "needs TCX links (6.6)");
    }
    missing
}

/// True, and said, when the kernel cannot limit rates (sch_tbf).
pub fn without_shaping(test: &str) -> bool {
    let missing = crate::limit::discipline().is_none();
    if missing {
        skip(test, "needs sch_tbf");
    }
    missing
}

/// True, and said, when the caller is not root.
pub fn without_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    !root
}
