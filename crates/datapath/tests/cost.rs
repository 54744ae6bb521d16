//! Compare each program's cost with `agent-ebpf/cost.txt`, and look at maps.
//!
//! Costs are instructions, and bytes of the 512 that Linux 5.10 gives a program with all functions that it
//! calls. So a change shows its price.
//! Needs the eBPF object, not root.

#[path = "cost/program.rs"]
mod program;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use aya_obj::Object;
use datapath::Layout;

use self::program::Cost;

/// `MAX_BPF_STACK` of linux/filter.h.
const STACK: u32 = 512;
/// Bytes of stack that a program may take, where it is less than the kernel gives.
const LIMITS: [(&str, u32); 1] = [("from_pod", 288)];

/// The object that was named at build time, as the crate embeds it.
fn object() -> Option<Vec<u8>> {
    let now = env::var("PODNET_EBPF_OBJECT").ok();
    let path = now.or(option_env!("PODNET_EBPF_OBJECT").map(str::to_owned));
    let path = path.filter(|path| !path.is_empty())?;
    Some(fs::read(path).expect("the eBPF object"))
}

fn costs(bytes: &[u8]) -> BTreeMap<String, Cost> {
    let mut object = Object::parse(bytes).expect("an eBPF object");
    let sections: HashSet<usize> = object.functions.keys().map(|(index, _)| *index).collect();
    object.relocate_calls(&sections).expect("linked functions");
    let cost = |program: &aya_obj::Program| {
        let function = &object.functions[&program.function_key()];
        Cost::of(&function.instructions)
    };
    object
        .programs
        .iter()
        .map(|(name, program)| (name.clone(), cost(program)))
        .collect()
}

/// Returns the compiler's name in the object.
///
/// Another compiler makes other instructions.
fn compiler(object: &[u8]) -> String {
    const NAME: &[u8] = b"rustc version ";
    let at = object
        .windows(NAME.len())
        .position(|window| window == NAME)
        .expect("debug information that names the compiler");
    let name = object[at..].iter().copied();
    let name: Vec<u8> = name
        .take_while(|byte| *byte != b'(' && *byte != 0)
        .collect();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

fn table(compiler: &str, costs: &BTreeMap<String, Cost>) -> String {
    let mut text = format!(
        "# Written by BLESS=1 cargo test -p datapath --test cost. Stack in bytes; the chain is that of the \
         deepest functions.\n# {compiler}\n{:<14}{:>13}{:>7}{:>7}\n",
        "program", "instructions", "stack", "chain"
    );
    for (name, cost) in costs {
        writeln!(
            text,
            "{name:<14}{:>13}{:>7}{:>7}",
            cost.instructions, cost.stack, cost.chain
        )
        .expect("a string");
    }
    text
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../agent-ebpf/cost.txt")
}

#[test]
fn programs_cost_what_the_table_says_and_leave_room_on_the_stack() {
    let Some(object) = object() else {
        println!("SKIP: needs the eBPF object (PODNET_EBPF_OBJECT at build time)");
        return;
    };
    let (compiler, costs) = (compiler(&object), costs(&object));
    let now = table(&compiler, &costs);
    println!("{now}");
    for (name, cost) in &costs {
        let limit = LIMITS.iter().find(|(limited, _)| limited == name);
        let limit = limit.map_or(STACK, |(_, limit)| *limit);
        assert!(
            cost.chain <= limit,
            "{name} takes {} bytes of stack, {limit} is the limit",
            cost.chain
        );
    }
    let path = golden();
    if env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, now).expect("a file of the repository");
        return;
    }
    let before = fs::read_to_string(&path).unwrap_or_default();
    if before.lines().nth(1) != Some(&format!("# {compiler}")) {
        println!("not compared: agent-ebpf/cost.txt was not written for {compiler}");
        return;
    }
    assert_eq!(
        before, now,
        "agent-ebpf/cost.txt is out of date: BLESS=1 cargo test -p datapath --test cost"
    );
}

mod units {
    use aya_obj::generated::bpf_insn;

    use super::program::Cost;

    fn insn(code: u8, to: u8, from: u8, off: i16, imm: i32) -> bpf_insn {
        bpf_insn {
            code,
            _bitfield_align_1: [],
            _bitfield_1: bpf_insn::new_bitfield_1(to, from),
            off,
            imm,
        }
    }

    const EXIT: u8 = 0x95;

    #[test]
    fn what_is_read_written_and_pointed_to_is_the_depth() {
        let exit = insn(EXIT, 0, 0, 0, 0);
        // *(u64 *)(r10 - 24) = r1; r2 = r10; r2 += -40; *(u8 *)(r2 + 4) = r1
        let stored = insn(0x7b, 10, 1, -24, 0);
        let (copied, moved) = (insn(0xbf, 2, 10, 0, 0), insn(0x07, 2, 0, 0, -40));
        let depth = |program: &[bpf_insn]| Cost::of(program).stack;
        assert_eq!(depth(&[stored, exit]), 24);
        assert_eq!(depth(&[stored, copied, moved, exit]), 40);
        // r2 = r1: it points elsewhere now.
        let elsewhere = insn(0xbf, 2, 1, 0, 0);
        let far = insn(0x73, 2, 1, -400, 0);
        assert_eq!(depth(&[copied, moved, elsewhere, far, exit]), 40);
        assert_eq!(depth(&[copied, far, exit]), 400);
    }

    #[test]
    fn a_chain_is_as_deep_as_its_deepest_callees_each_rounded_up() {
        let exit = insn(EXIT, 0, 0, 0, 0);
        let at = |off| insn(0x7b, 10, 1, off, 0);
        let call = |imm| insn(0x85, 0, 1, 0, imm);
        // The program at 0 calls functions at 4 and 6; the one at 4 calls that at 6.
        let program = [at(-40), call(2), call(3), exit, call(1), exit, at(-8), exit];
        let cost = Cost::of(&program);
        assert_eq!((cost.instructions, cost.stack), (8, 40));
        assert_eq!(cost.chain, 64 + 32 + 32);
        // A helper is no function of the program.
        let helper = insn(0x85, 0, 0, 0, 2);
        assert_eq!(Cost::of(&[at(-40), helper, exit]).chain, 64);
    }
}

#[test]
fn a_map_that_ends_with_the_packet_is_no_part_of_the_layout() {
    let Some(bytes) = object() else {
        println!("SKIP: needs the eBPF object (PODNET_EBPF_OBJECT at build time)");
        return;
    };
    let object = Object::parse(&bytes).expect("an eBPF object");
    assert!(object.maps.contains_key("SCRATCH"));
    let layout = Layout::of(&bytes, &[]).expect("a layout");
    assert!(!layout.0.contains_key("SCRATCH"));
    assert!(layout.0.contains_key("PORTS"));
}
