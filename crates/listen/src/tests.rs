use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A socket that the kernel has no descriptors for, for so many attempts.
struct Starved {
    left: AtomicUsize,
    error: i32,
}

const EMFILE: i32 = 24;
const ECONNABORTED: i32 = 103;

impl Accept for Starved {
    type Stream = ();

    async fn accept(&self) -> io::Result<()> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        match taken {
            Ok(_) => Err(io::Error::from_raw_os_error(self.error)),
            Err(_) => Ok(()),
        }
    }
}

/// ATT-12
#[test]
fn an_accept_that_fails_is_followed_by_a_pause_and_said_once_a_second() {
    let mut door = Door::new("test");
    let mut now = Instant::now();
    let mut told = Vec::new();
    for _ in 0..50 {
        told.extend(door.failed(now));
        now = door.again.unwrap();
    }
    assert_eq!(told, [1, 10, 10, 10, 10], "attempts a line");
    proof::of!("ATT-12");
}

/// ATT-12
#[tokio::test]
async fn a_socket_is_served_again_when_the_kernel_has_descriptors_again() {
    for (error, pauses) in [(EMFILE, true), (ECONNABORTED, false)] {
        let mut door = Door::new("test");
        let starved = Starved {
            left: AtomicUsize::new(2),
            error,
        };
        door.next(&starved).await;
        assert_eq!(door.said.is_some(), pauses, "error {error}");
    }
    proof::of!("ATT-12");
}

const PATIENT: Patience = Patience {
    idle: Duration::from_secs(3600),
    life: Duration::from_secs(3600),
};

/// ATT-12
#[tokio::test]
async fn a_connection_ends_when_it_is_idle_or_old() {
    let soon = Duration::from_millis(1);
    let (idle, old) = (
        Patience {
            idle: soon,
            ..PATIENT
        },
        Patience {
            life: soon,
            ..PATIENT
        },
    );
    let open = Open::default();
    for patience in [idle, old] {
        let (here, mut there) = tokio::io::duplex(64);
        let mut guarded = Guarded::new(here, &open, patience);
        let error = loop {
            if patience.life == soon {
                // One that is never idle.
                there.write_all(b"x").await.unwrap();
            }
            if let Err(error) = guarded.read_u8().await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
    assert!(lock(&open).is_empty());
    proof::of!("ATT-12");
}

/// ATT-12
#[tokio::test]
async fn a_new_connection_displaces_the_oldest() {
    let open = Open::default();
    let mut kept = Vec::new();
    for _ in 0..CONNECTIONS {
        let (here, there) = tokio::io::duplex(64);
        kept.push((Guarded::new(here, &open, PATIENT), there));
    }
    let (mut oldest, _there) = kept.remove(0);
    let waiting = tokio::spawn(async move { oldest.read_u8().await.map_err(|it| it.kind()) });
    tokio::task::yield_now().await;
    let (here, mut there) = tokio::io::duplex(64);
    let mut newest = Guarded::new(here, &open, PATIENT);
    assert_eq!(
        waiting.await.unwrap(),
        Err(io::ErrorKind::ConnectionAborted)
    );
    there.write_all(b"x").await.unwrap();
    assert_eq!(newest.read_u8().await.unwrap(), b'x');
    assert_eq!(lock(&open).len(), CONNECTIONS);
    let (mut second, mut there) = kept.remove(0);
    there.write_all(b"y").await.unwrap();
    assert_eq!(second.read_u8().await.unwrap(), b'y', "it has its place");
    proof::of!("ATT-12");
}
