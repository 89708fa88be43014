//! Which program we are, by the name we were called with.

use std::ffi::OsString;
use std::path::Path;

use crate::commands::{Code, Ending};
use crate::output;

/// The programs in this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `muster`, and every name we do not know.
    Muster,
    /// `gpu-cli`, the command line of the commissioning document.
    GpuCli,
    /// `scheduler`, its server.
    Scheduler,
    /// `agent`, the program of a node.
    Agent,
    /// `star`, the policy tool.
    Star,
}

impl Role {
    /// By the first word of the command line.
    pub fn of(words: &[OsString]) -> Role {
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

/// `EX_UNAVAILABLE` of sysexits.h: what was asked for is not there.
const UNAVAILABLE: u8 = 69;
/// The node agent does not run on its own yet.
pub fn explain_agent() -> Ending {
    output::talk(concat!(
        "agent: in this version the agent runs inside the server, on the same machine.\n",
        "  `muster dev --real` runs real jobs here; `muster dev` plays a cluster.\n",
        "  Agents on other machines come with a later version; nothing was started."
    ));
    Ok(Code(UNAVAILABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_chooses_the_role() {
        let role = |name: &str| Role::of(&[OsString::from(name)]);
        assert_eq!(role("./bin/gpu-cli"), Role::GpuCli);
        assert_eq!(role("/usr/bin/scheduler"), Role::Scheduler);
        assert_eq!(role("agent"), Role::Agent);
        assert_eq!(role("star"), Role::Star);
        assert_eq!(role("target/debug/muster"), Role::Muster);
        assert_eq!(role("m"), Role::Muster);
        assert_eq!(Role::of(&[]), Role::Muster);
    }
}
