//! Read and write frames: a length of 4 bytes, little endian, then a JSON body.

use std::io::{ErrorKind, Read, Write};

use crate::error::SpecError;

/// Largest body, bytes.
///
/// A configuration with every annotation of a pod (Kubernetes allows 256 KiB) fits many times; a peer
/// cannot make us hold more.
pub const MAX_FRAME: usize = 4 << 20;

/// Bytes in front of a body.
pub const FRAME_HEADER: usize = 4;

/// Byte by which the shim acknowledges an `ADD` result: ASCII ACK.
///
/// It is sent after the whole result is written to stdout.
pub const ACK: u8 = 0x06;

/// Puts the header in front of a body.
///
/// # Errors
/// [`SpecError::FrameTooLarge`] above [`MAX_FRAME`].
pub fn encode_frame(body: &[u8]) -> Result<Vec<u8>, SpecError> {
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= MAX_FRAME)
        .ok_or(SpecError::FrameTooLarge {
            length: u64::try_from(body.len()).unwrap_or(u64::MAX),
        })?;
    let mut frame = Vec::with_capacity(body.len().saturating_add(FRAME_HEADER));
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(body);
    Ok(frame)
}

/// The length of the body that follows a header.
///
/// # Errors
/// [`SpecError::FrameTooLarge`] above [`MAX_FRAME`].
pub fn decode_header(header: [u8; FRAME_HEADER]) -> Result<usize, SpecError> {
    let length = u32::from_le_bytes(header);
    usize::try_from(length)
        .ok()
        .filter(|length| *length <= MAX_FRAME)
        .ok_or(SpecError::FrameTooLarge {
            length: length.into(),
        })
}

/// One frame at the front of what has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstFrame<'a> {
    /// The body of the frame.
    pub body: &'a [u8],
    /// Bytes received after the frame.
    pub rest: &'a [u8],
}

/// Takes one frame from the front of the received bytes; none while incomplete.
///
/// # Errors
/// [`SpecError::FrameTooLarge`] above [`MAX_FRAME`].
pub fn decode_frame(received: &[u8]) -> Result<Option<FirstFrame<'_>>, SpecError> {
    let Some((header, rest)) = received.split_first_chunk::<FRAME_HEADER>() else {
        return Ok(None);
    };
    let split = rest.split_at_checked(decode_header(*header)?);
    Ok(split.map(|(body, rest)| FirstFrame { body, rest }))
}

/// Reads one frame and returns its body.
///
/// # Errors
/// [`SpecError::FrameTooLarge`], [`SpecError::FrameCut`] when the stream ends before the frame
/// does, [`SpecError::FrameIo`].
pub fn read_frame(from: &mut impl Read) -> Result<Vec<u8>, SpecError> {
    let header = read_exactly(from, FRAME_HEADER)?;
    let header = header.try_into().unwrap_or_default();
    read_exactly(from, decode_header(header)?)
}

/// Bytes allocated before any has been received: most frames are smaller.
const EXPECTED: usize = 4096;

/// Reads `expected` bytes, allocating little more than has been received.
///
/// The length is the peer's claim.
fn read_exactly(from: &mut impl Read, expected: usize) -> Result<Vec<u8>, SpecError> {
    let limit = u64::try_from(expected).unwrap_or(u64::MAX);
    let mut bytes = Vec::with_capacity(expected.min(EXPECTED));
    match from.take(limit).read_to_end(&mut bytes) {
        Ok(received) if received == expected => Ok(bytes),
        Ok(received) => Err(SpecError::FrameCut { received, expected }),
        Err(source) if source.kind() == ErrorKind::UnexpectedEof => Err(SpecError::FrameCut {
            received: bytes.len(),
            expected,
        }),
        Err(source) => Err(SpecError::FrameIo { source }),
    }
}

/// Writes a body as one frame.
///
/// # Errors
/// [`SpecError::FrameTooLarge`], [`SpecError::FrameIo`].
pub fn write_frame(to: &mut impl Write, body: &[u8]) -> Result<(), SpecError> {
    let frame = encode_frame(body)?;
    to.write_all(&frame)
        .and_then(|()| to.flush())
        .map_err(|source| SpecError::FrameIo { source })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_length_is_four_bytes_little_endian() {
        assert_eq!(encode_frame(b"{}").unwrap(), [2, 0, 0, 0, b'{', b'}']);
        assert_eq!(decode_header([0, 1, 0, 0]).unwrap(), 256);
    }

    #[test]
    fn four_mebibytes_pass_and_one_byte_more_does_not() {
        let largest = vec![b' '; MAX_FRAME];
        let frame = encode_frame(&largest).unwrap();
        assert_eq!(read_frame(&mut frame.as_slice()).unwrap().len(), MAX_FRAME);
        let error = encode_frame(&vec![b' '; MAX_FRAME + 1]).unwrap_err();
        assert!(matches!(error, SpecError::FrameTooLarge { length } if length == (4 << 20) + 1));
        let header = u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes();
        assert!(decode_header(header).is_err());
        assert!(decode_frame(&header).is_err());
        assert!(read_frame(&mut header.as_slice()).is_err());
        assert!(decode_header([0xff; 4]).is_err());
    }

    #[test]
    fn a_stream_that_ends_early_is_a_cut_frame() {
        let frame = encode_frame(b"0123456789").unwrap();
        for end in 0..frame.len() {
            let error = read_frame(&mut &frame[..end]).unwrap_err();
            assert!(
                matches!(error, SpecError::FrameCut { .. }),
                "{end}: {error}"
            );
            assert!(decode_frame(&frame[..end]).unwrap().is_none());
        }
    }

    proptest! {
        #[test]
        fn bodies_round_trip_and_what_follows_is_kept(
            body in prop::collection::vec(any::<u8>(), 0..2000),
            tail in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut stream = Vec::new();
            write_frame(&mut stream, &body).unwrap();
            stream.extend_from_slice(&tail);
            let first = FirstFrame { body: &body, rest: &tail };
            prop_assert_eq!(decode_frame(&stream).unwrap(), Some(first));
            let mut reader = stream.as_slice();
            prop_assert_eq!(read_frame(&mut reader).unwrap(), body);
            prop_assert_eq!(reader, tail.as_slice());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode_frame(&bytes);
            let _ = read_frame(&mut bytes.as_slice());
        }
    }
}
