//! Hold threads of the agent at named points, as a test wants them to meet.

use std::fs;
use std::path::{Path, PathBuf};

use crate::wait;

/// A directory in which the agent finds where to wait, and says where it has been.
#[derive(Debug)]
pub struct Schedule(PathBuf);

impl Schedule {
    /// The directory that an agent was given as `PODNET_PAUSE_IN`.
    pub fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The next thread that comes to this point waits there.
    ///
    /// # Panics
    /// If the directory cannot be written.
    pub fn pause(&self, point: &str) {
        fs::write(self.file(point), "").expect("a file");
    }

    /// Waits until a thread is held at this point.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_held(&self, point: &str) {
        let held = self.file(&format!("{point}.held"));
        wait::until_true(&format!("a thread at {point}"), || held.exists());
    }

    /// Lets the thread that is held at this point go on.
    ///
    /// # Panics
    /// If none is held there.
    pub fn release(&self, point: &str) {
        fs::remove_file(self.file(&format!("{point}.held"))).expect("a thread is held");
    }

    /// Removes the marks of these points, so that none counts as passed.
    pub fn forget(&self, points: &[&str]) {
        for point in points {
            let _ = fs::remove_file(self.file(&format!("{point}.passed")));
        }
    }

    /// Waits until a thread has been at one of these points.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_passed(&self, points: &[&str]) {
        wait::until_true(&format!("a thread past one of {points:?}"), || {
            let mut points = points.iter();
            points.any(|point| self.file(&format!("{point}.passed")).exists())
        });
    }
}
