mod memory;

use std::fs;

use api::Mode;
use store::{Batch, Store, Table};

use super::*;
use crate::ledger::Ledger;
use crate::record::State;
use crate::samples::{network, record, wanted};

/// A state directory as an agent has left it.
struct Left {
    directory: tempfile::TempDir,
}

impl Left {
    fn with(records: &[Attachment]) -> Self {
        let left = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let store = left.store();
        for record in records {
            let batch = Batch::new()
                .put(
                    Table::Attachments,
                    record.key.to_string().as_bytes(),
                    &serde_json::to_vec(record).unwrap(),
                )
                .put(
                    Table::Networks,
                    record.network.name.as_bytes(),
                    &record.network.id.to_le_bytes(),
                );
            store.commit(batch).unwrap();
        }
        boot::remember(left.directory.path()).unwrap();
        drop(store);
        left
    }

    fn store(&self) -> Store {
        Store::open(self.directory.path().join(DATABASE)).unwrap()
    }

    fn read(&self, max_ports: u16) -> Result<Ledger, BookError> {
        self.found(max_ports).map(|found| found.ledger)
    }

    fn found(&self, max_ports: u16) -> Result<Records, BookError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let store = self.store();
        runtime.block_on(read(&store, self.directory.path(), max_ports))
    }
}

fn added() -> Attachment {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    Attachment {
        state: State::Added,
        ..record(&blue, |_| {})
    }
}

#[test]
fn a_first_start_has_an_empty_book() {
    let ledger = Left::with(&[]).read(16).unwrap();
    assert!(ledger.is_empty());
}

#[test]
fn a_restart_knows_everything_as_it_was() {
    let record = added();
    let left = Left::with(std::slice::from_ref(&record));
    for _ in 0..2 {
        let ledger = left.read(16).unwrap();
        let entry = ledger.get(&record.key).unwrap();
        assert_eq!(entry.record, record);
        assert!(entry.live && entry.acknowledged);
        assert_eq!(ledger.id_of("blue"), Some(record.network.id));
    }
}

#[test]
fn a_reboot_ends_attachments_and_keeps_the_numbers_of_networks() {
    let record = added();
    let left = Left::with(std::slice::from_ref(&record));
    fs::write(left.directory.path().join(BOOT_FILE), "another boot").unwrap();
    let ledger = left.read(16).unwrap();
    assert!(ledger.is_empty());
    assert_eq!(ledger.id_of("blue"), Some(record.network.id));
    assert_eq!(left.store().rows(Table::Attachments).unwrap(), []);
    // The boot is remembered: what is recorded from now on stays.
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    let mut ledger = left.read(16).unwrap();
    let request = wanted("c1");
    let host = samples::host(&request, 3);
    let again = ledger.reserve(request, &blue, host).unwrap();
    assert_eq!(again.network.id, record.network.id);
    assert!(!boot::is_another(left.directory.path()));
}

/// Records without a boot id are not taken for those of another boot.
///
/// An agent that wrote no boot id may have written them.
#[test]
fn without_a_boot_id_records_are_kept() {
    let left = Left::with(&[added()]);
    fs::remove_file(left.directory.path().join(BOOT_FILE)).unwrap();
    assert_eq!(left.read(16).unwrap().len(), 1);
}

/// An attachment of the same network as [`added`], with everything of its own.
fn another(container: &str, number: u16) -> Attachment {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    let mut record = record(&blue, |wanted| {
        wanted.key = samples::key(container, "net1");
    });
    record.state = State::Added;
    record.port_id = number;
    for lease in &mut record.leases {
        lease.address = format!("10.10.0.{}", 100 + number).parse().unwrap();
    }
    record
}

/// Two good records and what `damage` makes of the bytes of a third.
fn damaged(key: &str, damage: impl FnOnce(Attachment) -> Vec<u8>) -> Left {
    let left = Left::with(&[added(), another("c2", 2)]);
    let batch = Batch::new().put(
        Table::Attachments,
        key.as_bytes(),
        &damage(another("c9", 9)),
    );
    left.store().commit(batch).unwrap();
    left
}

fn json(record: &Attachment) -> Vec<u8> {
    serde_json::to_vec(record).unwrap()
}

/// A kind of damage: the key, what becomes of the record, and what is said of it.
type Damage = (&'static str, fn(Attachment) -> Vec<u8>, &'static str);

