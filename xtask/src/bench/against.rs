//! `cargo xtask bench --against REV`: another commit is built, and measured, too.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use super::{Kind, harness};
use crate::build;
use crate::step::{capture, execute, is_root, leave_signals_to_children, say, show, succeeds};
use crate::{Done, workspace};

const FLAG: &str = "--against";
/// Variables that another commit's build must not inherit.
const OWN_VARIABLES: [&str; 5] = [
    "CARGO_MANIFEST_DIR",
    "PODNET_AGENT",
    "PODNET_CNI",
    "PODNET_COMMIT",
    "PODNET_EBPF_OBJECT",
];

/// Takes `--against REV` out of the options; returns the revision and the rest.
///
/// # Errors
/// No revision follows, or there are two.
pub(super) fn take(rest: &[OsString]) -> Result<Option<(OsString, Vec<OsString>)>> {
    let mut found = None;
    let mut others = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let joined = word
            .to_str()
            .and_then(|word| word.strip_prefix("--against="));
        let revision = match joined {
            Some(revision) => Some(OsString::from(revision)),
            None if word == FLAG => words.next().cloned(),
            None => {
                others.push(word.clone());
                continue;
            }
        };
        let revision = revision.filter(|one| !one.is_empty());
        let Some(revision) = revision else {
            bail!("{FLAG} wants a revision: write {FLAG} HEAD~1, or a branch or hash");
        };
        if found.replace(revision).is_some() {
            bail!("{FLAG} is given twice: one revision is compared with this tree");
        }
    }
    Ok(found.map(|revision| (revision, others)))
}

