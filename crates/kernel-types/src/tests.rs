use super::*;

/// Types being written down.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Self {
        Self {
            strings: vec![0],
            ..Self::default()
        }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let offset = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        offset
    }

    fn words(&mut self, words: &[u32]) {
        self.types
            .extend(words.iter().flat_map(|it| it.to_ne_bytes()));
    }

    fn integer(&mut self) -> u32 {
        self.words(&[0, 1 << 24, 4, 32]);
        self.count += 1;
        self.count
    }

    /// A structure with bit fields; members are name, type, first bit, width.
    fn structure(&mut self, name: &str, members: &[(&str, u32, u32, u32)]) -> u32 {
        let name = self.string(name);
        let count = u32::try_from(members.len()).unwrap();
        self.words(&[name, 1 << 31 | KIND_STRUCT << 24 | count, 224]);
        for (name, number, bit, width) in members {
            let name = self.string(name);
            self.words(&[name, *number, width << 24 | bit]);
        }
        self.count += 1;
        self.count
    }

    fn finish(&self) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_ne_bytes();
        let mut out = MAGIC.to_ne_bytes().to_vec();
        out.extend([1, 0]);
        out.extend(24_u32.to_ne_bytes());
        out.extend(0_u32.to_ne_bytes());
        out.extend(length(&self.types));
        out.extend(length(&self.types));
        out.extend(length(&self.strings));
        out.extend(&self.types);
        out.extend(&self.strings);
        out
    }
}

/// As Linux 6.18 has them for x86-64: first bits and widths.
const SUMMED: (u32, u32) = (128 * 8 + 5, 2);
const CSUM_START: u32 = 136 * 8;
const HEAD: u32 = 192 * 8;

fn kernel(summed: (u32, u32), csum_start: u32, head: u32) -> Vec<u8> {
    let mut out = Writer::new();
    let integer = out.integer();
    // A declaration elsewhere has the same name and no members.
    out.structure("sk_buff", &[]);
    let place = out.structure(
        "",
        &[
            ("csum_start", integer, 0, 0),
            ("csum_offset", integer, 16, 0),
        ],
    );
    let base = 128 * 8;
    let group = out.structure(
        "",
        &[
            ("ip_summed", integer, summed.0 - base, summed.1),
            ("", place, csum_start - base, 0),
        ],
    );
    out.structure(
        "sk_buff",
        &[
            ("len", integer, 112 * 8, 0),
            ("", group, base, 0),
            ("head", integer, head, 0),
            ("data", integer, head + 64, 0),
        ],
    );
    out.finish()
}

#[test]
fn fields_are_found_in_structures_without_a_name() {
    let found = layout(&kernel(SUMMED, CSUM_START, HEAD)).unwrap();
    let expected = SkbLayout {
        begin: 128,
        length: 80,
        summed: 0,
        summed_bit: 5,
        csum_start: 8,
        head: 64,
    };
    assert_eq!(found, expected);
}

#[test]
fn a_field_at_a_place_that_programs_cannot_read_is_named() {
    let cases = [
        (
            kernel((SUMMED.0 + 2, 2), CSUM_START, HEAD),
            Misfit::Place("ip_summed"),
        ),
        (
            kernel((SUMMED.0, 3), CSUM_START, HEAD),
            Misfit::Place("ip_summed"),
        ),
        (
            kernel((SUMMED.0, 0), CSUM_START, HEAD),
            Misfit::Place("ip_summed"),
        ),
        (
            kernel(SUMMED, CSUM_START + 8, HEAD),
            Misfit::Place("csum_start"),
        ),
        (kernel(SUMMED, CSUM_START, HEAD + 32), Misfit::Place("head")),
        (
            kernel(SUMMED, CSUM_START, HEAD + 64 * 8),
            Misfit::Apart(144),
        ),
    ];
    for (number, (bytes, misfit)) in cases.into_iter().enumerate() {
        assert_eq!(layout(&bytes), Err(misfit), "case {number}");
    }
}

#[test]
fn a_structure_or_a_field_that_is_not_there_is_named() {
    let mut none = Writer::new();
    none.integer();
    assert_eq!(layout(&none.finish()), Err(Misfit::Missing("sk_buff")));
    let mut empty = Writer::new();
    let integer = empty.integer();
    empty.structure("sk_buff", &[("len", integer, 0, 0)]);
    assert_eq!(layout(&empty.finish()), Err(Misfit::Missing("ip_summed")));
}

/// Loops of types and truncated files are not followed beyond their end.
#[test]
fn whatever_the_bytes_are_there_is_an_answer() {
    let mut looped = Writer::new();
    let integer = looped.integer();
    looped.structure(
        "sk_buff",
        &[("", 2, 0, 0), ("", 2, 8, 0), ("len", integer, 0, 0)],
    );
    assert_eq!(layout(&looped.finish()), Err(Misfit::Missing("ip_summed")));
    let whole = kernel(SUMMED, CSUM_START, HEAD);
    for end in 0..whole.len() {
        let _ = layout(&whole[..end]);
    }
    for place in 0..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut broken = whole.clone();
            broken[place] ^= change;
            let _ = layout(&broken);
        }
    }
}

#[test]
fn the_running_kernel_has_what_programs_read() {
    let path = Path::new(KERNEL_TYPES);
    if !path.exists() {
        println!("SKIP: needs a kernel with CONFIG_DEBUG_INFO_BTF");
        return;
    }
    let found = skb_layout(path).unwrap();
    assert!(
        found.length <= 96 && found.begin.is_multiple_of(8),
        "{found:?}"
    );
}
