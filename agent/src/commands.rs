//! The commands that ask a running agent, and the one that needs none to run.

use std::error::Error;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cni_spec::{
    ContainerId, ExplainRequest, FollowRequest, GetRequest, GetWhat, IfName, Reply, Request,
    read_frame, write_frame,
};
use serde_json::Value;

use crate::cli::{ExplainOptions, GetOptions, Output, What};
use telemetry::chain;

mod capture;
mod cleanup;
mod journey;
mod switch;
mod table;

pub use capture::capture;
pub use cleanup::cleanup;
pub use switch::switch;

/// A command failed.
pub type Failure = Box<dyn Error>;

/// Tells the user, on stderr.
pub fn complain(error: &Failure) {
    // With stderr closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "podnet-agent: {}", chain(error.as_ref()));
}

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
    };
    let value = ask(&options.socket, &Request::Get(GetRequest { what }))?;
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

/// Connects to the running agent.
fn connect(socket: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(socket).map_err(|error| {
        let socket = socket.display();
        format!("no agent answers on {socket} ({error}): is `podnet-agent run` running?").into()
    })
}

fn ask(socket: &Path, request: &Request) -> Result<Value, Failure> {
    let mut stream = connect(socket)?;
    write_frame(&mut stream, &request.to_body()?)?;
    match Reply::from_body(&read_frame(&mut stream)?)? {
        Reply::Ok(value) => Ok(serde_json::from_str(value.get())?),
        Reply::Error(error) => Err(error.msg.into()),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}") {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
