//! Count the spans that a collector which is away does not get.
//!
//! In a process of its own: a process exports to one collector.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use spans::{Counts, Request, SpanOptions, counts, phase, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_spans_which_are_counted() {
    // Nothing listens there once it is dropped.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|it| it.local_addr())
        .unwrap()
        .port();
    let options = SpanOptions {
        otlp_endpoint: Some(format!("http://127.0.0.1:{port}")),
        otlp_ratio: 1.0,
    };
    let exporting = start(&options, "podnet-agent", "node-a").unwrap();
    let request = Request::begin("ADD", None, Vec::new);
    request
        .serve(async {
            let begun = Instant::now();
            // More than can wait.
            for _ in 0..5000 {
                phase("address", begun, Instant::now());
            }
        })
        .await;
    request.end(|| None);
    // What waits is dropped when the collector has not taken it, batch by batch.
    while counts().dropped < 5001 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(exporting);
    let all = Counts {
        exported: 0,
        dropped: 5001,
    };
    assert_eq!(counts(), all);
}
