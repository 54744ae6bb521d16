//! Check-ins of tests: requirements that each names by its last statement.
//!
//! A comment can name a requirement in a test that never gets to its assertions: one that is skipped, or
//! returns early. The last statement is reached after all of them only.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process;

/// Directory that `cargo xtask test` wants check-ins in.
const DIRECTORY: &str = "PODNET_CHECK_INS";

/// Checks in the requirements that a test has proved, as its last statement.
///
/// Each is an ID of `docs/requirements.txt`. `cargo xtask test` compares the check-ins of tests that passed
/// with `docs/conformance.md`; `cargo xtask tidy` refuses a check-in that is not the end of a test.
#[macro_export]
macro_rules! of {
    ($($id:literal),+ $(,)?) => {{
        fn here() {}
        $crate::check_in(&[$($id),+], ::std::any::type_name_of_val(&here), ::std::file!());
    }};
}

/// Appends check-ins to the file of this process, where a test run wants them.
///
/// `here` is the path of a function inside the test, and `file` the test's source. For [`of!`] only.
///
/// # Panics
/// The directory of `PODNET_CHECK_INS` cannot be written to: a check-in that is lost is a false report.
pub fn check_in(ids: &[&str], here: &str, file: &str) {
    if let Some(directory) = env::var_os(DIRECTORY) {
        append(directory.as_ref(), &lines(ids, here, file))
            .expect("PODNET_CHECK_INS names a directory in which a test can write");
    }
}

/// Makes `<ID> <test> <file>` lines, with the test as libtest names it.
fn lines(ids: &[&str], here: &str, file: &str) -> String {
    let test = here.strip_suffix("::here").unwrap_or(here);
    // Bodies of async tests and of property tests are closures.
    let test = test.replace("::{{closure}}", "");
    let test = test
        .split_once("::")
        .map_or(test.as_str(), |(_, path)| path);
    ids.iter()
        .map(|id| format!("{id} {test} {file}\n"))
        .collect()
}

/// Adds lines in one write, which no other thread's or process's can cut.
fn append(directory: &Path, lines: &str) -> io::Result<()> {
    let file = directory.join(process::id().to_string());
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The path of a function in the caller, as [`of!`] takes it.
    macro_rules! here {
        () => {{
            fn here() {}
            ::std::any::type_name_of_val(&here)
        }};
    }

    #[test]
    fn a_check_in_has_the_name_that_libtest_gives_the_test() {
        let name = "tests::a_check_in_has_the_name_that_libtest_gives_the_test";
        let expected = format!("CNI-ADD-01 {name} a.rs\nCNI-ADD-09 {name} a.rs\n");
        let ids = ["CNI-ADD-01", "CNI-ADD-09"];
        assert_eq!(lines(&ids, here!(), "a.rs"), expected);
        // As in the body of an async test.
        let inner = || lines(&ids, here!(), "a.rs");
        assert_eq!(inner(), expected);
    }

    #[test]
    fn check_ins_of_a_process_are_in_one_file_in_order() {
        let directory = env::temp_dir().join(format!("podnet-proof-{}", process::id()));
        fs::create_dir(&directory).expect("a directory of this test");
        append(&directory, "A-1 a a.rs\n").expect("the directory can be written");
        append(&directory, "A-2 b b.rs\n").expect("the directory can be written");
        let written = fs::read_to_string(directory.join(process::id().to_string()));
        fs::remove_dir_all(&directory).expect("the directory of this test");
        assert_eq!(written.expect("a file"), "A-1 a a.rs\nA-2 b b.rs\n");
        append(&directory, "A-3 c c.rs\n").expect_err("the directory is gone");
    }
}
