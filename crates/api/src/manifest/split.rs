//! Where one YAML document ends and the next begins.

/// One document of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk<'a> {
    /// The document, its `---` included, the `...` that ends it not.
    pub(super) text: &'a str,
    /// Line of the text it begins at, from 1.
    pub(super) first_line: u64,
}

/// Cuts before every line that begins with the marker `---`, and at `...`.
///
/// Such a line cannot be the inside of a scalar (YAML 1.2.2 §9.1.2, `c-forbidden`), so cutting by
/// lines is exact, and it is what keeps a syntax error from swallowing the documents after it.
pub(super) fn documents(text: &str) -> impl Iterator<Item = Chunk<'_>> {
    // A byte order mark may begin any stream (YAML 1.2.2 §5.2).
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut first_line = 1;
    let mut offset = 0;
    for (line, line_number) in text.split_inclusive('\n').zip(1_u64..) {
        if is_marker(line, "---") {
            chunks.push(Chunk {
                text: &text[start..offset],
                first_line,
            });
            (start, first_line) = (offset, line_number);
        } else if is_marker(line, "...") {
            chunks.push(Chunk {
                text: &text[start..offset],
                first_line,
            });
            (start, first_line) = (offset + line.len(), line_number + 1);
        }
        offset += line.len();
    }
    chunks.push(Chunk {
        text: &text[start..],
        first_line,
    });
    chunks.into_iter().filter(Chunk::has_content)
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

impl Chunk<'_> {
    /// False for nothing but blank lines, comments, directives and the marker.
    fn has_content(&self) -> bool {
        self.text.lines().any(|line| {
            let line = line.strip_prefix("---").unwrap_or(line).trim();
            !line.is_empty() && !line.starts_with(['#', '%'])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(u64, &str)> {
        documents(text)
            .map(|chunk| (chunk.first_line, chunk.text))
            .collect()
    }

    #[test]
    fn documents_are_cut_at_markers_and_keep_their_line() {
        assert_eq!(
            texts("a: 1\n---\nb: 2\n...\nc: 3\n--- {d: 4}\n"),
            [
                (1, "a: 1\n"),
                (2, "---\nb: 2\n"),
                (5, "c: 3\n"),
                (6, "--- {d: 4}\n")
            ]
        );
    }

    #[test]
    fn documents_without_content_are_skipped() {
        assert_eq!(texts(""), []);
        assert_eq!(
            texts("---\n# only a comment\n---\n\n%YAML 1.2\n---\na: 1"),
            [(6, "---\na: 1")]
        );
    }

    #[test]
    fn a_marker_needs_to_be_alone_or_followed_by_a_space() {
        assert_eq!(texts("a: |\n  ---\n  b\n---x: 1\n").len(), 1);
        assert_eq!(texts("a: 1\r\n---\r\nb: 2\r\n").len(), 2);
    }

    #[test]
    fn a_byte_order_mark_is_not_content() {
        assert_eq!(texts("\u{feff}---\na: 1\n"), [(1, "---\na: 1\n")]);
        assert_eq!(texts("\u{feff}"), []);
    }
}
