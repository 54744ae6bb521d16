mod apart;
mod crash;
mod room;
mod rot;

use std::{fs, os::unix::fs::PermissionsExt as _, thread};

use super::*;
use crate::fake::{Disk, Fault};

fn put(key: &str, value: &str) -> Batch {
    Batch::new().put(Table::Attachments, key.as_bytes(), value.as_bytes())
}

fn row(key: &str, value: &str) -> Row {
    (key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = Store::open(&path).unwrap();
    store.commit(put("b", "2").and(put("a", "1"))).unwrap();
    store
        .commit(Batch::new().put(Table::Networks, b"a", b"other table"))
        .unwrap();
    store
        .commit(put("c", "3").delete(Table::Attachments, b"b"))
        .unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert!(!store.was_repaired());
    assert_eq!(
        store.rows(Table::Attachments).unwrap(),
        [row("a", "1"), row("c", "3")]
    );
    assert_eq!(
        store.get(Table::Networks, b"a").unwrap().unwrap(),
        b"other table"
    );
    assert_eq!(store.get(Table::Networks, b"b").unwrap(), None);
}

#[test]
fn changes_of_a_batch_apply_in_order() {
    let store = Disk::with_store().unwrap().open().unwrap();
    let batch = put("a", "1")
        .delete(Table::Attachments, b"a")
        .and(put("a", "2"));
    store.commit(batch).unwrap();
    assert_eq!(store.rows(Table::Attachments).unwrap(), [row("a", "2")]);
    store
        .commit(put("a", "3").delete(Table::Attachments, b"a"))
        .unwrap();
    assert_eq!(store.rows(Table::Attachments).unwrap(), []);
}

#[test]
fn an_empty_batch_completes_after_what_came_before_it() {
    let store = Disk::with_store().unwrap().open().unwrap();
    let first = store.submit(put("a", "1"));
    store.commit(Batch::new()).unwrap();
    assert_eq!(store.rows(Table::Attachments).unwrap(), [row("a", "1")]);
    first.wait().unwrap();
}

#[test]
fn batches_of_many_threads_are_all_there() {
    let store = Disk::with_store().unwrap().open().unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for index in 0..20 {
                    store
                        .commit(put(&format!("{thread}/{index}"), "x"))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(store.rows(Table::Attachments).unwrap().len(), 160);
}

#[test]
fn batches_that_wait_together_share_a_commit() {
    let disk = Disk::with_store().unwrap();
    let store = disk.open().unwrap();
    let before = disk.steps();
    store.commit(put("one", "x")).unwrap();
    let alone = disk.steps() - before;
    let before = disk.steps();
    let pending: Vec<_> = (0..500)
        .map(|n| store.submit(put(&n.to_string(), "x")))
        .collect();
    for pending in pending {
        pending.wait().unwrap();
    }
    let together = disk.steps() - before;
    assert!(
        together < 500 * alone / 2,
        "{together} steps for 500 batches, {alone} for one"
    );
}

#[tokio::test]
async fn a_submission_can_be_awaited() {
    let store = Disk::with_store().unwrap().open().unwrap();
    let (first, second) = tokio::join!(store.submit(put("a", "1")), store.submit(put("b", "2")));
    first.unwrap();
    second.unwrap();
    assert_eq!(store.rows(Table::Attachments).unwrap().len(), 2);
}

#[test]
fn dropping_the_store_or_the_promise_takes_nothing_back() {
    let disk = Disk::with_store().unwrap();
    let store = disk.open().unwrap();
    for n in 0..50 {
        drop(store.submit(put(&n.to_string(), "x")));
    }
    drop(store);
    assert_eq!(
        disk.open().unwrap().rows(Table::Attachments).unwrap().len(),
        50
    );
}

#[test]
fn a_batch_beyond_the_limits_fails_alone() {
    let store = Disk::with_store().unwrap().open().unwrap();
    let long = "k".repeat(KEY_MAX + 1);
    let large = "v".repeat(VALUE_MAX + 1);
    assert!(matches!(
        store.commit(put(&long, "")),
        Err(StoreError::KeyTooLong { size: 1025 })
    ));
    assert!(matches!(
        store.commit(put("a", &large)),
        Err(StoreError::ValueTooLarge { .. })
    ));
    store.commit(put(&long[1..], &large[1..])).unwrap();
    assert!(store.failure().is_none());
}

#[test]
fn after_a_failed_commit_nothing_more_is_accepted_until_it_was_opened_again() {
    let disk = Disk::with_store().unwrap();
    let store = disk.open().unwrap();
    store.commit(put("a", "1")).unwrap();
    assert!(
        !store
            .reopen(|_| unreachable!("nothing has failed"))
            .unwrap()
    );
    disk.set_fault(Fault::FailAt(disk.steps()));
    assert!(matches!(
        store.commit(put("b", "2")),
        Err(StoreError::Commit { .. })
    ));
    // The disk is well again, the store does not know what is on it.
    assert!(matches!(
        store.commit(put("c", "3")),
        Err(StoreError::Commit { .. })
    ));
    let failure = store.failure().unwrap();
    assert!(matches!(failure.error, StoreError::Commit { .. }));
    let mend = |contents: &Contents<'_>| {
        let rows = contents.rows(Table::Attachments)?;
        assert!(
            rows == [row("a", "1")] || rows == [row("a", "1"), row("b", "2")],
            "{rows:?}"
        );
        Ok(Batch::new().delete(Table::Attachments, b"b"))
    };
    assert!(store.reopen(mend).unwrap());
    assert!(store.failure().is_none());
    assert_eq!(store.failures(), 1);
    store.commit(put("c", "3")).unwrap();
    let all = [row("a", "1"), row("c", "3")];
    assert_eq!(store.rows(Table::Attachments).unwrap(), all);
    drop(store);
    assert_eq!(disk.open().unwrap().rows(Table::Attachments).unwrap(), all);
}

/// ATT-05: a disk that is still full is not taken for one with room.
///
/// Opening the store needs no room, and the changes that failed need none any more.
#[test]
fn a_store_is_not_opened_again_before_it_can_be_written() {
    let disk = Disk::with_store().unwrap();
    let store = disk.open().unwrap();
    disk.set_fault(Fault::FullFrom(disk.steps()));
    let full = (0..1000).find(|n| {
        store
            .commit(put(&n.to_string(), &"x".repeat(1000)))
            .is_err()
    });
    let full = full.expect("there is no room for ever");
    let since = store.failure().unwrap().since;
    for _ in 0..3 {
        let reopened = store.reopen(|contents| {
            // That far it is well.
            assert_eq!(contents.rows(Table::Attachments)?.len(), full);
            Ok(Batch::new())
        });
        assert!(
            matches!(reopened, Err(StoreError::Commit { .. })),
            "{reopened:?}"
        );
        assert_eq!(store.failure().unwrap().since, since);
        store.commit(put("a", "1")).unwrap_err();
        store.rows(Table::Attachments).unwrap_err();
    }
    assert_eq!(store.failures(), 1, "it is one failure");
    disk.set_fault(Fault::None);
    assert!(store.reopen(|_| Ok(Batch::new())).unwrap());
    store.commit(put("a", "1")).unwrap();
    assert_eq!(store.rows(Table::Attachments).unwrap().len(), full + 1);
    proof::of!("ATT-05");
}

/// ATT-05
#[test]
fn a_store_in_a_file_is_opened_again_and_made_anew_where_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = Store::open(&path).unwrap();
    store.commit(put("a", "1")).unwrap();
    for gone in [false, true] {
        store.shared_for_tests().fail(StoreError::Stopped);
        if gone {
            fs::remove_file(&path).unwrap();
        }
        assert!(store.reopen(|_| Ok(put("b", "2"))).unwrap());
        let rows = store.rows(Table::Attachments).unwrap();
        assert_eq!(rows.len(), if gone { 1 } else { 2 });
    }
    assert!(matches!(Store::open(&path), Err(StoreError::InUse { .. })));
    proof::of!("ATT-05");
}

