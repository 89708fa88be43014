//! The images of a [`PodmanStore`](crate::PodmanStore).

/// Without an entrypoint.
pub const PLAIN: &str = "localhost/plain:1";
/// With an entrypoint, a command and a working directory.
pub const ENTRY: &str = "localhost/entry:1";
