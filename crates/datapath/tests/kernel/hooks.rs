//! The dispatcher, what it calls, and where it is attached.

use std::env;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use agent_common::cases::{BLUE_A, World};
use agent_common::drop::DropReason;
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use datapath::{Datapath, DatapathError, Dispatcher, Hook, HookKind, Options};
use netdev::{Connection, IngressFilter};

use super::scratch::{LOOPBACK, REDIRECT, SHOT, Scratch, fill, scene};

/// Returns the verdict of the dispatcher on an interface for a frame.
fn dispatch(scratch: &Scratch) -> u32 {
    let all = agent_common::cases::all();
    let case = all
        .into_iter()
        .find(|case| case.name == "UDP")
        .expect("a case of this name");
    let path = scratch.path.join("root").join("d_pod");
    let dispatcher = SchedClassifier::from_pin(path).expect("a pinned program");
    let mut options = TestRunOptions::new();
    options.data_in = Some(&case.frame);
    dispatcher
        .test_run(options)
        .expect("a frame that a test may be")
        .return_value
}

/// Attaches the dispatcher to the loopback interface. The filters that has then.
fn attach(hook: &Hook) -> Vec<IngressFilter> {
    let program = hook.program(Dispatcher::Pod).expect("a pinned program");
    let mut connection = Connection::open().expect("a socket");
    connection
        .set_ingress_program(LOOPBACK, program.as_fd(), "d_pod")
        .expect("a filter");
    connection.ingress_filters(LOOPBACK).expect("filters")
}

#[test]
fn the_dispatcher_drops_and_counts_until_programs_are_activated_behind_it() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut datapath, &World::with_pod_at(&BLUE_A, LOOPBACK));
        assert_eq!(dispatch(scratch), SHOT);
        let drops = datapath.counters().drops().expect("drops");
        let [miss] = drops[..] else {
            unreachable!("one drop was counted, not {drops:?}")
        };
        assert_eq!(
            (miss.reason, miss.count.packets),
            (DropReason::NoProgram, 1)
        );
        datapath
            .activate()
            .expect("a flip")
            .remove()
            .expect("nothing to remove");
        assert_eq!(dispatch(scratch), REDIRECT);
    });
}

#[test]
fn activation_flips_the_dispatcher_from_old_maps_to_new_ones() {
    scene(|scratch| {
        let mut older = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut older, &World::with_pod_at(&BLUE_A, LOOPBACK));
        older
            .activate()
            .expect("a flip")
            .remove()
            .expect("nothing to remove");
        let mut newer = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        assert_eq!(dispatch(scratch), REDIRECT, "opening touches no packet");
        let retired = newer.activate().expect("a flip");
        // The new maps know no port yet.
        assert_eq!(dispatch(scratch), SHOT);
        fill(&mut newer, &World::with_pod_at(&BLUE_A, LOOPBACK));
        assert_eq!(dispatch(scratch), REDIRECT);
        retired.remove().expect("pins that can be removed");
        drop(older);
        assert_eq!(dispatch(scratch), REDIRECT, "nothing of the old is needed");
    });
}

#[test]
fn programs_keep_running_when_their_agent_is_gone() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut datapath, &World::with_pod_at(&BLUE_A, LOOPBACK));
        datapath
            .activate()
            .expect("a flip")
            .remove()
            .expect("nothing to remove");
        drop(datapath);
        assert_eq!(dispatch(scratch), REDIRECT);
        // An agent that starts and dies before it is ready changes nothing.
        drop(Datapath::open(&scratch.options()).expect("programs that load"));
        assert_eq!(dispatch(scratch), REDIRECT);
    });
}

