//! The program to run, selected by the name of the executable.

use std::ffi::OsString;
use std::path::Path;

use crate::error::{CommandResult, ExitStatus};
use crate::output;

/// The programs in this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `muster`, and every unknown name.
    Muster,
    /// `gpu-cli`, the command line of the commissioning document.
    GpuCli,
    /// `scheduler`, the server of the commissioning document.
    Scheduler,
    /// `agent`, the node agent of the commissioning document.
    Agent,
    /// `star`, the policy tool.
    Star,
}

impl Role {
    /// The role for the first word of the command line.
    pub fn from_program_name(words: &[OsString]) -> Role {
        let name = words.first().map(Path::new).and_then(Path::file_stem).and_then(|name| name.to_str());
        match name {
            Some("gpu-cli") => Role::GpuCli,
            Some("scheduler") => Role::Scheduler,
            Some("agent") => Role::Agent,
            Some("star") => Role::Star,
            _ => Role::Muster,
        }
    }
}

/// `EX_UNAVAILABLE` of sysexits.h.
const EXIT_UNAVAILABLE: u8 = 69;

/// The node agent does not run as a program of its own yet.
pub fn agent_unavailable() -> CommandResult {
    output::print_stderr(concat!(
        "agent: in this version the agent runs inside the server, on the same machine.\n",
        "  `muster dev --real` runs real jobs on this machine; `muster dev` simulates a cluster.\n",
        "  Agents on other machines come with a later version; nothing was started."
    ));
    Ok(ExitStatus(EXIT_UNAVAILABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_name_selects_the_role() {
        let role = |name: &str| Role::from_program_name(&[OsString::from(name)]);
        assert_eq!(role("./bin/gpu-cli"), Role::GpuCli);
        assert_eq!(role("/usr/bin/scheduler"), Role::Scheduler);
        assert_eq!(role("agent"), Role::Agent);
        assert_eq!(role("star"), Role::Star);
        assert_eq!(role("target/debug/muster"), Role::Muster);
        assert_eq!(role("m"), Role::Muster);
        assert_eq!(Role::from_program_name(&[]), Role::Muster);
    }
}
