//! Hundreds of random calls from several threads against a model of what must be.
//!
//! Each thread has containers of its own, so that it knows what each of them must look like; the
//! agent does not know of threads. The seed is printed; `PODNET_SEED` repeats a run.

mod model {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Mutex;
    use std::thread;

    use serde_json::Value;
    use testbed::{Network, Node, Pod, Setup};

    const THREADS: u64 = 4;
    const CALLS: usize = 125;
    /// Interfaces, each with the networks it is attached to.
    ///
    /// A pod that is twice on one routed network has two routes to one gateway, which is another test's
    /// subject.
    const IFNAMES: [&str; 2] = ["net1", "net2"];
    const NETWORKS: [[&str; 4]; 2] = [
        ["blue", "red", "green", "small"],
        ["blue", "red", "blue", "small"],
    ];

    /// xorshift64*: repeatable, and good enough to choose calls.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
            usize::try_from(high).expect("31 bits") % limit
        }

        fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
            &list[self.below(list.len())]
        }
    }

    /// (container, ifname, network) that may be live: from before ADD until after DEL.
    type Known = Mutex<BTreeSet<(String, String, String)>>;

    /// State of one thread's own containers.
    struct Actor<'a> {
        node: &'a Node,
        known: &'a Known,
        dice: Dice,
        pods: Vec<Pod<'a>>,
        /// Network and result of each attachment.
        live: BTreeMap<(usize, &'static str), (&'static str, Value)>,
        calls: Vec<String>,
    }

    impl Actor<'_> {
        fn step(&mut self) {
            let pod = self.dice.below(self.pods.len());
            let ifname = *self.dice.one_of(&IFNAMES);
            match self.dice.below(10) {
                0..=4 => self.add(pod, ifname),
                5..=7 => self.del(pod, ifname),
                8 => self.check(pod, ifname),
                _ => self.gc(),
            }
        }

        fn network(&mut self, ifname: &str) -> &'static str {
            let index = usize::from(ifname == IFNAMES[1]);
            self.dice.one_of::<&str>(&NETWORKS[index])
        }

        fn key(&self, pod: usize, ifname: &str, network: &str) -> (String, String, String) {
            let container = self.pods[pod].container().to_owned();
            (container, ifname.to_owned(), network.to_owned())
        }

        fn add(&mut self, pod: usize, ifname: &'static str) {
            let network = self.network(ifname);
            self.calls.push(format!("ADD {pod}/{ifname} {network}"));
            let key = self.key(pod, ifname, network);
            let held = self.live.get(&(pod, ifname)).cloned();
            self.known.lock().expect("no panic").insert(key.clone());
            let outcome = self.pods[pod].add(network, ifname);
            match held {
                // The same again is the same answer; another network is refused.
                Some((there, result)) if there == network => assert_eq!(outcome.result(), result),
                Some(_) => {
                    outcome.fails_with(105);
                    self.known.lock().expect("no panic").remove(&key);
                }
                None if outcome.success => {
                    self.live.insert((pod, ifname), (network, outcome.result()));
                }
                None => {
                    // Only the small network can run out, and then nothing was taken.
                    assert_eq!(network, "small", "{outcome}");
                    outcome.fails_with(100);
                    self.known.lock().expect("no panic").remove(&key);
                }
            }
        }

        fn del(&mut self, pod: usize, ifname: &'static str) {
            let held = self.live.remove(&(pod, ifname));
            // A DEL for what is not there must succeed too; whatever network it names.
            let network = match &held {
                Some((network, _)) => network,
                None => self.network(ifname),
            };
            self.calls.push(format!("DEL {pod}/{ifname} {network}"));
            let with_netns = self.dice.below(2) == 0;
            let call = self.pods[pod]
                .call("DEL", ifname)
                .conf(&self.node.conf(network));
            let call = if with_netns {
                call
            } else {
                call.env("CNI_NETNS", "")
            };
            call.run().silent();
            assert!(!self.pods[pod].links().iter().any(|link| link == ifname));
            let key = self.key(pod, ifname, network);
            self.known.lock().expect("no panic").remove(&key);
        }

        fn check(&mut self, pod: usize, ifname: &'static str) {
            self.calls.push(format!("CHECK {pod}/{ifname}"));
            match self.live.get(&(pod, ifname)) {
                Some((network, result)) => self.pods[pod].check(network, ifname, result).silent(),
                None => {
                    let result = serde_json::json!({"cniVersion": "1.1.0"});
                    self.pods[pod].check("blue", ifname, &result).fails_with(3);
                }
            }
        }

        /// Everything anybody may have is valid, but one of this thread's own attachments.
        fn gc(&mut self) {
            let victim = self.live.keys().next().copied();
            let network = victim.map_or("blue", |key| self.live[&key].0);
            self.calls.push(format!("GC {network} but {victim:?}"));
            let gone = victim.map(|(pod, ifname)| self.key(pod, ifname, network));
            let known: Vec<_> = {
                let known = self.known.lock().expect("no panic");
                known
                    .iter()
                    .filter(|key| Some(*key) != gone.as_ref())
                    .cloned()
                    .collect()
            };
            // What others add from here on is not in the list, so their pods are named whole.
            let mut valid: Vec<(&str, &str)> = known
                .iter()
                .map(|(container, ifname, _)| (container.as_str(), ifname.as_str()))
                .collect();
            let own: BTreeSet<&str> = self.pods.iter().map(Pod::container).collect();
            let all: Vec<String> = (0..THREADS)
                .flat_map(|thread| (0..4).map(move |pod| name(thread, pod)))
                .collect();
            for container in all.iter().filter(|name| !own.contains(name.as_str())) {
                valid.extend(IFNAMES.map(|ifname| (container.as_str(), ifname)));
            }
            self.node.gc(network, &valid).silent();
            if let (Some((pod, ifname)), Some(gone)) = (victim, gone) {
                assert!(!self.pods[pod].links().iter().any(|link| link == ifname));
                self.live.remove(&(pod, ifname));
                self.known.lock().expect("no panic").remove(&gone);
            }
        }
    }

    fn name(thread: u64, pod: u64) -> String {
        format!("t{thread}-p{pod}")
    }

    fn seed() -> u64 {
        let chosen = std::env::var("PODNET_SEED").ok();
        let chosen = chosen.and_then(|seed| seed.parse().ok());
        chosen.unwrap_or_else(|| {
            let now = std::time::SystemTime::now();
            let since = now.duration_since(std::time::UNIX_EPOCH);
            since.map_or(1, |since| u64::from(since.subsec_nanos()) | 1)
        })
    }

    /// 500 calls leave agent, kernel and model in agreement; no address is held twice.
    #[test]
    fn five_hundred_random_calls_agree_with_the_model() {
        // Small enough to run out now and then.
        let small = Network::l2("small", &["10.3.0.0/29"]);
        let node = testbed::node!(Setup::default().network(&small));
        let seed = seed();
        println!("PODNET_SEED={seed}");
        let known = Known::default();
        let actors: Vec<Actor<'_>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (node, known) = (&node, &known);
                    scope.spawn(move || {
                        let mut actor = Actor {
                            node,
                            known,
                            dice: Dice((seed + thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
                            pods: (0..4).map(|pod| node.pod(&name(thread, pod))).collect(),
                            live: BTreeMap::new(),
                            calls: Vec::new(),
                        };
                        for _ in 0..CALLS {
                            actor.step();
                        }
                        actor
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("the model holds (see above)"))
                .collect()
        });

        let mut expected: Vec<(String, String)> = Vec::new();
        let mut addresses = BTreeSet::new();
        for actor in &actors {
            for ((pod, ifname), (network, result)) in &actor.live {
                let pod = &actor.pods[*pod];
                expected.push((pod.container().to_owned(), (*ifname).to_owned()));
                pod.check(network, ifname, result).silent();
                for ip in result["ips"].as_array().into_iter().flatten() {
                    let unique = addresses.insert((*network, ip["address"].to_string()));
                    assert!(unique, "{ip} of {network} is held twice");
                }
            }
            for (index, pod) in actor.pods.iter().enumerate() {
                let mut links = pod.links();
                links.sort();
                let live = actor.live.keys().filter(|(pod, _)| *pod == index);
                let wanted: Vec<_> = live.map(|(_, ifname)| (*ifname).to_owned()).collect();
                assert_eq!(links, wanted, "{}: {:?}", pod.container(), actor.calls);
            }
        }
        expected.sort();
        assert_eq!(node.attachments(), expected);
        for actor in &actors {
            for ((pod, ifname), (network, _)) in &actor.live {
                actor.pods[*pod].detach(network, ifname);
            }
        }
        node.assert_empty();
    }
}
