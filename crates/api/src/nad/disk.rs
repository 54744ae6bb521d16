//! Configurations on disk, by the name of their network (NPWG §3.4.1).

use super::{
    chain::{PluginChain, WithoutPlugins, network_name},
    problem::DefinitionProblem,
};
use crate::json::RawObject;

/// Result of the search among the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// The first match: lists come before single plugins, else files come by name.
    pub found: Option<(String, PluginChain)>,
    /// Files that say nothing, in order; they do not stop the search.
    pub broken: Vec<BrokenFile>,
}

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct BrokenFile {
    /// Name of the file.
    pub file: String,
    /// The problem.
    pub problem: DefinitionProblem,
}

/// Content of a file, by its ending.
///
/// NPWG's own words for the endings are read as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    List,
    Plugin,
}

impl Content {
    fn of(file: &str) -> Option<Self> {
        let (_, ending) = file.rsplit_once('.')?;
        match ending {
            "conflist" | "configlist" => Some(Self::List),
            "conf" | "config" | "json" => Some(Self::Plugin),
            _ => None,
        }
    }
}

/// Finds the configuration named `network` in `files`, pairs of name and content.
///
/// Files with other endings than those of configurations are passed over.
///
/// # Errors
/// The file that has the name cannot be used; another of the same name is not taken instead.
pub fn find_on_disk<'a>(
    network: &str,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<OnDisk, BrokenFile> {
    let mut files: Vec<(&str, &str)> = files.into_iter().collect();
    files.sort_unstable();
    let mut found = OnDisk::default();
    for wanted in [Content::List, Content::Plugin] {
        for (file, text) in &files {
            if Content::of(file) != Some(wanted) {
                continue;
            }
            let broken = |problem| BrokenFile {
                file: (*file).to_owned(),
                problem,
            };
            let config = match named(text) {
                Ok((Some(name), config)) if name == network => config,
                Ok(_) => continue,
                Err(problem) => {
                    found.broken.push(broken(problem));
                    continue;
                }
            };
            let without = if wanted == Content::List {
                WithoutPlugins::Taken
            } else {
                WithoutPlugins::Refused
            };
            let chain = PluginChain::from_config(config, network, without).map_err(broken)?;
            fits(&chain, wanted).map_err(broken)?;
            found.found = Some(((*file).to_owned(), chain));
            return Ok(found);
        }
    }
    Ok(found)
}

fn named(text: &str) -> Result<(Option<String>, RawObject), DefinitionProblem> {
    let config: RawObject =
        serde_json::from_str(text).map_err(|error| DefinitionProblem::NotJson {
            place: "the file",
            reason: error.to_string(),
        })?;
    Ok((network_name(&config)?, config))
}

fn fits(chain: &PluginChain, content: Content) -> Result<(), DefinitionProblem> {
    match (content, chain.is_list) {
        (Content::List, true) | (Content::Plugin, false) => Ok(()),
        (Content::List, false) => Err(DefinitionProblem::WrongEnding {
            expected: "a list of plugins",
            ending: ".conf",
        }),
        (Content::Plugin, true) => Err(DefinitionProblem::WrongEnding {
            expected: "one plugin",
            ending: ".conflist",
        }),
    }
}
