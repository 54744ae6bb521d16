//! Remember which statuses could not be written, and leave each alone for a while.
//!
//! One that the API server refuses is refused again as long as its object stays as it is: an object older
//! than a rule of its definition for example. Its writes are ever less often, and those of others go on (ADR 0088).

use std::collections::{HashMap, HashSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::plan::ObjectStep;

/// Time that an object is left alone for after its first setback.
///
/// Each further one is twice as long.
const FIRST: SignedDuration = SignedDuration::from_secs(1);
/// The longest such time of an object that the API server refuses.
const REFUSED_MAX: SignedDuration = SignedDuration::from_secs(3600);
/// The longest such time after another failure: the next write may succeed.
const FAILED_MAX: SignedDuration = SignedDuration::from_secs(30);
/// Objects that are remembered; each takes some hundred bytes.
const MAX: usize = 4096;

/// Setbacks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setback {
    /// Resource version of the object: another one is tried at once.
    version: String,
    count: u32,
    until: Timestamp,
}

/// Setbacks by UID.
#[derive(Debug, Default)]
pub(super) struct Setbacks {
    all: HashMap<String, Setback>,
    /// How many objects were chosen while some were not remembered.
    turn: usize,
}

impl Setbacks {
    /// Chooses at most `most` of these that may be tried now, the first ones first.
    ///
    /// Objects that are not among them are forgotten: they are written, or gone.
    pub(super) fn choose<'a>(
        &mut self,
        steps: impl Iterator<Item = &'a ObjectStep>,
        most: usize,
        now: Timestamp,
    ) -> Vec<&'a ObjectStep> {
        let steps: Vec<&ObjectStep> = steps.collect();
        let uids: HashSet<&str> = steps.iter().map(|step| step.uid.as_str()).collect();
        self.all.retain(|uid, _| uids.contains(uid.as_str()));
        let mut free: Vec<&ObjectStep> = steps
            .into_iter()
            .filter(|step| self.is_free(step, now))
            .collect();
        // Those of which nothing is remembered would be the first of every pass.
        if self.all.len() >= MAX && !free.is_empty() {
            let first = self.turn % free.len();
            self.turn = self.turn.wrapping_add(most);
            free.rotate_left(first);
        }
        free.truncate(most);
        free
    }

    fn is_free(&self, step: &ObjectStep, now: Timestamp) -> bool {
        self.all
            .get(&step.uid)
            .is_none_or(|setback| setback.version != step.version || setback.until <= now)
    }

    /// Notes that a write failed; `is_refused` when the object is the reason.
    pub(super) fn add(&mut self, step: &ObjectStep, is_refused: bool, now: Timestamp) {
        if self.all.len() >= MAX && !self.all.contains_key(&step.uid) {
            return;
        }
        let before = self.all.get(&step.uid);
        let before = before.filter(|setback| setback.version == step.version);
        let count = before.map_or(0, |setback| setback.count);
        let most = if is_refused { REFUSED_MAX } else { FAILED_MAX };
        let pause = FIRST.saturating_mul(2_i32.saturating_pow(count)).min(most);
        let setback = Setback {
            version: step.version.clone(),
            count: count.saturating_add(1),
            until: now.saturating_add(pause).unwrap_or(now),
        };
        self.all.insert(step.uid.clone(), setback);
    }

    /// Returns when the next of those that wait may be tried again.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.all.values().map(|setback| setback.until);
        ends.filter(|end| *end > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::excess::after;
    use overview::samples::at;

    fn step(uid: usize, version: &str) -> ObjectStep {
        ObjectStep {
            name: format!("p{uid}"),
            uid: format!("uid-{uid}"),
            version: version.to_owned(),
            ..ObjectStep::default()
        }
    }

    /// Returns the seconds, until `end`, at which an object is tried in vain.
    fn tries(is_refused: bool, end: i64) -> Vec<i64> {
        let (step, mut setbacks) = (step(0, "1"), Setbacks::default());
        let mut tried = Vec::new();
        let mut next = Some(at(0));
        while let Some(now) = next.filter(|next| *next < at(end)) {
            let early = after(now, SignedDuration::from_secs(-1));
            if !tried.is_empty() {
                assert!(setbacks.choose([&step].into_iter(), 9, early).is_empty());
            }
            assert_eq!(setbacks.choose([&step].into_iter(), 9, now), [&step]);
            tried.push(now.duration_since(at(0)).as_secs());
            setbacks.add(&step, is_refused, now);
            next = setbacks.next(now);
        }
        tried
    }

    #[test]
    fn a_refused_object_is_tried_ever_less_often() {
        let tried = tries(true, 20_000);
        assert_eq!(tried[..6], [0, 1, 3, 7, 15, 31]);
        let pauses: Vec<i64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[pauses.len() - 2..], [3600, 3600]);
    }

    #[test]
    fn an_object_that_is_not_to_blame_is_tried_twice_a_minute() {
        let tried = tries(false, 300);
        let pauses: Vec<i64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[pauses.len() - 2..], [30, 30]);
    }

    #[test]
    fn a_changed_object_is_tried_at_once_and_a_written_one_is_forgotten() {
        let mut setbacks = Setbacks::default();
        for second in 0..9 {
            setbacks.add(&step(0, "1"), true, at(second));
        }
        let changed = step(0, "2");
        assert_eq!(
            setbacks.choose([&changed].into_iter(), 9, at(9)),
            [&changed]
        );
        setbacks.add(&changed, true, at(9));
        assert_eq!(setbacks.next(at(9)), Some(at(10)), "it begins again");
        assert!(setbacks.choose([].into_iter(), 9, at(9)).is_empty());
        assert_eq!(setbacks.next(at(9)), None);
    }

    /// The memory has a limit, however many are refused.
    #[test]
    fn objects_beyond_the_memory_take_turns() {
        let all: Vec<ObjectStep> = (0..MAX + 1000).map(|uid| step(uid, "1")).collect();
        let last = all.last().expect("one");
        let mut setbacks = Setbacks::default();
        let mut passes = 0;
        loop {
            let chosen = setbacks.choose(all.iter(), 256, at(0));
            assert!(chosen.len() <= 256);
            if chosen.contains(&last) {
                break;
            }
            for step in chosen {
                setbacks.add(step, true, at(0));
            }
            passes += 1;
            assert!(passes < 30, "the last one starves");
        }
        assert_eq!(setbacks.all.len(), MAX);
    }
}
