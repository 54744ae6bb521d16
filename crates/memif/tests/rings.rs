//! Test rings in memory of this process: both ends honest, or one written by hand.
//!
//! No system call is made, so Miri runs them too.

#[cfg(test)]
mod rings {
    mod scene;

    mod both_ends;
    mod habits;
    mod hostile_client;
    mod hostile_server;
    mod random;
}
