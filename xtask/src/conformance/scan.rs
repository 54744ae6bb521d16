//! Find the requirements that the tests of a file name.
//!
//! They are in their documentation, in the comments of their bodies, and in their own names.

/// A test, and a requirement it names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Naming {
    /// The requirement.
    pub(super) id: String,
    /// Where: the path from the root.
    pub(super) file: String,
    /// The test; for tests that a macro makes, the macro with `!`.
    pub(super) test: String,
}

/// Where an identifier begins.
const PREFIXES: [&str; 7] = ["CNI-", "NPWG-", "KEP-", "DP-", "S003-", "NRI-", "ATT-"];
/// The name of the whole document, not of a requirement.
const KEP: &str = "KEP-3698";

/// State of the lines before the next one.
#[derive(Default)]
struct Reader {
    comments: String,
    is_test: bool,
    macro_name: Option<String>,
    /// The test whose body this is, and the indentation of its end.
    body: Option<(String, usize)>,
}

/// All namings of a file, in order.
pub(super) fn file(name: &str, text: &str) -> Vec<Naming> {
    let mut found = Vec::new();
    let mut reader = Reader::default();
    for line in text.lines() {
        for (test, id) in reader.line(line) {
            let naming = Naming {
                id,
                file: name.to_owned(),
                test,
            };
            if !found.contains(&naming) {
                found.push(naming);
            }
        }
    }
    found
}

impl Reader {
    /// Tests and the requirements that this line adds to them.
    fn line(&mut self, line: &str) -> Vec<(String, String)> {
        let word = line.trim_start();
        let indent = line.len() - word.len();
        if let Some(rest) = word.strip_prefix("macro_rules! ") {
            let name = rest.split([' ', '{']).next().unwrap_or_default();
            self.macro_name = Some(format!("{name}!"));
        }
        if let Some((test, end)) = &self.body {
            let named = word
                .find("//")
                .map(|at| ids(&word[at..]))
                .unwrap_or_default();
            let named = named.into_iter().map(|id| (test.clone(), id)).collect();
            if indent <= *end && word.starts_with('}') {
                self.body = None;
            }
            return named;
        }
        if let Some(comment) = word.strip_prefix("///") {
            self.comments.push_str(comment);
            self.comments.push('\n');
            return Vec::new();
        }
        if word.starts_with("#[") {
            self.is_test |= ["#[test]", "#[tokio::test"]
                .iter()
                .any(|start| word.starts_with(start));
            return Vec::new();
        }
        if word.is_empty() || word.starts_with("//") {
            return Vec::new();
        }
        let comments = std::mem::take(&mut self.comments);
        let is_test = std::mem::take(&mut self.is_test);
        let Some(name) = function(word).filter(|_| is_test) else {
            return Vec::new();
        };
        let test = if name.starts_with('$') {
            self.macro_name.clone().unwrap_or_else(|| name.to_owned())
        } else {
            name.to_owned()
        };
        let mut named = ids(&comments);
        named.extend(from_name(name));
        if !word.ends_with("{}") {
            self.body = Some((test.clone(), indent));
        }
        named.into_iter().map(|id| (test.clone(), id)).collect()
    }
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    let rest = line.strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

/// Lists the requirements in a text.
///
/// They are `CNI-ADD-01`, `NPWG-4.1.2.1.3`, `KEP-POD-01..06`, `KEP-POD-10 to 12`, and sections: `NPWG
/// §4.1`, `NPWG §6.2, §7.2`.
pub(super) fn ids(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for prefix in PREFIXES {
        for (at, _) in text.match_indices(prefix) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if text[..at].ends_with(is_part) {
                continue;
            }
            let (id, rest) = identifier(&text[at..]);
            let has_number = id.bytes().any(|byte| byte.is_ascii_digit());
            if id == KEP || !has_number {
                continue;
            }
            found.extend(range(&id, rest));
            found.push(id);
        }
    }
    for (at, _) in text.match_indices("NPWG §") {
        let mut rest = &text[at + "NPWG ".len()..];
        while let Some(after) = rest.strip_prefix('§') {
            let end = after.find(|c: char| !c.is_ascii_digit() && c != '.');
            let (section, more) = after.split_at(end.unwrap_or(after.len()));
            found.push(format!("NPWG-{}", section.trim_end_matches('.')));
            rest = more.strip_prefix(", ").unwrap_or_default();
        }
    }
    found
}

/// The identifier at the beginning, without what ends a sentence, and what follows.
fn identifier(text: &str) -> (String, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (mut id, _) = text.split_at(end);
    if let Some(dots) = id.find("..") {
        id = &id[..dots];
    }
    let id = id.trim_end_matches(['.', '-']);
    (id.to_owned(), &text[id.len()..])
}

/// The rest of a range that begins with `id`.
fn range(id: &str, rest: &str) -> Vec<String> {
    let after = ["..", " to "]
        .iter()
        .find_map(|word| rest.strip_prefix(word));
    let Some((stem, first)) = id.rsplit_once('-') else {
        return Vec::new();
    };
    let digits: String = after
        .unwrap_or_default()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    match (first.parse::<u32>(), digits.parse::<u32>()) {
        (Ok(first), Ok(last)) => (first + 1..=last)
            .map(|number| format!("{stem}-{number:02}"))
            .collect(),
        _ => Vec::new(),
    }
}

/// `…_cni_res_05` and `kep_pod_12_…` in the name of a test.
fn from_name(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    let triples = words.windows(3).filter_map(|words| match words {
        [kind @ ("cni" | "kep"), area, number]
            if number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Some(format!("{kind}-{area}-{number}").to_uppercase())
        }
        _ => None,
    });
    triples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_ranges_and_sections_are_read() {
        let text = "CNI-ADD-01, NPWG-4.1.2. KEP-POD-01..03 KEP-POD-10 to 12: KEP-3698, \
                    NPWG §6.2, §7.2: xCNI-ADD-09 NPWG-4.1-detect \
                    KEP-CNI-1 CNI-STATUS";
        let mut found = ids(text);
        found.sort();
        assert_eq!(
            found,
            [
                "CNI-ADD-01",
                "KEP-CNI-1",
                "KEP-POD-01",
                "KEP-POD-02",
                "KEP-POD-03",
                "KEP-POD-10",
                "KEP-POD-11",
                "KEP-POD-12",
                "NPWG-4.1-detect",
                "NPWG-4.1.2",
                "NPWG-6.2",
                "NPWG-7.2",
            ]
        );
    }

    #[test]
    fn a_test_names_what_its_documentation_its_body_and_its_name_say() {
        let text = "\
/// CNI-ADD-01
#[test]
fn first() {
    // CNI-ADD-02: inside
    let url = \"CNI-ADD-07\";
}

/// CNI-ADD-03, which is no test
fn other() {}

/// Nothing.
#[tokio::test(flavor = \"current_thread\")]
async fn second_cni_add_04() {}

macro_rules! golden {
    ($($test:ident;)+) => {$(
        /// CNI-ADD-05
        #[test]
        fn $test() {
            run();
        }
    )+};
}

// CNI-ADD-06 beside a test
#[test]
fn third() {}
";
        let found: Vec<(String, String)> = file("a.rs", text)
            .into_iter()
            .map(|naming| (naming.test, naming.id))
            .collect();
        let expected = [
            ("first", "CNI-ADD-01"),
            ("first", "CNI-ADD-02"),
            ("second_cni_add_04", "CNI-ADD-04"),
            ("golden!", "CNI-ADD-05"),
        ];
        let expected = expected.map(|(test, id)| (test.to_owned(), id.to_owned()));
        assert_eq!(found, expected);
    }
}
