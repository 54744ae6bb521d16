//! `capture`: packets of a port as pcapng, on stdout or in a file.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use cni_spec::{CaptureRequest, Reply, Request, read_frame, write_frame};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::dialogue::{Failure, connect};
use super::table::cell;
use crate::cli::CaptureOptions;

/// Captures until a limit or a signal; the file is whole either way.
///
/// # Errors
/// When the agent refuses, or the file cannot be written.
pub fn capture(options: &CaptureOptions) -> Result<(), Failure> {
    let file = options.write.as_deref();
    let file = file.filter(|path| path.as_os_str() != "-");
    if file.is_none() && io::stdout().is_terminal() {
        return Err(
            "stdout is a terminal: name a file with --write, or pipe the packets into a program, as in \
             `podnet-agent capture … | tcpdump -r -`"
                .into(),
        );
    }
    let mut stream = connect(&options.socket)?;
    write_frame(&mut stream, &Request::Capture(request(options)).to_body()?)?;
    let about: Value = match Reply::from_body(&read_frame(&mut stream)?)? {
        Reply::Ok(value) => serde_json::from_str(value.get())?,
        Reply::Error(error) => return Err(error.msg.into()),
    };
    // A file of before stays when the agent refuses.
    let mut out: Box<dyn Write> = match file {
        Some(path) => Box::new(
            File::create(path)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?,
        ),
        None => Box::new(io::stdout().lock()),
    };
    let [ifname, network, kind] = ["ifname", "network", "type"].map(|key| cell(&about, key));
    // A closed stderr is no reason to end.
    let _ = writeln!(
        io::stderr(),
        "capturing {ifname} on {network} ({kind}) for at most {} s; interrupt to end",
        options.seconds
    );
    end_on_signal(&stream)?;
    copy(&mut stream, &mut out)
}

fn request(options: &CaptureOptions) -> CaptureRequest {
    CaptureRequest {
        pod: options.pod.clone(),
        container: options.container.clone(),
        network: options.network.clone(),
        ifname: options.ifname.clone(),
        snaplen: options.snaplen,
        packets: options.packets,
        seconds: options.seconds,
        buffer: options.buffer.saturating_mul(1024),
    }
}

/// Has the agent end the file when a signal asks this program to end.
fn end_on_signal(stream: &UnixStream) -> Result<(), Failure> {
    let stream = stream.try_clone()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            // The agent sends the rest, and closes.
            let _ = stream.shutdown(Shutdown::Write);
        })?;
    Ok(())
}

fn copy(stream: &mut UnixStream, out: &mut impl Write) -> Result<(), Failure> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("the agent has gone: {error}").into()),
        };
        let piece = piece.get(..length).unwrap_or_default();
        // A reader sees each packet as it comes.
        match out.write_all(piece).and_then(|()| out.flush()) {
            // The reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(|error| format!("cannot write the packets: {error}"))?,
        }
    }
    Ok(())
}
