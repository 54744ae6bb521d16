//! Read a page of commands and their output, compare it, and write it.

use std::net::Ipv6Addr;

use anyhow::{Result, bail};

const OPEN: &str = "```console";
const CLOSE: &str = "```";
const PROMPT: &str = "$ ";

/// A command and what the page says that it prints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step<'a> {
    /// Lines of the command, with the prompt before the first.
    lines: Vec<&'a str>,
    output: Vec<&'a str>,
}

impl Step<'_> {
    /// The command, for a shell.
    pub(super) fn command(&self) -> String {
        self.lines.join("\n").split_off(PROMPT.len())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// A line outside of steps, as it is.
    Line(&'a str),
    Step(Step<'a>),
}

/// A page of steps.
#[derive(Debug)]
pub(super) struct Page<'a> {
    parts: Vec<Part<'a>>,
}

impl<'a> Page<'a> {
    /// Reads a page: blocks of the language `console`.
    ///
    /// Commands stand behind `$ `.     /// A command goes on in the next line where its line ends with a backslash.
    ///
    /// # Errors
    /// A block has output before its first command, or no end; or there is no block.
    pub(super) fn parse(text: &'a str) -> Result<Self> {
        let mut parts: Vec<Part<'a>> = Vec::new();
        let mut is_inside = false;
        for (index, line) in text.lines().enumerate() {
            if !is_inside || line == CLOSE {
                is_inside = !is_inside && line == OPEN;
                parts.push(Part::Line(line));
                continue;
            }
            match parts.last_mut() {
                Some(Part::Step(step))
                    if step.lines.last().is_some_and(|it| it.ends_with('\\')) =>
                {
                    step.lines.push(line);
                }
                _ if line.starts_with(PROMPT) => parts.push(Part::Step(Step {
                    lines: vec![line],
                    output: Vec::new(),
                })),
                Some(Part::Step(step)) => step.output.push(line),
                _ => bail!("line {}: output without a command: {line}", index + 1),
            }
        }
        let page = Self { parts };
        if is_inside {
            bail!("the last block of commands has no end");
        }
        if page.steps().next().is_none() {
            bail!("there is no block of commands, `{OPEN}`");
        }
        Ok(page)
    }

    /// The steps in their order.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step<'a>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Step(step) => Some(step),
            Part::Line(_) => None,
        })
    }

    /// The page with other outputs.
    pub(super) fn with(&self, outputs: &[String]) -> String {
        let mut outputs = outputs.iter();
        let mut text = String::new();
        let mut put = |line: &str| {
            text.push_str(line.trim_end());
            text.push('\n');
        };
        for part in &self.parts {
            match part {
                Part::Line(line) => put(line),
                Part::Step(step) => {
                    step.lines.iter().copied().for_each(&mut put);
                    outputs
                        .next()
                        .iter()
                        .flat_map(|it| it.lines())
                        .for_each(&mut put);
                }
            }
        }
        text
    }

    /// Compares the outputs with those of the page, but for what differs in each run.
    ///
    /// # Errors
    /// The first that differs.
    pub(super) fn compare(&self, outputs: &[String]) -> Result<()> {
        for (step, output) in self.steps().zip(outputs) {
            let said: Vec<String> = step.output.iter().copied().map(shape).collect();
            let found: Vec<String> = output.lines().map(shape).collect();
            if said != found {
                bail!(
                    "`{}` prints\n{output}and the page says\n{}\n(`--bless` writes it)",
                    step.command(),
                    step.output.join("\n")
                );
            }
        }
        Ok(())
    }
}

/// Letters and digits of which names end that the API server makes.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

/// A line without what differs in each run.
///
/// These are numbers, generated names, dates and widths of columns. A percentage, a ratio such as `2/2`, and a
/// number that is the whole line stay.
fn shape(line: &str) -> String {
    if line.trim().parse::<u64>().is_ok() {
        return line.trim().to_owned();
    }
    if let Some((key, _)) = line.split_once("DEPLOYED:") {
        return key.to_owned();
    }
    let words = line.split_whitespace().map(|word| {
        if is_ratio(word) || word.ends_with('%') {
            return word.to_owned();
        }
        word.split(',').map(item).collect::<Vec<_>>().join(",")
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A word, or an item of a list, without what differs in each run.
fn item(word: &str) -> String {
    let address = word.split_once('/').map_or(word, |(address, _)| address);
    if address.parse::<Ipv6Addr>().is_ok() {
        // Zeroes are not written where there are some.
        return word
            .replacen(address, "#", 1)
            .replace(char::is_numeric, "#");
    }
    // Parts of addresses may be letters alone.
    let is_address = word.contains(':');
    let mut out = String::new();
    for part in word.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric());
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        let is_generated = name.len() == 5 && name.chars().all(|c| GENERATED.contains(c));
        let is_number = name.contains(|c: char| c.is_ascii_digit());
        let is_hex = is_address
            && (1..=4).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_hexdigit());
        out.push_str(if is_generated || is_number || is_hex {
            "#"
        } else {
            name
        });
        out.push_str(rest);
    }
    out
}

fn is_ratio(word: &str) -> bool {
    let mut sides = word.splitn(2, '/');
    let is_number = |side: Option<&str>| {
        side.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
    };
    is_number(sides.next()) && is_number(sides.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# T\n\n```console\n$ one \\\n  more\nNAME  READY\na-x2x4z  1/1\n$ two\n```\n\n```sh\n$ not this\n```\n";

    #[test]
    fn commands_and_outputs_are_told_apart_and_written_back() {
        let page = Page::parse(TEXT).unwrap();
        let commands: Vec<_> = page.steps().map(Step::command).collect();
        assert_eq!(commands, ["one \\\n  more", "two"]);
        let same = ["NAME  READY\na-x2x4z  1/1\n".to_owned(), String::new()];
        assert_eq!(page.with(&same), TEXT);
        let other = page.with(&["x\n".to_owned(), "y\n".to_owned()]);
        assert!(other.contains("more\nx\n$ two\ny\n```\n"), "{other}");
    }

    #[test]
    fn generated_names_and_numbers_differ_and_counts_and_words_do_not() {
        let page = Page::parse(TEXT).unwrap();
        let with = |first: &str| page.compare(&[first.to_owned(), String::new()]);
        with("NAME      READY\na-bcdfg   1/1\n").unwrap();
        for wrong in [
            "NAME READY\na-x2x4z 0/1\n",
            "NAME READY\nb-x2x4z 1/1\n",
            "NAME READY\n",
        ] {
            assert!(
                with(wrong)
                    .unwrap_err()
                    .to_string()
                    .contains("the page says")
            );
        }
        assert_ne!(shape("0% packet loss"), shape("1% packet loss"));
        assert_ne!(shape("2"), shape("1"));
        assert_eq!(shape("02:ab:ee fd10::be"), shape("02:1b:e1 fd10::b7"));
        assert_eq!(
            shape("10.244.1.3/24,fd00:10:244:1::3/64"),
            shape("10.244.0.3/24,fd00:10:244::3/64")
        );
        assert_ne!(shape("10.244.0.3/24"), shape("fd00:10:244::3/64"));
        assert_eq!(
            shape("STATUS: deployed, age 3m20s"),
            "STATUS: deployed, age #"
        );
    }

    #[test]
    fn a_page_that_is_cut_off_or_has_no_command_is_refused() {
        for (text, why) in [
            ("no block", "no block of commands"),
            ("```console\n$ a\n", "no end"),
            ("```console\nb\n```\n", "line 2: output without a command"),
        ] {
            let error = Page::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
