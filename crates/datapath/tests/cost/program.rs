//! Counts what a program asks of the verifier, from its instructions alone.

use std::collections::{BTreeMap, BTreeSet};

use aya_obj::generated::bpf_insn;

/// The frame pointer, which is the end of a function's stack.
const FRAME: u8 = 10;
/// Grain in bytes in which the kernel gives a function of a program its stack.
const GRAIN: u32 = 32;

/// `BPF_CALL`, and the source register by which it calls a function of the program.
const CALL: u8 = 0x85;
const PSEUDO_CALL: u8 = 1;
/// `BPF_MOV64_REG` and `BPF_ADD64_IMM`.
const MOVE: u8 = 0xbf;
const ADD: u8 = 0x07;
/// `BPF_CLASS`: loads, stores and arithmetic.
const CLASS: u8 = 0x07;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const ALU64: u8 = 0x07;

/// Cost of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Instructions, those of the functions that it calls among them.
    pub(crate) instructions: usize,
    /// Bytes of stack of the program's own function.
    pub(crate) stack: u32,
    /// Bytes of stack of the deepest chain of functions, as the kernel rounds them up.
    pub(crate) chain: u32,
}

impl Cost {
    /// Counts a program with its functions linked behind it.
    pub(crate) fn of(program: &[bpf_insn]) -> Self {
        let calls: Vec<(usize, usize)> = program
            .iter()
            .enumerate()
            .filter(|(_, insn)| insn.code == CALL && insn.src_reg() == PSEUDO_CALL)
            .map(|(at, insn)| (at, target(at, insn.imm)))
            .collect();
        let starts: BTreeSet<usize> = calls.iter().map(|(_, to)| *to).chain([0]).collect();
        let function_of = |at: usize| starts.range(..=at).next_back().copied().unwrap_or(0);
        let ends = starts.iter().skip(1).copied().chain([program.len()]);
        let depths: BTreeMap<usize, u32> = starts
            .iter()
            .copied()
            .zip(ends)
            .map(|(start, end)| (start, depth(&program[start..end])))
            .collect();
        let mut callees: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (at, to) in calls {
            callees.entry(function_of(at)).or_default().insert(to);
        }
        Self {
            instructions: program.len(),
            stack: depths[&0],
            chain: chain(0, &depths, &callees),
        }
    }
}

/// The instruction that a call leads to.
fn target(at: usize, offset: i32) -> usize {
    let to = i64::try_from(at).expect("a short program") + 1 + i64::from(offset);
    usize::try_from(to).expect("a call of a function of the program")
}

/// The verifier refuses recursion, so this ends.
fn chain(
    function: usize,
    depths: &BTreeMap<usize, u32>,
    callees: &BTreeMap<usize, BTreeSet<usize>>,
) -> u32 {
    let own = depths[&function].max(1).next_multiple_of(GRAIN);
    let below = callees.get(&function).into_iter().flatten();
    own + below
        .map(|callee| chain(*callee, depths, callees))
        .max()
        .unwrap_or(0)
}

/// Returns the bytes of stack that a function reaches.
///
/// It does so by its frame pointer, and by registers derived from it.
fn depth(function: &[bpf_insn]) -> u32 {
    let mut deepest = 0;
    let mut reach = |offset: i32| deepest = deepest.max(offset.min(0).unsigned_abs());
    // Offsets of registers that point to the stack. Compilers make such a pointer in one place.
    let mut pointers = BTreeMap::from([(FRAME, 0_i32)]);
    for insn in function {
        let (to, from) = (insn.dst_reg(), insn.src_reg());
        let base = match insn.code & CLASS {
            LDX => pointers.get(&from),
            ST | STX => pointers.get(&to),
            _ => None,
        };
        if let Some(base) = base {
            reach(base + i32::from(insn.off));
        }
        match insn.code {
            MOVE => match pointers.get(&from).copied() {
                Some(offset) => _ = pointers.insert(to, offset),
                None => _ = pointers.remove(&to),
            },
            ADD => {
                if let Some(offset) = pointers.get_mut(&to) {
                    *offset += insn.imm;
                    reach(*offset);
                }
            }
            code if matches!(code & CLASS, LDX | ALU | ALU64) => _ = pointers.remove(&to),
            _ => {}
        }
    }
    deepest
}
