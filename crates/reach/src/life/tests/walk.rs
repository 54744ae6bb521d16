//! Random lives of networks, with misfortunes.

use proptest::prelude::*;
use telemetry::fate::Fate;

use super::super::settle;
use super::{Scene, networks};

/// A step of a random life of networks.
#[derive(Debug, Clone)]
enum Step {
    Add(u8, usize, Option<(usize, Fate)>),
    Remove(u8, Option<(usize, Fate)>),
    Restart,
    Audit(Option<(usize, Fate)>),
}

fn fate() -> impl Strategy<Value = Option<(usize, Fate)>> {
    let all: Vec<Fate> = Fate::FAILURES.into_iter().chain(Fate::DEATHS).collect();
    proptest::option::weighted(0.6, (0..7_usize, proptest::sample::select(all)))
}

fn step() -> impl Strategy<Value = Step> {
    let network = 0..networks().len();
    prop_oneof![
        5 => (0..4_u8, network, fate()).prop_map(|(it, network, fate)| Step::Add(it, network, fate)),
        4 => (0..4_u8, fate()).prop_map(|(it, fate)| Step::Remove(it, fate)),
        1 => Just(Step::Restart),
        1 => fate().prop_map(Step::Audit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn networks_of_all_kinds_come_and_go_with_any_misfortune_and_leave_nothing(
        steps in proptest::collection::vec(step(), 1..30),
    ) {
        let scene = Scene::new();
        for step in steps {
            match step {
                Step::Add(container, network, fate) => {
                    if scene.fake.things().book.contains_key(&container) {
                        continue;
                    }
                    scene.expect(fate);
                    let added = scene.add(container, network);
                    scene.expect(None);
                    match added {
                        None => scene.restart(Some(container)),
                        Some(Ok(())) => {}
                        Some(Err(_)) => scene.remove(container).unwrap(),
                    }
                }
                Step::Remove(container, fate) => {
                    scene.expect(fate);
                    let removed = scene.remove(container);
                    scene.expect(None);
                    if removed.is_none() {
                        scene.restart(None);
                    }
                }
                Step::Restart => scene.restart(None),
                Step::Audit(fate) => {
                    let fake = scene.fake.clone();
                    scene.expect(fate);
                    if scene.run(async move { settle(&fake).await }).is_none() {
                        scene.restart(None);
                    }
                    scene.expect(None);
                }
            }
        }
        scene.audit();
        scene.assert_settled("the audit");
        for container in 0..4 {
            scene.remove(container).unwrap();
        }
        scene.assert_settled("all are gone");
        prop_assert!(scene.fake.things().gateways.is_empty());
    }
}
