//! `deploy/monitoring` asks only for what is served: metrics, their types, labels and values.

mod monitoring {
    mod promql;
    mod rules;
}
