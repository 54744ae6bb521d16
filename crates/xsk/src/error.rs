//! Report faults of sockets, their rings and the control socket.

use std::io;

use rustix::io::Errno;

/// A socket, or the way to one, does not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A number of [`Config`](crate::Config) that no socket can have.
    #[error("`{field}` is {value}: {must}")]
    Config {
        /// The field.
        field: &'static str,
        /// The number given.
        value: u32,
        /// The rule it breaks, as the message says it.
        must: &'static str,
    },
    /// The kernel refused.
    #[error("cannot {operation}{}", advice(*source))]
    Kernel {
        /// The operation that failed.
        operation: &'static str,
        /// Why not.
        source: Errno,
    },
    /// A descriptor that is no `AF_XDP` socket.
    #[error("the descriptor is not an AF_XDP socket")]
    NotXdp,
    /// The kernel says of a ring what cannot be.
    #[error("the kernel's {ring} ring is not where it says")]
    Ring {
        /// Which.
        ring: &'static str,
    },
    /// The control socket cannot be used.
    #[error("cannot {operation} the control socket {address}")]
    Control {
        /// The operation that failed.
        operation: &'static str,
        /// Where it is.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The agent said no.
    #[error("the agent answered `{answer}` to `{request}`")]
    Refused {
        /// The request.
        request: String,
        /// The answer.
        answer: String,
    },
}

impl Error {
    pub(crate) const fn kernel(operation: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::Kernel { operation, source }
    }
}

/// Explains the usual cause of an errno, for the end of a message.
fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOBUFS => {
            ": more memory than RLIMIT_MEMLOCK lets this user lock; fewer frames, or raise the limit"
        }
        Errno::BUSY => ": another socket has this queue",
        Errno::PERM => ": opening the socket takes CAP_NET_RAW; the agent gives ready ones without",
        _ => "",
    }
}
