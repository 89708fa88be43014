//! What muster's processes exchange over gRPC: messages and services, generated from `proto/`, the join URL of a node,
//! and the names in the certificates of the agent link.
//!
//! `scripts/generate-proto.sh` generates the code in `src/generated`; with `--check`, a step of CI, it fails if the code
//! there is not current.

pub mod certificate_names;
pub mod exec_frames;
pub mod join_url;

/// The package `muster.v1`: messages, clients of all services, and the server of the agent link.
pub mod v1 {
    #![allow(missing_docs, clippy::all, clippy::unwrap_used, clippy::expect_used)]
    include!("generated/agent_link.rs");
    include!("generated/api.rs");
}

/// All message and service definitions, for the public gRPC API and its reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");

/// Version of the agent link. A server accepts agents of the previous, its own and the next version.
pub const LINK_PROTOCOL: u32 = 1;

/// True if a server of this release understands an agent of this protocol version, and the other way round.
pub fn is_compatible(protocol: u32) -> bool {
    protocol.abs_diff(LINK_PROTOCOL) <= 1 && protocol > 0
}
