//! Protocol versions, and the answer to `VERSION`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use crate::error::SpecError;
use crate::request::Command;

/// A CNI protocol version this crate speaks, ordered by age (CNI SPEC "Version").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CniVersion {
    /// 0.1.0: results with `ip4` and `ip6`; the default without `cniVersion`.
    V0_1_0,
    /// 0.2.0: as 0.1.0, with the `VERSION` command.
    V0_2_0,
    /// 0.3.0: results with `interfaces` and `ips`.
    V0_3_0,
    /// 0.3.1: as 0.3.0, with the key `ips` spelled as everyone did.
    V0_3_1,
    /// 0.4.0: `CHECK`, and `prevResult` for `DEL`.
    V0_4_0,
    /// 1.0.0: no `version` in `ips`.
    V1_0_0,
    /// 1.1.0: `GC`, `STATUS`, and more fields on interfaces and routes.
    V1_1_0,
}

impl CniVersion {
    /// Every version we speak, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The newest version we speak.
    pub const LATEST: Self = Self::V1_1_0;

    /// The spelling used in `cniVersion`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Reads `cniVersion`; absent or empty means 0.1.0 (CNI-CONF-01).
    ///
    /// # Errors
    /// [`SpecError::IncompatibleVersion`] (code 1) for a version we do not speak.
    pub fn parse(text: Option<&str>) -> Result<Self, SpecError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(Self::V0_1_0);
        };
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| SpecError::IncompatibleVersion {
                requested: text.to_owned(),
            })
    }

    /// The first version that has this command (CNI-ERR-08).
    #[must_use]
    pub const fn first_with(command: Command) -> Self {
        match command {
            Command::Add | Command::Del | Command::Version => Self::V0_1_0,
            Command::Check => Self::V0_4_0,
            Command::Gc | Command::Status => Self::V1_1_0,
        }
    }

    /// Refuses a command that a configuration of this version cannot know.
    ///
    /// # Errors
    /// [`SpecError::CommandNeedsVersion`] (code 1): `CHECK` below 0.4.0, `GC` and `STATUS` below
    /// 1.1.0.
    pub fn require(self, command: Command) -> Result<(), SpecError> {
        let needed = Self::first_with(command);
        if self < needed {
            return Err(SpecError::CommandNeedsVersion {
                command,
                needed,
                config: self,
            });
        }
        Ok(())
    }
}

impl fmt::Display for CniVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for CniVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CniVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(Some(&text)).map_err(D::Error::custom)
    }
}

/// The answer to `VERSION` (CNI-VER-01, CNI-VER-02).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// The version the caller spoke, echoed.
    pub cni_version: String,
    /// All versions we speak, oldest first.
    pub supported_versions: [CniVersion; 7],
}

impl VersionInfo {
    /// Longest version text echoed, in bytes; a longer one is not a version.
    const LONGEST_ECHO: usize = 64;

    /// Answers `VERSION` for the given stdin.
    ///
    /// Anything but a version object is answered as [`CniVersion::LATEST`], because a probe must not
    /// fail because of its input (CNI-VER-01).
    #[must_use]
    pub fn answer(stdin: &str) -> Self {
        let echoed = serde_json::from_str::<Value>(stdin)
            .ok()
            .as_ref()
            .and_then(|value| value.get("cniVersion"))
            .and_then(Value::as_str)
            .filter(|text| Self::is_version_like(text))
            .map_or_else(|| CniVersion::LATEST.to_string(), ToOwned::to_owned);
        Self {
            cni_version: echoed,
            supported_versions: CniVersion::ALL,
        }
    }

    fn is_version_like(text: &str) -> bool {
        let first_is_digit = text.bytes().next().is_some_and(|b| b.is_ascii_digit());
        first_is_digit
            && text.len() <= Self::LONGEST_ECHO
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_empty_version_means_0_1_0() {
        assert_eq!(CniVersion::parse(None).unwrap(), CniVersion::V0_1_0);
        assert_eq!(CniVersion::parse(Some("")).unwrap(), CniVersion::V0_1_0);
    }

    #[test]
    fn every_supported_version_reads_back_and_they_are_ordered() {
        for version in CniVersion::ALL {
            assert_eq!(CniVersion::parse(Some(version.as_str())).unwrap(), version);
        }
        assert!(CniVersion::ALL.is_sorted());
        assert_eq!(CniVersion::ALL.last(), Some(&CniVersion::LATEST));
    }

    #[test]
    fn unknown_version_is_code_1_and_lists_ours_in_details() {
        for text in ["9.9.9", "1.1", "v1.0.0", " 1.0.0", "0.5.0"] {
            let error = CniVersion::parse(Some(text))
                .unwrap_err()
                .to_cni(CniVersion::LATEST);
            assert_eq!(error.code.0, 1, "{text}");
            assert_eq!(error.msg, "incompatible CNI versions");
            assert!(error.details.contains(text) && error.details.contains("0.3.1"));
        }
    }

    #[test]
    fn check_needs_0_4_0_and_gc_and_status_need_1_1_0() {
        let table = [
            (Command::Add, CniVersion::V0_1_0),
            (Command::Del, CniVersion::V0_1_0),
            (Command::Check, CniVersion::V0_4_0),
            (Command::Gc, CniVersion::V1_1_0),
            (Command::Status, CniVersion::V1_1_0),
        ];
        for (command, first) in table {
            for version in CniVersion::ALL {
                let allowed = version.require(command).is_ok();
                assert_eq!(allowed, version >= first, "{command} at {version}");
            }
        }
    }

    #[test]
    fn version_answer_echoes_the_input_and_survives_garbage() {
        let cases = [
            (r#"{"cniVersion":"0.4.0"}"#, "0.4.0"),
            (r#"{"cniVersion":"9.9.9"}"#, "9.9.9"),
            ("", "1.1.0"),
            ("not json", "1.1.0"),
            ("{}", "1.1.0"),
            (r#"{"cniVersion":""}"#, "1.1.0"),
            (r#"{"cniVersion":7}"#, "1.1.0"),
            ("{\"cniVersion\":\"1.0.0\\n\"}", "1.1.0"),
        ];
        for (stdin, expected) in cases {
            assert_eq!(VersionInfo::answer(stdin).cni_version, expected, "{stdin}");
        }
        let json = serde_json::to_string(&VersionInfo::answer("")).unwrap();
        assert_eq!(
            json,
            r#"{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}"#
        );
    }
}
