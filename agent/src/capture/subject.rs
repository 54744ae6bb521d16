//! Finds the attachment that a request for a capture names. Pure.

use cni_spec::CaptureRequest;

use crate::error::ExplainError;
use book::record::Attachment;

/// Characters of a container ID that are enough when no other one begins so.
const PREFIX: usize = 6;

/// Returns the option that names the attachment, and its value.
pub(super) fn written(request: &CaptureRequest) -> (&'static str, String) {
    match (&request.pod, &request.container) {
        (Some(pod), _) => ("--pod", pod.clone()),
        (None, Some(container)) => ("--container", container.clone()),
        (None, None) => ("--pod", String::new()),
    }
}

/// Finds the attachment that a request names among these.
///
/// # Errors
/// When it names none, or several.
pub(super) fn find<'a>(
    all: impl Iterator<Item = &'a Attachment>,
    request: &CaptureRequest,
) -> Result<&'a Attachment, ExplainError> {
    let (argument, value) = written(request);
    let (pod, container) = (request.pod.as_deref(), request.container.as_deref());
    let invalid = |fix| ExplainError::Invalid {
        argument,
        value: value.clone(),
        fix,
    };
    let pod = match (pod, container) {
        (Some(pod), None) => Some(
            pod.split_once('/')
                .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
                .ok_or_else(|| invalid("write NAMESPACE/NAME"))?,
        ),
        (None, Some(_)) => None,
        (Some(_), Some(_)) | (None, None) => {
            return Err(invalid("name the attachment by --pod or by --container"));
        }
    };
    let is_meant = |record: &&Attachment| {
        let is_holder = match (pod, container) {
            (Some((namespace, name)), _) => record
                .pod
                .as_ref()
                .is_some_and(|it| it.namespace == namespace && it.name == name),
            (None, Some(container)) => is_container(record.key.container.as_str(), container),
            (None, None) => false,
        };
        let network = request.network.as_ref();
        let ifname = request.ifname.as_deref();
        is_holder
            && network.is_none_or(|network| *network == record.network.name)
            && ifname.is_none_or(|ifname| *ifname == record.key.ifname.to_string())
    };
    let all: Vec<&Attachment> = all.collect();
    let found: Vec<&Attachment> = all.iter().copied().filter(is_meant).collect();
    match found[..] {
        [only] => Ok(only),
        [] => Err(ExplainError::Unknown {
            argument,
            value,
            why: "no attachment of this node is meant",
            known: all.iter().map(|record| name_of(record)).collect(),
        }),
        _ => Err(ExplainError::Ambiguous {
            argument,
            value,
            candidates: found
                .iter()
                .map(|record| {
                    format!(
                        "--network {} --ifname {}",
                        record.network.name, record.key.ifname
                    )
                })
                .collect(),
        }),
    }
}

/// True when an ID is this text, or begins with enough of it.
fn is_container(id: &str, text: &str) -> bool {
    id == text || text.len() >= PREFIX && id.starts_with(text)
}

/// Writes `NAMESPACE/POD:IFNAME`, or `CONTAINER/IFNAME` without a pod.
fn name_of(record: &Attachment) -> String {
    let ifname = &record.key.ifname;
    match &record.pod {
        Some(pod) => format!("{}/{}:{ifname}", pod.namespace, pod.name),
        None => format!("{}/{ifname}", record.key.container),
    }
}
