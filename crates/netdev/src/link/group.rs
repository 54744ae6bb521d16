//! Interface groups: many links in one request.

use rustix::io::Errno;

use super::{Link, check_name, message};
use crate::connection::{Connection, Request};
use crate::error::Error;
use crate::wire;

/// Most requests in one datagram.
///
/// Their answers wait in the socket until the last of them is carried out.
const AT_ONCE: usize = 64;

impl Connection {
    /// Puts links into a group, by their names; false for one that is not there.
    ///
    /// The results are in the order of the names.
    ///
    /// # Errors
    /// When the kernel does not answer. What it refuses for one link is an [`Error::ChangeLink`] in its
    /// place.
    pub fn join_group(
        &mut self,
        names: &[String],
        group: u32,
    ) -> Result<Vec<Result<bool, Error>>, Error> {
        for name in names {
            check_name(name)?;
        }
        let mut joined = Vec::with_capacity(names.len());
        for names in names.chunks(AT_ONCE) {
            let requests = names.iter();
            let requests = requests.map(|name| Request::new(message::join_group(name, group), 0));
            let answers = self.ask_all(requests.collect())?;
            for (name, answer) in names.iter().zip(answers) {
                joined.push(match answer {
                    Ok(_) => Ok(true),
                    Err(refusal) if refusal.errno() == Errno::NODEV => Ok(false),
                    Err(source) => Err(Error::ChangeLink {
                        link: name.as_str().into(),
                        change: format!("group {group}"),
                        source,
                    }),
                });
            }
        }
        Ok(joined)
    }

    /// Lists the names of all links in a group, whatever they are.
    ///
    /// It has the kernel announce them: a list of all links of a node takes a millisecond for thirty of them.
    ///
    /// # Errors
    /// [`Error::List`]; [`Error::Receive`] when more is announced than can be heard.
    pub fn group_members(&mut self, group: u32) -> Result<Vec<String>, Error> {
        let refused = |source| Error::List {
            what: "links of a group",
            source,
        };
        let heard = self.ask_and_hear(Request::new(message::mark_group(group, true), 0))?;
        let heard = heard.map_err(refused)?;
        self.ask(Request::new(message::mark_group(group, false), 0))?
            .map_err(refused)?;
        let links = heard.iter().filter(|it| it.kind == wire::RTM_NEWLINK);
        let links = links.filter_map(|it| Link::parse(&it.body));
        let members = links.filter(|link| link.group == group);
        Ok(members.map(|link| link.name).collect())
    }

    /// Deletes all links of a group, with the waits of one; false when it has none.
    ///
    /// Only those that the caller has put there may be in it: the kernel asks for no name.
    ///
    /// # Errors
    /// [`Error::DeleteLink`]; nothing is deleted then, for example because one of them is hardware.
    pub fn delete_group(&mut self, group: u32) -> Result<bool, Error> {
        let request = Request::new(message::delete_group(group), 0);
        let answer = self.ask(request)?.map(drop);
        Self::deleted(answer, || format!("group {group}").as_str().into())
    }
}
