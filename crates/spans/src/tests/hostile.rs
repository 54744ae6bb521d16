//! Collectors that keep their exporter waiting, or answer with what it cannot use.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::*;

/// Requests of the test, as many as a second may have.
const REQUESTS: usize = 100;
/// Phases of each.
const PHASES: usize = 30;
/// Spans of all.
const ALL: usize = REQUESTS * (PHASES + 1);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Gives each connection of a collector to `with`; returns its address.
async fn listen<F: Future<Output = ()> + Send + 'static>(
    with: impl Fn(TcpStream) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(with(stream));
        }
    });
    format!("http://{address}")
}

/// Serves requests whose spans go to this collector; none of them may wait for it.
///
/// Spans that wait are never more than [`QUEUE`].
async fn serve(collector: &str, patience: Duration) -> (SdkTracerProvider, &'static Counters) {
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    let resource = Resource::builder_empty().build();
    let provider = provider(collector, 0.0, resource, (patience, counters)).unwrap();
    let tracer = provider.tracer("test");
    let caller = Caller {
        trace: TRACE,
        span: CALLER,
        sampled: true,
    };
    for _ in 0..REQUESTS {
        let request = Request::begin_by(&tracer, "ADD", Some(caller), Vec::new);
        assert!(request.0.is_some(), "it is within the rate");
        let begun = Instant::now();
        let phases = async {
            for _ in 0..PHASES {
                phase_by(&tracer, "address", begun, begun);
            }
        };
        request.serve(phases).await;
        request.end(|| None);
        assert!(counters.waiting() <= QUEUE, "{}", counters.waiting());
    }
    (provider, counters)
}

/// All that was made is dropped, and counted.
async fn assert_all_dropped((provider, counters): (SdkTracerProvider, &'static Counters)) {
    let end = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LONG));
    // Whether the last batch could be exported is no matter of the end.
    let _ = end.await.unwrap();
    let dropped = u64::try_from(ALL).unwrap();
    let wanted = Counts {
        exported: 0,
        dropped,
    };
    assert_eq!((counters.counts(), counters.waiting()), (wanted, 0));
}

/// Would a request wait for it, it would wait for as long as the test may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_delays_no_request_and_gets_no_more_than_the_queue() {
    let silent = listen(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let (provider, counters) = serve(&silent, LONG).await;
    assert_eq!(counters.waiting(), QUEUE, "they wait for their answer");
    let dropped = u64::try_from(ALL - QUEUE).unwrap();
    let wanted = Counts {
        exported: 0,
        dropped,
    };
    assert_eq!(counters.counts(), wanted);
    // The end of the process does not wait for it either.
    let end = tokio::task::spawn_blocking(move || drop(Exporting(provider)));
    end.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_answers_garbage_costs_its_spans_and_nothing_else() {
    let garbage = listen(|mut stream| async move {
        let bytes = [b"\0\xff no frame of HTTP/2 ".as_slice(); 64].concat();
        // Until the exporter has had enough.
        while stream.write_all(&bytes).await.is_ok() {}
    })
    .await;
    assert_all_dropped(serve(&garbage, PATIENCE).await).await;
}

/// A collector whose answer is larger than a message may be.
struct Huge;

#[tonic::async_trait]
impl TraceService for Huge {
    async fn export(
        &self,
        _: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 0,
                error_message: "x".repeat(64 << 20),
            }),
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_larger_than_a_message_is_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tonic::transport::Server::builder();
    let incoming = TcpListenerStream::new(listener);
    let service = TraceServiceServer::new(Huge).max_encoding_message_size(usize::MAX);
    tokio::spawn(async move { server.serve_with_incoming(service, incoming).await });
    assert_all_dropped(serve(&format!("http://{address}"), PATIENCE).await).await;
}
