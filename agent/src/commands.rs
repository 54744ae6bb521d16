//! The commands that ask a running agent, and those that need none to run.

use cni_spec::{ContainerId, ExplainRequest, FollowRequest, GetRequest, GetWhat, IfName, Request};

use crate::cli::{ExplainOptions, GetOptions, Output, What};

mod capture;
mod cleanup;
mod dialogue;
mod import;
mod journey;
mod switch;
mod table;

pub use capture::capture;
pub use cleanup::cleanup;
pub use dialogue::{Failure, complain};
use dialogue::{ask, print};
pub use import::import;
pub use switch::switch;

/// `get`: one of the agent's tables.
///
/// # Errors
/// When the agent does not answer.
pub fn get(options: &GetOptions) -> Result<(), Failure> {
    let what = match options.what {
        What::Networks => GetWhat::Networks,
        What::Attachments => GetWhat::Attachments,
        What::Endpoints => GetWhat::Endpoints,
        What::Drops => GetWhat::Drops,
        What::Uplinks => GetWhat::Uplinks,
        What::Services => GetWhat::Services,
        What::Vpcs => GetWhat::Vpcs,
        What::Policies => GetWhat::Policies,
        What::Flows => GetWhat::Flows,
    };
    let request = GetRequest {
        what,
        pod: options.flows.pod.clone(),
        network: options.flows.network.clone(),
        limit: options.flows.limit,
    };
    if what != GetWhat::Flows && request != GetRequest::new(what) {
        return Err("--pod, --network and --limit choose connections: write get flows".into());
    }
    let value = ask(&options.socket, &Request::Get(request))?;
    print(&match options.output {
        Output::Json => serde_json::to_string_pretty(&value)?,
        Output::Table => table::of(what, &value),
    })
}

/// `explain`: prints the decisions for an attachment, or the path of a packet.
///
/// # Errors
/// When the agent does not answer, or knows of none.
pub fn explain(options: &ExplainOptions) -> Result<(), Failure> {
    if let (Some(from), Some(to)) = (&options.packet.from, &options.packet.to) {
        return follow(options, from, to);
    }
    let container = options.container.as_deref().unwrap_or_default();
    let request = ExplainRequest {
        container: ContainerId::new(container)?,
        ifname: options.ifname.as_deref().map(IfName::new).transpose()?,
    };
    let value = ask(&options.socket, &Request::Explain(request))?;
    print(&match options.output {
        Output::Json => serde_json::to_string_pretty(&value)?,
        Output::Table => table::explanation(&value),
    })
}

fn follow(options: &ExplainOptions, from: &str, to: &str) -> Result<(), Failure> {
    let packet = &options.packet;
    let request = FollowRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        proto: packet.proto.clone(),
        size: packet.size,
        source: packet.source.clone(),
        arrive_from: packet.arrive_from.clone(),
    };
    let value = ask(&options.socket, &Request::Follow(request))?;
    print(&match options.output {
        Output::Json => serde_json::to_string_pretty(&value)?,
        Output::Table => journey::text(&value),
    })
}
