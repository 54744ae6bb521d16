//! Limit the reviews at a time by their number, their bytes and their weight.
//!
//! Every peer that reaches the port can send anything, and a tenant can have the API server send a pod
//! that it will refuse a moment later.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse as _, Response};
use kube::Resource;
use kube::core::admission::AdmissionReview;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest review, bytes.
///
/// It has the new pod, of which the API server takes 3 MiB from a client, and the old one, of at most
/// 1.5 MiB in etcd and not more than twice that as JSON; and 1 MiB around.
pub(super) const BODY_MAX: usize = 7 << 20;
/// Bytes of all reviews at a time: two of the longest, or hundreds of usual ones.
const BYTES_MAX: usize = 16 << 20;
/// Reviews that are done at a time.
const REVIEWS_MAX: usize = 16;
/// Most memory that reviews take when they are parsed, in units of an object.
///
/// `{}` is three bytes of a list, and becomes a container of more than a kibibyte. All reviews together
/// have as many as one may have.
const OBJECTS_MAX: usize = 32_000;
/// Values that weigh as much as an object: each has some 60 bytes.
const VALUES_PER_OBJECT: usize = 16;
/// Time that a review waits for others; the API server waits a little longer.
const TURN: Duration = Duration::from_secs(2);
/// Bytes for which one permit is taken.
const GRAIN: usize = 1024;

/// Admits reviews.
#[derive(Debug, Clone)]
pub(super) struct Intake {
    reviews: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    objects: Arc<Semaphore>,
}

/// A review, and the room it takes up for as long as it is there.
#[derive(Debug)]
pub(super) struct Taken<K: Resource> {
    review: AdmissionReview<K>,
    room: Room,
}

/// The room of a review; it is given back when this is dropped.
pub(super) type Room = [OwnedSemaphorePermit; 3];

impl<K: Resource> Taken<K> {
    /// The review, and its room.
    pub(super) fn apart(self) -> (AdmissionReview<K>, Room) {
        (self.review, self.room)
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            reviews: Arc::new(Semaphore::new(REVIEWS_MAX)),
            bytes: Arc::new(Semaphore::new(BYTES_MAX / GRAIN)),
            objects: Arc::new(Semaphore::new(OBJECTS_MAX)),
        }
    }
}

impl Intake {
    /// Reads a review when it is its turn.
    ///
    /// # Errors
    /// The answer to one that is too large, that nobody can read, or whose turn does not come.
    pub(super) async fn take<K>(&self, request: Request) -> Result<Taken<K>, Response>
    where
        K: Resource + DeserializeOwned,
    {
        match tokio::time::timeout(TURN, self.read(request)).await {
            Ok(taken) => taken,
            Err(_) => Err(refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many reviews at a time; try again".to_owned(),
            )),
        }
    }

    async fn read<K>(&self, request: Request) -> Result<Taken<K>, Response>
    where
        K: Resource + DeserializeOwned,
    {
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let length = length.unwrap_or(BODY_MAX);
        if length > BODY_MAX {
            return Err(too_large(length, "bytes", BODY_MAX));
        }
        // Always in this order: none waits for what one before it holds.
        let review = acquire(&self.reviews, 1).await?;
        let bytes = acquire(&self.bytes, length.div_ceil(GRAIN)).await?;
        let body = to_bytes(request.into_body(), length.max(1));
        let body = body
            .await
            .map_err(|error| refuse(StatusCode::BAD_REQUEST, error.to_string()))?;
        let weight = weight(&body);
        if weight > OBJECTS_MAX {
            return Err(too_large(weight, "objects", OBJECTS_MAX));
        }
        let objects = acquire(&self.objects, weight).await?;
        let read = serde_json::from_slice(&body);
        Ok(Taken {
            review: read.map_err(|error| {
                refuse(
                    StatusCode::BAD_REQUEST,
                    format!("not an AdmissionReview: {error}"),
                )
            })?,
            room: [review, bytes, objects],
        })
    }
}

