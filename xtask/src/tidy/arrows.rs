//! Read which modules of a crate use which others.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens;

/// One file of a crate.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its path in the repository.
    pub(crate) file: String,
    /// Its path in the crate; empty for the root.
    pub(crate) path: Vec<String>,
    /// Paths of its own crate that its code names: whole paths, items included.
    pub(crate) uses: BTreeSet<Vec<String>>,
}

impl Module {
    /// The name of the module below the root that the file belongs to.
    pub(crate) fn room(&self) -> Option<&str> {
        self.path.first().map(String::as_str)
    }

    /// True for a file that takes an item from a module.
    pub(crate) fn names(&self, item: &str, of: &str) -> bool {
        self.uses.contains(&vec![of.to_owned(), item.to_owned()])
    }
}

/// The modules of a crate below `root`, tests left out.
pub(crate) fn modules(files: &[(String, String)], root: &str) -> Vec<Module> {
    let is_test = |name: &str| name.ends_with("/tests.rs") || name.contains("/tests/");
    files
        .iter()
        .filter_map(|(name, text)| {
            let inner = name.strip_prefix(root)?.strip_suffix(".rs")?;
            if is_test(name) {
                return None;
            }
            let path: Vec<String> = match inner {
                "lib" | "main" => Vec::new(),
                inner => inner.split('/').map(str::to_owned).collect(),
            };
            let code = tokens::without_tests(&tokens::code_only(text));
            let mut uses = paths(&code, &path);
            uses.extend(bare_paths(&code, &path));
            let file = name.clone();
            Some(Module { file, path, uses })
        })
        .collect()
}

/// All paths that begin in the crate, from its root.
fn paths(code: &str, of: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for start in ["crate", "super", "self"] {
        for (at, _) in code.match_indices(start) {
            let (before, after) = (&code[..at], &code[at + start.len()..]);
            let is_renamed = after.trim_start().starts_with("as ");
            // `pub(in crate::a)` says where an item is seen, and takes nothing from there.
            let is_visibility = before.ends_with("(in ");
            if before.ends_with(goes_on)
                || is_visibility
                || !(after.starts_with("::") || is_renamed)
            {
                continue;
            }
            let base = match start {
                "crate" => Vec::new(),
                "super" => of
                    .split_last()
                    .map_or_else(Vec::new, |(_, rest)| rest.to_vec()),
                _ => of.to_vec(),
            };
            if is_renamed {
                found.insert(base);
            } else {
                tree(&mut after.trim_start_matches("::"), base, &mut found);
            }
        }
    }
    found
}

/// Returns all paths that begin with a child of the module `of`.
///
/// They are from the crate's root.
///
/// After `mod child;` both `use child::X;` and `child::f()` take an item from another file.
fn bare_paths(code: &str, of: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let children = children(code);
    let of_child = |path: &Vec<String>| path.first().is_some_and(|it| children.contains(it));
    let mut rest = code;
    loop {
        let (before, statement) = match import(rest) {
            Some((at, behind)) => (&rest[..at], Some(behind)),
            None => (rest, None),
        };
        for child in &children {
            for (at, _) in before.match_indices(child.as_str()) {
                let mut path = &before[at..];
                let behind = path[child.len()..].strip_prefix("::");
                // A method of that name may have its types named.
                let is_path = behind.is_some_and(|behind| !behind.starts_with('<'));
                if is_path && !before[..at].ends_with(goes_on) {
                    tree(&mut path, of.to_vec(), &mut found);
                }
            }
        }
        // A whole statement at once: a name inside a tree is an item of what stands before the brace.
        let Some(statement) = statement else {
            return found;
        };
        let mut imported = BTreeSet::new();
        if !statement.starts_with("::") {
            let mut names = statement;
            tree(&mut names, Vec::new(), &mut imported);
        }
        let of_children = imported.into_iter().filter(of_child);
        found.extend(of_children.map(|path| [of, &path].concat()));
        let end = statement.find(';').unwrap_or(statement.len());
        rest = &statement[end..];
    }
}

/// Finds the first `use` statement.
///
/// Returns where it starts, and the text behind the keyword.
fn import(code: &str) -> Option<(usize, &str)> {
    let word = "use ";
    let mut starts = code.match_indices(word).map(|(at, _)| at);
    let at = starts.find(|at| !code[..*at].ends_with(goes_on))?;
    Some((at, code[at + word.len()..].trim_start()))
}

/// Lists the modules that have files of their own below this one.
fn children(code: &str) -> BTreeSet<String> {
    let declared = code.match_indices("mod ");
    let declared = declared.filter(|(at, _)| !code[..*at].ends_with(goes_on));
    let names = declared.filter_map(|(at, word)| code[at + word.len()..].split_once(';'));
    let names = names.map(|(name, _)| name.trim());
    let is_name = |name: &&str| !name.contains(|c: char| !goes_on(c) || c == ':');
    names.filter(is_name).map(str::to_owned).collect()
}

/// True for a character that makes a word or path longer.
fn goes_on(c: char) -> bool {
    c == '_' || c == ':' || c.is_alphanumeric()
}

