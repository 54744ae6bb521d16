use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::patch;
use election::Fence;
use kube::{Client, Config};
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::metrics::Metrics;
use crate::plan::Status;

fn step(name: &str) -> ObjectStep {
    ObjectStep {
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        version: "7".to_owned(),
        status: Some(Status {
            used_by: Some(0),
            ..Status::default()
        }),
        ..ObjectStep::default()
    }
}

fn of_attachments(names: &[&str]) -> Plan {
    let mut plan = Plan::default();
    plan.parameters.attachments = names.iter().map(|name| step(name)).collect();
    plan
}

/// Names of the objects whose status was to be written.
type Asked = Arc<Mutex<Vec<String>>>;

/// Refuses the status of objects whose names begin with `old`.
async fn answer(State(asked): State<Asked>, Path(name): Path<String>, body: Bytes) -> Response {
    asked.lock().unwrap().push(name.clone());
    if !name.starts_with("old") {
        return body.into_response();
    }
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Invalid",
        "message": "egressRate: a rule that is younger than the object", "code": 422,
    });
    (StatusCode::UNPROCESSABLE_ENTITY, status.to_string()).into_response()
}

/// An executor whose API server is this test's.
async fn executor(asked: &Asked) -> Executor {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let path = "/apis/podnet.dev/v1alpha1/namespaces/shop/attachmentparameters/{name}/status";
    let router = Router::new().route(path, patch(answer));
    let router = router.with_state(Arc::clone(asked));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::try_from(Config::new(server.parse().unwrap())).unwrap();
    let metrics = Arc::new(Metrics::new().unwrap());
    let fence = Arc::new(Fence::open());
    Executor::new(client, "me".to_owned(), "podnet".to_owned(), fence, metrics)
}

#[tokio::test]
async fn a_refused_status_is_left_alone_for_longer_each_time_and_keeps_none_of_others() {
    let asked = Asked::default();
    let executor = executor(&asked).await;
    let take = || {
        let mut names = std::mem::take(&mut *asked.lock().unwrap());
        names.sort();
        names
    };
    executor.parameters(&of_attachments(&["old", "new"])).await;
    assert_eq!(take(), ["new", "old"]);
    let begin = Timestamp::now();
    // It has been refused for some time.
    let old = step("old");
    for _ in 0..20 {
        executor.setbacks.lock().await.add(&old, true, begin);
    }
    executor
        .parameters(&of_attachments(&["old", "other"]))
        .await;
    assert_eq!(take(), ["other"]);
    let again = executor.again(begin).await.expect("it is tried again");
    assert_eq!(again.duration_since(begin).as_secs(), 3600);
    // Its user has changed it.
    let mut changed = of_attachments(&["old"]);
    changed.parameters.attachments[0].version = "8".to_owned();
    executor.parameters(&changed).await;
    assert_eq!(take(), ["old"]);
}

/// Steps for which there is no time are the next pass's.
#[tokio::test]
async fn writes_without_an_answer_end_and_no_more_begin_when_the_time_is_over() {
    let steps = of_attachments(&["p"; 99]);
    let begun = AtomicUsize::new(0);
    let outcomes = each(
        steps.parameters.attachments.iter().collect(),
        || begun.load(Ordering::Relaxed) < 10,
        Duration::from_millis(1),
        |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            pending()
        },
    )
    .await;
    assert_eq!(outcomes.len(), 10);
    assert!(
        outcomes
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::Failed)
    );
    let none = each(
        steps.parameters.attachments.iter().collect(),
        || false,
        Duration::from_millis(1),
        |_| pending(),
    );
    assert_eq!(none.await, []);
}
