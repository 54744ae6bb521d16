//! Reads one object of a JSON list key by key; errors are noted with their path.

use serde::de::DeserializeOwned;

use super::problem::{Findings, Place, SelectionProblem};
use crate::json::{RawJson, RawObject};

/// An object whose keys are taken out one by one; the rest are unknown keys.
///
/// Keys match without regard to case, and `null` is an absent value: so do clients written in Go.
pub(super) struct Reader<'a> {
    pub(super) findings: &'a mut Findings,
    index: usize,
    prefix: String,
    object: RawObject,
}

impl<'a> Reader<'a> {
    /// The element at `index`; `None`, with the error noted, when it is not an object.
    pub(super) fn element(
        findings: &'a mut Findings,
        index: usize,
        element: &RawJson,
    ) -> Option<Self> {
        Self::at(findings, index, String::new(), element)
    }

    fn at(findings: &'a mut Findings, index: usize, path: String, value: &RawJson) -> Option<Self> {
        let place = Place::Element {
            index,
            path: path.clone(),
        };
        let object: RawObject =
            findings.take(place.clone(), typed(value, "an object, as {\"key\": …}"))?;
        if let Some(key) = object.repeated_key() {
            let key = key.to_owned();
            findings.push(place, SelectionProblem::RepeatedKey { key });
            return None;
        }
        let prefix = if path.is_empty() {
            path
        } else {
            format!("{path}.")
        };
        Some(Self {
            findings,
            index,
            prefix,
            object,
        })
    }

    /// The place of a key, or of a value below it.
    pub(super) fn place(&self, path: &str) -> Place {
        Place::Element {
            index: self.index,
            path: format!("{}{path}", self.prefix),
        }
    }

    /// The place of the object itself.
    pub(super) fn here(&self) -> Place {
        Place::Element {
            index: self.index,
            path: self.prefix.trim_end_matches('.').to_owned(),
        }
    }

    pub(super) fn push(&mut self, path: &str, problem: impl Into<SelectionProblem>) {
        self.findings.push(self.place(path), problem);
    }

    /// Notes the error of a value at `path`.
    pub(super) fn check<T, E: Into<SelectionProblem>>(
        &mut self,
        path: &str,
        value: Result<T, E>,
    ) -> Option<T> {
        let place = self.place(path);
        self.findings.take(place, value)
    }

    /// Takes the value of `key` out.
    pub(super) fn raw(&mut self, key: &str) -> Option<RawJson> {
        let spelled = self
            .object
            .iter()
            .map(|(name, _)| name)
            .find(|name| name.eq_ignore_ascii_case(key))?
            .to_owned();
        self.object
            .remove(&spelled)
            .filter(|value| !value.is_null())
    }

    /// Takes `key` out as a `T`; `expected` is what an error asks for.
    pub(super) fn value<T: DeserializeOwned>(
        &mut self,
        key: &str,
        expected: &'static str,
    ) -> Option<T> {
        let raw = self.raw(key)?;
        self.check(key, typed(&raw, expected))
    }

    /// Takes a string out and reads it.
    pub(super) fn parsed<T, E: Into<SelectionProblem>>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text: String = self.value(key, "a string")?;
        self.check(key, read(&text))
    }

    /// Takes a list of strings out and reads each, with its path; errors are noted.
    ///
    /// `needed` is what an empty list lacks, where it may not be empty; `limit`, how many it may have.
    pub(super) fn parsed_list<T, E: Into<SelectionProblem>>(
        &mut self,
        key: &str,
        needed: Option<&'static str>,
        limit: usize,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<(String, T)>> {
        let values: Vec<RawJson> = self.value(key, "a list of strings")?;
        if let (Some(what), true) = (needed, values.is_empty()) {
            self.push(key, SelectionProblem::Empty { what });
        }
        if !self.bounded(key, values.len(), limit) {
            return None;
        }
        let mut items = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let path = format!("{key}[{index}]");
            let text: Option<String> = self.check(&path, typed(value, "a string"));
            let item = text.and_then(|text| self.check(&path, read(&text)));
            items.extend(item.map(|item| (path, item)));
        }
        Some(items)
    }

    /// True when the list below `key` may have so many items; else the error is noted.
    pub(super) fn bounded(&mut self, key: &str, found: usize, limit: usize) -> bool {
        if found > limit {
            self.push(key, SelectionProblem::TooManyItems { found, limit });
        }
        found <= limit
    }

    /// The object below `key`, to be read by itself.
    pub(super) fn object<'b>(&'b mut self, key: &str) -> Option<Reader<'b>> {
        let raw = self.raw(key)?;
        let path = format!("{}{key}", self.prefix);
        Reader::at(self.findings, self.index, path, &raw)
    }

    /// The object at `path`, which was an element of a list of this object.
    pub(super) fn object_at<'b>(&'b mut self, path: &str, value: &RawJson) -> Option<Reader<'b>> {
        let path = format!("{}{path}", self.prefix);
        Reader::at(self.findings, self.index, path, value)
    }

    /// Keys that were not taken, with their values.
    pub(super) fn rest(self) -> RawObject {
        self.object
    }

    /// Notes every key that was not taken.
    pub(super) fn refuse_rest(mut self, known: &'static str) {
        for (key, _) in std::mem::take(&mut self.object).iter() {
            let problem = SelectionProblem::UnknownKey {
                key: key.to_owned(),
                known,
            };
            self.findings.push(self.here(), problem);
        }
    }
}

/// The value as a `T`, or an error that quotes it.
pub(super) fn typed<T: DeserializeOwned>(
    value: &RawJson,
    expected: &'static str,
) -> Result<T, SelectionProblem> {
    value.read().map_err(|_| SelectionProblem::WrongType {
        found: value.quote(),
        expected,
    })
}
