//! The program to run, selected by the name of the executable.

use std::ffi::OsString;
use std::path::Path;

/// The programs in this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `muster`, and every unknown name.
    Muster,
    /// `gpu-cli`, the command line of the specification.
    GpuCli,
    /// `scheduler`, the server of the specification.
    Scheduler,
    /// `agent`, the node agent of the specification.
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
