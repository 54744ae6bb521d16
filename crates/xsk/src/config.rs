//! Sizes.

use crate::error::Error;

/// How large a socket's memory and rings are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Frames of the socket's memory.
    ///
    /// All of it is locked, which counts against `RLIMIT_MEMLOCK` of the process that binds.
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096.
    ///
    /// The kernel keeps 256 of them for itself when it receives.
    pub frame_size: u32,
    /// Slots of each of the four rings, a power of two.
    pub ring: u32,
    /// Have the kernel copy also where the driver could do without.
    pub copy: bool,
}

impl Default for Config {
    /// 1024 frames of 2 KiB: less than what every user may lock on current kernels.
    fn default() -> Self {
        Self {
            frames: 1024,
            frame_size: 2048,
            ring: 512,
            copy: false,
        }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |field, value, must| Err(Error::Config { field, value, must });
        if !matches!(self.frame_size, 2048 | 4096) {
            return refuse("frame_size", self.frame_size, "2048 or 4096");
        }
        if !self.ring.is_power_of_two() || !(2..=32768).contains(&self.ring) {
            return refuse("ring", self.ring, "a power of two from 2 to 32768");
        }
        if !(2..=1 << 20).contains(&self.frames) {
            return refuse("frames", self.frames, "from 2 to 1048576");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_cannot_be_is_refused_by_name() {
        let refused = |config: Config| match config.check() {
            Err(Error::Config { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let it = Config::default;
        assert!(it().check().is_ok());
        assert_eq!(
            refused(Config {
                frame_size: 1500,
                ..it()
            }),
            "frame_size"
        );
        assert_eq!(refused(Config { ring: 500, ..it() }), "ring");
        assert_eq!(refused(Config { ring: 1, ..it() }), "ring");
        assert_eq!(refused(Config { frames: 1, ..it() }), "frames");
    }
}
