//! Test captures of AF_XDP ports.

use testbed::capture::{Capture, Captured};
use testbed::flow_log::FlowLog;
use testbed::{traffic, wait};

use super::scene::{Echo, attach, open, setup};

#[test]
fn a_capture_of_an_afxdp_port_has_what_the_pods_program_gets_and_sends() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let port = attach(&node, &fast, "blue", "fast-blue");
    let client = plain.attach("blue", "net1");
    let capture = Capture::start(&node, &port, &[]);
    let echo = Echo::start(vec![open(&port, 0)]);
    let socket = traffic::udp(&client, client.v4().into());
    socket.send_to(b"hello", (port.v4(), 4242)).expect("sent");
    let _ = socket.recv_from(&mut [0; 64]).expect("an answer");
    assert_eq!(echo.stop(), 1);
    let is_udp = |packet: &Captured| testbed::tap::contains(&packet.bytes, b"hello");
    wait::until_true("both directions", || {
        capture.packets().iter().filter(|it| is_udp(it)).count() == 2
    });
    let packets = capture.stop();
    let comments: Vec<&str> = packets
        .iter()
        .filter(|packet| is_udp(packet))
        .map(|packet| packet.comment.as_str())
        .collect();
    assert_eq!(
        comments,
        ["to the pod: delivered", "from the pod: accepted"]
    );
    // A check of the port finds its entries as they should be, meanwhile and afterwards.
    let again = Capture::start(&node, &port, &[]);
    let mut conf = super::scene::conf(&node, "blue", "fast-blue");
    conf["prevResult"] = port.result.clone();
    fast.call("CHECK", "net1").conf(&conf).run().silent();
    again.stop();
    fast.call("CHECK", "net1").conf(&conf).run().silent();
}

#[test]
fn the_page_says_why_frames_of_an_afxdp_port_were_dropped() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let port = attach(&node, &fast, "blue", "fast-blue");
    let other = plain.attach("blue", "net1");
    let mut program = open(&port, 0);
    let forged = testbed::frame::ethernet(other.mac, other.mac, 0x0800, &[0; 46]);
    assert!(program.send(&forged));
    program.flush().expect("the port is there");
    let count = |port: &testbed::Port| -> Option<u64> {
        let (_, page) = node.http("/metrics").expect("the page is served");
        let pod = format!("pod=\"{}\"", port.container);
        let line = page.lines().find(|line| {
            line.starts_with("podnet_port_drop_reasons_total{")
                && line.contains(&pod)
                && line.contains("reason=\"spoofed_mac\"")
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
    };
    wait::until_true("the drop to be counted", || count(&port) == Some(1));
    assert_eq!(count(&other), None);
}

#[test]
fn the_flow_log_has_what_the_pods_program_gets_and_sends() {
    let log = FlowLog::default();
    let node = testbed::node!(log.of(setup(), 1));
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let port = attach(&node, &fast, "blue", "fast-blue");
    let client = plain.attach("blue", "net1");
    FlowLog::wait_for_ports(&node, 2);
    let echo = Echo::start(vec![open(&port, 0)]);
    let socket = traffic::udp(&client, client.v4().into());
    for _ in 0..5 {
        socket.send_to(b"hello", (port.v4(), 4242)).expect("sent");
        let _ = socket.recv_from(&mut [0; 64]).expect("an answer");
    }
    assert_eq!(echo.stop(), 5);
    for (direction, field) in [("ingress", "destinationPort"), ("egress", "sourcePort")] {
        let lines = log.wait_for(&port, direction, 5, |line| line[field] == 4242);
        let packets: u64 = lines.iter().filter_map(|it| it["packets"].as_u64()).sum();
        assert_eq!(packets, 5, "{direction}: {lines:?}");
        assert!(lines.iter().all(|line| line["verdict"] == "forwarded"));
    }
    // A check of the port finds its entries as they should be.
    let mut conf = super::scene::conf(&node, "blue", "fast-blue");
    conf["prevResult"] = port.result.clone();
    fast.call("CHECK", "net1").conf(&conf).run().silent();
}
