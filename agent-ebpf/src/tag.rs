//! The 802.1Q tag that the kernel keeps next to a packet.

/// The 802.1Q tag next to a packet, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Tag(u32);

impl Tag {
    pub(crate) const NONE: Self = Self(0);
    /// Mark above the 16 bits of a tag.
    const IS_THERE: u32 = 1 << 16;

    /// The tag of these 16 bits.
    #[inline(always)]
    pub(crate) const fn of(bits: u32) -> Self {
        Self(bits | Self::IS_THERE)
    }

    /// 0 for no tag; a tag with a priority and no VLAN has that too (IEEE 802.1Q).
    #[inline(always)]
    pub(crate) const fn vlan(self) -> u16 {
        self.0 as u16 & 0x0fff
    }

    #[inline(always)]
    pub(crate) const fn is_there(self) -> bool {
        self.0 != 0
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }
}
