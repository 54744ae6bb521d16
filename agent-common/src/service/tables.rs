//! The look-ups that translation needs.

use super::{
    Backend, BackendKey, ClientKey, Found, Kept, MemberKey, Service, ServiceKey, Target, Work,
};
use crate::guard::{FlowKey, FlowPlace, FlowWords, FragmentTables};

/// Tables of Services, in which the engine looks up by its own means.
pub trait ServiceTables: FragmentTables {
    /// Reads a port of a Service; false when there is none.
    fn service(&self, key: &ServiceKey, to: &mut Service) -> bool;
    /// Reads a backend; false when there is none at that place.
    fn backend(&self, key: &BackendKey, to: &mut Backend) -> bool;
    /// Reports whether an endpoint is one of the Service still.
    fn is_member(&self, key: &MemberKey) -> bool;
    /// Reads the backend that a client had last; false when there is none.
    fn kept(&self, key: &ClientKey, to: &mut Kept) -> bool;
    /// Keeps the backend of a client.
    fn keep(&self, key: &ClientKey, kept: &Kept);
    /// Finds the place of a key.
    fn place(&self, key: &FlowKey) -> FlowPlace;
    /// Reads the entry of a key; false when there is none.
    fn find(&self, place: FlowPlace, key: &FlowKey, to: &mut Found) -> bool;
    /// Notes a packet in the entry that [`Self::find`] has found.
    ///
    /// An entry that is another key's by then stays as it is.
    fn note(&self, place: FlowPlace, way: u64, words: &FlowWords);
    /// Keeps an entry; it takes the place of one that is there.
    fn open(&self, place: FlowPlace, key: &FlowKey, words: &FlowWords, target: &Target);
    /// Returns 0, of which the compiler knows nothing.
    fn zero(&self) -> u32;
    /// Returns the same memory, of which the compiler knows nothing.
    ///
    /// It would keep on the stack of a program what was just written there.
    fn again<'a>(&self, work: &'a mut Work) -> &'a mut Work;
    /// Takes the price of a new connection from a port; false when it has less.
    fn pay(&self, port_id: u16) -> bool;
}
