//! Encoding of savepoints: the state as lines of JSON, one piece of it per line.

use muster_core::State;
use muster_core::state::{MissingSpec, StateRestorer};
use muster_json::JsonError;

/// Why a savepoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SavepointError {
    /// A line is not a piece of the state that this release knows.
    #[error(transparent)]
    Line(#[from] JsonError),
    /// A job refers to a spec that is missing.
    #[error(transparent)]
    Pieces(#[from] MissingSpec),
}

pub fn write(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.save(|piece| {
        bytes.extend(muster_json::to_vec(&piece));
        bytes.push(b'\n');
    });
    bytes
}

pub fn read(bytes: &[u8]) -> Result<State, SavepointError> {
    let mut restorer = StateRestorer::default();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        restorer.add(muster_json::from_slice(line)?)?;
    }
    Ok(restorer.finish())
}
