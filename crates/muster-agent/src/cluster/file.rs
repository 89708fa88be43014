//! Parses the YAML of a cluster file. Every number keeps its line and column, for error messages.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Error, Location, Spanned, UserMessageFormatter};

use super::{ClusterError, ClusterFileProblem, error_at, suggestion};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterFile {
    pub nodes: Vec<NodeGroup>,
}

/// A group of equal nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeGroup {
    pub name: Spanned<String>,
    #[serde(default)]
    pub count: NumberWithDefault<1>,
    /// A predefined machine; the other keys of the group override its values.
    #[serde(rename = "box")]
    pub box_name: Option<Spanned<String>>,
    pub cpus: Option<Spanned<u64>>,
    pub memory_gib: Option<Spanned<u64>>,
    pub gpus: Option<OneOrMany<GpuGroup>>,
    /// The GPUs are spread over the NUMA nodes in order. Default: two, as in most servers.
    pub numa_nodes: Option<Spanned<u64>>,
    /// The NUMA nodes are spread over the sockets in order. Default: one socket per NUMA node.
    pub sockets: Option<Spanned<u64>>,
    /// The GPUs are spread over the switches in order. Default: none.
    pub pcie_switches: Option<Spanned<u64>>,
    /// With `nodes_per_rack` this is a prefix, and the racks are numbered: r1, r2, …
    pub rack: Option<String>,
    pub nodes_per_rack: Option<Spanned<u64>>,
    /// With `racks_per_block` this is a prefix, and the blocks are numbered: b1, b2, …
    pub block: Option<String>,
    pub racks_per_block: Option<Spanned<u64>>,
    pub power_feed: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub taints: Vec<String>,
}

/// Equal GPUs of a node.
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

/// The NVLink connections within a group of GPUs.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Nvlink {
    /// Every GPU is linked to every other, as through an NVSwitch.
    #[default]
    Mesh,
    /// Bridges between neighbours: 0-1, 2-3, …
    Pairs,
    /// PCIe only.
    None,
}

/// Parses the text; fails with the first problem.
pub(super) fn parse_cluster_file(text: &str) -> Result<ClusterFile, ClusterError> {
    serde_saphyr::from_str(text).map_err(|error| to_cluster_error(error.without_snippet()))
}

fn to_cluster_error(error: &Error) -> ClusterError {
    let problem = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            ClusterFileProblem::UnknownKey { key: field.clone(), hint: suggestion::unknown_key_hint(field, expected) }
        }
        _ => ClusterFileProblem::Yaml(message_without_location(error)),
    };
    error_at(error.location().unwrap_or(Location::UNKNOWN), problem)
}

/// The message of the YAML parser without its location, which our error prints first.
fn message_without_location(error: &Error) -> String {
    let message = error.render_with_formatter(&UserMessageFormatter);
    let end = message.find(" at line ").unwrap_or(message.len());
    message[..end].trim().to_string()
}

/// A number with a default. The default has no location in the text.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct NumberWithDefault<const DEFAULT: u64>(Spanned<u64>);

impl<const DEFAULT: u64> Default for NumberWithDefault<DEFAULT> {
    fn default() -> Self {
        NumberWithDefault(without_location(DEFAULT))
    }
}

impl<const DEFAULT: u64> std::ops::Deref for NumberWithDefault<DEFAULT> {
    type Target = Spanned<u64>;

    fn deref(&self) -> &Spanned<u64> {
        &self.0
    }
}

/// Replaces a value and keeps its location.
pub(super) trait WithValue {
    fn with_value(&self, value: u64) -> Spanned<u64>;
}

impl WithValue for Spanned<u64> {
    fn with_value(&self, value: u64) -> Spanned<u64> {
        Spanned::new(value, self.referenced, self.defined)
    }
}

fn without_location<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

impl NodeGroup {
    /// A group from code, without locations.
    pub fn from_values(name: &str, count: u64, cpus: u64, memory_gib: u64, gpus: GpuGroup) -> NodeGroup {
        NodeGroup {
            name: without_location(name.to_string()),
            count: NumberWithDefault(without_location(count)),
            box_name: None,
            cpus: Some(without_location(cpus)),
            memory_gib: Some(without_location(memory_gib)),
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
    /// A group from code, without locations.
    pub fn from_values(model: &str, count: u64, memory_mib: u64) -> GpuGroup {
        GpuGroup {
            model: model.to_string(),
            count: without_location(count),
            memory_mib: without_location(memory_mib),
            nvlink: Nvlink::Mesh,
            power_limit_watts: None,
        }
    }
}

/// One value or a list. Not an untagged enum: that would lose the locations and blur the errors.
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
