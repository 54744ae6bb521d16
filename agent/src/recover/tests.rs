use api::Mode;

use super::*;
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
        remember_boot(left.directory.path());
        drop(store);
        left
    }

    fn store(&self) -> Store {
        Store::open(self.directory.path().join(DATABASE)).unwrap()
    }

    fn read(&self, max_ports: u16) -> Result<Ledger, AgentError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let store = self.store();
        runtime.block_on(read_ledger(&store, self.directory.path(), max_ports))
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
    let host = crate::samples::host(&request, 3);
    let again = ledger.reserve(request, &blue, host).unwrap();
    assert_eq!(again.network.id, record.network.id);
    assert!(!is_another_boot(left.directory.path()));
}

/// Records of an agent that wrote no boot id must not be taken for those of another boot.
#[test]
fn without_a_boot_id_records_are_kept() {
    let left = Left::with(&[added()]);
    fs::remove_file(left.directory.path().join(BOOT_FILE)).unwrap();
    assert_eq!(left.read(16).unwrap().len(), 1);
}

#[test]
fn a_record_that_cannot_be_read_stops_the_start_and_is_named() {
    let left = Left::with(&[added()]);
    let batch = Batch::new().put(Table::Attachments, b"c9/net1", b"{\"state\":\"Gone\"}");
    left.store().commit(batch).unwrap();
    let error = left.read(16).unwrap_err();
    assert!(
        matches!(&error, AgentError::Record { key, .. } if key == "c9/net1"),
        "{error}"
    );
}

#[test]
fn fewer_ports_than_are_in_use_are_refused() {
    let left = Left::with(&[Attachment {
        port_id: 8,
        ..added()
    }]);
    assert!(matches!(left.read(8), Err(AgentError::NoPort { max: 8 })));
    assert_eq!(left.read(9).unwrap().len(), 1);
}
