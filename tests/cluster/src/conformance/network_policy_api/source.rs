//! Read the names of the tests, and which of them need SCTP, from their source.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Directory of the tests in the module.
const TESTS: &str = "conformance/tests";
/// The manifest of their pods.
const BASE: &str = "conformance/base/manifests.yaml";

/// The tests of a version, and the images of their pods.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) tests: Vec<Test>,
    pub(super) images: Vec<String>,
}

/// A test, which has its manifests and its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
}

/// A part of a test, which runs after the parts before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    /// Whether it connects by SCTP.
    pub(super) sctp: bool,
}

impl Source {
    /// Reads the source in a module.
    ///
    /// # Errors
    /// A file cannot be read, or has no tests as they are known.
    pub(super) fn read(module: &Path) -> Result<Self> {
        let dir = module.join(TESTS);
        let mut tests = Vec::new();
        let entries = fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))?;
        for entry in entries {
            let path = entry?.path();
            let text =
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            tests.append(&mut of(&text));
        }
        tests.sort_by(|one, other| one.name.cmp(&other.name));
        if tests.is_empty() || tests.iter().any(|test| test.parts.is_empty()) {
            bail!("{} has changed: a test without parts", dir.display());
        }
        let base = module.join(BASE);
        let text =
            fs::read_to_string(&base).with_context(|| format!("reading {}", base.display()))?;
        let images = images(&text);
        if images.is_empty() {
            bail!("{} has changed: it names no image", base.display());
        }
        Ok(Self { tests, images })
    }

    /// The tests with one of these words in their name, or all.
    pub(super) fn chosen(&self, words: &[String]) -> Vec<&Test> {
        let tests = self.tests.iter();
        let is_chosen = |test: &&Test| {
            words.is_empty() || words.iter().any(|word| test.name.contains(word.as_str()))
        };
        tests.filter(is_chosen).collect()
    }
}

/// Finds the tests of one file.
fn of(text: &str) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(name) = after(line, "ShortName:") {
            tests.push(Test {
                name,
                parts: Vec::new(),
            });
        } else if let Some(test) = tests.last_mut() {
            if let Some(name) = after(line, "t.Run(") {
                test.parts.push(Part { name, sctp: false });
            } else if line.contains("\"sctp\"")
                && let Some(part) = test.parts.last_mut()
            {
                part.sctp = true;
            }
        }
    }
    tests
}

/// The string in quotes that follows a word at the beginning of a line.
fn after(line: &str, word: &str) -> Option<String> {
    let rest = line.strip_prefix(word)?.trim_start().strip_prefix('"')?;
    rest.split_once('"').map(|(name, _)| name.to_owned())
}

/// The images that a manifest names, each once.
fn images(manifest: &str) -> Vec<String> {
    let lines = manifest
        .lines()
        .map(|line| line.trim().trim_start_matches("- "));
    let mut images: Vec<String> = lines
        .filter_map(|line| Some(line.strip_prefix("image:")?.trim().to_owned()))
        .collect();
    images.sort();
    images.dedup();
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_parts_of_tests_are_read_and_which_need_sctp() {
        let text = r#"
var CNPNodes = suite.ConformanceTest{
	ShortName:   "CNPNodes",
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		t.Run("Should 'allow'; in order", func(t *testing.T) {
			kubernetes.PokeServer(t, s.ClientSet, &s.KubeConfig, "a", "b-0", "tcp",
				serverPod.Status.PodIP, int32(80), s.TimeoutConfig, true)
		})
		t.Run("Should deny", func(t *testing.T) {
			kubernetes.PokeServer(t, s.ClientSet, &s.KubeConfig, "a", "b-0", "udp",
			kubernetes.PokeServer(t, s.ClientSet, &s.KubeConfig, "a", "b-0", "sctp",
"#;
        let part = |name: &str, sctp| Part {
            name: name.to_owned(),
            sctp,
        };
        let expected = Test {
            name: "CNPNodes".to_owned(),
            parts: vec![
                part("Should 'allow'; in order", false),
                part("Should deny", true),
            ],
        };
        assert_eq!(of(text), [expected]);
    }

    #[test]
    fn images_are_named_once() {
        let text = "      - name: one\n        image: example.test/agnhost:2.45\n      \
                    - image: example.test/agnhost:2.45\n";
        assert_eq!(images(text), ["example.test/agnhost:2.45"]);
    }
}
