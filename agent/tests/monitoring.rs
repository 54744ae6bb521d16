//! Checks that `deploy/monitoring` asks only for metrics that are served.
//!
//! Their types, labels and values are checked, too.

mod monitoring {
    mod promql;
    mod rules;
}