/// ATT-15b
#[test]
fn a_record_that_cannot_be_used_is_set_aside_and_the_others_are_kept() {
    let kinds: [Damage; 9] = [
        ("c9/net1", |_| b"{\"state\":\"Gone\"}".to_vec(), "Gone"),
        ("c9/net1", |_| vec![0xff, 0, 1], "expected value"),
        ("c9/net1", |_| Vec::new(), "EOF"),
        (
            "c9/net1",
            |it| {
                String::from_utf8(json(&it))
                    .unwrap()
                    .replace("\"Added\"", "\"Frozen\"")
                    .into_bytes()
            },
            "Frozen",
        ),
        ("c8/net1", |it| json(&it), "it is the record of c9/net1"),
        (
            "c9/net1",
            |mut it| {
                it.host.name = "eth0".to_owned();
                json(&it)
            },
            "its host interface is eth0",
        ),
        (
            "c9/net1",
            |mut it| {
                it.port_id = 2;
                json(&it)
            },
            "its port 2 is another's",
        ),
        (
            "c9/net1",
            |mut it| {
                it.leases = another("c2", 2).leases;
                json(&it)
            },
            "its address 10.10.0.102 is another's",
        ),
        (
            "c9/net1",
            |mut it| {
                it.network.id = 77;
                json(&it)
            },
            "its network blue has the number 77",
        ),
    ];
    for (key, damage, reason) in kinds {
        let left = damaged(key, damage);
        // The second start knows it too.
        for _ in 0..2 {
            let found = left.found(16).unwrap();
            assert_eq!(found.ledger.len(), 2, "{reason}");
            let [aside] = &found.set_aside[..] else {
                unreachable!("{reason}: {:?}", found.set_aside);
            };
            assert!(aside.reason.contains(reason), "{reason}: {}", aside.reason);
            assert_eq!(aside.key, key);
            let rows = left.store().rows(Table::Attachments).unwrap();
            assert!(rows.iter().all(|(other, _)| other != key.as_bytes()));
        }
        let bytes = damage(another("c9", 9));
        let aside = left.found(16).unwrap().set_aside.remove(0);
        match String::from_utf8(bytes.clone()) {
            Ok(text) => assert_eq!(aside.text, Some(text)),
            Err(_) => assert_eq!(aside.bytes.as_deref(), Some("ff0001")),
        }
    }
    proof::of!("ATT-15b");
}

/// ATT-15b
#[test]
fn a_pod_that_cannot_be_read_is_set_aside() {
    let left = Left::with(&[added()]);
    let batch = Batch::new().put(Table::Pods, b"c9/eth0", b"{}");
    left.store().commit(batch).unwrap();
    let found = left.found(16).unwrap();
    assert!(found.pods.records().is_empty());
    assert_eq!(found.ledger.len(), 1);
    assert_eq!(found.set_aside[0].kind, aside::Kind::Pod);
    assert_eq!(left.store().rows(Table::Pods).unwrap(), []);
    proof::of!("ATT-15b");
}

/// ATT-15b: records of another agent are no damage.
#[test]
fn a_store_of_which_most_cannot_be_read_stops_the_start_and_keeps_everything() {
    let left = Left::with(&[added()]);
    let unreadable = |batch: Batch, n| {
        let key = format!("x{n}/net1");
        batch.put(Table::Attachments, key.as_bytes(), b"{}")
    };
    left.store()
        .commit((0..2).fold(Batch::new(), unreadable))
        .unwrap();
    let error = left.found(16).unwrap_err();
    assert!(
        matches!(error, BookError::Unreadable { bad: 2, all: 3, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("x0/net1"), "{error}");
    assert_eq!(left.store().rows(Table::Attachments).unwrap().len(), 3);
    // However many others there are.
    let many: Vec<_> = (0..40).map(|n| another(&format!("c{n}"), n)).collect();
    let left = Left::with(&many);
    left.store()
        .commit((0..17).fold(Batch::new(), unreadable))
        .unwrap();
    assert!(matches!(
        left.found(64),
        Err(BookError::Unreadable { bad: 17, .. })
    ));
    proof::of!("ATT-15b");
}

/// ATT-15b: what is set aside start after start does not grow without end.
#[test]
fn the_oldest_of_what_was_set_aside_make_room() {
    let many: Vec<_> = (0..20).map(|n| another(&format!("c{n}"), n)).collect();
    let left = Left::with(&many);
    for round in 0..6 {
        let batch = (0..15).fold(Batch::new(), |batch, n| {
            let key = format!("x{round}-{n}/net1");
            batch.put(Table::Attachments, key.as_bytes(), b"{}")
        });
        left.store().commit(batch).unwrap();
        let found = left.found(64).unwrap();
        assert_eq!(found.ledger.len(), 20);
        assert_eq!(found.set_aside.len(), (15 * (round + 1)).min(64));
    }
    assert_eq!(left.store().rows(Table::SetAside).unwrap().len(), 64);
    proof::of!("ATT-15b");
}

/// ATT-15b: a port beyond a smaller `--max-ports` gets another number.
///
/// That goes on as long as there is one.
#[test]
fn ports_beyond_fewer_ports_get_other_numbers_and_more_than_fit_are_refused() {
    let left = Left::with(&[another("c1", 0), another("c2", 8), another("c3", 9)]);
    assert_eq!(left.read(10).unwrap().len(), 3);
    assert!(matches!(left.read(2), Err(BookError::NoPort { max: 2 })));
    // What has got another number stays as it is then.
    for _ in 0..2 {
        let found = left.found(3).unwrap();
        let entries = found.ledger.entries();
        let ports: Vec<u16> = entries.map(|entry| entry.record.port_id).collect();
        assert_eq!(ports, [0, 1, 2]);
        assert!(found.set_aside.is_empty());
    }
    proof::of!("ATT-15b");
}
