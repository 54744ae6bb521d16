//! Just enough of Rust's lexer to tell code from comments and literals.

/// The attribute of what only tests compile.
const TEST_ONLY: &str = "#[cfg(test)]";
/// The module that has the tests of a file.
const TESTS: &str = "mod tests";

/// Blanks comments, strings and character literals out; lines keep their numbers.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end > at {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        } else if is_word(chars[at]) {
            // A whole word at once, so that the `r` of `for` starts no raw string.
            while at < chars.len() && is_word(chars[at]) {
                out.push(chars[at]);
                at += 1;
            }
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// Lists the lines with an `unsafe` that opens a block, function, impl or trait.
///
/// `#[unsafe(no_mangle)]` is an attribute and holds no code.
pub(crate) fn unsafe_lines(code: &str) -> Vec<usize> {
    lines_where(code, "unsafe", |before, after| {
        !(before.ends_with('[') && after.starts_with('('))
    })
}

/// Removes modules `tests` that only tests compile, and leaves what follows.
pub(crate) fn without_tests(code: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(code.len()), code);
    while let Some(at) = rest.find(TEST_ONLY) {
        let behind = &rest[at + TEST_ONLY.len()..];
        let module = behind.trim_start().strip_prefix(TESTS);
        let item = module.and_then(|module| Some((module, item_end(module)?)));
        let end = match item {
            Some((module, end)) => {
                out.push_str(&rest[..at]);
                rest.len() - module.len() + end
            }
            None => {
                let end = at + TEST_ONLY.len();
                out.push_str(&rest[..end]);
                end
            }
        };
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Lists the lines of modules `tests` that are compiled without tests, too.
pub(crate) fn open_tests_lines(code: &str) -> Vec<usize> {
    lines_where(code, "mod", |before, after| {
        let name = after.strip_prefix("tests");
        let is_tests = name.is_some_and(|behind| item_end(behind).is_some());
        let mut before = before;
        for visibility in ["pub", "pub(crate)", "pub(super)"] {
            before = before.strip_suffix(visibility).unwrap_or(before).trim_end();
        }
        is_tests && !before.ends_with(TEST_ONLY)
    })
}

/// Lists the lines that bring a file in from a place that its module does not name.
pub(crate) fn moved_files_lines(code: &str) -> Vec<usize> {
    let by_path = lines_where(code, "path", |before, after| {
        before.ends_with("#[") && after.starts_with('=')
    });
    // What a build script has made is in no folder of the repository.
    let by_macro = lines_where(code, "include", |_, after| {
        let arguments = after.strip_prefix("!(");
        arguments.is_some_and(|arguments| !arguments.trim_start().starts_with("concat!(env!("))
    });
    [by_path, by_macro].concat()
}

/// Returns the end of a module of this name, in bytes; none for another name.
fn item_end(behind: &str) -> Option<usize> {
    let start = behind.len() - behind.trim_start().len();
    if behind[start..].starts_with(';') {
        return Some(start + 1);
    }
    if !behind[start..].starts_with('{') {
        return None;
    }
    let mut depth = 0_usize;
    for (at, c) in behind.char_indices().skip(start) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at + 1),
            '}' => depth -= 1,
            _ => {}
        }
    }
    Some(behind.len())
}

/// The numbers of the lines that call the macro `name!`.
pub(crate) fn macro_lines(code: &str, name: &str) -> Vec<usize> {
    lines_where(code, name, |_, after| {
        after.starts_with('!') && !after.starts_with("!=")
    })
}

fn lines_where(code: &str, word: &str, holds: impl Fn(&str, &str) -> bool) -> Vec<usize> {
    let mut lines = Vec::new();
    for (at, _) in code.match_indices(word) {
        let before = &code[..at];
        let after = &code[at + word.len()..];
        let whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        if whole && !before.ends_with("r#") && holds(before.trim_end(), after.trim_start()) {
            lines.push(before.matches('\n').count() + 1);
        }
    }
    lines
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The end of the comment or literal that starts at `at`, or `at` if none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = |n: usize| chars.get(at + n).copied().unwrap_or('\0');
    match chars[at] {
        '/' if next(1) == '/' => line_end(chars, at),
        '/' if next(1) == '*' => comment_end(chars, at),
        '"' => string_end(chars, at + 1),
        '\'' if next(1) == '\\' => quote_end(chars, at + 3),
        '\'' if next(2) == '\'' => at + 3,
        // Prefixes: b"", c"", r"", r#""#, br#""#, cr#""#, b''.
        'b' if next(1) == '\'' => literal_end(chars, at + 1),
        'b' | 'c' if next(1) == '"' => string_end(chars, at + 2),
        'b' | 'c' if next(1) == 'r' => raw_end(chars, at + 1).unwrap_or(at),
        'r' => raw_end(chars, at).unwrap_or(at),
        _ => at,
    }
}

