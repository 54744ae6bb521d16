//! Order of the calls in the life of an attachment.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_lead_to_a_port_while_it_is_there_and_before_its_pod_can_send() {
    for is_limited in [false, true] {
        let (added, removed) = clean_run(is_limited).await;
        let expected = [
            "giver.allow",
            "ports.admit",
            "reach.admit",
            "giver.grant",
            "reach.ensure",
            // Before the port counts for its new holder.
            "tables.reset",
            "ports.make",
            "tables.reconcile",
            "ports.make: pod's end",
            "ports.activate",
        ];
        assert_eq!(added, expected);
        let expected = [
            "tables.reconcile",
            "ports.unmake",
            "reach.release",
            "giver.released",
        ];
        assert_eq!(removed, expected);
    }
}

/// Packets meet the new programs after the tables and what these lead to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_flips_to_tables_that_are_complete_and_removes_after_that() {
    let mut scene = Scene::of(true);
    let engine = scene.recovered().await;
    for container in ["c1", "c2"] {
        scene.add_of(&engine, container).await.unwrap().unwrap();
    }
    scene.kernel.expect(Some((0, Fate::DiesBefore)));
    assert!(scene.remove(&engine).await.is_none());
    drop(engine);
    let engine = scene.reborn(Survivors::All).await;
    let expected = [
        "ports.survey",
        "ports.limit",
        "reach.recover",
        "tables.everything",
        "ports.repair",
        "reach.mend",
        "tables.activate",
        "tables.reconcile",
        "ports.unmake",
        "reach.release",
        "giver.released",
        "ports.remove_strays",
        "reach.mend_ways_out",
        "ports.drop_stale_pins",
    ];
    assert_eq!(scene.kernel.expect(None), expected);
    scene.assert_kept_of(&engine, "c2", "it was whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_whose_link_is_gone_goes_out_of_promotions_and_tables_at_once() {
    let scene = Scene::of(false);
    let engine = scene.recovered().await;
    scene.add(&engine).await.unwrap().unwrap();
    let ifindex = engine.book.record(&key()).unwrap().host.ifindex;
    scene.kernel.expect(None);
    engine.link_removed(ifindex);
    assert_eq!(
        scene.kernel.expect(None),
        ["ports.lost", "tables.reconcile"]
    );
    let things = scene.kernel.things();
    assert!(things.tables.values().all(BTreeSet::is_empty));
}

/// Its address would have two holders after a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_whose_record_may_be_on_the_disk_stays_held_and_nothing_new_is_begun() {
    let mut failed = 0;
    for at in 0.. {
        let after = format!("the disk fails at step {at}");
        let scene = Scene::of(false);
        let engine = scene.recovered().await;
        scene.add(&engine).await.unwrap().unwrap();
        let begun = scene.disk.steps();
        scene.disk.set_fault(Fault::FailFrom(begun + at));
        if scene.remove(&engine).await.unwrap().is_ok() {
            break;
        }
        failed += 1;
        assert!(engine.book.ledger().get(&key()).is_some(), "{after}");
        scene.kernel.expect(None);
        let added = scene.add_of(&engine, "c2").await.unwrap();
        added.expect_err(&after);
        assert_eq!(scene.kernel.expect(None), ["giver.allow"], "{after}");
    }
    assert!(failed >= 2, "{failed}");
}

/// An attachment made again while the audit waits for the turn of its container.
#[tokio::test]
async fn what_was_made_anew_while_the_audit_waited_stays() {
    let scene = Scene::of(false);
    let engine = scene.recovered().await;
    scene.add(&engine).await.unwrap().unwrap();
    scene.kernel.expect(Some((1, Fate::FailsBefore)));
    scene.remove(&engine).await.unwrap().unwrap_err();
    scene.kernel.expect(None);
    let turn = engine.book.turn(&key().container).await;
    let audit = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.audit(true).await }
    });
    // It goes as far as it gets: to the turn.
    tokio::task::yield_now().await;
    scene.remove(&engine).await.unwrap().unwrap();
    scene.add(&engine).await.unwrap().unwrap();
    drop(turn);
    assert!(audit.await.unwrap().unwrap().is_empty());
    scene.assert_kept(&engine, "it is another one by now");
}
