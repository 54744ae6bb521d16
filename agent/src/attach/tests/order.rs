//! Order of the calls in the life of an attachment.

use book::BookError;

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
            "reach.ensure: ports",
            // Before the port counts for its new holder.
            "tables.reset",
            "ports.make",
            // Policies are in force before anybody may write the port as live.
            "tables.admit",
            "tables.port",
            "ports.make: pod's end",
            "ports.activate",
        ];
        assert_eq!(added, expected);
        let expected = [
            "tables.port",
            "ports.unmake",
            // While the addresses are held.
            "reach.withdraw",
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
        "tables.port",
        "ports.unmake",
        "reach.withdraw",
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
    assert_eq!(scene.kernel.expect(None), ["ports.lost", "tables.port"]);
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

/// Removes the attachment, and is refused by the kernel: its record stays.
async fn fail_to_remove(scene: &Scene, engine: &Arc<Engine>) {
    scene.kernel.expect(Some((1, Fate::FailsBefore)));
    scene.remove(engine).await.unwrap().unwrap_err();
    scene.kernel.expect(None);
}

/// An attachment made again while the audit waits for the turn of its container.
#[tokio::test]
async fn what_was_made_anew_while_the_audit_waited_stays() {
    let scene = Scene::of(false);
    let engine = scene.recovered().await;
    scene.add(&engine).await.unwrap().unwrap();
    fail_to_remove(&scene, &engine).await;
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

/// The pod may send at once, and an agent that died would know nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_whose_record_is_refused_is_never_in_the_tables_and_its_pods_end_stays_down() {
    let scene = Scene::of(false);
    let engine = scene.recovered().await;
    scene.kernel.expect(None);
    scene.disk.set_fault(Fault::FailFrom(scene.disk.steps()));
    scene.add(&engine).await.unwrap().unwrap_err();
    let calls = scene.kernel.expect(None);
    let made = calls.iter().position(|name| *name == "ports.make").unwrap();
    // It is undone at once.
    let undone = ["tables.port", "ports.unmake", "reach.withdraw"];
    assert_eq!(calls[made + 1..], undone);
}

/// A start finds the ends of a shaper in the record alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_that_was_answered_survives_a_crash_at_any_step_of_the_disk() {
    for is_limited in [false, true] {
        let mut answered = 0;
        for at in 0.. {
            let after = format!("a crash at step {at} of the disk, limited: {is_limited}");
            let mut scene = Scene::of(is_limited);
            let engine = scene.recovered().await;
            let begun = scene.disk.steps();
            scene.disk.set_fault(Fault::CrashAt(begun + at));
            let added = scene.add(&engine).await.unwrap();
            let is_over = scene.disk.steps() <= begun + at;
            drop(engine);
            let engine = scene.reborn(Survivors::None).await;
            if added.is_ok() {
                answered += 1;
                scene.assert_kept(&engine, &after);
            }
            if is_over {
                break;
            }
        }
        assert!(answered > 0);
    }
}

/// TCX links are made while the node is quiet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_busy_from_the_first_change_of_a_request_to_its_last() {
    let scene = Scene::of(false);
    let engine = scene.recovered().await;
    let idle = || std::mem::take(&mut scene.kernel.things().idle);
    idle();
    scene.add(&engine).await.unwrap().unwrap();
    assert_eq!(idle(), ["giver.allow", "ports.admit", "reach.admit"]);
    scene.remove(&engine).await.unwrap().unwrap();
    assert_eq!(idle(), [""; 0]);
}

/// A crash in between would leave a port that no record names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_a_port_that_cannot_be_removed_stays_on_the_disk() {
    let scene = Scene::of(false);
    let engine = scene.recovered().await;
    scene.add(&engine).await.unwrap().unwrap();
    let (_, removed) = clean_run(false).await;
    let unmade = removed.iter().position(|name| *name == "ports.unmake");
    scene
        .kernel
        .expect(unmade.map(|at| (at, Fate::FailsBefore)));
    scene.remove(&engine).await.unwrap().unwrap_err();
    let disk = scene.disk.after_crash(Survivors::None).open().unwrap();
    assert_eq!(disk.rows(Table::Attachments).unwrap().len(), 1);
    scene.assert_removable(&engine, "the next DEL").await;
}

/// It goes by itself once that can be recorded: the disk has to be mended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_behind_a_removal_that_the_disk_keeps_from_ending_names_the_disk() {
    let scene = Scene::of(false);
    let engine = scene.recovered().await;
    scene.add(&engine).await.unwrap().unwrap();
    fail_to_remove(&scene, &engine).await;
    let again = scene.add(&engine).await.unwrap().unwrap_err();
    assert!(matches!(again, AgentError::BeingRemoved { .. }), "{again}");
    scene.disk.set_fault(Fault::FailFrom(scene.disk.steps()));
    scene.remove(&engine).await.unwrap().unwrap_err();
    let again = scene.add(&engine).await.unwrap().unwrap_err();
    let is_disk = matches!(again, AgentError::Book(BookError::Store { .. }));
    assert!(is_disk, "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attachment_that_cannot_be_mended_keeps_no_other_from_the_start_or_the_audit() {
    for by_audit in [false, true] {
        let mut scene = Scene::of(false);
        let engine = scene.recovered().await;
        for container in ["c1", "c2", "c3"] {
            scene.add_of(&engine, container).await.unwrap().unwrap();
        }
        assert!(engine.book.mend().await);
        let calls = |engine: Arc<Engine>, scene: &Scene| {
            let kernel = scene.kernel.clone();
            async move {
                if by_audit {
                    engine.audit(true).await.map(drop).unwrap();
                } else {
                    engine.recover(&PinDir::new("/none".into())).await.unwrap();
                }
                kernel.expect(None)
            }
        };
        let engine = if by_audit {
            engine
        } else {
            drop(engine);
            scene.disk = scene.disk.after_crash(Survivors::All);
            scene.start().await
        };
        scene.kernel.expect(None);
        // An audit makes a whole look at what is amiss only.
        scene.kernel.things().open.clear();
        let clean = calls(Arc::clone(&engine), &scene).await;
        let first = clean.iter().position(|name| *name == "ports.repair");
        assert!(first.is_some(), "{clean:?}");
        scene.kernel.things().open.clear();
        scene.kernel.expect(first.map(|at| (at, Fate::FailsBefore)));
        calls(engine, &scene).await;
        assert_eq!(scene.kernel.things().open.len(), 2, "by audit: {by_audit}");
    }
}
