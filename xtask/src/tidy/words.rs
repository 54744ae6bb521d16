//! Check the words of documentation and of errors: nouns, in 80 characters.
//!
//! The first line of documentation is verb, object and unit. A line or an error that begins with a pronoun
//! has no subject that a reader could look up. The counts may fall and not rise.

/// Longest first line, characters.
const LENGTH: usize = 80;
/// Words that a first line does not begin with.
const PRONOUNS: [&str; 7] = ["What", "Who", "Whoever", "Whom", "Whose", "Nobody", "Those"];
/// Words that a first line does not have: again, next to and the object say more.
const WORDS: [&str; 3] = ["anew", "beside", "whom"];
/// Words that the message of an error does not begin with.
const SUBJECTS: [&str; 22] = [
    "anybody",
    "everybody",
    "he",
    "it",
    "nobody",
    "nothing",
    "one",
    "somebody",
    "someone",
    "something",
    "that",
    "there",
    "these",
    "they",
    "this",
    "those",
    "we",
    "what",
    "whatever",
    "who",
    "whoever",
    "whom",
];
/// Faults of the words of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Places of first lines that begin with a pronoun.
    begin: Vec<String>,
    /// Places of first lines that are too long.
    long: Vec<String>,
    /// Places of first lines with a word of [`WORDS`].
    word: Vec<String>,
    /// Places of errors that begin with a pronoun.
    error: Vec<String>,
}

/// How many faults of each kind are allowed.
struct Limits {
    begin: usize,
    long: usize,
    word: usize,
    error: usize,
}

/// Faults that there are today.
const LIMITS: Limits = Limits {
    begin: 0,
    long: 0,
    word: 0,
    error: 0,
};

impl Count {
    /// Reads one file.
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        let mut inside = false;
        let mut opened = false;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let message = match line.strip_prefix("#[error(") {
                Some(rest) => Some(rest),
                None => opened.then_some(line),
            };
            opened = line == "#[error(";
            if let Some(message) = message.and_then(|it| it.strip_prefix('"')) {
                self.add_error(|| format!("{name}:{}: {message}", at + 1), message);
            }
            let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
            if let Some(first) = doc.filter(|_| !inside) {
                let first = first.trim();
                self.add_first(|| format!("{name}:{}: {first}", at + 1), first);
            }
            inside = doc.is_some();
        }
    }

    fn add_first(&mut self, place: impl Fn() -> String, first: &str) {
        if words(first)
            .next()
            .is_some_and(|word| PRONOUNS.contains(&word))
        {
            self.begin.push(place());
        }
        let has = |word: &str| WORDS.contains(&word.to_lowercase().as_str());
        if words(first).any(has) {
            self.word.push(place());
        }
        if first.chars().count() > LENGTH {
            self.long.push(place());
        }
    }

    fn add_error(&mut self, place: impl Fn() -> String, message: &str) {
        let mut words = words(message);
        let first = words.next().unwrap_or_default().to_lowercase();
        let is_no_one = first == "no" && words.next() == Some("one");
        if SUBJECTS.contains(&first.as_str()) || is_no_one {
            self.error.push(place());
        }
    }

    /// One line for each count that has risen.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.findings_above(&LIMITS)
    }

    /// One line for each count above its limit.
    fn findings_above(&self, limits: &Limits) -> Vec<String> {
        let begin = "first lines of documentation begin with a pronoun";
        let long = "first lines of documentation have more than 80 characters";
        let word = "first lines of documentation say anew, beside or whom";
        let error = "messages of errors begin with a pronoun";
        [
            (begin, &self.begin, limits.begin),
            (long, &self.long, limits.long),
            (word, &self.word, limits.word),
            (error, &self.error, limits.error),
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
        let most = LIMITS;
        format!(
            "first lines of documentation: {} begin with a pronoun (at most {}), {} are longer than {LENGTH} characters \
             (at most {}), {} say anew, beside or whom (at most {}); errors: {} begin with a pronoun (at most {})",
            self.begin.len(),
            most.begin,
            self.long.len(),
            most.long,
            self.word.len(),
            most.word,
            self.error.len(),
            most.error
        )
    }

    /// All places.
    pub(crate) fn places(&self) -> impl Iterator<Item = &String> {
        let firsts = self.begin.iter().chain(&self.long).chain(&self.word);
        firsts.chain(&self.error)
    }
}

/// Splits a text at everything that is no letter or digit.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Limits = Limits {
        begin: 0,
        long: 0,
        word: 0,
        error: 0,
    };

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
        let both = Limits {
            begin: 1,
            long: 1,
            ..NONE
        };
        assert!(count.findings_above(&both).is_empty());
        assert_eq!(count.findings_above(&Limits { begin: 0, ..both }).len(), 1);
        assert_eq!(count.findings_above(&NONE).len(), 2);
    }

    #[test]
    fn a_first_line_says_again_and_not_anew() {
        let mut count = Count::default();
        count.add(
            "a.rs",
            "/// Writes the entry anew.\n/// For whom.\n\n/// Beside the socket.\n\n/// Besides, once more.\n",
        );
        let found = [
            "a.rs:1: Writes the entry anew.",
            "a.rs:4: Beside the socket.",
        ];
        assert_eq!(count.word, found);
        assert_eq!(count.findings_above(&NONE).len(), 1);
    }

    #[test]
    fn an_error_begins_with_a_noun() {
        let mut count = Count::default();
        count.add(
            "a.rs",
            "#[error(\"nobody has {ip}\")]\n#[error(\n    \"This port is taken\"\n)]\n#[error(\"no one asks\")]\n\
             #[error(\"no port is free\")]\n#[error(\"{what} stopped\")]\n#[error(\"thistle\")]\n\"it is free\"\n\
             #[error(transparent)]\n",
        );
        let found = [
            "a.rs:1: nobody has {ip}\")]",
            "a.rs:3: This port is taken\"",
            "a.rs:5: no one asks\")]",
        ];
        assert_eq!(count.error, found);
        assert_eq!(count.findings_above(&NONE).len(), 1);
    }
}
