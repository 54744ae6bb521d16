//! How long a durable record takes on the file system of a directory:
//! `cargo run --release -p store --example commit_latency -- DIR`.

use std::{
    env, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use redb::{Database, Durability, TableDefinition};
use store::{Batch, Store, Table};

const ROWS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("rows");
const COMMITS: usize = 200;
const CALLERS: usize = 50;
/// The size of an attachment's record, bytes.
const RECORD: [u8; 600] = [7; 600];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A way to commit that redb offers.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    durability: Durability,
    two_phase: bool,
    quick_repair: bool,
}

const WAYS: [Way; 4] = [
    Way {
        name: "Immediate, one phase (what the store uses)",
        durability: Durability::Immediate,
        two_phase: false,
        quick_repair: false,
    },
    Way {
        name: "Immediate, two phases",
        durability: Durability::Immediate,
        two_phase: true,
        quick_repair: false,
    },
    Way {
        name: "Immediate, quick repair",
        durability: Durability::Immediate,
        two_phase: true,
        quick_repair: true,
    },
    Way {
        name: "None (not durable)",
        durability: Durability::None,
        two_phase: false,
        quick_repair: false,
    },
];

fn main() -> Result<()> {
    let parent = env::args_os().nth(1).ok_or("usage: commit_latency DIR")?;
    let dir = tempfile::tempdir_in(parent)?;
    println!(
        "{:<44} {:>9} {:>9} {:>9}",
        "", "median us", "p90 us", "p99 us"
    );
    flush_alone(&dir.path().join("plain"))?;
    for way in WAYS {
        let path = dir.path().join("redb");
        one_way(way, &path)?;
        fs::remove_file(&path)?;
    }
    the_store(&dir.path().join("store"))?;
    for rows in [250, 10_000] {
        opening(dir.path(), rows)?;
    }
    Ok(())
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_micros();
    println!("{name:<44} {:>9} {:>9} {:>9}", at(50), at(90), at(99));
}

fn timed(mut work: impl FnMut(usize) -> Result<()>) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(COMMITS);
    for index in 0..COMMITS {
        let start = Instant::now();
        work(index)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// The floor: 4 KiB over 4 KiB, and a flush.
fn flush_alone(path: &Path) -> Result<()> {
    use std::os::unix::fs::FileExt as _;

    let file = fs::File::create(path)?;
    file.write_all_at(&[1; 1 << 20], 0)?;
    file.sync_all()?;
    let times = timed(|index| {
        file.write_all_at(&[2; 4096], u64::try_from(index % 256)? * 4096)?;
        Ok(file.sync_data()?)
    })?;
    report("a plain 4 KiB write and fdatasync", times);
    Ok(())
}

fn one_way(way: Way, path: &Path) -> Result<()> {
    let database = Database::create(path)?;
    let times = timed(|index| {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(way.durability)?;
        transaction.set_two_phase_commit(way.two_phase);
        transaction.set_quick_repair(way.quick_repair);
        transaction
            .open_table(ROWS)?
            .insert(index.to_string().as_bytes(), RECORD.as_slice())?;
        Ok(transaction.commit()?)
    })?;
    report(way.name, times);
    Ok(())
}

fn record(key: &str) -> Batch {
    Batch::new().put(Table::Attachments, key.as_bytes(), &RECORD)
}

fn the_store(path: &Path) -> Result<()> {
    let store = Store::open(path)?;
    let times = timed(|index| Ok(store.commit(record(&index.to_string()))?))?;
    report("store: one caller", times);

    let per_caller: Vec<Vec<Duration>> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let store = &store;
                scope.spawn(move || {
                    timed(|index| Ok(store.commit(record(&format!("{caller}/{index}")))?))
                        .map_err(|error| error.to_string())
                })
            })
            .collect();
        callers
            .into_iter()
            .filter_map(|caller| caller.join().ok())
            .collect::<Vec<_>>()
    })
    .into_iter()
    .collect::<std::result::Result<_, _>>()?;
    report(
        &format!("store: {CALLERS} callers at once"),
        per_caller.concat(),
    );

    let start = Instant::now();
    let burst: Vec<_> = (0..CALLERS)
        .map(|n| store.submit(record(&format!("burst/{n}"))))
        .collect();
    for pending in burst {
        pending.wait()?;
    }
    println!(
        "{CALLERS} batches handed in at once: {} us in all",
        start.elapsed().as_micros()
    );
    Ok(())
}

/// Opening, every checksum verified; and after a process that was killed.
fn opening(dir: &Path, rows: usize) -> Result<()> {
    let path = dir.join(format!("opening-{rows}"));
    let store = Store::open(&path)?;
    let mut batch = Batch::new();
    for row in 0..rows {
        batch = batch.and(record(&row.to_string()));
    }
    store.commit(batch)?;
    // What a killed process leaves: the file as it is between two commits.
    let killed = dir.join("killed");
    fs::copy(&path, &killed)?;
    drop(store);
    for (name, path) in [("closed", &path), ("killed", &killed)] {
        let start = Instant::now();
        let store = Store::open(path)?;
        let read = store.rows(Table::Attachments)?.len();
        println!(
            "open and read {read} records of a {name} store of {} KiB: {} us",
            fs::metadata(path)?.len() / 1024,
            start.elapsed().as_micros()
        );
    }
    Ok(())
}
