//! Test programs that wait for the first use of their side of the node.

use std::env;
use std::fs;
use std::path::Path;

use agent_common::cases::{BLUE_A, World};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use datapath::{Datapath, DatapathError, Dispatcher, Entries, Options};

use super::early;
use super::scratch::{LOOPBACK, REDIRECT, SHOT, Scratch, entries, name, run, scene};

/// `TC_ACT_UNSPEC` of `linux/pkt_cls.h`: on to the next filter, and to the node.
const NEXT: u32 = u32::MAX;

/// Names of the pinned dispatchers.
fn dispatchers(scratch: &Scratch) -> Vec<String> {
    let pins = scratch.pins().contents().expect("pins");
    let mut names: Vec<_> = pins.iter().map(|path| name(path)).collect();
    names.retain(|name| name.starts_with("d_") || name.starts_with("x_"));
    names.sort();
    names
}

/// Returns the verdict of the uplinks' dispatcher for an unwanted frame.
fn verdict_at_uplink(scratch: &Scratch) -> u32 {
    let path = scratch.path.join("root").join("d_uplink");
    let dispatcher = SchedClassifier::from_pin(path).expect("a pinned program");
    let frame = early::unwanted_frame();
    let mut options = TestRunOptions::new();
    options.data_in = Some(&frame);
    let result = dispatcher.test_run(options);
    result.expect("a frame that a test may be").return_value
}

fn drops(datapath: &mut Datapath) -> u64 {
    let drops = datapath.counters().drops().expect("counters");
    drops.iter().map(|it| it.count.packets).sum()
}

#[test]
fn programs_for_other_nodes_are_loaded_when_they_are_attached_first() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        early::fill(&mut datapath);
        datapath
            .activate()
            .and_then(datapath::Retired::remove)
            .expect("a flip");
        assert_eq!(dispatchers(scratch), ["d_pod"]);
        // Their maps are named by descriptors, which these must not free for others.
        drop(datapath.events().expect("a ring"));
        drop(datapath.marks().expect("marks"));
        drop(datapath.sampler().expect("a map"));
        let others: Vec<_> = (0..64).map(|_| fs::File::open("/dev/null")).collect();
        assert_eq!(datapath.hook().xdp_id().expect("none"), None);
        datapath
            .hook()
            .program(Dispatcher::Uplink)
            .expect("programs that load");
        drop(others);
        assert_eq!(dispatchers(scratch), ["d_pod", "d_uplink"]);
        assert_eq!(verdict_at_uplink(scratch), SHOT);
        assert_eq!(drops(&mut datapath), 1, "the drop is counted in our maps");
    });
}

#[test]
fn the_next_agent_takes_over_each_side_that_was_used_and_no_other() {
    scene(|scratch| {
        let mut older = Datapath::open(&scratch.options()).expect("programs that load");
        early::fill(&mut older);
        let _retired = older.activate().expect("a flip");
        let hook = older.hook();
        hook.program(Dispatcher::Uplink).expect("programs");
        hook.program(Dispatcher::Gateway).expect("programs");
        // Maps of another layout, without any tunnel: the frame is the node's own there.
        let mut newer = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        assert_eq!(verdict_at_uplink(scratch), SHOT, "before the flip");
        // Used while the newer agent was at it.
        older.hook().program(Dispatcher::Overlay).expect("programs");
        newer
            .activate()
            .and_then(datapath::Retired::remove)
            .expect("a flip");
        drop(older);
        assert_eq!(verdict_at_uplink(scratch), NEXT, "behind the flip");
        let used = ["d_gateway", "d_overlay", "d_pod", "d_uplink"];
        assert_eq!(dispatchers(scratch), used);
        early::fill(&mut newer);
        assert_eq!(verdict_at_uplink(scratch), SHOT, "with tunnels");
    });
}

#[test]
fn an_agent_serves_a_side_that_another_one_pinned_behind_its_back() {
    scene(|scratch| {
        let mut ours = Datapath::open(&scratch.options()).expect("programs that load");
        early::fill(&mut ours);
        let _retired = ours.activate().expect("a flip");
        // Without any tunnel in its maps.
        let theirs = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        theirs.hook().program(Dispatcher::Uplink).expect("programs");
        assert_eq!(verdict_at_uplink(scratch), NEXT, "of their maps");
        ours.hook().program(Dispatcher::Uplink).expect("programs");
        assert_eq!(verdict_at_uplink(scratch), SHOT, "of ours");
    });
}

/// Writes an object in which a program has another name.
fn object_without(program: &str, at: &Path) -> Option<()> {
    let now = env::var("PODNET_EBPF_OBJECT").ok();
    let path = now.or(option_env!("PODNET_EBPF_OBJECT").map(str::to_owned))?;
    let mut object = fs::read(path).expect("the object");
    let name = [program.as_bytes(), b"\0"].concat();
    let mut found = 0;
    for at in 0..object.len() - name.len() {
        if object[at..].starts_with(&name) {
            object[at] = b'_';
            found += 1;
        }
    }
    assert!(found > 0, "{program} is in the object");
    fs::write(at, object).expect("a file");
    Some(())
}

#[test]
fn a_side_whose_programs_cannot_be_loaded_is_refused_by_name_and_pods_go_on() {
    scene(|scratch| {
        let file = env::temp_dir().join(format!("podnet-test-object-{}", std::process::id()));
        if object_without("to_wire", &file).is_none() {
            println!("SKIP: needs the eBPF object (PODNET_EBPF_OBJECT)");
            return;
        }
        let options = Options {
            object: Some(file.clone()),
            ..scratch.options()
        };
        let mut datapath = Datapath::open(&options).expect("programs of pods");
        fs::remove_file(&file).expect("a file");
        datapath
            .activate()
            .and_then(datapath::Retired::remove)
            .expect("a flip");
        for _ in 0..2 {
            match datapath.hook().program(Dispatcher::Uplink) {
                Err(DatapathError::NoProgram { name }) => assert_eq!(name, "to_wire"),
                other => unreachable!("a side without a program: {other:?}"),
            }
            assert_eq!(dispatchers(scratch), ["d_pod"], "nothing can be attached");
        }
        let pod = entries(&World::with_pod_at(&BLUE_A, LOOPBACK));
        let tables = datapath.tables();
        tables.apply(&Entries::default(), &pod).expect("room");
        let all = agent_common::cases::all();
        let case = all.into_iter().find(|case| case.name == "UDP");
        let result = run(&datapath, &case.expect("a case").frame);
        assert_eq!(result.verdict, REDIRECT);
        // With all programs there, the next agent serves it.
        let mut next = Datapath::open(&scratch.options()).expect("programs that load");
        let _retired = next.activate().expect("a flip");
        next.hook().program(Dispatcher::Uplink).expect("programs");
        assert_eq!(dispatchers(scratch), ["d_pod", "d_uplink"]);
    });
}
