//! scratch
use tests::*;
#[test]
fn look() {
    let node = tests::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    let ta = pa.tap(); let tb = pb.tap();
    let host = node.links();
    for l in &host { println!("{} {} up={} carrier={} peer={:?} alias={:?}", l.ifindex, l.name, l.up, l.carrier, l.peer_ifindex, l.alias); }
    let taps: Vec<_> = host.iter().filter(|l| l.alias.as_deref().is_some_and(|a| a.contains("/net1"))).map(|l| (l.name.clone(), Tap::on(node.netns(), &l.name))).collect();
    let s = traffic::udp(&pa, pa.v4().into());
    s.send_to(b"hello", (pb.v4(), 9)).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    while let Some(f) = ta.next() { println!("a got {f:02x?}"); }
    while let Some(f) = tb.next() { println!("b got {f:02x?}"); }
    for (n, t) in &taps { while let Some(f) = t.next() { println!("host {n} {f:02x?}"); } }
    println!("{:#?}", node.drops());
    println!("{:#?}", node.get("attachments"));
    for _ in 0..0 {}
}
