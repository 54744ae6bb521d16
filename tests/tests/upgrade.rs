//! Test other agents over one datapath: map sizes and programs, under traffic.

mod upgrade {
    use std::fs;

    use testbed::stream::Stream;
    use testbed::{Node, Port, traffic};

    /// Layouts that are pinned: one, once an upgrade has settled.
    fn generations(node: &Node) -> Vec<String> {
        let entries = fs::read_dir(node.bpffs()).expect("the pins are there");
        let names = entries.flatten().map(|entry| entry.file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        let mut layouts: Vec<_> = names.filter(|name| name.starts_with('v')).collect();
        layouts.sort();
        layouts
    }

    fn streams(pa: &Port, pb: &Port) -> Vec<Stream> {
        let pairs = traffic::pairs(pa, pb).into_iter();
        pairs
            .map(|(from, to)| Stream::start(pa, from, pb, to))
            .collect()
    }

    /// More ports, then fewer again, lose nothing.
    ///
    /// Both ways the layout changes, state is carried over, not one datagram is lost, and the old layout
    /// goes.
    #[test]
    fn another_map_layout_loses_nothing() {
        let node = testbed::node!();
        let (a, b) = (node.pod("a"), node.pod("b"));
        let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
        let running = streams(&pa, &pb);
        let mut layouts = generations(&node);
        assert_eq!(layouts.len(), 1, "{layouts:?}");
        for max_ports in ["512", "4096", "1024"] {
            node.kill_9();
            node.start_agent_with(&["--max-ports", max_ports]);
            for stream in &running {
                stream.progress();
            }
            testbed::wait::until_true("the old layout to go", || generations(&node).len() == 1);
            let now = generations(&node);
            assert_ne!(now, layouts, "another size is another layout");
            layouts = now;
            a.check("blue", "net1", &pa.result).silent();
        }
        for stream in running {
            stream.assert_nothing_lost();
        }
        let late = node.pod("late");
        let port = late.attach("blue", "net1");
        traffic::assert_reaches(&pa, &port);
        for pod in [&a, &b, &late] {
            pod.detach("blue", "net1");
        }
        node.assert_empty();
    }

    /// The same agent again keeps the layout, and its programs do not pile up.
    #[test]
    fn the_same_layout_is_kept() {
        let node = testbed::node!();
        let layouts = generations(&node);
        for _ in 0..3 {
            node.restart();
        }
        testbed::wait::until_true("old programs to go", || {
            let dir = layouts.first().map(|name| node.bpffs().join(name));
            let entries = fs::read_dir(dir.expect("a layout")).expect("the pins are there");
            let names = entries.flatten().map(|entry| entry.file_name());
            let jumps = names.filter(|name| name.to_string_lossy().starts_with("jump-"));
            jumps.count() <= 1
        });
        assert_eq!(generations(&node), layouts);
    }

    /// An agent that dies during an upgrade leaves a state that the next one can use.
    #[test]
    fn a_killed_upgrade_is_finished_by_the_next() {
        let node = testbed::node!();
        let (a, b) = (node.pod("a"), node.pod("b"));
        let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
        let running = streams(&pa, &pb);
        for max_ports in ["512", "1024", "2048"] {
            node.kill_9();
            node.start_agent_with(&["--max-ports", max_ports]);
            // Ready, and the old layout perhaps not yet removed.
        }
        node.kill_9();
        node.start_agent();
        for stream in &running {
            stream.progress();
        }
        for stream in running {
            stream.assert_nothing_lost();
        }
        testbed::wait::until_true("old layouts to go", || generations(&node).len() == 1);
        a.detach("blue", "net1");
        b.detach("blue", "net1");
        node.assert_empty();
    }

    /// A layout with fewer ports than attachments is refused; the old size still works.
    ///
    /// The agent says so and does not start with half of them.
    #[test]
    fn a_layout_too_small_for_what_is_there_is_refused() {
        let node = testbed::node!();
        let pods: Vec<_> = (0..3).map(|n| node.pod(&format!("p{n}"))).collect();
        let ports: Vec<_> = pods.iter().map(|pod| pod.attach("blue", "net1")).collect();
        node.kill_9();
        let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            node.start_agent_with(&["--max-ports", "1"]);
        }));
        if started.is_ok() {
            // Served all the same: then all of it must work.
            for (pod, port) in pods.iter().zip(&ports) {
                pod.check("blue", "net1", &port.result).silent();
            }
        }
        traffic::assert_reaches(&ports[0], &ports[2]);
        node.forget_agent();
        node.start_agent();
        traffic::assert_reaches(&ports[0], &ports[1]);
        for pod in &pods {
            pod.detach("blue", "net1");
        }
        node.assert_empty();
    }
}
