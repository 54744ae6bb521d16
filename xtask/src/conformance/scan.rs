//! Find the requirements that the tests of a file check in.
//!
//! A check-in, `proof::of!("CNI-ADD-01");`, is the last statement of a test: nothing that could still fail
//! or end the test follows it.

/// A test, and a requirement that it checks in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proof {
    /// The requirement.
    pub(super) id: String,
    /// Where: the path from the root.
    pub(super) file: String,
    /// The test; for tests that a macro makes, the macro with `!`.
    pub(super) test: String,
}

/// Begins a check-in.
const CHECK_IN: &str = "proof::of!(";
/// Columns of one more level of indentation.
const LEVEL: usize = 4;

/// State of the lines before the next one.
#[derive(Default)]
struct Reader {
    is_test: bool,
    macro_name: Option<String>,
    body: Option<Body>,
    findings: Vec<String>,
}

/// A test whose body the next line is in.
struct Body {
    test: String,
    /// Indentation of its end.
    end: usize,
    /// The check-in that began and has not ended, line by line.
    open: Option<String>,
    /// Requirements of check-ins with nothing after them so far.
    last: Vec<String>,
}

/// Lists what the documentation of a file's tests names, as check-ins, in order.
///
/// It is prose: what it names and the test does not check in may be said in passing, or be forgotten.
pub(super) fn named(name: &str, text: &str) -> Vec<Proof> {
    let (mut found, mut docs, mut is_test) = (Vec::new(), Vec::new(), false);
    for word in text.lines().map(str::trim_start) {
        if let Some(doc) = word.strip_prefix("///") {
            docs.extend(words(doc));
        } else if word.starts_with("#[") {
            is_test |= is_attribute_of_test(word);
        } else if !word.starts_with("//") {
            let ids = std::mem::take(&mut docs);
            let is_it = std::mem::take(&mut is_test);
            let Some(test) = function(word).filter(|name| is_it && !name.starts_with('$')) else {
                continue;
            };
            found.extend(ids.into_iter().map(|id| Proof {
                id,
                file: name.to_owned(),
                test: test.to_owned(),
            }));
        }
    }
    found
}

/// Words that may be identifiers, without what ends a sentence.
fn words(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    text.split(move |c| !is_part(c))
        .map(|word| word.trim_end_matches('.').to_owned())
}

fn is_attribute_of_test(word: &str) -> bool {
    ["#[test]", "#[tokio::test"]
        .iter()
        .any(|start| word.starts_with(start))
}

/// All check-ins of a file in order, and faults: each one line.
pub(super) fn file(name: &str, text: &str) -> (Vec<Proof>, Vec<String>) {
    let mut found: Vec<Proof> = Vec::new();
    let mut reader = Reader::default();
    for (number, line) in (1..).zip(text.lines()) {
        for (test, id) in reader.line(line) {
            let proof = Proof {
                id,
                file: name.to_owned(),
                test,
            };
            if found.contains(&proof) {
                reader.fault(&format!("{} is checked in twice", proof.id));
            } else {
                found.push(proof);
            }
        }
        let faults = reader.findings.iter_mut();
        faults
            .filter(|fault| !fault.starts_with(name))
            .for_each(|fault| *fault = format!("{name}:{number}: {fault}"));
    }
    (found, reader.findings)
}

impl Reader {
    fn fault(&mut self, words: &str) {
        self.findings.push(words.to_owned());
    }

    /// Tests that end with this line, with each requirement that they check in.
    fn line(&mut self, line: &str) -> Vec<(String, String)> {
        let word = line.trim_start();
        let indent = line.len() - word.len();
        if let Some(rest) = word.strip_prefix("macro_rules! ") {
            let name = rest.split([' ', '{']).next().unwrap_or_default();
            self.macro_name = Some(format!("{name}!"));
        }
        if let Some(body) = self.body.take() {
            return self.inside(body, word, indent);
        }
        if word.starts_with(CHECK_IN) {
            self.fault("a check-in outside of a test");
        }
        if word.starts_with("#[") {
            self.is_test |= is_attribute_of_test(word);
            return Vec::new();
        }
        if word.is_empty() || word.starts_with("//") {
            return Vec::new();
        }
        let is_test = std::mem::take(&mut self.is_test);
        let Some(name) = function(word).filter(|_| is_test) else {
            return Vec::new();
        };
        let test = if name.starts_with('$') {
            self.macro_name.clone().unwrap_or_else(|| name.to_owned())
        } else {
            name.to_owned()
        };
        if !word.ends_with("{}") {
            self.body = Some(Body {
                test,
                end: indent,
                open: None,
                last: Vec::new(),
            });
        }
        Vec::new()
    }

