//! Test that documents have the figures of the run in bench/results.
//!
//! `BLESS=1` rewrites them.

use std::env;

use bench_report::generated;

#[test]
fn documents_have_the_figures_of_the_current_run() {
    if env::var_os("BLESS").is_some() {
        generated::bless().expect("the documents are written");
    }
    let stale = generated::stale().expect("the run and the documents are read");
    let stale: Vec<_> = stale.iter().map(|document| document.path).collect();
    assert!(
        stale.is_empty(),
        "{stale:?} have other figures than the run in bench/results: run `cargo xtask bench tables`"
    );
}
