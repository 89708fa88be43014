//! The YAML text of a cluster, as it is written. Every number remembers its place, for the error message.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Error, Location, Spanned, UserMessageFormatter};

use super::{ClusterError, Wrong, at, nearest};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterFile {
    pub nodes: Vec<NodeGroup>,
}

/// Nodes that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeGroup {
    pub name: Spanned<String>,
    #[serde(default)]
    pub count: Number<1>,
    /// A ready-made machine; the keys that are given here replace what it has.
    #[serde(rename = "box")]
    pub machine: Option<Spanned<String>>,
    pub cpus: Option<Spanned<u64>>,
    pub memory_gib: Option<Spanned<u64>>,
    pub gpus: Option<OneOrMany<GpuGroup>>,
    /// The GPUs are spread over them in order; two by default, as in most servers.
    pub numa_nodes: Option<Spanned<u64>>,
    /// The NUMA nodes are spread over them in order; as many as NUMA nodes by default.
    pub sockets: Option<Spanned<u64>>,
    /// The GPUs are spread over them in order; none by default.
    pub pcie_switches: Option<Spanned<u64>>,
    /// With `nodes_per_rack` the racks are numbered: r1, r2, …
    pub rack: Option<String>,
    pub nodes_per_rack: Option<Spanned<u64>>,
    /// With `racks_per_block` the blocks are numbered: b1, b2, …
    pub block: Option<String>,
    pub racks_per_block: Option<Spanned<u64>>,
    pub power_feed: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub taints: Vec<String>,
}

/// GPUs of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GpuGroup {
    pub model: String,
    pub count: Spanned<u64>,
    pub memory_mib: Spanned<u64>,
    #[serde(default)]
    pub nvlink: Nvlink,
    pub power_limit_watts: Option<u64>,
}

/// How the GPUs of a group reach each other.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Nvlink {
    /// Everyone reaches everyone, as through an NVSwitch.
    #[default]
    Mesh,
    /// Bridges between neighbours: 0-1, 2-3, …
    Pairs,
    /// Only PCIe.
    None,
}

/// Read the text; the first thing wrong with it is the answer.
pub(super) fn read(text: &str) -> Result<ClusterFile, ClusterError> {
    serde_saphyr::from_str(text).map_err(|error| explain(error.without_snippet()))
}

fn explain(error: &Error) -> ClusterError {
    let wrong = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            Wrong::UnknownKey { key: field.clone(), hint: nearest::hint(field, expected) }
        }
        _ => Wrong::Yaml(sentence(error)),
    };
    at(error.location().unwrap_or(Location::UNKNOWN), wrong)
}

/// What the reader says, less its own account of the place: we put that first.
fn sentence(error: &Error) -> String {
    let said = error.render_with_formatter(&UserMessageFormatter);
    let end = said.find(" at line ").unwrap_or(said.len());
    said[..end].trim().to_string()
}

/// A number with a default, which has no place in the text.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Number<const DEFAULT: u64>(Spanned<u64>);

impl<const DEFAULT: u64> Default for Number<DEFAULT> {
    fn default() -> Self {
        Number(nowhere(DEFAULT))
    }
}

impl<const DEFAULT: u64> std::ops::Deref for Number<DEFAULT> {
    type Target = Spanned<u64>;

    fn deref(&self) -> &Spanned<u64> {
        &self.0
    }
}

/// Another value at the same place.
pub(super) trait With {
    /// The same place with `value`.
    fn with(&self, value: u64) -> Spanned<u64>;
}

impl With for Spanned<u64> {
    fn with(&self, value: u64) -> Spanned<u64> {
        Spanned::new(value, self.referenced, self.defined)
    }
}

fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

impl NodeGroup {
    /// A group written in code.
    pub fn plain(name: &str, count: u64, cpus: u64, memory_gib: u64, gpus: GpuGroup) -> NodeGroup {
        NodeGroup {
            name: nowhere(name.to_string()),
            count: Number(nowhere(count)),
            machine: None,
            cpus: Some(nowhere(cpus)),
            memory_gib: Some(nowhere(memory_gib)),
            gpus: Some(OneOrMany(vec![gpus])),
            numa_nodes: None,
            sockets: None,
            pcie_switches: None,
            rack: None,
            nodes_per_rack: None,
            block: None,
            racks_per_block: None,
            power_feed: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }
}

impl GpuGroup {
    /// A group written in code.
    pub fn plain(model: &str, count: u64, memory_mib: u64) -> GpuGroup {
        GpuGroup {
            model: model.to_string(),
            count: nowhere(count),
            memory_mib: nowhere(memory_mib),
            nvlink: Nvlink::Mesh,
            power_limit_watts: None,
        }
    }
}

/// One thing, or a list of them. Not an untagged enum: that would forget the places and blur the errors.
#[derive(Debug)]
pub(super) struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one group of GPUs or a list of them")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Ok(OneOrMany(vec![T::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Ok(OneOrMany(Vec::deserialize(SeqAccessDeserializer::new(list))?))
    }
}
