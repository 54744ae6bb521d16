use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_full_file_is_kept_as_the_one_before_and_no_third_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows");
    let log = LogFile::new(Place::File(path.clone()), 10);
    for line in ["one 4\n", "two\n", "three\n", "four 6\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    assert_eq!(read(&path), "four 6\n");
    assert_eq!(read(&before(&path)), "three\n");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others of the node do not read it");
    // More than a file may have is a file by itself.
    log.append(b"a long line without end\n").unwrap();
    assert_eq!(read(&path), "a long line without end\n");
}

#[test]
fn a_line_that_was_broken_off_is_ended_before_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows");
    fs::write(&path, "{\"whole\": 1}\n{\"bro").unwrap();
    let log = LogFile::new(Place::File(path.clone()), 1000);
    log.append(b"{}\n").unwrap();
    assert_eq!(read(&path), "{\"whole\": 1}\n{\"bro\n{}\n");
}

#[test]
fn a_file_that_is_moved_away_or_cannot_be_made_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("there").join("flows");
    let log = LogFile::new(Place::File(path.clone()), 1000);
    assert!(log.check().is_err());
    assert!(log.append(b"lost\n").is_err());
    fs::create_dir(directory.path().join("there")).unwrap();
    log.check().unwrap();
    log.append(b"one\n").unwrap();
    fs::rename(&path, directory.path().join("moved")).unwrap();
    log.append(b"two\n").unwrap();
    assert_eq!(read(&path), "two\n");
}

#[test]
fn a_pipe_is_refused_because_its_writer_would_wait_for_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows");
    let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o600));
    mknodat(CWD, &path, kind, mode, 0).unwrap();
    let log = LogFile::new(Place::File(path), 1000);
    for refused in [log.check(), log.append(b"{}\n")] {
        assert_eq!(refused.unwrap_err().to_string(), "it is no regular file");
    }
}

#[test]
fn a_directory_at_the_place_of_the_file_before_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows");
    let log = LogFile::new(Place::File(path.clone()), 10);
    log.check().unwrap();
    fs::create_dir(before(&path)).unwrap();
    let refused = log.check().unwrap_err().to_string();
    assert!(refused.contains("flows.1 is no regular file"), "{refused}");
    fs::remove_dir(before(&path)).unwrap();
    fs::write(before(&path), "{}\n").unwrap();
    log.check().unwrap();
}
