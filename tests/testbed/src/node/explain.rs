//! `podnet-agent explain --from … --to …`.

use serde_json::Value;

use super::Node;

/// The fate of a packet, as `explain` tells it.
#[derive(Debug, Clone)]
pub struct Explained(pub Value);

impl Node {
    /// `explain` with these options, as JSON.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn explain(&self, from: &str, to: &str, more: &[&str]) -> Explained {
        let output = self.explain_command(from, to, &[more, &["-o", "json"]].concat());
        assert!(output.status.success(), "explain: {output:?}");
        Explained(serde_json::from_slice(&output.stdout).expect("explain prints JSON"))
    }

    /// `explain` with these options, as text for people.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn explain_text(&self, from: &str, to: &str, more: &[&str]) -> String {
        let output = self.explain_command(from, to, more);
        assert!(output.status.success(), "explain: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the error of `explain` with these options.
    ///
    /// # Panics
    /// If it succeeds.
    #[track_caller]
    pub fn explain_error(&self, from: &str, to: &str, more: &[&str]) -> String {
        let output = self.explain_command(from, to, more);
        assert!(!output.status.success(), "explain: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn explain_command(&self, from: &str, to: &str, more: &[&str]) -> std::process::Output {
        let socket = self.socket();
        let socket = socket.to_str().expect("a path in UTF-8");
        let mut args = vec!["explain", "--from", from, "--to", to, "--socket", socket];
        args.extend(more);
        self.agent_command(&args)
    }
}

impl Explained {
    /// The verdict.
    ///
    /// # Panics
    /// If it has none.
    pub fn verdict(&self) -> &str {
        let verdict = self.0["outcome"]["verdict"].as_str();
        verdict.expect("an outcome has a verdict")
    }

    /// The reason for a drop; empty for none.
    pub fn reason(&self) -> &str {
        self.0["outcome"]["reason"].as_str().unwrap_or_default()
    }

    /// A detail of the outcome.
    pub fn detail(&self, key: &str) -> &Value {
        &self.0["outcome"]["details"][key]
    }

    /// All steps in one text, a line each.
    pub fn steps(&self) -> String {
        let steps = self.0["steps"].as_array().cloned().unwrap_or_default();
        let part = |step: &Value, key: &str| step[key].as_str().unwrap_or_default().to_owned();
        let lines = steps.iter().map(|step| {
            ["packet", "lookup", "found", "verdict"]
                .map(|key| part(step, key))
                .join(" | ")
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Where records and kernel differ, in one text.
    pub fn disagreements(&self) -> String {
        self.0["disagreements"].to_string()
    }

    /// The first bytes of the frame.
    ///
    /// # Panics
    /// If they are not hexadecimal.
    pub fn head(&self) -> Vec<u8> {
        let digits = self.0["packet"]["head"].as_str().unwrap_or_default();
        let pairs = digits.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| {
            let text = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(text, 16).expect("a hexadecimal number")
        });
        bytes.collect()
    }

    /// Fails the test unless it is this verdict, with this reason for a drop.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn assert_is(&self, verdict: &str, reason: &str) {
        let found = (self.verdict(), self.reason());
        assert_eq!(found, (verdict, reason), "{:#}", self.0);
    }

    /// Fails the test unless the steps have all of these.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn assert_tells(&self, words: &[&str]) {
        let steps = self.steps();
        for word in words {
            assert!(steps.contains(word), "{word} is not in\n{steps}");
        }
    }
}