#[test]
fn an_attached_interface_has_one_filter_however_often_it_is_attached() {
    scene(|scratch| {
        let datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let hook = datapath.hook();
        for _ in 0..2 {
            let filters = attach(hook);
            assert_eq!(filters.len(), 1, "{filters:?}");
            let dispatcher = hook
                .dispatcher_id(Dispatcher::Pod)
                .expect("a pinned program");
            assert_eq!(filters[0].program, Some(dispatcher));
        }
        assert_eq!(hook.kind(LOOPBACK), HookKind::Filter);
        assert!(scratch.pins().linked().expect("pins").is_empty());
        assert!(hook.tcx_programs("lo").expect("an interface").is_empty());
    });
}

#[test]
fn a_promoted_interface_has_a_pinned_link_where_the_kernel_has_links() {
    scene(|scratch| {
        let datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let hook = datapath.hook();
        attach(hook);
        if hook
            .promote(Dispatcher::Pod, "lo", LOOPBACK)
            .expect("a link or none")
        {
            let dispatcher = hook
                .dispatcher_id(Dispatcher::Pod)
                .expect("a pinned program");
            assert_eq!(hook.kind(LOOPBACK), HookKind::Tcx);
            assert_eq!(scratch.pins().linked().expect("pins"), [LOOPBACK]);
            assert_eq!(hook.tcx_programs("lo").expect("an interface"), [dispatcher]);
            hook.forget(LOOPBACK).expect("a pin");
            // The kernel detaches a link whose last pin is gone when it gets to it.
            let soon = Instant::now() + Duration::from_secs(10);
            while !hook.tcx_programs("lo").expect("an interface").is_empty() {
                assert!(
                    Instant::now() < soon,
                    "the program is attached without its pin"
                );
                thread::yield_now();
            }
            assert!(
                hook.promote(Dispatcher::Pod, "lo", LOOPBACK)
                    .expect("a link again")
            );
        } else {
            println!("this kernel has no TCX");
            assert!(
                !hook.promote(Dispatcher::Pod, "lo", LOOPBACK).expect("none"),
                "it has it now"
            );
        }
        hook.forget(LOOPBACK).expect("what is there or not");
        assert_eq!(hook.kind(LOOPBACK), HookKind::Filter);
        assert!(scratch.pins().linked().expect("pins").is_empty());
    });
}

#[test]
fn an_interface_that_is_not_there_cannot_be_attached() {
    scene(|scratch| {
        let datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let hook = datapath.hook();
        match hook.promote(Dispatcher::Pod, "nowhere0", 4242) {
            Err(DatapathError::Attach { interface, .. }) => assert_eq!(interface, "nowhere0"),
            other => unreachable!("attached to nothing: {other:?}"),
        }
        assert!(scratch.pins().linked().expect("pins").is_empty());
    });
}

#[test]
fn every_pin_is_listed_and_removing_them_leaves_nothing() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        datapath
            .activate()
            .expect("a flip")
            .remove()
            .expect("nothing to remove");
        attach(datapath.hook());
        datapath
            .hook()
            .promote(Dispatcher::Pod, "lo", LOOPBACK)
            .expect("a link or none");
        let pins = scratch.pins();
        let contents = pins.contents().expect("pins");
        for pin in ["root/ROOT", "root/ROOT_MISSES", "root/d_pod"] {
            assert!(
                contents.contains(&scratch.path.join(pin)),
                "{pin} of {contents:?}"
            );
        }
        assert!(
            contents
                .iter()
                .all(|path| path.starts_with(&scratch.path) && path.exists())
        );
        pins.remove().expect("pins that can be removed");
        assert!(!scratch.path.exists());
        assert!(pins.contents().expect("nothing").is_empty());
        pins.remove().expect("what is gone can be removed");
    });
}

#[test]
fn a_directory_that_is_on_no_bpf_file_system_is_refused_by_its_path() {
    scene(|_| {
        let path = env::temp_dir().join("podnet-datapath-test");
        match Datapath::open(&Options::new(path.clone())) {
            Err(DatapathError::NotBpffs { path: refused }) => assert_eq!(refused, path),
            other => unreachable!("opened without a BPF file system: {other:?}"),
        }
        assert!(!path.exists());
    });
}
