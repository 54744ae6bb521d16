//! Counting what the kernel made of each program.

use aya::programs::ProgramError;

use crate::error::DatapathError;
use crate::open::Datapath;

/// Bytes of an instruction.
const INSTRUCTION: u32 = 8;

/// Cost of one loaded program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCost {
    /// Its name in the object.
    pub name: String,
    /// Instructions after the kernel removed and rewrote some; 0 where it does not say.
    pub translated: u32,
    /// Instructions that the verifier walked, as often as it did (Linux 5.16).
    pub verified: Option<u32>,
}

impl Datapath {
    /// Counts the programs by name; those that wait for their first use are loaded.
    ///
    /// # Errors
    /// When the kernel refuses one, or does not tell about it.
    pub fn costs(&self) -> Result<Vec<ProgramCost>, DatapathError> {
        let mut costs = Vec::new();
        self.programs().load_all()?;
        self.programs().each(|name, program| {
            let info = match program.info() {
                Ok(info) => info,
                // A dispatcher without a use, or that was pinned before.
                Err(ProgramError::NotLoaded) => return Ok(()),
                Err(error) => return Err(DatapathError::program("look at", "a program")(error)),
            };
            costs.push(ProgramCost {
                name: name.to_owned(),
                translated: info.size_translated().unwrap_or(0) / INSTRUCTION,
                verified: info.verified_instruction_count(),
            });
            Ok(())
        })?;
        costs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(costs)
    }
}
