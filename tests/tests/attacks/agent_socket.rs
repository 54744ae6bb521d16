//! ATT-08: the agent's socket refuses user 0 that is not root of the node.

use std::process::{Command, Output, Stdio};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use testbed::Node;

/// Asks the agent by its own command, from a process that `become_it` has changed.
fn ask_as(node: &Node, become_it: fn()) -> Output {
    let mut command = Command::new(&node.binaries().agent);
    command
        .args(["get", "networks", "--socket"])
        .arg(node.socket())
        .stdin(Stdio::null());
    // Of a thread of its own: what it has become ends with it, and its child has it too.
    let asked = thread::spawn(move || {
        become_it();
        command.output()
    });
    let asked = asked.join().expect("it became that");
    asked.expect("podnet-agent can be executed")
}

fn without(rights: CapabilitySet) {
    for right in rights.iter() {
        // A right that this kernel does not know is not there.
        let _ = remove_capability_from_bounding_set(right);
    }
}

#[test]
fn root_of_a_container_cannot_call_the_agent() {
    let node = testbed::node!();
    let output = ask_as(&node, || {});
    assert!(output.status.success(), "{output:?}");
    let callers: [(&str, fn()); 3] = [
        ("does not have CAP_SYS_ADMIN", || {
            without(CapabilitySet::SYS_ADMIN);
        }),
        // As the switch in its container, which shares the directory of the socket.
        ("does not have CAP_SYS_ADMIN", || {
            without(CapabilitySet::all());
        }),
        ("another PID namespace", || {
            unshare(CloneFlags::CLONE_NEWPID).expect("a namespace for its children");
        }),
    ];
    for (why, become_it) in callers {
        let output = ask_as(&node, become_it);
        assert!(!output.status.success(), "{why}: {output:?}");
    }
    let log = std::fs::read_to_string(node.path("agent.log")).expect("a log");
    assert!(
        log.contains("a caller of the agent's socket is refused"),
        "{log}"
    );
    // Root of the node still can.
    let output = ask_as(&node, || {});
    assert!(output.status.success(), "{output:?}");
    proof::of!("ATT-08");
}
