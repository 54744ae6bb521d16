//! Commands of the documentation, so that tests run what people read.

use std::fs;
use std::path::{Path, PathBuf};

/// Root of the repository, where the commands are meant to be run.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the block of a page that stands below `<!-- commands: NAME -->`.
///
/// # Panics
/// If the page has no such block.
pub fn commands(page: &str, name: &str) -> String {
    let path = root().join(page);
    let text = fs::read_to_string(&path).expect("a page of the repository");
    let mark = format!("<!-- commands: {name} -->\n\n```sh\n");
    let (_, rest) = text
        .split_once(&mark)
        .unwrap_or_else(|| unreachable!("{page} has no block {name}"));
    let (block, _) = rest.split_once("\n```").expect("the block has an end");
    block.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_by_its_name_and_ends_where_it_ends() {
        let block = commands("docs/operations.md", "install");
        assert!(
            block.starts_with("kubectl create -f deploy/crds/"),
            "{block}"
        );
        assert!(
            block.ends_with("rollout status daemonset/podnet-agent"),
            "{block}"
        );
    }
}
