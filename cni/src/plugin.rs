//! One call of the plugin, from the environment to the answer.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use cni_spec::{
    AttachmentKey, Call, CniError, CniRequest, CniVersion, Command, ConfHead, ErrorCode,
    Invocation, Reply, Request, SpecError, VersionInfo, encode_frame, netns_override,
};
use serde_json::value::RawValue;

use crate::agent::{self, Connection, TransportError};
use crate::patience::Patience;
use crate::{lease, netns, stdio, tombstone};

/// How long `STATUS` takes at most: runtimes call it every few seconds (CNI-ST-04).
const STATUS_LIMIT: Duration = Duration::from_secs(2);

/// How long everything else takes at most; the runtime's own limit comes first.
const SAFETY_LIMIT: Duration = Duration::from_secs(120);

/// Why the call ends with exit code 1.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The runtime is told on stdout.
    Cni(CniError),
    /// Writing to stdout failed: the runtime gets the exit code alone.
    Stdout(io::Error),
}

impl From<CniError> for Failure {
    fn from(error: CniError) -> Self {
        Self::Cni(error)
    }
}

impl Failure {
    /// Reports the error on stdout, or on stderr if stdout fails (CNI-ERR-01).
    pub(crate) fn report(&self) {
        match self {
            Self::Cni(error) => {
                let told =
                    serde_json::to_vec(error)
                        .map_err(io::Error::from)
                        .and_then(|mut json| {
                            json.push(b'\n');
                            stdio::write_stdout(&json)
                        });
                if let Err(source) = told {
                    stdio::log(&format!("{} (and stdout failed: {source})", error.msg));
                }
            }
            Self::Stdout(source) => {
                stdio::log(&format!("the answer did not reach stdout: {source}"));
            }
        }
    }
}

/// Runs the command that the environment names.
pub(crate) fn run(env: impl Fn(&str) -> Option<String>) -> Result<(), Failure> {
    let invocation = match Invocation::from_env(&env) {
        Ok(invocation) => invocation,
        Err(SpecError::NoCommand) => {
            stdio::log(&about());
            return Ok(());
        }
        Err(error) => return Err(error.to_cni(CniVersion::LATEST).worded_for_del().into()),
    };
    let done = match invocation.call {
        Call::Version => answer_version(),
        _ => forward(&invocation, netns_override(&env)),
    };
    match (done, invocation.call.command()) {
        (Err(Failure::Cni(error)), Command::Del) => Err(Failure::Cni(error.worded_for_del())),
        (done, _) => done,
    }
}

/// Text for a person who runs the binary by hand (CNI-ENV-04).
fn about() -> String {
    format!(
        "podnet {}: CNI plugin for pod networks, run by a container runtime.\n\
         CNI protocol versions supported: {}\n\
         The agent is podnet-agent.",
        env!("CARGO_PKG_VERSION"),
        CniVersion::ALL.map(CniVersion::as_str).join(", ")
    )
}

/// Answers without the agent, and whatever stdin holds (CNI-VER-01).
fn answer_version() -> Result<(), Failure> {
    let info = VersionInfo::answer(&stdio::peek_stdin());
    let json = serde_json::to_vec(&info).map_err(|source| Failure::Stdout(source.into()))?;
    stdio::write_stdout(&json).map_err(Failure::Stdout)
}

/// Checks what can be checked here and lets the agent do the rest.
fn forward(invocation: &Invocation, netns_override: bool) -> Result<(), Failure> {
    let call = &invocation.call;
    let command = call.command();
    let text = stdio::read_stdin()?;
    let head = ConfHead::parse(&text, command)
        .map_err(|error| error.to_cni(ConfHead::version_of(&text)))?;
    let version = head.cni_version;
    let netns = netns::open(call, netns_override, version)?;

    let config = RawValue::from_string(text)
        .map_err(|source| SpecError::ConfigSyntax { source }.to_cni(version))?;
    let asked = config.clone();
    let body = Request::Cni(CniRequest::new(invocation, config))
        .to_body()
        .map_err(|error| error.to_cni(version))?;
    let frame = encode_frame(&body).map_err(|error| {
        let msg = "the network configuration is too large for the agent";
        CniError::new(version, ErrorCode::INVALID_CONFIG, msg, error.to_string())
    })?;

    let limit = match command {
        Command::Status => STATUS_LIMIT,
        _ => SAFETY_LIMIT,
    };
    let deadline = Instant::now() + limit;
    let mut patience = Patience::new(command, &head.socket);
    match ask(
        &head.socket,
        &frame,
        netns.as_ref(),
        &mut patience,
        deadline,
    ) {
        Ok((_, Reply::Error(error))) => refused(call, &head.socket, &body, error),
        Ok((agent, Reply::Ok(result))) if command == Command::Add => {
            hand_over(agent, &result, version)
        }
        Ok((_, Reply::Ok(_))) => Ok(()),
        Err(error) if command == Command::Status && is_answered(&head.socket, &asked, &error) => {
            stdio::log(&format!(
                "podnet-agent is being restarted ({error}); it was ready a moment ago"
            ));
            Ok(())
        }
        Err(error) => without_agent(call, version, &head.socket, &body, &error),
    }
}

