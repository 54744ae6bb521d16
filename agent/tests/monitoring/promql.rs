//! As much of PromQL as it takes to see which metrics an expression uses, and how.

/// One metric of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    /// Name as written: that of a histogram ends in `_bucket`, `_sum` or `_count`.
    pub(super) metric: String,
    /// The innermost function around it.
    pub(super) function: Option<String>,
    /// Labels and what is asked of them, with the comparison left out.
    pub(super) matchers: Vec<(String, String)>,
}

/// Metrics and labels that an expression asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) uses: Vec<Use>,
    /// Labels of `by`, `on` and the like.
    pub(super) grouping: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

/// Words of the language that are no metric.
const WORDS: [&str; 8] = [
    "and", "or", "unless", "bool", "offset", "inf", "nan", "atan2",
];
/// Words before a list of labels.
const GROUPING: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

/// Reads an expression.
pub(super) fn read(expression: &str) -> Question {
    let tokens = tokens(expression);
    let mut question = Question::default();
    // What each open parenthesis belongs to.
    let mut calls: Vec<Option<String>> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1);
        match token {
            Token::Word(word) if GROUPING.contains(&word.as_str()) => {
                let labels = tokens[at + 1..].iter();
                let labels = labels.take_while(|token| **token != Token::Sign(')'));
                question
                    .grouping
                    .extend(labels.clone().filter_map(|token| match token {
                        Token::Word(label) => Some(label.clone()),
                        _ => None,
                    }));
                at += labels.count() + 1;
            }
            Token::Word(word) if next == Some(&Token::Sign('(')) => {
                calls.push(Some(word.clone()));
                at += 1;
            }
            Token::Word(word) if WORDS.contains(&word.to_lowercase().as_str()) => {}
            // `sum by (x) (…)`
            Token::Word(word) if matches!(next, Some(Token::Word(next)) if GROUPING.contains(&next.as_str())) =>
            {
                let list_end = tokens[at..].iter().position(|one| *one == Token::Sign(')'));
                let open = at + list_end.unwrap_or_default() + 1;
                assert_eq!(tokens.get(open), Some(&Token::Sign('(')), "{expression}");
                let before = read_labels(&tokens[at + 2..open]);
                question.grouping.extend(before);
                calls.push(Some(word.clone()));
                at = open;
            }
            Token::Word(word) => {
                let mut one = Use {
                    metric: word.clone(),
                    function: calls.iter().rev().find_map(Clone::clone),
                    matchers: Vec::new(),
                };
                if next == Some(&Token::Sign('{')) {
                    at += 2;
                    while tokens.get(at) != Some(&Token::Sign('}')) {
                        if let (Some(Token::Word(label)), Some(Token::Text(value))) = (
                            tokens.get(at),
                            tokens[at..]
                                .iter()
                                .find(|one| matches!(one, Token::Text(_))),
                        ) {
                            one.matchers.push((label.clone(), value.clone()));
                        }
                        at += 1;
                        assert!(at < tokens.len(), "no end of matchers: {expression}");
                    }
                }
                question.uses.push(one);
            }
            Token::Sign('(') => calls.push(None),
            Token::Sign(')') => {
                assert!(calls.pop().is_some(), "parentheses: {expression}");
            }
            Token::Sign('[') => {
                let end = tokens[at..].iter().position(|one| *one == Token::Sign(']'));
                at += end.unwrap_or_else(|| unreachable!("no end of a range: {expression}"));
            }
            Token::Text(_) | Token::Sign(_) => {}
        }
        at += 1;
    }
    assert!(calls.is_empty(), "parentheses: {expression}");
    question
}

fn read_labels(tokens: &[Token]) -> Vec<String> {
    let words = tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.clone()),
        _ => None,
    });
    words.collect()
}

fn tokens(expression: &str) -> Vec<Token> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let (token, length) = if first == '"' {
            let end = rest[1..].find('"').map(|end| end + 2);
            let end = end.unwrap_or_else(|| unreachable!("no end of a string: {expression}"));
            (Some(Token::Text(rest[1..end - 1].to_owned())), end)
        } else if is_word(first) || first == '$' {
            let end = rest[1..]
                .find(|c| !is_word(c))
                .map_or(rest.len(), |end| end + 1);
            // Numbers, durations and what Grafana puts in name no metric.
            let is_name = first.is_ascii_alphabetic() || first == '_';
            (is_name.then(|| Token::Word(rest[..end].to_owned())), end)
        } else {
            let sign = (!first.is_whitespace()).then_some(Token::Sign(first));
            (sign, first.len_utf8())
        };
        tokens.extend(token);
        rest = &rest[length..];
    }
    tokens
}

#[test]
fn metrics_matchers_functions_and_groups_are_found() {
    let text = r#"histogram_quantile(0.9, sum by (le, x) (rate(a_bucket{c="ADD", d!~"e|f"}[5m]))) > 2
        or vector(0) unless on (node) max(b) - time()"#;
    let question = read(text);
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    };
    let a = Use {
        metric: "a_bucket".to_owned(),
        function: Some("rate".to_owned()),
        matchers: owned(&[("c", "ADD"), ("d", "e|f")]),
    };
    let b = Use {
        metric: "b".to_owned(),
        function: Some("max".to_owned()),
        matchers: Vec::new(),
    };
    assert_eq!(question.uses, [a, b]);
    assert_eq!(question.grouping, ["le", "x", "node"]);
}
