//! Test network policies in force at ports, with traffic of ordinary programs and of attackers.

mod policies {
    mod scene;

    mod directions;
    mod live;
    mod restarts;
}
