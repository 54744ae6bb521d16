//! Behaviour of the lists, by the sections that ask for it.

mod defaults;
mod element;
mod items;
mod kep;
mod limits;
mod pod;
mod populated;
mod properties;

use super::{NetworkSelection, SelectionErrors, parse_networks};

/// The only element of a list.
fn one(element: &str) -> NetworkSelection {
    let mut list = parse_networks(&format!("[{element}]")).unwrap();
    assert_eq!(list.len(), 1, "{element}");
    list.remove(0)
}

/// The error of a list that has exactly one.
fn error(text: &str) -> String {
    only(&parse_networks(text).expect_err(text))
}

pub(super) fn only(errors: &SelectionErrors) -> String {
    assert_eq!(errors.first.len(), 1, "{errors}");
    errors.to_string()
}

/// Asserts that `text` has `part` in it, and says what it has when not.
fn assert_says(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}
