//! User that the switch runs as.

use std::fmt;
use std::str::FromStr;

/// User and group of the switch, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchUser {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Default for SwitchUser {
    /// Numbers that no distribution gives to anybody.
    fn default() -> Self {
        Self {
            uid: 60900,
            gid: 60900,
        }
    }
}

impl fmt::Display for SwitchUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// A user that is not written as one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the text is not USER:GROUP; write the numbers of both, as 60900:60900")]
pub struct NotAUser;

impl FromStr for SwitchUser {
    type Err = NotAUser;

    fn from_str(text: &str) -> Result<Self, NotAUser> {
        let (uid, gid) = text.split_once(':').ok_or(NotAUser)?;
        let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
        Ok(Self {
            uid: number(uid).ok_or(NotAUser)?,
            gid: number(gid).ok_or(NotAUser)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_two_numbers() {
        let user = SwitchUser { uid: 1, gid: 2 };
        assert_eq!("1:2".parse(), Ok(user));
        assert_eq!(user.to_string(), "1:2");
        for bad in ["", "1", "1:", "root:root", "1:2:3", "-1:1", "4294967295:1"] {
            assert_eq!(bad.parse::<SwitchUser>(), Err(NotAUser), "{bad}");
        }
    }
}
