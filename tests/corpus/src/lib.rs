//! Replays of the inputs that fuzzing kept, by the tests of the fuzzed packages.

use std::fs;
use std::path::Path;

/// Runs a target over each input of its corpus, in `fuzz/corpus` of `package`.
///
/// # Panics
/// A target fails, or there is no input.
pub fn replay(package: &str, target: &str, run: fn(&[u8])) {
    let dir = Path::new(package).join("fuzz/corpus").join(target);
    let mut seen = 0;
    for entry in fs::read_dir(&dir).expect("the corpus is in the repository") {
        let path = entry.expect("an input").path();
        // Shown for the one that fails.
        println!("{}", path.display());
        run(&fs::read(&path).expect("an input"));
        seen += 1;
    }
    assert!(seen > 0, "{} is empty", dir.display());
}
