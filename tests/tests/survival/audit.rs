//! Requests while an audit is under way.

use std::process::Stdio;

use testbed::{Schedule, Setup};

/// CNI-ST-04: the longest step of an audit keeps nobody waiting.
///
/// That is its look at all attachments. Not even a request of a container that it has in hand waits.
#[test]
fn requests_are_answered_while_an_audit_is_held() {
    let held = tempfile::tempdir().expect("a directory");
    let path = held.path().to_str().expect("a path in UTF-8");
    let setup = Setup::default().with_audits_logged();
    let node = testbed::node!(setup.env("PODNET_PAUSE_IN", path));
    let schedule = Schedule::new(held.path());
    let conf = node.conf("blue");
    let (a, b, c) = (node.pod("a"), node.pod("b"), node.pod("c"));
    let port = a.attach("blue", "net1");
    b.attach("green", "net1");
    schedule.pause("audit.glance");
    // A GC without a list asks for an audit, and is answered after it.
    let audit = node.cni("GC").conf(&conf).spawn(Stdio::piped());
    schedule.wait_held("audit.glance");
    node.cni("STATUS").conf(&conf).run().silent();
    a.check("blue", "net1", &port.result).silent();
    c.attach("green", "net1");
    b.detach("green", "net1");
    b.attach("blue", "net1");
    schedule.release("audit.glance");
    let output = audit.wait_with_output().expect("podnet ends");
    assert!(output.status.success(), "{output:?}");
    a.check("blue", "net1", &port.result).silent();
    // What came and went meanwhile is no damage.
    node.assert_audit_finds_nothing("blue");
    for (pod, network) in [(&a, "blue"), (&b, "blue"), (&c, "green")] {
        pod.detach(network, "net1");
    }
    node.assert_empty();
    proof::of!("CNI-ST-04");
}
