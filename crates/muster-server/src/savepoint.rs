//! A state as the bytes of a savepoint: one piece to a line.

use muster_core::State;
use muster_core::state::{MissingSpec, Restoring};
use muster_json::JsonError;

/// Why a savepoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SavepointError {
    /// A line is not a piece that this release knows.
    #[error(transparent)]
    Line(#[from] JsonError),
    /// The pieces do not belong together.
    #[error(transparent)]
    Pieces(#[from] MissingSpec),
}

/// Write a state down.
pub fn write(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.save(|piece| {
        bytes.extend(muster_json::to_vec(&piece));
        bytes.push(b'\n');
    });
    bytes
}

/// Read a state back.
pub fn read(bytes: &[u8]) -> Result<State, SavepointError> {
    let mut restoring = Restoring::default();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        restoring.add(muster_json::from_slice(line)?)?;
    }
    Ok(restoring.finish())
}
