//! Just enough of Rust's lexer to tell code from comments and literals.

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
    fn an_unfinished_literal_ends_with_the_text() {
        for text in ["\"unsafe", "/* unsafe", "r#\"unsafe", "'\\", "b'", "r#"] {
            assert_eq!(unsafe_in(text), [0; 0], "{text}");
        }
    }
}