fn line_end(chars: &[char], at: usize) -> usize {
    (at..chars.len())
        .find(|&i| chars[i] == '\n')
        .unwrap_or(chars.len())
}

/// Block comments nest.
fn comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => {
                depth += 1;
                i += 2;
            }
            ('*', '/') => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut i: usize) -> usize {
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn quote_end(chars: &[char], from: usize) -> usize {
    (from..chars.len())
        .find(|&i| chars[i] == '\'')
        .map_or(chars.len(), |i| i + 1)
}

/// The end of `r"…"` or `r##"…"##` whose `r` is at `at`; nothing for `r#name`.
fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| {
        let rest = &chars[i + 1..];
        chars[*i] == '"' && rest.len() >= hashes && rest[..hashes].iter().all(|&c| c == '#')
    };
    Some(
        (open + 1..chars.len())
            .find(closes)
            .map_or(chars.len(), |i| i + 1 + hashes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsafe_in(text: &str) -> Vec<usize> {
        unsafe_lines(&code_only(text))
    }

    #[test]
    fn unsafe_code_is_found_on_its_line() {
        assert_eq!(
            unsafe_in("\nunsafe impl Pod for X {}\n\nunsafe fn f() {}\n"),
            [2, 4]
        );
        assert_eq!(unsafe_in("let x = unsafe\n{ y };"), [1]);
    }

    #[test]
    fn comments_and_literals_hold_no_unsafe() {
        for text in [
            "// unsafe {}",
            "/* a /* unsafe */ unsafe */",
            "let s = \"unsafe \\\" unsafe\";",
            "let s = r#\"unsafe \" unsafe\"#;",
            "let s = br\"unsafe\";",
            "let s = c\"unsafe\";",
            "//! docs about unsafe\n",
        ] {
            assert_eq!(unsafe_in(text), [0; 0], "{text}");
        }
    }

    #[test]
    fn code_after_a_literal_is_still_seen() {
        for text in [
            "let c = '\"'; unsafe {}",
            "let c = '\\''; unsafe {}",
            "let c = b'\"'; unsafe {}",
            "let c = '\\u{1f}'; unsafe {}",
            "fn f<'a>(x: &'a str) { unsafe {} }",
            "let s = r\"\\\"; unsafe {}",
            "let s = \"\\\\\"; unsafe {}",
            "let r#type = for_ ; unsafe {}",
            "/* x */ unsafe {}",
        ] {
            assert_eq!(unsafe_in(text), [1], "{text}");
        }
    }

    #[test]
    fn words_that_contain_unsafe_and_attributes_are_not_meant() {
        assert_eq!(
            unsafe_in("#![expect(unsafe_code)]\n#[unsafe(no_mangle)]\n"),
            [0; 0]
        );
        assert_eq!(
            unsafe_in("#[unsafe(no_mangle)] fn f() { unsafe { g() } }"),
            [1]
        );
    }

    #[test]
    fn macros_are_found_by_whole_name() {
        let code = code_only("fn f() {\n    todo!(\"x\")\n}\nmy_todo!();\nif todo != 1 {}\n");
        assert_eq!(macro_lines(&code, "todo"), [2]);
    }

    #[test]
    fn code_behind_tests_is_not_taken_for_tests() {
        for tests in ["mod tests;", "mod tests {\n    fn f() { if x {} }\n}"] {
            let text = format!("fn a() {{}}\n#[cfg(test)]\n{tests}\nfn b() {{}}\n");
            let code = without_tests(&code_only(&text));
            assert_eq!(code, "fn a() {}\n\nfn b() {}\n");
        }
        let others = "#[cfg(test)]\nmod tests_of_more;\n#[cfg(test)]\nfn f() {}\n";
        assert_eq!(without_tests(others), others);
    }

    #[test]
    fn tests_that_are_compiled_without_tests_are_found() {
        let text = "#[cfg(test)]\nmod tests;\nmod x { pub mod tests; }\nmod tests {}\nmod tests_of;\n\
                    #[cfg(test)]\npub(crate) mod tests {}\n";
        assert_eq!(open_tests_lines(text), [3, 4]);
    }

    #[test]
    fn files_from_elsewhere_are_found() {
        let text = "#[path = \"a.rs\"]\nmod a;\ninclude!(\"b.rs\");\nlet path = include_str!(\"c\");\n\
                    include!(concat!(env!(\"OUT_DIR\"), \"/d.rs\"));\n";
        assert_eq!(moved_files_lines(&code_only(text)), [1, 3]);
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_text() {
        for text in ["\"unsafe", "/* unsafe", "r#\"unsafe", "'\\", "b'", "r#"] {
            assert_eq!(unsafe_in(text), [0; 0], "{text}");
        }
    }
}