    /// A line of a test's body.
    fn inside(&mut self, mut body: Body, word: &str, indent: usize) -> Vec<(String, String)> {
        if let Some(open) = &mut body.open {
            open.push_str(word);
        } else if indent <= body.end && word.starts_with('}') {
            let Body { test, last, .. } = body;
            return last.into_iter().map(|id| (test.clone(), id)).collect();
        } else if let Some(arguments) = word.strip_prefix(CHECK_IN) {
            if indent != body.end + LEVEL {
                self.fault("a check-in that is not a statement of the test itself");
            }
            body.open = Some(arguments.to_owned());
        } else if word.contains(CHECK_IN) {
            self.fault("a check-in that does not begin its line");
        } else if !word.is_empty() && !body.last.is_empty() {
            body.last.clear();
            self.fault("a check-in that is not the end of its test: move it there");
        }
        if let Some(arguments) = body.open.take_if(|open| open.ends_with(");")) {
            body.last.extend(literals(&arguments));
        }
        self.body = Some(body);
        Vec::new()
    }
}

/// The texts in quotation marks.
fn literals(text: &str) -> impl Iterator<Item = String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned)
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    let rest = line.strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<(String, String)>, String) {
        let (found, faults) = file("a.rs", text);
        let found = found.into_iter().map(|proof| (proof.test, proof.id));
        (found.collect(), faults.join("\n"))
    }

    #[test]
    fn a_test_proves_what_its_last_statements_check_in_and_nothing_else() {
        let (found, faults) = read(
            "\
/// CNI-ADD-07, which is only named.
#[test]
fn first_cni_add_08() {
    assert!(works());
    proof::of!(\"CNI-ADD-01\", \"CNI-ADD-02\");
}

/// No test.
fn other() {}

#[tokio::test(flavor = \"current_thread\")]
async fn second() {
    let text = \"x\";
    proof::of!(
        \"CNI-ADD-04\",
        \"CNI-ADD-05\",
    );
    proof::of!(\"CNI-ADD-06\");
}

macro_rules! golden {
    ($($test:ident;)+) => {$(
        #[test]
        fn $test() {
            run();
            proof::of!(\"CNI-ADD-05\");
        }
    )+};
}
",
        );
        let expected = [
            ("first_cni_add_08", "CNI-ADD-01"),
            ("first_cni_add_08", "CNI-ADD-02"),
            ("second", "CNI-ADD-04"),
            ("second", "CNI-ADD-05"),
            ("second", "CNI-ADD-06"),
            ("golden!", "CNI-ADD-05"),
        ];
        let expected = expected.map(|(test, id)| (test.to_owned(), id.to_owned()));
        assert_eq!(found, expected);
        assert_eq!(faults, "");
    }

    #[test]
    fn what_documentation_of_tests_names_is_listed() {
        let text = "\
/// CNI-ADD-01, NPWG-4.1.2: words. See KEP-X1.
#[tokio::test]
async fn first() {
    // CNI-ADD-02
}
/// CNI-ADD-03
fn other() {}
#[test]
fn second() {}
";
        let found = named("a.rs", text).into_iter();
        let found = found.filter(|proof| proof.id.contains('-'));
        let found: Vec<String> = found.map(|it| format!("{} {}", it.test, it.id)).collect();
        assert_eq!(
            found,
            ["first CNI-ADD-01", "first NPWG-4.1.2", "first KEP-X1"]
        );
    }

    #[test]
    fn a_check_in_that_is_not_the_end_of_a_test_is_a_fault_and_no_proof() {
        let of = "proof::of!(\"A-1\");";
        for (body, expected) in [
            (
                format!("    {of}\n    assert!(x);\n"),
                "a.rs:4: a check-in that is not the end",
            ),
            (
                format!("    if x {{\n        {of}\n    }}\n"),
                "a.rs:4: a check-in that is not a statement",
            ),
            (
                format!("    x(|| {of}\n    );\n"),
                "a.rs:3: a check-in that does not begin",
            ),
        ] {
            let (found, faults) = read(&format!("#[test]\nfn test() {{\n{body}}}\n"));
            assert_eq!(found, [], "{body}");
            assert!(faults.starts_with(expected), "{body}{faults}");
        }
        let (found, faults) = read(&format!("fn step() {{\n    {of}\n}}\n"));
        assert_eq!(found, []);
        assert_eq!(faults, "a.rs:2: a check-in outside of a test");
        let (_, faults) = read(&format!("#[test]\nfn test() {{\n    {of}\n    {of}\n}}\n"));
        assert_eq!(faults, "a.rs:5: A-1 is checked in twice");
    }
}
