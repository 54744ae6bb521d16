//! Garbage collection that fails or dies at each call.
//!
//! The stale go, the others stay.

use std::time::Instant;

use super::*;

/// `GC` that keeps these containers; none when the agent died.
async fn collect(
    engine: &Arc<Engine>,
    kept: &'static [&'static str],
) -> Option<Result<usize, AgentError>> {
    let engine = Arc::clone(engine);
    let before = Instant::now();
    let work = async move {
        let keep =
            |record: &book::record::Attachment| kept.contains(&record.key.container.as_str());
        engine.collect("conf", before, keep).await
    };
    alive(tokio::spawn(work).await)
}

/// A node with three attachments, of which the runtime knows the second.
async fn three(is_limited: bool) -> (Scene, Arc<Engine>) {
    let scene = Scene::of(is_limited);
    let engine = scene.recovered().await;
    for container in ["c1", "c2", "c3"] {
        scene.add_of(&engine, container).await.unwrap().unwrap();
    }
    scene.kernel.expect(None);
    (scene, engine)
}

/// Fails unless the kept one is there, and nothing of the others.
fn assert_collected(scene: &Scene, engine: &Engine, after: &str) {
    scene.assert_kept_of(engine, "c2", after);
    assert_eq!(engine.book.ledger().entries().count(), 1, "{after}");
    let things = scene.kernel.things();
    assert_eq!(things.links.len(), 1, "{after}: {:?}", things.links);
    assert_eq!(things.open.len(), 1, "{after}: {:?}", things.open);
    let shapers = usize::from(scene.is_limited);
    assert_eq!(things.shapers.len(), shapers, "{after}");
    let entries: usize = things.tables.values().map(BTreeSet::len).sum();
    assert_eq!(entries, 1, "{after}: {:?}", things.tables);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_that_fails_at_any_call_removes_the_rest_and_is_finished_by_the_next() {
    for is_limited in [false, true] {
        let (scene, engine) = three(is_limited).await;
        let removed = collect(&engine, &["c2"]).await.unwrap().unwrap();
        assert_eq!(removed, 2);
        assert_collected(&scene, &engine, "a GC");
        let calls = scene.kernel.expect(None);
        assert!(calls.len() >= 6, "{calls:?}");
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::FAILURES {
                let after = format!("{fate:?} at {name}, call {at}");
                let (scene, engine) = three(is_limited).await;
                scene.kernel.expect(Some((at, fate)));
                let collected = collect(&engine, &["c2"]).await.unwrap();
                scene.kernel.expect(None);
                scene.assert_kept_of(&engine, "c2", &after);
                if let Err(error) = collected {
                    let left = engine.book.ledger().entries().count();
                    let all = matches!(fate, Fate::FailsFrom);
                    assert!(
                        all || left == 2,
                        "{after}: one failed, {left} left: {error}"
                    );
                }
                collect(&engine, &["c2"]).await.unwrap().expect(&after);
                super::super::doors::Reach::mend_ways_out(&*engine.reach).await;
                assert_collected(&scene, &engine, &after);
            }
        }
    }
    proof::of!("CNI-GC-04");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_dies_at_any_call_of_a_collection_leaves_whole_attachments() {
    for is_limited in [false, true] {
        let (scene, engine) = three(is_limited).await;
        collect(&engine, &["c2"]).await.unwrap().unwrap();
        let calls = scene.kernel.expect(None);
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::DEATHS {
                for survivors in [Survivors::None, Survivors::All] {
                    let after = format!("{fate:?} at {name}, {survivors:?} survive");
                    let (mut scene, engine) = three(is_limited).await;
                    scene.kernel.expect(Some((at, fate)));
                    assert!(collect(&engine, &["c2"]).await.is_none(), "{after}");
                    drop(engine);
                    let engine = scene.reborn(survivors).await;
                    scene.assert_kept_of(&engine, "c2", &after);
                    for container in ["c1", "c3"] {
                        let key = samples::key(container, "net1");
                        let is_there = engine.book.ledger().get(&key).is_some();
                        if is_there {
                            scene.assert_kept_of(&engine, container, &after);
                        }
                    }
                    collect(&engine, &["c2"]).await.unwrap().expect(&after);
                    assert_collected(&scene, &engine, &after);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_after_the_request_and_what_is_of_another_network_stays() {
    let (scene, engine) = three(false).await;
    let before = Instant::now();
    let removed = engine.collect("another", before, |_| false).await.unwrap();
    assert_eq!(removed, 0);
    scene.remove_of(&engine, "c1").await.unwrap().unwrap();
    scene.add_of(&engine, "c1").await.unwrap().unwrap();
    let removed = engine.collect("conf", before, |_| false).await.unwrap();
    assert_eq!(removed, 2);
    scene.assert_kept_of(&engine, "c1", "it came after the request");
    proof::of!("CNI-GC-03", "CNI-GC-06");
}

/// Made again while the collection waits for the container's turn.
#[tokio::test]
async fn what_was_made_anew_while_a_collection_waited_stays() {
    let (scene, engine) = three(false).await;
    let turn = engine.book.turn(&key().container).await;
    let collection = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move {
            let keep = |record: &book::record::Attachment| record.key != key();
            engine.collect("conf", Instant::now(), keep).await
        }
    });
    // It goes as far as it gets: to the turn.
    tokio::task::yield_now().await;
    scene.remove(&engine).await.unwrap().unwrap();
    scene.add(&engine).await.unwrap().unwrap();
    drop(turn);
    assert_eq!(collection.await.unwrap().unwrap(), 0);
    scene.assert_kept(&engine, "it is another one by now");
    proof::of!("CNI-GC-06");
}
