//! `podnet-agent capture`: a running one, and the packets of its file.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::process::{Pid, Signal, kill_process};

use crate::node::Node;
use crate::pod::Port;
use crate::wait;

/// A packet of a capture.
#[derive(Debug, Clone)]
pub struct Captured {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Its length, bytes.
    pub length: u32,
    /// True when the pod has sent it.
    pub is_from_pod: bool,
    /// Direction and verdict, in words.
    pub comment: String,
    /// It has the verdict of a drop.
    pub is_dropped: bool,
}

/// A capture that runs.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    errors: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Capture {
    /// Begins a capture of a port, and waits until it sees packets.
    ///
    /// # Panics
    /// If the agent refuses.
    #[track_caller]
    pub fn start(node: &Node, port: &Port, more: &[&str]) -> Self {
        let mut capture = Self::spawn(node, port, more);
        let mut line = String::new();
        let read = capture.errors.read_line(&mut line);
        read.expect("its stderr can be read");
        assert!(line.starts_with("capturing "), "capture: {line}");
        capture
    }

    /// Returns what the agent says to a capture that it refuses.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn refusal(node: &Node, port: &Port, more: &[&str]) -> String {
        let mut capture = Self::spawn(node, port, more);
        let mut said = String::new();
        let read = capture.errors.read_to_string(&mut said);
        read.expect("its stderr can be read");
        let status = capture.child.wait().expect("it is our child");
        assert!(!status.success(), "it was begun: {said}");
        said
    }

    fn spawn(node: &Node, port: &Port, more: &[&str]) -> Self {
        let file = node.path(&format!("{}-{}.pcapng", port.container, port.ifname));
        let mut command = Command::new(&node.binaries().agent);
        command
            .args(["capture", "--container", &port.container])
            .args(["--ifname", &port.ifname])
            .arg("--write")
            .arg(&file)
            .arg("--socket")
            .arg(node.socket())
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let child = node.netns().run_in(|| command.spawn());
        let child = child.expect("the node's namespace can be entered");
        let mut child = child.expect("podnet-agent can be executed");
        let errors = child.stderr.take().expect("it was asked for");
        Self {
            child,
            errors: BufReader::new(errors),
            file,
        }
    }

    /// Waits until a packet of the file is as wanted.
    ///
    /// # Panics
    /// If none comes.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Captured) -> bool) -> Captured {
        wait::until(what, || {
            let packets = self.packets();
            packets.into_iter().find(|packet| wanted(packet))
        })
    }

    /// The packets that are in the file by now.
    pub fn packets(&self) -> Vec<Captured> {
        read(&self.file)
    }

    /// Path of the file.
    pub fn file(&self) -> &std::path::Path {
        &self.file
    }

    /// Interrupts it as a person does, and returns all packets of its file.
    ///
    /// The file is whole.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn stop(mut self) -> Vec<Captured> {
        self.signal(Signal::INT);
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}");
        let bytes = std::fs::read(&self.file).expect("its file");
        let reader = PcapNgReader::new(bytes.as_slice());
        let mut reader = reader.expect("the file has a header");
        let mut last = None;
        while let Some(block) = reader.next_block() {
            let block = block.expect("whole blocks");
            last = Some(matches!(block, Block::InterfaceStatistics(_)));
        }
        assert_eq!(last, Some(true), "the file has its end");
        self.packets()
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait::until("the capture to end", || {
            self.child.try_wait().expect("it is our child")
        })
    }

    /// Kills it without a chance to do anything.
    ///
    /// # Panics
    /// If it has ended.
    pub fn kill_9(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it is our child");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Packets of the whole blocks of a file that may be being written.
fn read(path: &std::path::Path) -> Vec<Captured> {
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    let (Ok(_), Ok(mut reader)) = (opened, PcapNgReader::new(bytes.as_slice())) else {
        return Vec::new();
    };
    let mut packets = Vec::new();
    while let Some(Ok(block)) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block else {
            continue;
        };
        let mut found = Captured {
            bytes: packet.data.to_vec(),
            length: packet.original_len,
            is_from_pod: false,
            comment: String::new(),
            is_dropped: false,
        };
        for option in &packet.options {
            match option {
                EnhancedPacketOption::Comment(text) => found.comment = text.to_string(),
                EnhancedPacketOption::Flags(flags) => found.is_from_pod = flags & 3 == 2,
                EnhancedPacketOption::Unknown(option) => found.is_dropped |= option.code == 7,
                _ => {}
            }
        }
        packets.push(found);
    }
    packets
}
