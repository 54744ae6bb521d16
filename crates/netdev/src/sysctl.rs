//! Reads and writes settings of links below `/proc/sys/net/ipv{4,6}/conf`.
//!
//! They belong to the network namespace of the thread that opens them.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::link::check_name;
use crate::netns::Netns;

/// The protocol a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `net.ipv4`.
    V4,
    /// `net.ipv6`.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// One setting of one link (`conf/interface/*`).
///
/// See Documentation/networking/ip-sysctl.rst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// The protocol.
    pub family: Family,
    /// The last part of the name, such as `arp_notify`.
    pub key: String,
    /// The value to write.
    pub value: String,
}

impl Sysctl {
    /// An IPv4 setting.
    pub fn v4(key: &str, value: &str) -> Self {
        Self {
            family: Family::V4,
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    /// An IPv6 setting.
    pub fn v6(key: &str, value: &str) -> Self {
        Self {
            family: Family::V6,
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }
}

fn path(ifname: &str, family: Family, key: &str) -> Result<PathBuf, Error> {
    check_name(ifname)?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if key.is_empty() || !key.chars().all(plain) {
        return Err(Error::InvalidSysctl {
            key: key.to_owned(),
        });
    }
    Ok(PathBuf::from(format!(
        "/proc/sys/net/{family}/conf/{ifname}/{key}"
    )))
}

/// Writes settings in the calling thread's namespace, in order.
///
/// Those that have the value already are left alone (writing `disable_ipv6` takes the kernel's RTNL lock,
/// reading does not).
///
/// # Errors
/// [`Error::Sysctl`] at the first that fails, [`Error::is_gone`] if the kernel has no such link,
/// setting or protocol.
pub fn write(ifname: &str, settings: &[Sysctl]) -> Result<(), Error> {
    for Sysctl { family, key, value } in settings {
        let path = path(ifname, *family, key)?;
        match set(&path, value) {
            Ok(()) => {}
            // A kernel without IPv6 has it disabled.
            Err(_) if (key.as_str(), value.as_str()) == ("disable_ipv6", "1") && !has_ipv6() => {}
            Err(source) => {
                return Err(Error::Sysctl {
                    action: format!("write {value:?} to"),
                    path,
                    source,
                });
            }
        }
    }
    Ok(())
}

fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

fn set(path: &PathBuf, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut old = [0; 32];
    let length = file.read(&mut old)?;
    if old
        .get(..length)
        .is_some_and(|old| old.trim_ascii() == value.trim().as_bytes())
    {
        return Ok(());
    }
    file.rewind()?;
    // In one write: the kernel takes each write for a whole value.
    match file.write(value.as_bytes())? {
        n if n == value.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Reads a setting in the calling thread's namespace.
///
/// # Errors
/// [`Error::Sysctl`].
pub fn read(ifname: &str, family: Family, key: &str) -> Result<String, Error> {
    let path = path(ifname, family, key)?;
    match std::fs::read_to_string(&path) {
        Ok(value) => Ok(value.trim().to_owned()),
        Err(source) => Err(Error::Sysctl {
            action: "read".to_owned(),
            path,
            source,
        }),
    }
}

impl Netns {
    /// [`write()`], in this namespace; all settings in one visit.
    ///
    /// # Errors
    /// As [`write()`] and [`Netns::run_in`].
    pub fn write_sysctls(&self, ifname: &str, settings: &[Sysctl]) -> Result<(), Error> {
        self.run_in(|| write(ifname, settings))?
    }

    /// Reads settings in this namespace, in one visit; values in the order of `keys`.
    ///
    /// As [`read`] does.
    ///
    /// # Errors
    /// As [`read`] and [`Netns::run_in`].
    pub fn read_sysctls(
        &self,
        ifname: &str,
        keys: &[(Family, &str)],
    ) -> Result<Vec<String>, Error> {
        self.run_in(|| {
            keys.iter()
                .map(|(family, key)| read(ifname, *family, key))
                .collect()
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_leave_its_directory() {
        for key in ["", "../forwarding", "a/b", "a.b", "A"] {
            let error = path("net1", Family::V4, key).expect_err("refused");
            assert!(matches!(error, Error::InvalidSysctl { .. }), "{key:?}");
        }
        assert!(matches!(
            path("..", Family::V4, "arp_notify"),
            Err(Error::InvalidName { .. })
        ));
    }

    #[test]
    fn an_interface_name_with_a_dot_stays_one_directory() {
        let path = path("eth0.5", Family::V6, "accept_ra").expect("a path");
        assert_eq!(
            path.to_string_lossy(),
            "/proc/sys/net/ipv6/conf/eth0.5/accept_ra"
        );
    }

    #[test]
    fn a_missing_link_is_reported_with_the_file() {
        let error = read("nosuchlink0", Family::V4, "arp_notify").expect_err("no such link");
        assert!(error.is_gone());
        assert_eq!(
            error.to_string(),
            "cannot read /proc/sys/net/ipv4/conf/nosuchlink0/arp_notify"
        );
    }
}
