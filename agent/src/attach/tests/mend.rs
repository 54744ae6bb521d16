//! `CHECK` of an attachment that somebody has damaged at the node's end.

use super::*;

/// An attachment whose program and table entries somebody has taken away.
async fn damaged(scene: &Scene) -> Arc<Engine> {
    let engine = scene.recovered().await;
    scene.add(&engine).await.unwrap().unwrap();
    let mut things = scene.kernel.things();
    things.open.clear();
    things.tables.values_mut().for_each(BTreeSet::clear);
    drop(things);
    scene.kernel.expect(None);
    engine
}

/// `CHECK`, as a runtime that remembers the result of `ADD`.
async fn check(engine: &Engine) -> Result<(), AgentError> {
    let result = engine.book.record(&key()).unwrap().result().unwrap();
    engine.check(&key(), &netns(), &result).await
}

/// CNI-CHK-02, CNI-CHK-05: what can be made again is made again before the answer.
#[tokio::test]
async fn a_check_mends_programs_and_tables_before_it_answers() {
    for is_limited in [false, true] {
        let scene = Scene::of(is_limited);
        let engine = damaged(&scene).await;
        check(&engine).await.unwrap();
        scene.assert_whole(&engine, "a CHECK");
        let calls = scene.kernel.expect(None);
        check(&engine).await.unwrap();
        let again = scene.kernel.expect(None);
        assert!(
            !calls.is_empty() && again.is_empty(),
            "nothing is left to mend: {again:?}"
        );
    }
    proof::of!("CNI-CHK-02", "CNI-CHK-05");
}

/// CNI-CHK-05: damage that cannot be mended is told, and mended by a later call.
#[tokio::test]
async fn a_check_that_cannot_mend_names_the_damage() {
    let scene = Scene::of(true);
    let engine = damaged(&scene).await;
    check(&engine).await.unwrap();
    let calls = scene.kernel.expect(None);
    for (at, name) in calls.iter().enumerate() {
        let after = format!("a failure of {name}");
        let scene = Scene::of(true);
        let engine = damaged(&scene).await;
        scene.kernel.expect(Some((at, Fate::FailsBefore)));
        let told = check(&engine).await.unwrap_err();
        let AgentError::Damaged { faults, .. } = &told else {
            panic!("{after}: {told}");
        };
        assert!(
            faults.iter().any(|fault| fault.contains("is detached")),
            "{after}: {faults:?}"
        );
        scene.kernel.expect(None);
        check(&engine).await.expect(&after);
        scene.assert_whole(&engine, &after);
    }
    proof::of!("CNI-CHK-05");
}

/// CNI-CHK-01: what a pod has lost with its link is no port to mend.
#[tokio::test]
async fn a_check_of_an_attachment_without_its_link_mends_nothing() {
    let scene = Scene::of(false);
    let engine = damaged(&scene).await;
    scene.kernel.things().links.clear();
    let told = check(&engine).await.unwrap_err();
    assert!(matches!(told, AgentError::Damaged { .. }), "{told}");
    assert_eq!(scene.kernel.expect(None), [""; 0]);
    proof::of!("CNI-CHK-01");
}

/// The runtime had no answer, and the port that it asks for again cannot be mended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_again_takes_a_port_apart_that_cannot_be_mended_and_makes_it_once_more() {
    for is_limited in [false, true] {
        let scene = Scene::of(is_limited);
        let engine = damaged(&scene).await;
        let before = engine.book.record(&key()).unwrap().host.ifindex;
        scene.kernel.expect(Some((0, Fate::FailsBefore)));
        scene.add(&engine).await.unwrap().unwrap();
        let calls = scene.kernel.expect(None);
        let at = |call| calls.iter().position(|name| *name == call);
        let order = [at("ports.unmake"), at("giver.grant"), at("ports.make")];
        assert!(order.is_sorted() && order[0].is_some(), "{calls:?}");
        scene.assert_whole(&engine, "an ADD again");
        assert_ne!(engine.book.record(&key()).unwrap().host.ifindex, before);
        scene.assert_removable(&engine, "a DEL").await;
    }
}