/// Sends the request until it is answered, as often as the patience bears.
fn ask(
    socket: &Path,
    frame: &[u8],
    netns: Option<&OwnedFd>,
    patience: &mut Patience<'_>,
    deadline: Instant,
) -> Result<(Connection, Reply), TransportError> {
    let mut lost = None;
    loop {
        let answered = Connection::open(socket, patience, deadline)
            .and_then(|connection| exchange(connection, frame, netns));
        match answered {
            Err(error) if error.is_loss() && patience.bears_loss() => {
                lost.get_or_insert(error);
                agent::pause();
            }
            // A request that was sent before may have been carried out.
            Err(error @ TransportError::Connect { .. }) => return Err(lost.unwrap_or(error)),
            done => return done,
        }
    }
}

/// Sends the request once and waits for the reply.
fn exchange(
    mut agent: Connection,
    frame: &[u8],
    netns: Option<&OwnedFd>,
) -> Result<(Connection, Reply), TransportError> {
    let reply = match agent.send(frame, netns) {
        Ok(()) => agent.reply()?,
        // An agent that refuses to read on may have said why.
        Err(error) => match agent.reply() {
            Ok(refusal @ Reply::Error(_)) => refusal,
            _ => return Err(error),
        },
    };
    Ok((agent, reply))
}

/// Tells whether the lease answers a `STATUS` in place of the agent.
///
/// An agent that is there and does not answer is not being restarted.
fn is_answered(socket: &Path, config: &RawValue, error: &TransportError) -> bool {
    (error.is_absence() || error.is_loss()) && lease::answers(socket, config.get())
}

/// Prints the result of `ADD` and acknowledges it to the agent (CNI-ADD-06).
///
/// Until the acknowledgement the agent is ready to roll back.
fn hand_over(agent: Connection, result: &RawValue, version: CniVersion) -> Result<(), Failure> {
    if !result.get().starts_with('{') {
        let details = format!("it answered {}", result.get());
        return Err(CniError::outcome_unknown(version, Command::Add, details).into());
    }
    stdio::write_stdout(result.get().as_bytes()).map_err(Failure::Stdout)?;
    // The runtime has the result now: an agent that went away meanwhile finds its own record.
    if let Err(error) = agent.acknowledge() {
        stdio::log(&format!(
            "the agent did not take the acknowledgement: {error}"
        ));
    }
    Ok(())
}

/// Answers an error of the agent; keeps a `DEL` that it cannot record now.
///
/// A runtime that is told of a failure keeps the pod, and a node with a full disk could not be emptied.
fn refused(call: &Call, socket: &Path, body: &[u8], error: CniError) -> Result<(), Failure> {
    match call {
        Call::Del { key, .. } if error.code == ErrorCode::NOT_RECORDED => {
            keep(socket, key, body, &error.msg).map_err(|source| {
                let details = format!("{}; {source}", error.details);
                CniError { details, ..error }.into()
            })
        }
        _ => Err(error.into()),
    }
}

/// Keeps a `DEL` for the agent, and says where.
fn keep(socket: &Path, key: &AttachmentKey, body: &[u8], why: &str) -> io::Result<()> {
    let path = tombstone::leave(socket, key, body)?;
    let path = path.display();
    stdio::log(&format!(
        "{why}; DEL of {key} is kept for the agent in {path}"
    ));
    Ok(())
}

/// Answers without an agent: keeps a `DEL` as a tombstone, fails anything else.
///
/// The agent did not listen, or closed the connection before its answer.
fn without_agent(
    call: &Call,
    version: CniVersion,
    socket: &Path,
    body: &[u8],
    error: &TransportError,
) -> Result<(), Failure> {
    let details = error.to_string();
    if let Call::Del { key, .. } = call {
        return keep(socket, key, body, &details).map_err(|source| {
            let msg = format!(
                "podnet-agent is not running at socket {} and the DEL could not be kept for it in {}; \
                 try again later",
                socket.display(),
                tombstone::directory(socket).display()
            );
            let details = format!("{details}; {source}");
            CniError::new(version, ErrorCode::TRY_AGAIN_LATER, msg, details).into()
        });
    }
    let command = call.command();
    Err(match error {
        TransportError::Connect { .. } => {
            let socket = socket.display().to_string();
            CniError::agent_unreachable(version, command, &socket, details)
        }
        TransportError::Send { .. } | TransportError::Reply { .. } => {
            CniError::outcome_unknown(version, command, details)
        }
    }
    .into())
}
