//! Compares the table of docs/from-multus.md with the importer's list of fields.
//!
//! When the test fails, write the table again: `BLESS=1 cargo test -p multus --test docs`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use multus::FIELDS;

const BEGIN: &str = "<!-- fields:begin -->\n";
const END: &str = "<!-- fields:end -->";

fn table() -> String {
    let mut text = String::from("\n| Field of Multus | Outcome | In podnet |\n|---|---|---|\n");
    for field in FIELDS {
        let outcome = field.outcome.map_or("*by value*", multus::Outcome::as_str);
        let (name, meaning) = (field.name, field.counterpart);
        writeln!(text, "| `{name}` | {outcome} | {meaning} |").expect("a string takes everything");
    }
    text.push('\n');
    text
}

/// NPWG-X7: every field is in the page, in the importer's words.
#[test]
fn npwg_x7_the_page_has_every_field_as_the_importer_has_it() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-multus.md");
    let page = fs::read_to_string(&path).expect("docs/from-multus.md");
    let (before, rest) = page.split_once(BEGIN).expect("the begin of the table");
    let (written, after) = rest.split_once(END).expect("the end of the table");
    let now = table();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{now}{END}{after}")).expect("docs can be written");
        return;
    }
    assert!(
        written == now,
        "the table of docs/from-multus.md is stale: `BLESS=1 cargo test -p multus --test docs`"
    );
    proof::of!("NPWG-X7");
}

/// A table of Markdown has one line for each row, and a bar ends a cell.
#[test]
fn each_counterpart_fits_a_cell() {
    for field in FIELDS {
        let text = field.counterpart;
        assert!(!text.is_empty() && !text.contains(['|', '\n']), "{text:?}");
    }
}
