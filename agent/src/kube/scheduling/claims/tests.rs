use super::*;

const BLUE: &str = "addresses.podnet.dev/blue";
const CARRIES: &str = "network.podnet.dev/blue";

fn node(labels: &Value, amounts: &Value) -> Written {
    let node = json!({
        "metadata": {"name": "n1", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    });
    Written::of(&serde_json::from_value(node).unwrap())
}

fn claims(labels: &[&str], resources: &[(&str, u64)]) -> Claims {
    Claims {
        labels: labels.iter().map(ToString::to_string).collect(),
        resources: resources
            .iter()
            .map(|(key, amount)| ((*key).to_owned(), *amount))
            .collect(),
    }
}

#[test]
fn only_keys_of_ours_that_differ_are_written_and_stale_ones_removed() {
    let others = json!({"cpu": "4", "podnet.dev/fast": "64", "vendor.example/vf": "2"});
    let bare = node(&json!({"kubernetes.io/os": "linux"}), &others);
    assert!(bare.is_empty());
    assert_eq!(patch(&bare, &Claims::default()), None);
    let wanted = claims(&[CARRIES], &[(BLUE, 16)]);
    let expected = json!({
        "metadata": {"labels": {CARRIES: "true"}},
        "status": {"capacity": {BLUE: "16"}, "allocatable": {BLUE: "16"}},
    });
    assert_eq!(patch(&bare, &wanted), Some(expected));
    let same = node(&json!({CARRIES: "true"}), &json!({BLUE: "16"}));
    assert_eq!(patch(&same, &wanted), None);
    let expected = json!({
        "metadata": {"labels": {CARRIES: null}},
        "status": {"capacity": {BLUE: null}, "allocatable": {BLUE: null}},
    });
    assert_eq!(patch(&same, &Claims::default()), Some(expected));
    // The API server has its own way to write 10000.
    let rate = "bandwidth.podnet.dev/eth1";
    let canonical = node(&json!({}), &json!({rate: "10k"}));
    assert_eq!(patch(&canonical, &claims(&[], &[(rate, 10_000)])), None);
    assert!(patch(&canonical, &claims(&[], &[(rate, 10_001)])).is_some());
}

#[test]
fn less_is_written_at_once_and_more_when_it_has_stayed_so() {
    let mut settling = Settling::default();
    let start = Instant::now();
    let written = |amount: &str| node(&json!({}), &json!({BLUE: amount}));
    let (settled, next) = settling.settle(&claims(&[], &[(BLUE, 8)]), &written("16"), start);
    assert_eq!((settled, next), (claims(&[], &[(BLUE, 8)]), None));
    let more = claims(&[], &[(BLUE, 24)]);
    let (settled, next) = settling.settle(&more, &written("8"), start);
    assert_eq!(settled, claims(&[], &[(BLUE, 8)]));
    assert_eq!(next, Some(start + RAISE));
    // A wish that falls back begins to wait again.
    let (_, next) = settling.settle(&claims(&[], &[(BLUE, 8)]), &written("8"), start);
    assert_eq!(next, None);
    let later = start + RAISE;
    assert_eq!(
        settling.settle(&more, &written("8"), later).0,
        claims(&[], &[(BLUE, 8)])
    );
    let (settled, next) = settling.settle(&more, &written("8"), later + RAISE);
    assert_eq!((settled, next), (more, None));
}

#[test]
fn a_new_key_is_there_at_once_and_one_that_comes_and_goes_is_damped() {
    let mut settling = Settling::default();
    let start = Instant::now();
    let both = claims(&[CARRIES], &[(BLUE, 8)]);
    let nothing = node(&json!({}), &json!({}));
    let written = node(&json!({CARRIES: "true"}), &json!({BLUE: "8"}));
    assert_eq!(settling.settle(&both, &nothing, start).0, both);
    let (settled, _) = settling.settle(&Claims::default(), &written, start);
    assert_eq!(
        settled,
        Claims::default(),
        "what is not so any more is not said"
    );
    let (settled, next) = settling.settle(&both, &nothing, start);
    assert_eq!((settled, next), (Claims::default(), Some(start + RAISE)));
    assert_eq!(settling.settle(&both, &nothing, start + RAISE).0, both);
}

#[test]
fn a_node_has_a_bounded_number_of_labels_and_resources() {
    let mut many = Claims::default();
    for index in 0..KEYS_MAX + 3 {
        many.labels
            .insert(format!("network.podnet.dev/n{index:03}"));
        many.resources
            .insert(format!("addresses.podnet.dev/n{index:03}"), 1);
    }
    let bound = claims(&["network.podnet.dev/n066"], &[]);
    assert_eq!(many.limit(&bound), 6);
    assert!(
        many.labels.contains("network.podnet.dev/n066"),
        "a pod selects it"
    );
    assert_eq!(
        (many.labels.len(), many.resources.len()),
        (KEYS_MAX, KEYS_MAX)
    );
    assert_eq!(many.limit(&bound), 0);
}

/// A kubelet that starts would end the pods.
#[test]
fn what_pods_are_bound_by_stays_while_they_are_there() {
    let bound = claims(&[CARRIES], &[(BLUE, 5), ("addresses.podnet.dev/red", 2)]);
    let mut less = claims(&[], &[(BLUE, 3)]);
    less.keep(&bound);
    assert_eq!(
        less,
        claims(&[CARRIES], &[(BLUE, 5)]),
        "red does not ask any more"
    );
    let mut more = claims(&[CARRIES], &[(BLUE, 9)]);
    more.keep(&bound);
    assert_eq!(more, claims(&[CARRIES], &[(BLUE, 9)]));
}

fn total(prefix: &str, nodes: usize, blocks: &[&str]) -> Vec<u64> {
    let pools = [Pool::new(prefix.parse().unwrap(), &[], &[]).unwrap()];
    let blocks: Vec<Prefix> = blocks.iter().map(|block| block.parse().unwrap()).collect();
    let names: Vec<String> = (0..nodes).map(|index| format!("n{index}")).collect();
    let count = |own: &String| {
        let free = [(pools[0].family(), 0)];
        Count {
            network: "blue",
            pools: &pools,
            blocks: Some(&blocks),
            free: &free,
            held: 0,
            nodes: &names,
            own,
        }
        .addresses()
    };
    names.iter().map(count).collect()
}

#[test]
fn all_nodes_together_claim_the_addresses_that_no_node_has_and_no_more() {
    for nodes in [1, 2, 3, 7, 40] {
        let all = total("10.1.0.0/24", nodes, &[]);
        assert_eq!(all.iter().sum::<u64>(), 254, "{all:?}");
        let rest = total("10.1.0.0/24", nodes, &["10.1.0.16/28", "10.1.0.240/28"]);
        assert_eq!(rest.iter().sum::<u64>(), 254 - 16 - 15, "{rest:?}");
    }
    let one = total("10.1.0.0/28", 3, &["10.1.0.0/28"]);
    assert_eq!(one, [0, 0, 0], "another node has it all");
    let most = total("fd00::/64", 1, &[]);
    assert_eq!(most, [ADDRESSES_MAX]);
}

#[test]
fn a_network_of_both_families_has_what_the_smaller_one_has_and_what_is_held_counts() {
    let subnets = ["10.1.0.0/28", "fd00::/64"];
    let pools = subnets.map(|it| Pool::new(it.parse().unwrap(), &[], &[]).unwrap());
    let nodes = ["n1".to_owned()];
    let mut count = Count {
        network: "blue",
        pools: &pools,
        blocks: None,
        free: &[(Family::V4, 5), (Family::V6, 900)],
        held: 3,
        nodes: &nodes,
        own: "n1",
    };
    assert_eq!(count.addresses(), 8);
    // A cordoned node takes no further blocks, and has what it has.
    let none: &[Prefix] = &[];
    (count.blocks, count.own) = (Some(none), "n2");
    assert_eq!(count.addresses(), 8);
    count.own = "n1";
    assert_eq!(count.addresses(), 5 + 14 + 3);
}
