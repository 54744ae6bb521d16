//! Read the pages of an agent, which it serves on the loopback of its node.
//!
//! A forwarded port leads there; the page is read by HTTP/1.0, which needs nothing but a socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::agents::Agent;
use crate::error::PluginError;
use crate::kubectl::{Kubectl, Text, end};

/// Port of the pages.
const PORT: u16 = 9464;
/// The pages, in the order of the answers.
const PAGES: [&str; 2] = ["/metrics", "/debug/state"];

/// Both pages of an agent, each up to a limit.
pub(super) fn of(kubectl: &Kubectl, agent: &Agent, limit: u64) -> [Result<Text, PluginError>; 2] {
    let namespace = format!("--namespace={}", kubectl.podnet);
    let pod = format!("pod/{}", agent.pod);
    let ports = format!(":{PORT}");
    let arguments = ["port-forward", &namespace, &pod, &ports];
    PAGES.map(|page| {
        // A forwarded port ends with the first connection that breaks, so each page has one of its own.
        let mut child = kubectl.spawn(
            kubectl
                .command(&arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null()),
        )?;
        let port = forwarded(child.stdout.take(), kubectl.timeout());
        let text = port.map(|port| read(port, page, limit, kubectl.timeout()));
        end(&mut child);
        match text {
            Some(Ok(text)) => Ok(text),
            Some(Err(source)) => Err(PluginError::File {
                operation: "read",
                path: format!("{page} of {}", agent.node),
                source,
            }),
            None => Err(PluginError::Late {
                command: kubectl.show(&arguments),
                seconds: kubectl.timeout().as_secs(),
            }),
        }
    })
}

/// The local port, as soon as kubectl says it.
fn forwarded(pipe: Option<impl io::Read + Send + 'static>, patience: Duration) -> Option<u16> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let pipe = pipe?;
    thread::spawn(move || {
        for line in BufReader::new(pipe.take(1 << 16)).lines() {
            let Ok(line) = line else {
                return;
            };
            if let Some(port) = port_of(&line) {
                let _ = sender.send(port);
                return;
            }
        }
    });
    receiver.recv_timeout(patience).ok()
}

/// `Forwarding from 127.0.0.1:40001 -> 9464`
fn port_of(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("Forwarding from 127.0.0.1:")?;
    rest.split_once(' ')?.0.parse().ok()
}

fn read(port: u16, page: &str, limit: u64, patience: Duration) -> io::Result<Text> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    // A head is a few lines.
    let most = limit.saturating_add(1 << 16);
    stream.take(most).read_to_end(&mut answer)?;
    body(&answer, limit)
}

/// The body of an answer that is a success.
fn body(answer: &[u8], limit: u64) -> io::Result<Text> {
    let refused = |why: String| Err(io::Error::other(why));
    let mark = b"\r\n\r\n";
    let Some(at) = answer.windows(mark.len()).position(|it| it == mark) else {
        return refused("the answer has no end of its head".to_owned());
    };
    let head = String::from_utf8_lossy(&answer[..at]);
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return refused(format!("the agent answers `{status}`"));
    }
    let mut bytes = answer[at + mark.len()..].to_vec();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let cut = bytes.len() > limit;
    bytes.truncate(limit);
    Ok(Text { bytes, cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_that_of_the_line_for_ipv4() {
        assert_eq!(port_of("Forwarding from [::1]:40001 -> 9464"), None);
        let line = "Forwarding from 127.0.0.1:40001 -> 9464";
        assert_eq!(port_of(line), Some(40001));
    }

    #[test]
    fn a_page_is_the_body_of_a_success_and_is_cut_at_its_limit() {
        let page = b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nabcd";
        let text = body(page, 4).unwrap();
        assert_eq!(
            (text.bytes.as_slice(), text.cut),
            (b"abcd".as_slice(), false)
        );
        assert!(body(page, 3).unwrap().cut);
        let error = body(b"HTTP/1.0 404 Not Found\r\n\r\n", 9).unwrap_err();
        assert!(error.to_string().contains("404 Not Found"), "{error}");
        assert!(body(b"HTTP/1.0 200 OK\r\n", 9).is_err());
    }
}
