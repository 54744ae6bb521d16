//! Speak the control protocol, by which a pod asks for the privileged steps.
//!
//! A Unix socket of type `SOCK_SEQPACKET`, one for each attachment. A request is a datagram of ASCII
//! text, without an end mark, fields separated by commas; each is answered by one, before the next comes.
//! The words are those of DPDK's `use_cni`, in all of its versions, and three of ours:
//!
//! | request | answer | |
//! |---|---|---|
//! | `/connect,<host name>` | `/host_ok` | whatever the name: the socket says who it is |
//! | `/version` | `0.1` | |
//! | `/xsk_map_fd,<interface>` | `/fd_ack` and the map | to insert sockets oneself |
//! | `/xsk_socket,<interface>,<queue>` and a socket | `/fd_ack` | the agent inserts it |
//! | `/xsk_new_socket,<interface>` | `/fd_ack` and a socket | opened in the pod's namespace, not bound |
//! | `/config_busy_poll,<microseconds>,<frames>` and a socket | `/config_busy_poll_ack` | |
//! | `/fin` | `/fin_ack` | then both close |
//!
//! `/fd_nak`, `/config_busy_poll_nak`, `/nak` and `/error` say no.

mod client;
mod socket;
mod words;

pub use self::client::Control;
pub use self::socket::{Address, Datagram, Received, abstract_name, accept, listen, receive, send};
pub use self::words::{Answer, Request, VERSION};
