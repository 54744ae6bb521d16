//! Audits: a glance at all attachments, and whole looks at those that are amiss.

use std::sync::mpsc;

use super::*;

const GLANCE: [&str; 4] = [
    "ports.survey",
    "ports.suspects",
    "reach.suspects",
    "tables.suspects",
];

/// Attachments of this many containers, c1 and so on.
async fn made(scene: &Scene, count: usize) -> Arc<Engine> {
    let engine = scene.recovered().await;
    for number in 1..=count {
        let container = format!("c{number}");
        scene.add_of(&engine, &container).await.unwrap().unwrap();
    }
    assert!(engine.book.mend().await);
    scene.kernel.expect(None);
    engine
}

#[tokio::test]
async fn an_audit_asks_each_door_once_however_many_attachments_there_are() {
    for count in [1, 12] {
        let scene = Scene::of(true);
        let engine = made(&scene, count).await;
        assert!(engine.audit(true).await.unwrap().is_empty());
        assert_eq!(scene.kernel.expect(None), GLANCE, "{count} attachments");
        assert_eq!(engine.impaired(), 0);
    }
}

#[tokio::test]
async fn an_audit_looks_at_those_alone_that_are_amiss() {
    let scene = Scene::of(false);
    let engine = made(&scene, 3).await;
    let host = |container: &str| {
        let record = engine.book.record(&samples::key(container, "net1"));
        record.unwrap().host.name
    };
    assert!(scene.kernel.things().open.remove(&host("c2")));
    assert!(engine.audit(true).await.unwrap().is_empty());
    let whole = ["ports.repair", "reach.mend", "ports.limit"];
    let calls = scene.kernel.expect(None);
    assert_eq!(calls, [&GLANCE[..], &whole[..]].concat());
    scene.assert_kept_of(&engine, "c2", "it is mended");
    // What an audit does not mend is told, and counted until it is gone.
    let network = engine.book.ledger().id_of("blue").unwrap();
    let taken = scene
        .kernel
        .things()
        .tables
        .insert(network, BTreeSet::new());
    assert!(engine.audit(true).await.unwrap().is_empty());
    assert_eq!(engine.impaired(), 3);
    scene.kernel.things().tables.insert(network, taken.unwrap());
    assert!(engine.audit(true).await.unwrap().is_empty());
    assert_eq!(engine.impaired(), 0);
}

/// Nothing is known then, so each is looked at by itself.
#[tokio::test]
async fn where_a_glance_fails_an_audit_looks_at_all_attachments_one_by_one() {
    for door in 1..GLANCE.len() {
        let scene = Scene::of(false);
        let engine = made(&scene, 3).await;
        scene.kernel.things().open.clear();
        scene.kernel.expect(Some((door, Fate::FailsBefore)));
        assert!(engine.audit(true).await.unwrap().is_empty());
        let calls = scene.kernel.expect(None);
        let repairs = calls.iter().filter(|name| **name == "ports.repair");
        assert_eq!(repairs.count(), 3, "{calls:?}");
        assert_eq!(scene.kernel.things().open.len(), 3);
    }
}

/// The glance is the longest step of an audit, and holds no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_while_an_audit_is_held_in_its_glance() {
    let scene = Scene::of(false);
    let engine = made(&scene, 2).await;
    let (entered, begun) = mpsc::channel();
    let (go_on, held) = mpsc::channel();
    scene.kernel.things().hold = Some((entered, held));
    let audit = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.audit(true).await }
    });
    let begun = tokio::task::spawn_blocking(move || begun.recv());
    begun.await.unwrap().unwrap();
    // Of a container that the audit has in hand, too.
    let result = engine.book.record(&key()).unwrap().result().unwrap();
    engine.check(&key(), &netns(), &result).await.unwrap();
    scene.remove(&engine).await.unwrap().unwrap();
    scene.add(&engine).await.unwrap().unwrap();
    scene.add_of(&engine, "c3").await.unwrap().unwrap();
    assert!(!audit.is_finished());
    go_on.send(()).unwrap();
    assert!(audit.await.unwrap().unwrap().is_empty());
    for container in ["c1", "c2", "c3"] {
        scene.assert_kept_of(&engine, container, "the audit");
    }
}
