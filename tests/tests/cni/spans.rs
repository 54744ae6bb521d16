//! Spans of requests, which a collector of OTLP gets.

use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use testbed::{Node, Setup};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
/// Far longer than the agent waits with what it has.
const PATIENCE: Duration = Duration::from_secs(60);

struct Collector(Sender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|it| it.scope_spans);
        for span in scopes.flat_map(|it| it.spans) {
            // The test may be over.
            let _ = self.0.send(span);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Starts a collector on a node, and returns what it gets.
fn collect(node: &Node, address: &'static str) -> Receiver<Span> {
    let listener = node.netns().run_in(|| {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true).map(|()| listener)
    });
    let listener = listener.expect("the node's namespace can be entered");
    let listener = listener.expect("the address is free");
    let (sender, spans) = mpsc::channel();
    thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
            tonic::transport::Server::builder()
                .serve_with_incoming(
                    TraceServiceServer::new(Collector(sender)),
                    TcpListenerStream::new(listener),
                )
                .await
        })
    });
    spans
}

/// Spans up to the one with this name.
fn until(spans: &Receiver<Span>, name: &str) -> Vec<Span> {
    let mut all: Vec<Span> = Vec::new();
    while all.last().is_none_or(|span| span.name != name) {
        all.push(spans.recv_timeout(PATIENCE).expect(name));
    }
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// PAIN-OBS-1: a request is a span of its caller's trace, with its phases.
#[test]
fn a_collector_gets_the_requests_of_sampled_traces_with_their_phases() {
    let address = "127.0.0.1:4317";
    let options = ["--otlp-endpoint", &format!("http://{address}")];
    let node = testbed::node!(Setup::default().args(&options));
    let spans = collect(&node, address);
    let pod = node.pod("a");
    let call = |command, network, flags| {
        let call = pod.call(command, "net1").conf(&node.conf(network));
        let call = call.env("CNI_ARGS", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web");
        call.env("TRACEPARENT", &format!("00-{TRACE}-{CALLER}-{flags}"))
            .run()
    };
    call("ADD", "blue", "00").result();
    call("DEL", "blue", "00").silent();
    call("ADD", "blue", "01").result();
    let mut parts = until(&spans, "ADD");
    let add = parts.pop().unwrap();
    assert_eq!(
        (hex(&add.trace_id), hex(&add.parent_span_id)),
        (TRACE.to_owned(), CALLER.to_owned())
    );
    let names: Vec<&str> = parts.iter().map(|span| span.name.as_str()).collect();
    // Of the sampled one only: the other had the same phases.
    assert_eq!(names, ["access", "address", "reach", "port", "open"]);
    for part in &parts {
        assert_eq!(part.parent_span_id, add.span_id, "{}", part.name);
        assert!(part.start_time_unix_nano <= part.end_time_unix_nano);
    }
    let attributes = format!("{:?}", add.attributes);
    for value in ["shop", "web", "net1"] {
        assert!(attributes.contains(value), "{attributes}");
    }
    call("DEL", "blue", "01").silent();
    call("ADD", "nowhere", "01").fails_with(7);
    let refused = until(&spans, "ADD").pop().unwrap();
    let status = refused.status.unwrap();
    assert!(status.message.contains("nowhere"), "{status:?}");
    let metrics = node.http("/metrics").expect("the agent answers").1;
    assert!(
        metrics.contains("podnet_spans_total{outcome=\"exported\"}"),
        "{metrics}"
    );
    proof::of!("PAIN-OBS-1");
}