#[test]
fn a_full_disk_is_an_error_with_its_cause() {
    let disk = Disk::with_store().unwrap();
    let store = disk.open().unwrap();
    disk.set_fault(Fault::FailFrom(disk.steps()));
    let error = store.commit(put("a", "1")).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.contains("storage space") || cause.contains("I/O"),
        "{cause}"
    );
}

#[test]
fn a_second_opener_is_told_the_file_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = Store::open(&path).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(
        matches!(&error, StoreError::InUse { path: named } if *named == path),
        "{error:?}"
    );
    drop(store);
    Store::open(&path).unwrap();
}

#[test]
fn of_many_first_openers_one_wins_and_the_rest_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let opened: Vec<_> = thread::scope(|scope| {
        let openers: Vec<_> = (0..8).map(|_| scope.spawn(|| Store::open(&path))).collect();
        openers
            .into_iter()
            .map(|opener| opener.join().unwrap())
            .collect()
    });
    assert_eq!(opened.iter().filter(|result| result.is_ok()).count(), 1);
    for error in opened.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    }
}

#[test]
fn the_file_is_for_its_owner_only_and_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    // What a creation that was interrupted leaves.
    fs::write(dir.path().join(".state.redb.new-x1y2z3"), "half").unwrap();
    fs::write(dir.path().join("other"), "not ours").unwrap();
    drop(Store::open(&path).unwrap());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["other", "state.redb"]);
}

#[test]
fn a_file_that_is_no_store_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let whole = {
        drop(Store::open(&path).unwrap());
        fs::read(&path).unwrap()
    };
    for content in [
        b"".as_slice(),
        b"x",
        b"this is not a database at all",
        &[0; 8192],
        &whole[..4096],
    ] {
        fs::write(&path, content).unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        assert!(error.to_string().contains("move it away"), "{error}");
        assert_eq!(
            fs::read(&path).unwrap(),
            content,
            "the evidence was changed"
        );
    }
}

#[test]
fn another_database_is_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    drop(redb::Database::create(&path).unwrap());
    assert!(matches!(
        Store::open(&path),
        Err(StoreError::Corrupt { .. })
    ));
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    drop(Store::open(&path).unwrap());
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction
        .open_table(meta)
        .unwrap()
        .insert("format", 3)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert!(matches!(
        Store::open(&path),
        Err(StoreError::Format { found: 3, .. })
    ));
}

#[test]
fn a_store_from_before_a_table_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = Store::open(&path).unwrap();
    store.commit(put("a", "1")).unwrap();
    drop(store);
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    assert!(transaction.delete_table(Table::Pods.definition()).unwrap());
    transaction.commit().unwrap();
    drop(database);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.rows(Table::Pods).unwrap(), []);
    store
        .commit(Batch::new().put(Table::Pods, b"p", b"q"))
        .unwrap();
    assert_eq!(store.rows(Table::Attachments).unwrap(), [row("a", "1")]);
}

#[test]
fn a_missing_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Store::open(dir.path().join("absent/state.redb")).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}