/// Builds both, and starts the harness on them.
pub(super) fn run(revision: &OsStr, rest: &[OsString]) -> Done {
    if !is_root() {
        bail!("the bench makes network namespaces and loads eBPF programs: run it as root");
    }
    // Ctrl-C ends builds and harness, and this process removes the worktree.
    leave_signals_to_children()?;
    let hash = resolve(&workspace::root(), revision)?;
    let short = hash.get(..12).unwrap_or(&hash);
    let old = build_old(&hash, short)?;
    let new = build::named_or_built()?;
    let mut command = Command::new(harness(Kind::Figures)?);
    command
        .arg("against")
        .arg("--old")
        .arg(&old.binaries)
        .arg("--old-object")
        .arg(&old.object)
        .args(["--old-commit", short])
        .args(rest)
        .current_dir(workspace::root());
    new.describe_to(&mut command);
    super::name_commit(&mut command);
    super::peers::install_packages()?;
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", show(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Finds the commit of a revision.
///
/// # Errors
/// There is none.
fn resolve(root: &Path, revision: &OsStr) -> Result<String> {
    let mut wanted = revision.to_owned();
    wanted.push("^{commit}");
    let mut command = git(root);
    command.args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
    let hash = capture(command.arg(&wanted)).with_context(|| {
        format!(
            "{FLAG} {}: there is no such commit here: name a branch, a tag or a hash that `git log` knows",
            revision.display()
        )
    })?;
    Ok(hash.trim().to_owned())
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(root);
    command
}

/// Products of another commit.
struct Old {
    binaries: PathBuf,
    object: PathBuf,
}

/// Builds a commit by its own verbs, in a directory that is kept.
fn build_old(hash: &str, short: &str) -> Result<Old> {
    let place = workspace::target().join("against");
    sweep(&workspace::root(), &place)?;
    let target = place.join("target");
    fs::create_dir_all(&target).with_context(|| format!("making {}", target.display()))?;
    let tools = target.join("tools");
    if !tools.exists() {
        // One set of downloaded tools is enough.
        let _ = fs::create_dir_all(workspace::tools());
        symlink(workspace::tools(), &tools)
            .with_context(|| format!("linking {}", tools.display()))?;
    }
    let name = format!("{short}-{}", std::process::id());
    let tree = Worktree::add(&workspace::root(), place.join(name), hash)?;
    say(format!("building {short} in {}", tree.path.display()));
    execute(&mut build_command(&tree.path, &target))
        .with_context(|| format!("building {short}"))?;
    let old = Old {
        binaries: target.join("release"),
        object: target.join("podnet-ebpf.o"),
    };
    for file in [
        old.binaries.join("podnet-agent"),
        old.binaries.join("podnet"),
        old.object.clone(),
    ] {
        if !file.is_file() {
            bail!(
                "{short} builds no {}: it is from before that, and cannot be measured by this bench",
                file.display()
            );
        }
    }
    Ok(old)
}

/// The verb of the other tree that builds what it ships.
fn build_command(tree: &Path, target: &Path) -> Command {
    let mut command = workspace::cargo(["xtask", "build", "--release"]);
    command.current_dir(tree).env("CARGO_TARGET_DIR", target);
    for variable in OWN_VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// A worktree of git, which goes when it is dropped.
struct Worktree {
    root: PathBuf,
    path: PathBuf,
}

impl Worktree {
    fn add(root: &Path, path: PathBuf, hash: &str) -> Result<Self> {
        // From here on something may be there, also when git is ended in the middle.
        let tree = Self {
            root: root.to_owned(),
            path,
        };
        check_out(root, &tree.path, hash)?;
        Ok(tree)
    }
}

fn check_out(root: &Path, path: &Path, hash: &str) -> Result<()> {
    let mut command = git(root);
    command.args(["worktree", "add", "--quiet", "--force", "--detach"]);
    execute(command.arg(path).arg(hash)).context("a worktree for the other commit")
}

impl Drop for Worktree {
    fn drop(&mut self) {
        remove(&self.root, &self.path);
    }
}

/// Removes a worktree: its files, and what git knows of it.
fn remove(root: &Path, path: &Path) {
    let mut command = git(root);
    command.args(["worktree", "remove", "--force", "--force"]);
    let removed = succeeds(command.arg(path));
    if !removed && path.exists() && fs::remove_dir_all(path).is_err() {
        say(format!(
            "{} is left: remove it by `git worktree remove --force {0}`",
            path.display()
        ));
    }
}

/// Removes worktrees of runs that were killed.
fn sweep(root: &Path, place: &Path) -> Result<()> {
    let entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        // The first run of all.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", place.display())),
    };
    for entry in entries {
        let path = entry?.path();
        if owner(&path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(root, &path);
        }
    }
    Ok(())
}

/// Process that has made a worktree, from `HASH-PID`.
fn owner(path: &Path) -> Option<u32> {
    let (_, pid) = path.file_name()?.to_str()?.rsplit_once('-')?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_revision_is_taken_out_and_the_rest_is_the_harness_own() {
        for text in [
            "--case cni --against HEAD~1 --fail-above 10",
            "--case cni --against=HEAD~1 --fail-above 10",
        ] {
            let (revision, rest) = take(&words(text)).unwrap().unwrap();
            assert_eq!(revision, "HEAD~1");
            assert_eq!(rest, words("--case cni --fail-above 10"));
        }
        assert!(take(&words("--quick --case udp")).unwrap().is_none());
    }

    #[test]
    fn a_revision_that_is_missing_or_given_twice_is_refused() {
        for (text, hint) in [
            ("--against", "HEAD~1"),
            ("--against=", "HEAD~1"),
            ("--against a --against b", "twice"),
        ] {
            let error = take(&words(text)).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    /// A repository of one commit; returns its hash.
    fn repository(root: &Path) -> String {
        fs::write(root.join("file"), "content").unwrap();
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"];
        for arguments in [
            &["init", "--quiet"][..],
            &["add", "file"],
            &["commit", "--quiet", "--no-gpg-sign", "-m", "one"],
        ] {
            execute(git(root).args(identity).args(arguments)).unwrap();
        }
        resolve(root, OsStr::new("HEAD")).unwrap()
    }

    fn worktrees(root: &Path) -> usize {
        let text = capture(git(root).args(["worktree", "list", "--porcelain"])).unwrap();
        text.matches("worktree ").count()
    }

    #[test]
    fn a_worktree_has_the_commits_files_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let hash = repository(root);
        let path = root.join("place").join(format!("{}-1", &hash[..12]));
        let tree = Worktree::add(root, path.clone(), &hash).unwrap();
        assert!(path.join("file").is_file());
        fs::write(path.join("built"), "not in git").unwrap();
        assert_eq!(worktrees(root), 2);
        drop(tree);
        assert!(!path.exists());
        assert_eq!(worktrees(root), 1);
    }

    #[test]
    fn worktrees_of_killed_runs_are_removed_and_those_of_living_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let hash = repository(root);
        let place = root.join("place");
        // No process has the number of pid_max or above.
        let pids = [u32::MAX, std::process::id()];
        let [dead, living] = pids.map(|pid| {
            let path = place.join(format!("0123456789ab-{pid}"));
            check_out(root, &path, &hash).unwrap();
            path
        });
        fs::create_dir(place.join("target")).unwrap();
        sweep(root, &place).unwrap();
        assert!(!dead.exists() && living.exists() && place.join("target").exists());
        assert_eq!(worktrees(root), 2);
        sweep(root, &root.join("nowhere")).unwrap();
    }

    #[test]
    fn a_revision_that_is_no_commit_is_named() {
        let dir = tempfile::tempdir().unwrap();
        repository(dir.path());
        let error = resolve(dir.path(), OsStr::new("no-such-branch")).unwrap_err();
        assert!(error.to_string().contains("no-such-branch"), "{error}");
    }

    #[test]
    fn another_commit_is_built_in_its_tree_without_the_variables_of_this_one() {
        let command = build_command(Path::new("/tree"), Path::new("/target"));
        assert_eq!(command.get_current_dir(), Some(Path::new("/tree")));
        let of = |name: &str| {
            let mut all = command.get_envs();
            all.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        assert_eq!(of("CARGO_TARGET_DIR"), Some(Some(OsStr::new("/target"))));
        for variable in OWN_VARIABLES {
            assert_eq!(of(variable), Some(None), "{variable}");
        }
    }
}
