//! Read the kernel's type information (BTF), to find places in structures.
//!
//! Documentation/bpf/btf.rst. It reads one file and no memory of the kernel.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use agent_common::skb::{SKB_WINDOW, SkbLayout};

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
/// Members that are looked at for a field. The kernel's structure has 120 in all.
const MEMBERS: u32 = 4096;
/// Most structures without a name inside of each other.
///
/// The kernel nests four; a loop has no end.
const DEPTH: u32 = 32;
/// Length of what each type begins with, and of a member.
const TYPE: usize = 12;
const MEMBER: usize = 12;

/// The running kernel's types.
pub const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Failure to find the places.
#[derive(Debug, thiserror::Error)]
pub enum TypesError {
    /// The kernel's type information cannot be read.
    #[error(
        "cannot read {}, in which programs find where a checksum is still to be written: use a kernel with \
         CONFIG_DEBUG_INFO_BTF=y, and mount sysfs where the agent runs",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel's type information has not what programs need.
    #[error(
        "{} {misfit}, so programs cannot find where a checksum is still to be written: use a kernel that \
         docs/compatibility.md names",
        path.display()
    )]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The misfit.
        misfit: Misfit,
    },
}

/// Why programs cannot use a kernel's type information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It is not BTF, or of another version.
    #[error("is not BTF of version 1")]
    Format,
    /// A structure or a field is not in it.
    #[error("has no {0}")]
    Missing(&'static str),
    /// A field is where programs cannot read it.
    #[error("has {0} of struct sk_buff at an unexpected place")]
    Place(&'static str),
    /// More bytes than programs read at once lie between fields.
    #[error("has fields of struct sk_buff {0} bytes apart")]
    Apart(u32),
}

/// Finds what the programs read of `struct sk_buff`.
///
/// # Errors
/// [`TypesError`].
pub fn skb_layout(path: &Path) -> Result<SkbLayout, TypesError> {
    let read = fs::read(path).map_err(|source| TypesError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    layout(&read).map_err(|misfit| TypesError::Unfit {
        path: path.to_owned(),
        misfit,
    })
}

fn layout(bytes: &[u8]) -> Result<SkbLayout, Misfit> {
    let types = Types::read(bytes).ok_or(Misfit::Format)?;
    let skb = types.structure("sk_buff")?;
    let field = |name| {
        types
            .field(skb, name, DEPTH, &mut 0)
            .ok_or(Misfit::Missing(name))
    };
    let whole = |name, align: u32| {
        let Field { bit, width } = field(name)?;
        let fits = width == 0 && bit.is_multiple_of(8 * align);
        fits.then_some(bit / 8).ok_or(Misfit::Place(name))
    };
    let summed = field("ip_summed")?;
    if summed.width != 2 || summed.bit % 8 > 6 {
        return Err(Misfit::Place("ip_summed"));
    }
    let csum_start = whole("csum_start", 2)?;
    let head = whole("head", 8)?;
    if whole("csum_offset", 2)? != csum_start + 2 {
        return Err(Misfit::Place("csum_offset"));
    }
    if whole("data", 8)? != head + 8 {
        return Err(Misfit::Place("data"));
    }
    let byte = summed.bit / 8;
    let begin = byte.min(csum_start).min(head) & !7;
    let end = (byte + 1).max(csum_start + 4).max(head + 16);
    let length = end - begin;
    if length > u32::try_from(SKB_WINDOW).unwrap_or(0) {
        return Err(Misfit::Apart(length));
    }
    let short = |place: u32| u8::try_from(place - begin).map_err(|_| Misfit::Apart(length));
    // The bits of a byte are counted from its lowest one on little-endian machines (BTF, section 2.2.4).
    let summed_bit = summed.bit % 8;
    let summed_bit = if cfg!(target_endian = "little") {
        summed_bit
    } else {
        6 - summed_bit
    };
    Ok(SkbLayout {
        begin: u16::try_from(begin).map_err(|_| Misfit::Apart(begin))?,
        length: short(end)?,
        summed: short(byte)?,
        summed_bit: u8::try_from(summed_bit).map_err(|_| Misfit::Place("ip_summed"))?,
        csum_start: short(csum_start)?,
        head: short(head)?,
    })
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    /// Where it begins, in bits.
    bit: u32,
    /// How many bits it has; 0 when it is no bit field.
    width: u32,
}

/// All types of a kernel, by number.
struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each begins; the first has number 1.
    begins: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    name: &'a [u8],
    kind: u32,
    /// Offsets of members are of bit fields too.
    has_bits: bool,
    members: &'a [u8],
}

impl<'a> Types<'a> {
    /// `None` for anything that is not as the format says.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(*bytes.first_chunk()?);
        if magic != MAGIC || *bytes.get(2)? != 1 {
            return None;
        }
        let body = bytes.get(at(bytes, 4)?..)?;
        let part = |offset: usize| {
            let begin = at(bytes, offset)?;
            body.get(begin..begin.checked_add(at(bytes, offset + 4)?)?)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut begins = Vec::new();
        let mut begin = 0;
        while begin < types.len() {
            begins.push(begin);
            begin = begin.checked_add(TYPE + behind(word(types, begin + 4)?)?)?;
        }
        (begin == types.len()).then_some(Self {
            types,
            strings,
            begins,
        })
    }

    fn get(&self, number: usize) -> Option<Type<'a>> {
        let begin = *self.begins.get(number.checked_sub(1)?)?;
        let info = word(self.types, begin + 4)?;
        let kind = kind(info);
        let members: Range<usize> = begin + TYPE..begin + TYPE + behind(info)?;
        Some(Type {
            name: self.name(word(self.types, begin)?)?,
            kind,
            has_bits: info >> 31 == 1,
            members: self.types.get(members)?,
        })
    }

    fn name(&self, offset: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(usize::try_from(offset).ok()?..)?;
        rest.split(|byte| *byte == 0).next()
    }

    /// The structure of this name that has members.
    fn structure(&self, name: &'static str) -> Result<Type<'a>, Misfit> {
        (1..=self.begins.len())
            .filter_map(|number| self.get(number))
            .find(|it| {
                it.kind == KIND_STRUCT && it.name == name.as_bytes() && !it.members.is_empty()
            })
            .ok_or(Misfit::Missing(name))
    }

    /// Finds a field of a structure, or of structures without a name in it.
    ///
    /// `depth`: how many levels of these are left.
    fn field(&self, of: Type<'a>, name: &str, depth: u32, seen: &mut u32) -> Option<Field> {
        let depth = depth.checked_sub(1)?;
        for member in of.members.chunks_exact(MEMBER) {
            *seen += 1;
            if *seen > MEMBERS {
                return None;
            }
            let place = word(member, 8)?;
            let (bit, width) = if of.has_bits {
                (place & 0x00ff_ffff, place >> 24)
            } else {
                (place, 0)
            };
            let called = self.name(word(member, 0)?)?;
            if called == name.as_bytes() {
                return Some(Field { bit, width });
            }
            if !called.is_empty() {
                continue;
            }
            let Some(inner) = self.get(at(member, 4)?) else {
                continue;
            };
            if matches!(inner.kind, KIND_STRUCT | KIND_UNION)
                && let Some(found) = self.field(inner, name, depth, seen)
            {
                return Some(Field {
                    bit: bit.checked_add(found.bit)?,
                    ..found
                });
            }
        }
        None
    }
}

const fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

/// How many bytes belong to a type behind what all begin with.
fn behind(info: u32) -> Option<usize> {
    let count = usize::try_from(info & 0xffff).ok()?;
    Some(match kind(info) {
        // Pointers, forward declarations, names of types, qualifiers, functions, floats, tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Enumerations, prototypes of functions.
        6 | 13 => 8 * count,
        // Structures, unions, sections, enumerations of 64 bits.
        KIND_STRUCT | KIND_UNION | 15 | 19 => MEMBER * count,
        _ => return None,
    })
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let rest = bytes.get(offset..)?;
    Some(u32::from_ne_bytes(*rest.first_chunk()?))
}

fn at(bytes: &[u8], offset: usize) -> Option<usize> {
    usize::try_from(word(bytes, offset)?).ok()
}

#[cfg(test)]
mod tests;
