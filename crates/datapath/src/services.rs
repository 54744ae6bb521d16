//! Read and write the maps of Services: ports, backends, and connections.

use std::fmt;
use std::sync::Arc;

use agent_common::guard::{FlowKey, FlowPlace, FlowWords, Secret};
use agent_common::map as size;
use agent_common::seal::{SealedBackend, SealedService};
use agent_common::service::{
    Backend, BackendKey, MemberKey, Service, ServiceKey, Target, Translation, TranslationBucket,
};
use aya::maps::{Array, Map, MapData};

use crate::connections::{Halves, secret_of};
use crate::error::DatapathError;
use crate::pod::Abi;
use crate::table::Table;

/// The maps of Services.
#[derive(Debug)]
pub struct ServiceMaps {
    /// Ports of Services.
    pub services: Table<ServiceKey, Service, SealedService>,
    /// Backends of their sets.
    pub backends: Table<BackendKey, Backend, SealedBackend>,
    /// Endpoints of Services, to which datagrams of a connection go on.
    pub members: Table<MemberKey, u32>,
    /// Connections.
    pub translations: Arc<Translations>,
}

impl ServiceMaps {
    pub(crate) fn new(
        mut take: impl FnMut(&'static str) -> Result<Map, DatapathError>,
    ) -> Result<Self, DatapathError> {
        Ok(Self {
            services: Table::new("SERVICES", size::MAX_SERVICES, take("SERVICES")?)?,
            backends: Table::new("BACKENDS", size::MAX_BACKENDS, take("BACKENDS")?)?,
            members: Table::new("MEMBERS", size::MAX_BACKENDS, take("MEMBERS")?)?,
            translations: Arc::new(Translations::new(&mut take)?),
        })
    }
}

/// `TRANSLATIONS`, by a handle of its own: a look at all of them holds nobody up.
pub struct Translations {
    map: Array<MapData, Abi<TranslationBucket>>,
    secret: Halves,
}

impl fmt::Debug for Translations {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Translations").finish_non_exhaustive()
    }
}

impl Translations {
    const NAME: &'static str = "TRANSLATIONS";

    fn new(
        take: &mut impl FnMut(&'static str) -> Result<Map, DatapathError>,
    ) -> Result<Self, DatapathError> {
        let map = Array::try_from(take(Self::NAME)?);
        Ok(Self {
            map: map.map_err(DatapathError::map("open", Self::NAME))?,
            secret: secret_of("SERVICE_SECRET", take("SERVICE_SECRET")?)?,
        })
    }

    /// Shows each entry, those that are over, too.
    ///
    /// One that changes while it is read is left out.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn each(
        &self,
        mut show: impl FnMut(FlowKey, FlowWords, Target),
    ) -> Result<(), DatapathError> {
        let [low, high] = &self.secret;
        for number in 0..self.map.len() {
            let Abi(bucket) = self
                .map
                .get(&number, 0)
                .map_err(DatapathError::map("read", Self::NAME))?;
            for (state, entry) in bucket.states.into_iter().zip(&bucket.entries) {
                if state == 0 {
                    continue;
                }
                let place = FlowPlace::of(&Secret { low, high }, &entry.key);
                let words = place.words(state, place.stamps(&FlowWords::NONE));
                if place.bucket() == number
                    && entry.seal == Translation::seal(place, &entry.target)
                    && let Some(words) = words
                {
                    show(entry.key, words, entry.target);
                }
            }
        }
        Ok(())
    }
}
