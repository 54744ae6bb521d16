use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Response, Status};

use super::*;

mod hostile;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A collector that hands on what it gets.
struct Collector(Arc<Mutex<Vec<String>>>, mpsc::UnboundedSender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_resource in request.into_inner().resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            let names = resource.attributes.into_iter().map(|it| format!("{it:?}"));
            self.0.lock().unwrap().extend(names);
            for scope in of_resource.scope_spans {
                for span in scope.spans {
                    let _ = self.1.send(span);
                }
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One test, because a process exports to one collector.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_requests_with_their_phases_and_none_that_the_caller_does_not_sample() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let resources = Arc::default();
    let (sender, mut spans) = mpsc::unbounded_channel();
    let collector = TraceServiceServer::new(Collector(Arc::clone(&resources), sender));
    let incoming = TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder();
    tokio::spawn(async move { server.serve_with_incoming(collector, incoming).await });

    // Nothing is made before there is a collector.
    assert!(Request::begin("ADD", None, Vec::new).0.is_none());

    let options = SpanOptions {
        otlp_endpoint: Some(format!("http://127.0.0.1:{port}")),
        otlp_ratio: 0.0,
    };
    let exporting = start(&options, "podnet-agent", "node-a").unwrap().unwrap();
    let caller = |sampled| {
        Some(Caller {
            trace: TRACE,
            span: CALLER,
            sampled,
        })
    };
    assert!(Request::begin("ADD", None, Vec::new).0.is_none(), "ratio 0");
    let unsampled = Request::begin("ADD", caller(false), || panic!("no span has attributes"));
    assert!(unsampled.0.is_none());
    let request = Request::begin("ADD", caller(true), || {
        vec![("cni.ifname", "net1".to_owned())]
    });
    let begun = Instant::now();
    request
        .serve(async {
            tokio::task::yield_now().await;
            phase("address", begun, Instant::now());
            phase("open", begun, begun);
        })
        .await;
    phase("of no request", begun, Instant::now());
    request.end(|| Some((7, "there is no network blue".to_owned())));
    // What is left goes out at the end of the process.
    tokio::task::spawn_blocking(move || drop(exporting))
        .await
        .unwrap();

    let [phase, empty] = [spans.recv().await.unwrap(), spans.recv().await.unwrap()];
    let add = spans.recv().await.unwrap();
    assert_eq!(empty.start_time_unix_nano, empty.end_time_unix_nano);
    assert_eq!((add.name.as_str(), phase.name.as_str()), ("ADD", "address"));
    for span in [&add, &phase] {
        assert_eq!(hex(&span.trace_id), TRACE);
    }
    assert_eq!(hex(&add.parent_span_id), CALLER);
    assert_eq!(phase.parent_span_id, add.span_id);
    assert!(add.start_time_unix_nano <= phase.start_time_unix_nano);
    assert!(phase.end_time_unix_nano <= add.end_time_unix_nano);
    assert_eq!(add.status.unwrap().message, "there is no network blue");
    let attributes = format!("{:?}", add.attributes);
    assert!(attributes.contains("net1") && attributes.contains("cni.code"));
    let resources = resources.lock().unwrap().join(" ");
    assert!(resources.contains("podnet-agent") && resources.contains("node-a"));
    assert!(spans.try_recv().is_err(), "no other span");
    assert_eq!(counts().exported, 3);
}

#[test]
fn an_address_that_is_no_collectors_is_refused_with_an_example() {
    assert!(endpoint("http://127.0.0.1:4317").is_ok());
    assert!(endpoint("http://[::1]:4317/").is_ok());
    for wrong in [
        "",
        "127.0.0.1:4317",
        "https://collector:4317",
        "http://collector",
        "http://collector:4317/v1/traces",
        "http://",
    ] {
        let error = endpoint(wrong).unwrap_err();
        assert!(error.contains("http://127.0.0.1:4317"), "{wrong}");
    }
    assert!(ratio("0.5").is_ok() && ratio("1").is_ok());
    for wrong in ["-1", "1.1", "NaN", "half"] {
        assert!(ratio(wrong).is_err(), "{wrong}");
    }
}
