//! Records of a boot in a file of their own.

use std::{fs, path::Path};

use redb::{Database, TableDefinition};

use super::*;
use crate::fake::{Disk, Fault, Machine, Survivors};

const KEYS: [&str; 2] = ["of boot", "lasting"];

/// A batch with a record in each file.
fn both(value: &str) -> Batch {
    put(KEYS[0], value).put(Table::Networks, KEYS[1].as_bytes(), value.as_bytes())
}

fn values(store: &Store) -> [Option<String>; 2] {
    let value = |table, key: &str| {
        let value = store.get(table, key.as_bytes()).unwrap();
        value.map(|it| String::from_utf8(it).unwrap())
    };
    [
        value(Table::Attachments, KEYS[0]),
        value(Table::Networks, KEYS[1]),
    ]
}

fn some(values: [&str; 2]) -> [Option<String>; 2] {
    values.map(|it| Some(it.to_owned()))
}

fn open(directory: &Path, of_boot: &str) -> Store {
    Store::open_apart(directory.join("lasting"), directory.join(of_boot)).unwrap()
}

#[test]
fn records_of_a_boot_make_no_step_on_the_disk() {
    let machine = Machine::with_store().unwrap();
    let store = machine.open().unwrap();
    let before = machine.disk.steps();
    store
        .commit(put("a", "1").put(Table::PodsOfBoot, b"p", b"1"))
        .unwrap();
    store.commit(put("a", "2")).unwrap();
    assert_eq!(machine.disk.steps(), before);
    store
        .commit(Batch::new().put(Table::Pods, b"p", b"1"))
        .unwrap();
    assert!(machine.disk.steps() > before);
}

#[test]
fn a_reboot_ends_records_of_the_boot_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), "of-boot");
    store.commit(both("1")).unwrap();
    drop(store);
    assert_eq!(values(&open(dir.path(), "of-boot")), some(["1", "1"]));
    fs::remove_file(dir.path().join("of-boot")).unwrap();
    let [of_boot, lasting] = values(&open(dir.path(), "of-boot"));
    assert_eq!((of_boot, lasting.as_deref()), (None, Some("1")));
}

/// A machine that stops at any step loses nothing that was acknowledged.
///
/// No record of the boot is there whose number is not.
#[test]
fn a_lasting_record_is_there_before_what_leans_on_it() {
    for crash in 0..40 {
        let machine = Machine::with_store().unwrap();
        let store = machine.open().unwrap();
        store.commit(both("1")).unwrap();
        machine
            .disk
            .set_fault(Fault::CrashAt(machine.disk.steps() + crash));
        let acknowledged = store.commit(both("2")).is_ok();
        drop(store);
        // The process alone has died: memory is as it was.
        for survivors in [Survivors::None, Survivors::All, Survivors::Some(crash)] {
            let next = Machine {
                disk: machine.disk.after_crash(survivors),
                memory: machine.memory.after_crash(Survivors::All),
            };
            let found = values(&next.open().unwrap());
            if acknowledged {
                assert_eq!(found, some(["2", "2"]), "step {crash}, {survivors:?}");
            } else {
                let [of_boot, _] = &found;
                assert_eq!(of_boot.as_deref(), Some("1"), "step {crash}, {survivors:?}");
            }
        }
    }
}

#[test]
fn a_full_memory_is_named_and_ends_like_a_full_disk() {
    let machine = Machine::with_store().unwrap();
    let store = machine.open().unwrap();
    machine
        .memory
        .set_fault(Fault::FailFrom(machine.memory.steps()));
    let error = store.commit(put("a", "1")).unwrap_err().to_string();
    assert!(error.contains("fake-boot"), "{error}");
    // There is no room yet.
    store.reopen(|_| Ok(Batch::new())).unwrap_err();
    machine.memory.set_fault(Fault::None);
    assert!(store.reopen(|_| Ok(put("a", "2"))).unwrap());
    assert_eq!(store.rows(Table::Attachments).unwrap(), [row("a", "2")]);
}

/// A store of the first format, as older agents have written it.
fn old(path: &Path) {
    let database = Database::create(path).unwrap();
    let writing = database.begin_write().unwrap();
    {
        let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
        writing
            .open_table(meta)
            .unwrap()
            .insert("format", 1)
            .unwrap();
        for (table, key) in [(Table::Attachments, KEYS[0]), (Table::Networks, KEYS[1])] {
            let mut table = writing.open_table(table.definition()).unwrap();
            table.insert(key.as_bytes(), b"old".as_slice()).unwrap();
        }
    }
    writing.commit().unwrap();
}

#[test]
fn an_upgrade_moves_the_records_of_the_boot_and_keeps_older_agents_out() {
    let dir = tempfile::tempdir().unwrap();
    old(&dir.path().join("lasting"));
    for _ in 0..2 {
        assert_eq!(values(&open(dir.path(), "of-boot")), some(["old", "old"]));
    }
    let lasting = Store::open(dir.path().join("lasting")).unwrap();
    assert_eq!(lasting.rows(Table::Attachments).unwrap(), []);
    drop(lasting);
    let database = Database::open(dir.path().join("lasting")).unwrap();
    let reading = redb::ReadableDatabase::begin_read(&database).unwrap();
    let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let format = reading.open_table(meta).unwrap().get("format").unwrap();
    assert_eq!(format.map(|it| it.value()), Some(2));
}

/// An upgrade that ended half-way has records in both files.
#[test]
fn of_a_record_in_both_files_that_of_the_boot_counts() {
    let machine = Machine::with_store().unwrap();
    let lasting = machine.disk.open().unwrap();
    lasting
        .commit(put("a", "old").and(put("b", "old")))
        .unwrap();
    drop(lasting);
    let of_boot = machine.memory.open().unwrap();
    of_boot.commit(put("a", "new")).unwrap();
    drop(of_boot);
    let store = machine.open().unwrap();
    let rows = store.rows(Table::Attachments).unwrap();
    assert_eq!(rows, [row("a", "new"), row("b", "old")]);
}

/// An agent whose socket is at another path finds the records of the last one.
#[test]
fn records_follow_to_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), "one");
    store.commit(both("1")).unwrap();
    drop(store);
    assert_eq!(values(&open(dir.path(), "two")), some(["1", "1"]));
    assert!(!dir.path().join("one").exists());
    assert_eq!(values(&open(dir.path(), "two")), some(["1", "1"]));
    // And back, to a file that is new again.
    assert_eq!(values(&open(dir.path(), "one")), some(["1", "1"]));
}

#[test]
fn a_disk_with_one_file_has_everything() {
    let disk = Disk::with_store().unwrap();
    let store = disk.open().unwrap();
    store.commit(both("1")).unwrap();
    drop(store);
    assert_eq!(values(&disk.open().unwrap()), some(["1", "1"]));
}
