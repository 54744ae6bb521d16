//! Records of this boot, which wait for no disk.

use std::time::Duration;

use store::fake::{Disk, Fault, Machine, Survivors};
use store::{Batch, Table};

use super::*;
use crate::pods::record::{Maker, Member, PodRecord};
use crate::samples;

async fn found(machine: &Machine) -> Records {
    let state = tempfile::tempdir().unwrap();
    read(&machine.open().unwrap(), state.path(), 16)
        .await
        .unwrap()
}

async fn book(machine: &Machine) -> Book {
    let found = found(machine).await;
    Book::new(found, machine.open().unwrap(), Duration::ZERO)
}

/// The machine after a reboot.
fn rebooted(machine: &Machine) -> Machine {
    Machine {
        disk: machine.disk.after_crash(Survivors::None),
        memory: Disk::with_store().unwrap(),
    }
}

/// Reserves and saves an attachment of `blue`.
async fn save(book: &Book, container: &str) -> Result<Attachment, BookError> {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    let wanted = wanted(container);
    let host = samples::host(&wanted, 7);
    let record = book.ledger().reserve(wanted, &blue, host).unwrap();
    book.save(&record).await.map(|()| record)
}

#[tokio::test]
async fn the_number_of_a_network_is_written_once_and_attachments_wait_for_no_disk() {
    let machine = Machine::with_store().unwrap();
    let first = book(&machine).await;
    let record = save(&first, "c1").await.unwrap();
    let before = machine.disk.steps();
    save(&first, "c2").await.unwrap();
    first.erase(&record.key).await.unwrap();
    assert_eq!(machine.disk.steps(), before);
    drop(first);
    // Nor after a start.
    let next = book(&machine).await;
    let before = machine.disk.steps();
    save(&next, "c3").await.unwrap();
    assert_eq!(machine.disk.steps(), before);
    drop(next);
    let after = found(&rebooted(&machine)).await;
    assert!(after.ledger.is_empty());
    assert_eq!(after.ledger.id_of("blue"), Some(record.network.id));
}

/// A record behind a number that could not be written is refused, too.
#[tokio::test]
async fn no_attachment_is_recorded_whose_number_is_not() {
    let machine = Machine::with_store().unwrap();
    let book = book(&machine).await;
    machine
        .disk
        .set_fault(Fault::FailFrom(machine.disk.steps()));
    let (first, second) = tokio::join!(save(&book, "c1"), save(&book, "c2"));
    first.unwrap_err();
    second.unwrap_err();
    machine.disk.set_fault(Fault::None);
    let book = std::sync::Arc::new(book);
    assert!(book.mend().await);
    let id = book.ledger().id_of("blue");
    drop(book);
    let found = found(&machine).await;
    assert!(id.is_some() && found.ledger.id_of("blue") == id);
    assert_eq!(found.ledger.len(), 2);
}

fn with_plugins(record: &PodRecord) -> PodRecord {
    let member = Member {
        ifname: cni_spec::IfName::new("net1").unwrap(),
        source: api::selection::Source::Npwg,
        target: api::selection::Target::Definition {
            namespace: "ns".to_owned(),
            name: "lan".to_owned(),
        },
        default_routes: record::DefaultRoutes::default(),
        asked_default_route: None,
        maker: Maker::Plugins(samples::delegation()),
    };
    PodRecord {
        members: vec![member],
        ..record.clone()
    }
}

/// A pod with plugins of others outlives a reboot: these are to be told `DEL`.
#[tokio::test]
async fn a_reboot_ends_pods_but_those_with_plugins_of_others() {
    let machine = Machine::with_store().unwrap();
    let first = book(&machine).await;
    let (plain, other) = (
        samples::pod("c1", State::Added),
        samples::pod("c2", State::Added),
    );
    let before = machine.disk.steps();
    for record in [&plain, &other] {
        first.pods().insert(record.clone());
        first.save_pod(record).await.unwrap();
    }
    assert_eq!(machine.disk.steps(), before);
    // Host ports and delegates come to a pod that is recorded already.
    let other = with_plugins(&other);
    first.save_pod(&other).await.unwrap();
    first.pods().update(&other);
    drop(first);
    let mut records = found(&machine).await.pods.records();
    records.sort_by_key(|it| it.key.to_string());
    assert_eq!(records, [plain.clone(), other.clone()]);
    let after = rebooted(&machine);
    assert_eq!(
        found(&after).await.pods.records(),
        std::slice::from_ref(&other)
    );
    // Both are erased for good.
    let last = book(&machine).await;
    for record in [&plain, &other] {
        last.erase_pod(&record.key).await.unwrap();
        last.pods().remove(&record.key);
    }
    drop(last);
    assert!(found(&machine).await.pods.records().is_empty());
    assert!(found(&rebooted(&machine)).await.pods.records().is_empty());
}

/// A pod whose newer record is damaged does not come back as it was before.
#[tokio::test]
async fn an_older_record_of_a_pod_is_not_taken_for_a_newer_one() {
    let machine = Machine::with_store().unwrap();
    let store = machine.open().unwrap();
    let record = samples::pod("c1", State::Added);
    let key = record.key.to_string();
    let value = serde_json::to_vec(&record).unwrap();
    let batch = Batch::new().put(Table::PodsOfBoot, key.as_bytes(), &value);
    store
        .submit(batch.put(Table::Pods, key.as_bytes(), b"{}"))
        .await
        .unwrap();
    drop(store);
    // Where most records are damaged nothing is read.
    let others = ["c2", "c3"].map(|it| samples::pod(it, State::Added));
    let store = machine.open().unwrap();
    for other in &others {
        let (key, value) = (other.key.to_string(), serde_json::to_vec(other).unwrap());
        let batch = Batch::new().put(Table::PodsOfBoot, key.as_bytes(), &value);
        store.submit(batch).await.unwrap();
    }
    drop(store);
    for _ in 0..2 {
        let found = found(&machine).await;
        assert_eq!(found.pods.records().len(), 2);
        assert_eq!(found.set_aside.len(), 1);
    }
}
