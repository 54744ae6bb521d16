//! Grace periods of RCU, which the kernel ends sooner when it is asked to.
//!
//! An interface with a TCX link is removed with a wait for one, ten milliseconds and more, with the lock of all
//! links held, and many interfaces one after the other. Waits of that kind that the kernel knows to be under
//! that lock are short (`synchronize_net`); this one is not (`tcx_entry_sync`, Linux 6.6 to 6.18).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Has the kernel end all grace periods soon.
///
/// `rcupdate.rcu_expedited`, Documentation/admin-guide/kernel-parameters.txt.
const KNOB: &str = "/sys/kernel/rcu_expedited";

/// The switch for grace periods that end soon.
///
/// It is the whole machine's. A file says that this agent has switched it, for the next one to find.
#[derive(Debug)]
pub struct Grace {
    knob: PathBuf,
    mark: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of callers that want it on.
    holders: usize,
    /// It was off before them.
    is_ours: bool,
    /// The kernel has refused, and it has been said.
    is_refused: bool,
}

/// Has grace periods end soon while it lives.
#[derive(Debug)]
pub struct Expedited<'a> {
    grace: &'a Grace,
}

impl Drop for Expedited<'_> {
    fn drop(&mut self) {
        self.grace.let_go();
    }
}

impl Grace {
    /// The switch of this machine, for the agent with this socket.
    pub fn of(socket: &Path) -> Self {
        Self::at(KNOB.into(), socket.with_file_name("rcu-expedited"))
    }

    fn at(knob: PathBuf, mark: PathBuf) -> Self {
        Self {
            knob,
            mark,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has grace periods end soon, for some milliseconds.
    ///
    /// Where that cannot be done they take their time; nothing else is different then.
    pub fn expedite(&self) -> Expedited<'_> {
        let mut state = self.state();
        state.holders += 1;
        if state.holders == 1 {
            match self.switch_on() {
                Ok(is_ours) => state.is_ours = is_ours,
                Err(error) if !state.is_refused => {
                    state.is_refused = true;
                    tracing::info!(knob = %self.knob.display(), %error, "grace periods of the kernel cannot be ended sooner: the removal of a port with a TCX link takes some 13 ms longer; run the agent privileged, with /sys writable");
                }
                Err(_) => {}
            }
        }
        drop(state);
        Expedited { grace: self }
    }

    /// Switches it on; false when somebody else has.
    fn switch_on(&self) -> io::Result<bool> {
        if fs::read_to_string(&self.knob)?.trim() != "0" {
            return Ok(false);
        }
        fs::write(&self.mark, "")?;
        fs::write(&self.knob, "1").inspect_err(|_| {
            // Nothing was switched.
            let _ = fs::remove_file(&self.mark);
        })?;
        Ok(true)
    }

    fn let_go(&self) {
        let mut state = self.state();
        state.holders -= 1;
        if state.holders > 0 || !state.is_ours {
            return;
        }
        state.is_ours = false;
        if let Err(error) = self.switch_off() {
            tracing::error!(knob = %self.knob.display(), %error, "grace periods of the kernel stay short, which costs the node interrupts: write 0 there, or restart the agent");
        }
    }

    fn switch_off(&self) -> io::Result<()> {
        fs::write(&self.knob, "0")?;
        fs::remove_file(&self.mark)
    }

    /// Switches off what a killed agent has left on; false when nothing is.
    ///
    /// # Errors
    /// When it cannot be switched.
    pub fn recover(&self) -> io::Result<bool> {
        let is_left = self.mark.try_exists()?;
        if is_left {
            self.switch_off()?;
        }
        Ok(is_left)
    }

    /// Does the same for `cleanup`; tells what it did or, in a dry run, would do.
    ///
    /// # Errors
    /// As there.
    pub fn clean(&self, dry_run: bool) -> io::Result<Option<String>> {
        let is_left = match dry_run {
            true => self.mark.try_exists()?,
            false => self.recover()?,
        };
        Ok(is_left.then(|| format!("the 1 in {}", self.knob.display())))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn scene(knob: &str) -> (TempDir, Grace) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("knob");
        fs::write(&path, knob).unwrap();
        let mark = directory.path().join("mark");
        (directory, Grace::at(path, mark))
    }

    fn knob(grace: &Grace) -> String {
        fs::read_to_string(&grace.knob).unwrap()
    }

    #[test]
    fn it_is_on_from_the_first_that_asks_to_the_last_that_lets_go() {
        let (_directory, grace) = scene("0\n");
        let first = grace.expedite();
        let second = grace.expedite();
        assert_eq!((knob(&grace).as_str(), grace.mark.exists()), ("1", true));
        drop(first);
        assert_eq!(knob(&grace), "1");
        drop(second);
        assert_eq!((knob(&grace).as_str(), grace.mark.exists()), ("0", false));
        assert!(!grace.recover().unwrap());
    }

    #[test]
    fn what_somebody_else_has_switched_on_stays_on() {
        let (_directory, grace) = scene("1\n");
        drop(grace.expedite());
        assert_eq!((knob(&grace).as_str(), grace.mark.exists()), ("1\n", false));
    }

    #[test]
    fn the_next_agent_switches_off_what_one_that_was_killed_has_left_on() {
        let (_directory, grace) = scene("0\n");
        let killed = grace.expedite();
        let next = Grace::at(grace.knob.clone(), grace.mark.clone());
        assert!(next.clean(true).unwrap().is_some());
        assert_eq!((knob(&grace).as_str(), grace.mark.exists()), ("1", true));
        assert!(next.recover().unwrap());
        assert_eq!((knob(&grace).as_str(), grace.mark.exists()), ("0", false));
        assert!(!next.recover().unwrap() && next.clean(false).unwrap().is_none());
        drop(killed);
    }

    #[test]
    fn a_kernel_without_it_and_a_mark_that_cannot_be_made_change_nothing() {
        let (_directory, grace) = scene("0\n");
        let none = Grace::at("/none/knob".into(), grace.mark.clone());
        drop(none.expedite());
        assert!(!grace.mark.exists());
        let unmarked = Grace::at(grace.knob.clone(), "/none/mark".into());
        let held = unmarked.expedite();
        assert_eq!(knob(&grace), "0\n", "a kill would leave it on for ever");
        drop(held);
        assert_eq!(knob(&grace), "0\n");
    }
}