/// Reads a path, or a tree of them in braces, behind `base`.
fn tree(rest: &mut &str, mut base: Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    loop {
        *rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            *rest = inner;
            loop {
                *rest = rest.trim_start_matches([' ', '\n', ',']);
                if rest.is_empty() || rest.starts_with('}') {
                    *rest = rest.get(1..).unwrap_or_default();
                    return;
                }
                let before = rest.len();
                tree(rest, base.clone(), found);
                // `as NAME`, and whatever else is no path.
                if !rest.starts_with([',', '}']) {
                    let end = rest.find([',', '}']).unwrap_or(rest.len());
                    *rest = &rest[end..];
                }
                if rest.len() == before {
                    return;
                }
            }
        }
        let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
        let (segment, behind) = rest.split_at(end.unwrap_or(rest.len()));
        *rest = behind;
        match segment {
            "super" => {
                base.pop();
            }
            "" | "self" => {}
            segment => base.push(segment.to_owned()),
        }
        match rest.strip_prefix("::") {
            Some(behind) => *rest = behind,
            None => break,
        }
    }
    found.insert(base);
}

/// Sets of files that use each other in a circle, largest first.
pub(crate) fn circles(modules: &[Module]) -> Vec<Vec<String>> {
    let index: BTreeMap<&[String], usize> = modules
        .iter()
        .enumerate()
        .filter(|(_, module)| !module.path.is_empty())
        .map(|(at, module)| (module.path.as_slice(), at))
        .collect();
    let targets: Vec<BTreeSet<usize>> = modules
        .iter()
        .enumerate()
        .map(|(at, module)| {
            let of = |path: &Vec<String>| {
                let known = (1..=path.len()).rev();
                let mut known = known.filter_map(|length| index.get(&path[..length]));
                known.next().copied()
            };
            let mut targets: BTreeSet<usize> = module.uses.iter().filter_map(of).collect();
            targets.remove(&at);
            targets
        })
        .collect();
    let reached: Vec<BTreeSet<usize>> = (0..modules.len())
        .map(|from| reachable(from, &targets))
        .collect();
    let mut found: BTreeSet<Vec<usize>> = BTreeSet::new();
    for at in 0..modules.len() {
        let circle: Vec<usize> = reached[at]
            .iter()
            .copied()
            .filter(|other| reached[*other].contains(&at))
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    let mut found: Vec<Vec<String>> = found
        .into_iter()
        .map(|circle| circle.iter().map(|at| modules[*at].file.clone()).collect())
        .collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

fn reachable(from: usize, targets: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for next in &targets[at] {
            if seen.insert(*next) {
                open.push(*next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Vec<Module> {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        modules(&files, "src/")
    }

    #[test]
    fn trees_of_paths_are_read_from_the_root() {
        let text = "use crate::a::{self, b::C, d::{E as F, G}};\nuse super::h;\n\
                    fn f() -> self::i::J<crate::k::L> {}\n";
        let modules = read(&[("src/x/y.rs", text)]);
        let paths: Vec<String> = modules[0].uses.iter().map(|path| path.join("::")).collect();
        let expected = [
            "a",
            "a::b::C",
            "a::d::E",
            "a::d::G",
            "k::L",
            "x::h",
            "x::y::i::J",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn another_name_for_a_module_and_code_behind_tests_are_read() {
        let text = "use crate as root;\nuse super::super as up;\n#[cfg(test)]\nmod tests;\nuse crate::a;\n";
        let modules = read(&[("src/x/y.rs", text)]);
        let expected = [vec![], vec!["a".to_owned()]];
        assert_eq!(modules[0].uses, BTreeSet::from(expected));
    }

    #[test]
    fn children_are_read_without_a_word_before_them() {
        let text = "mod a;\npub(super) mod b;\nmod inner { fn f() {} }\n#[cfg(test)]\nmod tests;\n\
                    use b::{C, d::E};\nuse {a::F as G, std::fs};\n\
                    fn f() { a::g(b.a::<u8>()); b::H.i() }\n";
        let modules = read(&[("src/x/y.rs", text)]);
        let paths: Vec<String> = modules[0].uses.iter().map(|path| path.join("::")).collect();
        let expected = [
            "x::y::a::F",
            "x::y::a::g",
            "x::y::b::C",
            "x::y::b::H",
            "x::y::b::d::E",
        ];
        assert_eq!(paths, expected);
    }

    /// Another crate, or an item of one, may have the name of a child.
    #[test]
    fn names_that_are_no_children_draw_no_arrow() {
        let text = "mod a;\nuse ::a::B;\nuse c::{a::D, self};\npub(in crate::x) struct E;\n\
                    fn f(b: ::a::F) { c::a::g(); data::h(); }\n";
        let modules = read(&[("src/x/y.rs", text)]);
        assert_eq!(modules[0].uses, BTreeSet::new());
    }

    #[test]
    fn a_parent_and_a_child_that_use_each_other_are_a_circle() {
        let modules = read(&[
            ("src/a.rs", "mod b;\nfn f() { b::g() }"),
            ("src/a/b.rs", "use super::X;"),
        ]);
        assert_eq!(circles(&modules), [["src/a.rs", "src/a/b.rs"]]);
    }

    #[test]
    fn files_in_a_circle_are_found() {
        let modules = read(&[
            ("src/a.rs", "use crate::b::X;"),
            ("src/b.rs", "use crate::c::inner::Y;"),
            ("src/c.rs", "use crate::a;"),
            ("src/d.rs", "use crate::a;"),
        ]);
        assert_eq!(circles(&modules), [["src/a.rs", "src/b.rs", "src/c.rs"]]);
    }
}
