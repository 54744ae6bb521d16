//! Which limits this kernel can make.

use rustix::io::Errno;

use super::{Discipline, Flows, Shape};
use crate::connection::Connection;
use crate::error::Error;
use crate::link::VethSpec;
use crate::netns::Netns;

/// Returns the kernel's best discipline; `None` if it has no `tbf` to limit rates.
///
/// Found by making one in a namespace of its own, which loads the modules. Blocks for some
/// milliseconds: call it once.
///
/// # Errors
/// [`Error::CreateNetns`], [`Error::CreateVeth`], and [`Error::Shape`] for any other reason than a
/// missing discipline.
pub fn shape_support(flows: Flows) -> Result<Option<Discipline>, Error> {
    let netns = Netns::create()?;
    let mut connection = netns.run_in(Connection::open)??;
    let pair = connection.create_veth(&VethSpec::new("shape0", "shape1"))?;
    let shape = Shape::new(8_000_000, None, 1500);
    for discipline in [
        Discipline::FqCodel,
        Discipline::Htb(flows),
        Discipline::Fifo,
    ] {
        match connection.shape(pair.host_ifindex, &shape, discipline) {
            Ok(()) => return Ok(Some(discipline)),
            // A kind nobody knows; a kernel without traffic control.
            Err(Error::Shape { source, .. })
                if matches!(source.errno(), Errno::NOENT | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
