//! Kill the agent at each of its steps, and compare store, kernel and addresses.
//!
//! Afterwards they agree, and the runtime's next call gets what the specification promises.

mod crash {
    use serde_json::{Value, json};
    use testbed::{Network, Node, Pod, Setup, limit, traffic, wait};

    /// Whether the attachment that is made or removed has limits.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Rate {
        Free,
        Limited,
    }
    use Rate::{Free, Limited};

    /// Two addresses: one that leaks is missed at once.
    fn tiny() -> Network {
        Network::l2("tiny", &["10.3.0.0/30"])
    }

    fn setup() -> Setup {
        Setup::default().network(&tiny())
    }

    fn conf(node: &Node, rate: Rate) -> Value {
        let mut conf = node.conf("tiny");
        conf["runtimeConfig"] = json!({"mac": "02:00:00:00:00:2a"});
        if rate == Limited {
            conf["runtimeConfig"]["bandwidth"] =
                json!({"ingressRate": 50_000_000, "egressRate": 40_000_000});
        }
        conf
    }

    /// Record, kernel and leases say the same about the one attachment there may be.
    fn assert_agreement(node: &Node, pod: &Pod<'_>, rate: Rate) -> bool {
        let held = node.attachments();
        assert!(held.len() <= 1, "{held:?}");
        let linked = pod.links() == ["net1"];
        assert_eq!(
            linked,
            held.len() == 1,
            "record {held:?}, links {:?}",
            pod.links()
        );
        let used: Vec<_> = node
            .links()
            .into_iter()
            .filter(|link| link.alias.as_deref().is_some_and(|a| a.contains("a/net1")))
            .map(|link| link.name)
            .collect();
        // Its host end, and the two ends of its shaper.
        let links = if rate == Limited { 3 } else { 1 };
        assert_eq!(used.len(), links * held.len(), "{used:?}");
        linked
    }

    /// Everything can be had: both addresses and the MAC.
    fn assert_all_free(node: &Node) {
        node.assert_empty();
        let (x, y) = (node.pod("x"), node.pod("y"));
        let px = x.attach_conf(&conf(node, Free), "net1");
        let py = y.attach("tiny", "net1");
        traffic::assert_reaches(&px, &py);
        x.detach("tiny", "net1");
        y.detach("tiny", "net1");
        node.assert_empty();
    }

    fn crash_in_add(point: &str, rate: Rate) {
        let node = testbed::node!(setup());
        let pod = node.pod("a");
        node.terminate();
        node.start_agent_to_crash_at(point);
        let outcome = pod.add_conf(&conf(&node, rate), "net1");
        node.wait_dead();
        node.start_agent();
        let there = assert_agreement(&node, &pod, rate);
        if outcome.success {
            // The runtime has the result: it must be true.
            assert!(
                there,
                "{point}: the runtime was told of an attachment that is not there"
            );
            pod.check("tiny", "net1", &outcome.result()).silent();
        } else {
            // The runtime does not know; what it is told says that a DEL cleans up.
            outcome.fails_with(11);
        }
        pod.detach("tiny", "net1");
        assert!(!assert_agreement(&node, &pod, rate));
        assert_all_free(&node);
    }

    /// The runtime gives up after the crash and calls ADD again without a DEL between.
    fn crash_in_add_then_add(point: &str, rate: Rate) {
        let node = testbed::node!(setup());
        let pod = node.pod("a");
        node.terminate();
        node.start_agent_to_crash_at(point);
        let first = pod.add_conf(&conf(&node, rate), "net1");
        node.wait_dead();
        node.start_agent();
        let second = pod.add_conf(&conf(&node, rate), "net1").result();
        if first.success {
            assert_eq!(first.result(), second, "{point}");
        }
        assert!(assert_agreement(&node, &pod, rate));
        pod.check("tiny", "net1", &second).silent();
        pod.detach("tiny", "net1");
        assert_all_free(&node);
    }

    fn crash_in_del(point: &str, rate: Rate) {
        let node = testbed::node!(setup());
        let (pod, other) = (node.pod("a"), node.pod("b"));
        let port = other.attach("tiny", "net1");
        pod.attach_conf(&conf(&node, rate), "net1");
        node.terminate();
        node.start_agent_to_crash_at(point);
        // The agent goes away in the middle: a tombstone, and success.
        pod.del("tiny", "net1").silent();
        node.wait_dead();
        node.start_agent();
        wait::until_true("the DEL to be finished", || node.attachments().len() == 1);
        assert!(pod.links().is_empty(), "{point}");
        other.check("tiny", "net1", &port.result).silent();
        pod.del("tiny", "net1").silent();
        let next = node.pod("c");
        next.attach_conf(&conf(&node, rate), "net1");
        let shapers = node
            .links()
            .into_iter()
            .filter(|link| link.name.starts_with("ps"));
        assert_eq!(shapers.count(), usize::from(rate == Limited), "of the next");
        next.detach("tiny", "net1");
        other.detach("tiny", "net1");
        assert_all_free(&node);
    }

    macro_rules! crashes {
        ($($(#[$doc:meta])* $test:ident: $run:ident($point:literal);)+) => {$(
            $(#[$doc])*
            #[test]
            fn $test() {
                // The name the skip is reported under is this test's.
                if testbed::skip::without_root(testbed::test_name!()) {
                    return;
                }
                $run($point, Free);
                if !testbed::skip::without_shaping(testbed::test_name!()) {
                    $run($point, Limited);
                }
            }
        )+};
    }

    crashes! {
        /// An address was chosen, nothing is written.
        add_dies_with_an_address_reserved: crash_in_add("add.reserved");
        /// The record is durable, the links are made, the tables know nothing.
        add_dies_with_the_record_written: crash_in_add("add.recorded");
        /// The port is in the tables, the pod has no interface.
        add_dies_with_the_port_live: crash_in_add("add.live");
        /// The pod has its interface, the record may be on its way.
        add_dies_with_the_interface_placed: crash_in_add("add.placed");
        /// The second record is durable; without a limit the answer may be out.
        add_dies_with_the_record_ahead_of_the_pod: crash_in_add("add.saved");
        /// All is made, the second record may be on its way, the runtime was not told.
        add_dies_with_the_attachment_committed: crash_in_add("add.committed");
        /// The answer is out, and not acknowledged.
        add_dies_with_the_answer_sent: crash_in_add("add.replied");
        /// As above, and the runtime calls ADD again.
        add_again_after_dying_with_an_address_reserved: crash_in_add_then_add("add.reserved");
        /// As above, and the runtime calls ADD again.
        add_again_after_dying_with_the_record_written: crash_in_add_then_add("add.recorded");
        /// As above, and the runtime calls ADD again.
        add_again_after_dying_with_the_port_live: crash_in_add_then_add("add.live");
        /// As above, and the runtime calls ADD again.
        add_again_after_dying_with_the_interface_placed: crash_in_add_then_add("add.placed");
        /// As above, and the runtime calls ADD again.
        add_again_after_dying_with_the_record_ahead_of_the_pod: crash_in_add_then_add("add.saved");
        /// As above, and the runtime calls ADD again.
        add_again_after_dying_with_the_attachment_committed: crash_in_add_then_add("add.committed");
        /// As above, and the runtime calls ADD again.
        add_again_after_dying_with_the_answer_sent: crash_in_add_then_add("add.replied");
        /// The record says "deleting", the kernel knows nothing of it.
        del_dies_with_the_intent_recorded: crash_in_del("del.recorded");
        /// The link is gone, the record is there.
        del_dies_with_the_link_torn_down: crash_in_del("del.torn-down");
        /// The record is gone, the runtime was not told.
        del_dies_with_the_record_forgotten: crash_in_del("del.forgotten");
    }

    /// A rate that the manifests give to, or take from, an attachment while it is used.
    fn crash_in_change(point: &str, from: &str, to: &str) {
        let node = testbed::node!(setup().file("tiny.yaml", &(tiny().yaml() + from)));
        let (a, b) = (node.pod("a"), node.pod("b"));
        let (pa, pb) = (a.attach("tiny", "net1"), b.attach("tiny", "net1"));
        let limited = |rates: &str| {
            let rows = node.get("attachments");
            let limits = rows.iter().flat_map(|row| {
                ["ingress", "egress"].map(|way| row["bandwidth"][way]["mechanism"].is_string())
            });
            limits.collect::<Vec<_>>() == [!rates.is_empty(); 4]
        };
        assert!(limited(from), "{point}: before");
        node.terminate();
        node.start_agent_to_crash_at(point);
        node.write_manifest("tiny.yaml", &(tiny().yaml() + to));
        node.wait_dead();
        node.start_agent();
        wait::until_true("the manifests to be followed", || limited(to));
        traffic::assert_reaches(&pa, &pb);
        for (pod, port) in [(&a, &pa), (&b, &pb)] {
            pod.check("tiny", "net1", &port.result).silent();
        }
        let shapers = node
            .links()
            .into_iter()
            .filter(|link| link.name.starts_with("ps"));
        let expected = if to.is_empty() { 0 } else { 2 };
        assert_eq!(shapers.count(), expected, "{point}");
        for port in [&pa, &pb] {
            let host = limit::Interfaces::of(&node, port).host;
            let unlimited = limit::root(&node, &host) == netdev::RootQueue::Default;
            assert_eq!(unlimited, to.is_empty(), "{point}");
        }
        a.detach("tiny", "net1");
        b.detach("tiny", "net1");
        assert_all_free(&node);
    }

    const SLOW: &str = "  ingressRate: 50000000\n  egressRate: 40000000\n";
    const SLOWER: &str = "  ingressRate: 5000000\n  egressRate: 4000000\n";

    /// Recorded, made, not yet used; recorded, empty, not yet removed.
    #[test]
    fn changing_limits_dies_half_way() {
        if testbed::skip::without_root(testbed::test_name!())
            || testbed::skip::without_shaping(testbed::test_name!())
        {
            return;
        }
        for (point, from, to) in [
            ("limit.recorded", "", SLOW),
            ("limit.queued", "", SLOW),
            ("limit.recorded", SLOW, SLOWER),
            ("limit.queued", SLOW, SLOWER),
            ("limit.recorded", SLOW, ""),
            ("limit.drained", SLOW, ""),
        ] {
            crash_in_change(point, from, to);
        }
    }

    /// GC dies after the first of several.
    #[test]
    fn gc_dies_after_the_first_of_several() {
        let node = testbed::node!();
        let pods: Vec<_> = (0..4).map(|n| node.pod(&format!("p{n}"))).collect();
        for pod in &pods {
            pod.attach("blue", "net1");
        }
        node.terminate();
        node.start_agent_to_crash_at("gc.one");
        node.gc("blue", &[("p3", "net1")]).fails_with(11);
        node.wait_dead();
        node.start_agent();
        let left = node.attachments();
        assert_eq!(left.len(), 3, "{left:?}");
        let linked = pods.iter().filter(|pod| !pod.links().is_empty()).count();
        assert_eq!(linked, 3, "records and links differ");
        node.gc("blue", &[("p3", "net1")]).silent();
        assert_eq!(node.attachments(), [("p3".to_owned(), "net1".to_owned())]);
        pods[3].detach("blue", "net1");
        node.assert_empty();
    }

    /// `kill -9` at random moments, while several ADDs and DELs are under way.
    #[test]
    fn kill_9_at_any_moment_leaves_nothing_half_done() {
        let node = testbed::node!();
        for round in 0..4 {
            let pods: Vec<_> = (0..4).map(|n| node.pod(&format!("p{round}-{n}"))).collect();
            std::thread::scope(|scope| {
                for pod in &pods {
                    scope.spawn(move || {
                        // Whether these succeed is the agent's death to decide.
                        pod.add("blue", "net1");
                        pod.del("blue", "net1");
                        pod.add("blue", "net1");
                    });
                }
                let seen = node.links().len();
                wait::until_true("something to happen", || node.links().len() != seen);
                node.kill_9();
                node.start_agent();
            });
            // DELs of the time without an agent are carried out first.
            wait::until_true("the tombstones to be served", || {
                node.tombstones().is_empty()
            });
            let held = node.attachments();
            for pod in &pods {
                let recorded = held.iter().any(|(id, _)| id == pod.container());
                let linked = !pod.links().is_empty();
                assert_eq!(recorded, linked, "{}: {held:?}", pod.container());
                pod.detach("blue", "net1");
            }
            node.assert_empty();
        }
    }
}
