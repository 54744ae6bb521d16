//! Read connections that policies let pass.
//!
//! The programs make them, and replace them.

use std::fmt;
use std::fs::File;
use std::io::Read as _;

use agent_common::guard::{FlowBucket, FlowKey, FlowPlace, FlowWords, Secret, tick};
use aya::maps::{Array, Map, MapData};
use rustix::time::{ClockId, clock_gettime};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::error::DatapathError;
use crate::pod::Abi;

/// Times that a bucket is read until two looks in a row are the same.
const LOOKS: usize = 4;

/// Value of `FLOW_SECRET`.
pub(crate) type Halves = [[u64; 8]; 2];

/// `FLOWS`, by a handle of its own: a look at all of them holds nobody up.
pub struct Connections {
    map: Array<MapData, Abi<FlowBucket>>,
    secret: Halves,
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connections").finish_non_exhaustive()
    }
}

/// The time as programs note it in connections, ticks.
pub fn now() -> u32 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    tick(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

impl Connections {
    const NAME: &'static str = "FLOWS";
    const SECRET: &'static str = "FLOW_SECRET";

    /// Takes the maps; makes the secret where there is none.
    pub(crate) fn new(
        take: &mut impl FnMut(&'static str) -> Result<Map, DatapathError>,
    ) -> Result<Self, DatapathError> {
        let map = Array::try_from(take(Self::NAME)?);
        Ok(Self {
            map: map.map_err(DatapathError::map("open", Self::NAME))?,
            secret: secret_of(Self::SECRET, take(Self::SECRET)?)?,
        })
    }

    fn place(&self, key: &FlowKey) -> FlowPlace {
        let [low, high] = &self.secret;
        FlowPlace::of(&Secret { low, high }, key)
    }

    /// Shows each entry, those that are over, too.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn each(&self, mut show: impl FnMut(FlowKey, FlowWords)) -> Result<(), DatapathError> {
        for number in 0..self.map.len() {
            let bucket = self.bucket(number)?;
            for (state, entry) in bucket.states.into_iter().zip(&bucket.entries) {
                // One that is torn has a tag of another key, and one that has moved is of another bucket.
                if state != 0
                    && let place = self.place(&entry.key)
                    && place.bucket() == number
                    && let Some(words) = place.words(state, entry.stamps)
                {
                    show(entry.key, words);
                }
            }
        }
        Ok(())
    }

    /// The entry of a connection.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn get(&self, key: &FlowKey) -> Result<Option<FlowWords>, DatapathError> {
        let place = self.place(key);
        let bucket = self.bucket(place.bucket())?;
        let at = |way| usize::try_from(way).unwrap_or(usize::MAX);
        let way = at(place.find(0, |way| bucket.states.get(at(way)).copied().unwrap_or(0)));
        let found = bucket.states.get(way).zip(bucket.entries.get(way));
        Ok(found
            .filter(|(_, entry)| entry.key == *key)
            .and_then(|(state, entry)| place.words(*state, entry.stamps)))
    }

    /// Reads a bucket, of which no entry is half of one and half of another.
    ///
    /// One that changes all the time is shown as it was last: its entries are none where they are torn.
    fn bucket(&self, number: u32) -> Result<FlowBucket, DatapathError> {
        // An empty one is read once.
        let mut bucket = FlowBucket::new_zeroed();
        for _ in 0..LOOKS {
            let found = self.map.get(&number, 0);
            let Abi(again) = found.map_err(DatapathError::map("read", Self::NAME))?;
            if again.as_bytes() == bucket.as_bytes() {
                break;
            }
            bucket = again;
        }
        Ok(bucket)
    }
}

/// Reads the secret of connections' places; writes it where there is none.
pub(crate) fn secret_of(name: &'static str, map: Map) -> Result<Halves, DatapathError> {
    let map = Array::<MapData, Abi<Halves>>::try_from(map);
    let mut map = map.map_err(DatapathError::map("open", name))?;
    let Abi(mut secret) = map.get(&0, 0).map_err(DatapathError::map("read", name))?;
    if secret == Halves::new_zeroed() {
        draw(name, secret.as_mut_bytes())?;
        let written = map.set(0, Abi(secret), 0);
        written.map_err(DatapathError::map("write", name))?;
    }
    Ok(secret)
}

/// Draws bytes that no pod knows, for a map.
pub(crate) fn draw(map: &'static str, bytes: &mut [u8]) -> Result<(), DatapathError> {
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(bytes))
        .map_err(|source| DatapathError::map("make a secret for", map)(source.into()))
}
