//! The inputs that fuzzing kept, run again.

use std::fs;
use std::path::Path;

#[path = "../fuzz/src/arrivals.rs"]
#[expect(clippy::panic, reason = "a panic is how a target tells the fuzzer")]
mod arrivals;

fn replay(target: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
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

#[test]
fn what_arrives_is_what_its_sender_may_say() {
    replay("arrivals", arrivals::run);
}