async fn acquire(
    semaphore: &Arc<Semaphore>,
    permits: usize,
) -> Result<OwnedSemaphorePermit, Response> {
    let permits = u32::try_from(permits).unwrap_or(u32::MAX);
    let acquired = Arc::clone(semaphore).acquire_many_owned(permits).await;
    acquired.map_err(|_| refuse(StatusCode::SERVICE_UNAVAILABLE, "stopping".to_owned()))
}

/// Estimates the memory of parsed JSON, in units of an object.
fn weight(text: &[u8]) -> usize {
    let (mut objects, mut values) = (0_usize, 0_usize);
    let mut quoted = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            // What follows is part of the text, a quotation mark too.
            b'\\' if quoted => {
                bytes.next();
            }
            b'"' => quoted = !quoted,
            b'{' if !quoted => objects = objects.saturating_add(1),
            b',' | b'[' if !quoted => values = values.saturating_add(1),
            _ => {}
        }
    }
    objects.saturating_add(values / VALUES_PER_OBJECT)
}

fn too_large(found: usize, what: &str, limit: usize) -> Response {
    let why = format!("a review of {found} {what} is larger than the limit of {limit}");
    refuse(StatusCode::PAYLOAD_TOO_LARGE, why)
}

fn refuse(status: StatusCode, why: String) -> Response {
    (status, why).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    async fn take(intake: &Intake, body: String) -> Result<Taken<Pod>, StatusCode> {
        let request = Request::builder()
            .header(CONTENT_LENGTH, body.len())
            .body(Body::from(body))
            .unwrap();
        let taken = intake.take(request).await;
        taken.map_err(|response| response.status())
    }

    fn review(containers: &str) -> String {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u",
            "kind":{{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1",
            "resource":"pods"}},"operation":"CREATE","userInfo":{{}},"object":{{"metadata":{{}},
            "spec":{{"containers":[{containers}]}}}}}}}}"#
        )
    }

    /// ATT-04c
    #[tokio::test]
    async fn a_review_is_refused_by_its_bytes_and_by_what_becomes_of_them() {
        let intake = Intake::default();
        assert!(take(&intake, review(r#"{"name":"c"}"#)).await.is_ok());
        assert_eq!(
            take(&intake, "{".to_owned()).await.unwrap_err(),
            StatusCode::BAD_REQUEST
        );
        let long = review(&format!(r#"{{"name":"{}"}}"#, "x".repeat(BODY_MAX)));
        let many = review(&vec![r#"{"name":""}"#; OBJECTS_MAX].join(","));
        for body in [long, many] {
            let refused = take(&intake, body).await.unwrap_err();
            assert_eq!(refused, StatusCode::PAYLOAD_TOO_LARGE);
        }
        // Nothing that was refused has kept its room.
        assert_eq!(intake.reviews.available_permits(), REVIEWS_MAX);
        assert_eq!(intake.bytes.available_permits(), BYTES_MAX / GRAIN);
        assert_eq!(intake.objects.available_permits(), OBJECTS_MAX);
        proof::of!("ATT-04c");
    }

    /// ATT-04c
    #[tokio::test]
    async fn so_many_reviews_are_done_at_a_time_and_the_next_is_told_to_try_again() {
        let intake = Intake::default();
        let mut taken = Vec::new();
        for _ in 0..REVIEWS_MAX {
            taken.push(take(&intake, review("")).await.unwrap());
        }
        let refused = take(&intake, review("")).await.unwrap_err();
        assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
        taken.pop();
        assert!(take(&intake, review("")).await.is_ok());
        proof::of!("ATT-04c");
    }

    /// ATT-04c
    #[test]
    fn braces_in_texts_weigh_nothing() {
        assert_eq!(weight(br#"{"a":"{{{\"{\\","b":{}}"#), 2);
        assert_eq!(weight(format!("[{}]", "1,".repeat(160)).as_bytes()), 10);
        proof::of!("ATT-04c");
    }
}
