//! Check the first lines of documentation: verb, object, unit, in 80 characters.
//!
//! A line that begins with a pronoun has no subject that a reader could look up. Both counts may fall and
//! not rise.

/// Longest first line, characters.
const LENGTH: usize = 80;
/// Words that a first line does not begin with.
const PRONOUNS: [&str; 7] = ["What", "Who", "Whoever", "Whom", "Whose", "Nobody", "Those"];
/// First lines that begin so today.
const BEGIN_MAX: usize = 0;
/// First lines that are longer today.
const LONG_MAX: usize = 0;

/// Faults of the first lines of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Places of those that begin with a pronoun.
    begin: Vec<String>,
    /// Places of those that are too long.
    long: Vec<String>,
}

impl Count {
    /// Reads one file.
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        let mut inside = false;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
            if let Some(first) = doc.filter(|_| !inside) {
                let first = first.trim();
                let place = || format!("{name}:{}: {first}", at + 1);
                let word = first.split(|c: char| !c.is_alphanumeric()).next();
                if word.is_some_and(|word| PRONOUNS.contains(&word)) {
                    self.begin.push(place());
                }
                if first.chars().count() > LENGTH {
                    self.long.push(place());
                }
            }
            inside = doc.is_some();
        }
    }

    /// One line for each count that has risen.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.findings_above(BEGIN_MAX, LONG_MAX)
    }

    /// One line for each count above its limit.
    fn findings_above(&self, begin_max: usize, long_max: usize) -> Vec<String> {
        let begin = "first lines of documentation begin with a pronoun";
        let long = "first lines of documentation have more than 80 characters";
        [
            (begin, &self.begin, begin_max),
            (long, &self.long, long_max),
        ]
        .into_iter()
        .filter(|(_, found, most)| found.len() > *most)
        .map(|(what, found, most)| {
            format!(
                "{} {what}, {most} before: name the object; `cargo xtask tidy --words` lists them",
                found.len()
            )
        })
        .collect()
    }

    /// How many there are, in one line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "first lines of documentation: {} begin with a pronoun (at most {BEGIN_MAX}), {} are longer than {LENGTH} \
             characters (at most {LONG_MAX})",
            self.begin.len(),
            self.long.len()
        )
    }

    /// All places.
    pub(crate) fn places(&self) -> impl Iterator<Item = &String> {
        self.begin.iter().chain(&self.long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_first_lines_are_read() {
        let mut count = Count::default();
        let long = "x".repeat(LENGTH + 1);
        let text = format!(
            "//! Whole networks.\n//! What follows is no first line.\n\n/// What it is.\nfn f() {{}}\n    /// {long}\n\
             // What a comment says is free.\n"
        );
        count.add("a.rs", &text);
        assert_eq!(count.begin, ["a.rs:4: What it is."]);
        assert_eq!(count.long, [format!("a.rs:6: {long}")]);
        assert!(count.findings_above(1, 1).is_empty());
        assert_eq!(count.findings_above(0, 1).len(), 1);
        assert_eq!(count.findings_above(0, 0).len(), 2);
    }
}
