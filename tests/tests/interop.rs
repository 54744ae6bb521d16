//! Test podnet among others' code: libcni as the runtime, reference plugins behind.
//!
//! libcni is the real one, by its `cnitool`; the plugins are neighbours in the chain. Nothing here is of
//! this project but podnet itself.
//!
//! libcni remembers attachments in `/var/lib/cni`, whoever asks: here each node gets a `/var/lib`
//! of its own, in a mount namespace, so that no test sees what another one did, or the machine.

mod interop {
    mod libcni;

    mod bandwidth;
    mod capabilities;
    mod chain;
    mod cnitool;
    mod name_taken;
    mod versions;
}
