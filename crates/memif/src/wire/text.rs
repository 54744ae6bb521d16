//! Text in fields of fixed size, and the secret that is compared in constant time.

use std::fmt;
use std::hint::black_box;

use thiserror::Error;

/// A string does not fit its field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// Longer than the field without its terminator.
    #[error("{len} bytes are too long, the field has room for {max}")]
    TooLong {
        /// Bytes of the string.
        len: usize,
        /// Bytes the field has room for.
        max: usize,
    },
    /// The terminator in the middle.
    #[error("a string of a message must not contain a NUL byte")]
    Nul,
}

/// A string in a field of `N` bytes; a byte of it is the NUL that ends it.
///
/// A peer may send any bytes. They are shown escaped, so that a log line stays one line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// The string, if it fits.
    ///
    /// # Errors
    /// It has a NUL byte, or `N` bytes or more.
    pub fn new(text: &str) -> Result<Self, TextError> {
        let max = N.saturating_sub(1);
        if text.len() > max {
            return Err(TextError::TooLong {
                len: text.len(),
                max,
            });
        }
        if text.bytes().any(|byte| byte == 0) {
            return Err(TextError::Nul);
        }
        Ok(Self::cut(text))
    }

    /// As much of the string as fits, up to a NUL byte.
    pub fn cut(text: &str) -> Self {
        let mut field = [0; N];
        let room = N.saturating_sub(1);
        for (to, from) in field.iter_mut().take(room).zip(text.bytes()) {
            if from == 0 {
                break;
            }
            *to = from;
        }
        Self(field)
    }

    /// A field as it was received: what follows its first NUL is forgotten.
    pub fn from_field(mut field: [u8; N]) -> Self {
        let mut ended = false;
        for byte in &mut field {
            ended |= *byte == 0;
            if ended {
                *byte = 0;
            }
        }
        Self(field)
    }

    /// The field as it is sent.
    pub fn as_field(&self) -> &[u8; N] {
        &self.0
    }

    /// The string's bytes, without the NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Whether there is no string.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The secret that lets a client in: up to 23 bytes.
///
/// It is never shown, and compared in a time that does not depend on where two secrets differ.
#[derive(Clone, Copy, Default)]
pub struct Secret(Text<24>);

impl Secret {
    /// The secret, if it fits.
    ///
    /// # Errors
    /// It has a NUL byte, or more than 23 bytes.
    pub fn new(secret: &str) -> Result<Self, TextError> {
        Text::new(secret).map(Self)
    }

    /// A field as it was received.
    pub fn from_field(field: [u8; 24]) -> Self {
        Self(Text::from_field(field))
    }

    /// The field as it is sent.
    pub fn as_field(&self) -> &[u8; 24] {
        self.0.as_field()
    }

    /// Whether no secret was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both are the same. All 24 bytes are looked at, whatever they are.
    pub fn matches(&self, other: &Self) -> bool {
        let mut difference = 0;
        for (a, b) in self.as_field().iter().zip(other.as_field()) {
            // black_box keeps the compiler from ending the loop early.
            difference = black_box(difference | (a ^ b));
        }
        difference == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() {
            "no secret"
        } else {
            "a secret"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_that_does_not_fit_is_refused() {
        assert!(Text::<8>::new("1234567").is_ok());
        assert_eq!(
            Text::<8>::new("12345678"),
            Err(TextError::TooLong { len: 8, max: 7 })
        );
        assert_eq!(Text::<8>::new("a\0b"), Err(TextError::Nul));
        assert_eq!(Text::<4>::cut("abcdef").as_bytes(), b"abc");
    }

    #[test]
    fn bytes_behind_the_terminator_are_forgotten() {
        let text = Text::from_field(*b"ab\0secret\0");
        assert_eq!(text, Text::from_field(*b"ab\0\0\0\0\0\0\0\0"));
        assert_eq!(text.as_bytes(), b"ab");
    }

    #[test]
    fn what_a_peer_sends_stays_on_one_line_of_a_log() {
        let text = Text::from_field(*b"a\n\x1b[2J\xff\0");
        assert_eq!(text.to_string(), "a\\n\\x1b[2J\\xff");
    }

    #[test]
    fn secrets_match_only_when_every_byte_does() {
        let ours = Secret::new("hunter2").unwrap();
        assert!(ours.matches(&Secret::from_field(*b"hunter2\0garbage\0garbage!")));
        for other in ["", "hunter", "hunter22", "Hunter2", "hunter3"] {
            assert!(!ours.matches(&Secret::new(other).unwrap()), "{other}");
        }
        // Without a terminator the field is 24 bytes, which ours never is.
        let long = Secret::new(&"x".repeat(23)).unwrap();
        assert!(!long.matches(&Secret::from_field([b'x'; 24])));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let shown = format!("{:?}", Secret::new("hunter2").unwrap());
        assert_eq!(shown, "a secret");
    }
}
