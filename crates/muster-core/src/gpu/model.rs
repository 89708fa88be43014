//! GPU models: their properties, and matching of a requested model against the name that a driver reports.
//!
//! Drivers write `NVIDIA GeForce RTX 5070 Ti`, users write `RTX_5070ti`. A name is split into words, the vendor's words
//! are dropped, and a requested model matches a device if it equals a run of whole words. So `A10` never matches
//! `A100`, and `RTX 5070` does not match the Ti. The suffixes NVL, Ti and Super name another model: `H100` means the
//! card and the module with 80 GB, not the `H100 NVL`.
//!
//! The registry resolves the spellings that word matching cannot: `A100-80GB` is no run of words in
//! `NVIDIA A100-SXM4-80GB`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::gpu::mig::MigTable;

pub mod registry;

/// Words of vendors and brands, which say nothing about the model.
const MAKERS: [&str; 6] = ["nvidia", "geforce", "tesla", "amd", "instinct", "intel"];

/// Suffixes that turn the preceding name into another model.
const VARIANTS: [&str; 6] = ["ti", "super", "mig", "max", "nvl", "x"];

/// The known properties of a GPU model.
#[derive(Debug, PartialEq, Eq)]
pub struct Model {
    /// The driver's name in canonical spelling.
    pub name: &'static str,
    /// All spellings, the driver's name first. Several models may share a spelling.
    pub spellings: &'static [&'static str],
    /// Memory as the driver reports it.
    pub memory_mib: Option<u64>,
    pub compute_capability: Option<(u8, u8)>,
    /// Multiprocessors; compute units of an AMD device.
    pub multiprocessors: Option<u16>,
    pub power: Power,
    /// True if it can be linked to peers by NVLink.
    pub nvlink: Option<bool>,
    /// Its MIG profiles; `None` without MIG support.
    pub mig: Option<&'static MigTable>,
}

/// Power limits of a model in watts. Cards of one model may differ, so the device's own report takes precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Power {
    /// Lowest limit that can be set.
    pub min: Option<u16>,
    pub default: Option<u16>,
    /// Highest limit that can be set.
    pub max: Option<u16>,
}

impl Model {
    pub fn cuda_cores(&self) -> Option<u32> {
        let each = match self.compute_capability? {
            (6, 0) | (7, _) | (8, 0) => 64,
            _ => 128,
        };
        Some(u32::from(self.multiprocessors?) * each)
    }

    /// Tensor cores; 0 before Volta.
    pub fn tensor_cores(&self) -> Option<u32> {
        let each = match self.compute_capability? {
            (..=6, _) => 0,
            (7, _) => 8,
            _ => 4,
        };
        Some(u32::from(self.multiprocessors?) * each)
    }
}

/// The only model with this spelling. `None` if several share it: `H100` is the card or the module.
pub fn lookup(name: &str) -> Option<&'static Model> {
    match is_named(&joined(name)) {
        [one] => Some(*one),
        _ => None,
    }
}

/// The model of a device: among the models with this spelling, the one with this amount of memory.
pub fn of_device(name: &str, memory_mib: u64) -> Option<&'static Model> {
    // Drivers and ECC modes change the memory by less than a tenth; models that share a name differ by more.
    let difference = |model: &&Model| model.memory_mib.map(|known| known.abs_diff(memory_mib));
    let close = |model: &&&'static Model| difference(model).is_some_and(|mib| mib * 10 <= memory_mib);
    let mut near: Vec<&'static Model> = is_named(&joined(name)).iter().filter(close).copied().collect();
    near.sort_by_key(difference);
    match near.as_slice() {
        [one] => Some(*one),
        [first, second, ..] if difference(first) < difference(second) => Some(*first),
        _ => None,
    }
}

/// True if MPS can limit compute and memory per client on this model: since Volta. False for an unknown model.
pub fn can_limit_shares(name: &str) -> bool {
    let models = is_named(&joined(name));
    !models.is_empty()
        && models.iter().all(|model| model.compute_capability.is_some_and(|capability| capability >= (7, 0)))
}

/// The canonical spelling of a model name: lower-case words joined by `-`, without the vendor.
pub fn canonical(name: &str) -> String {
    words(name).collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// True if a device with the driver's name `device` is of the model `requested`.
pub fn matches(requested: &str, device: &str) -> bool {
    let (requested, whole) = (joined(requested), joined(device));
    !requested.is_empty() && (is_run_of_words(&requested, device, &whole) || means(&requested, &whole))
}

/// True if `requested` equals consecutive whole words of the device's name and no suffix of another model follows.
fn is_run_of_words(requested: &str, device: &str, whole: &str) -> bool {
    let mut start = 0;
    let mut starts = words(device).map(|word| {
        start += word.len();
        start - word.len()
    });
    starts.any(|start| whole[start..].starts_with(requested) && ends_a_model(device, start + requested.len()))
}

/// True if a word of the device's name ends at byte `end` and no suffix of another model follows.
fn ends_a_model(device: &str, end: usize) -> bool {
    let mut words = words(device);
    let mut reached = 0;
    while reached < end {
        let Some(word) = words.next() else { return false };
        reached += word.len();
    }
    let is_variant = |next: &str| VARIANTS.iter().any(|variant| next.eq_ignore_ascii_case(variant));
    reached == end && !words.next().is_some_and(is_variant)
}

/// True if the device's name identifies one model and `requested` is a spelling of it.
fn means(requested: &str, device: &str) -> bool {
    match is_named(device) {
        [one] => is_named(requested).iter().any(|named| std::ptr::eq(*named, *one)),
        _ => false,
    }
}

/// The models with this spelling, given without separators.
fn is_named(joined: &str) -> &'static [&'static Model] {
    static CALLED: LazyLock<BTreeMap<String, Vec<&'static Model>>> = LazyLock::new(|| {
        let mut called: BTreeMap<String, Vec<&'static Model>> = BTreeMap::new();
        for model in registry::MODELS {
            for spelling in model.spellings {
                called.entry(self::joined(spelling)).or_default().push(model);
            }
        }
        called
    });
    CALLED.get(joined).map_or(&[], Vec::as_slice)
}

/// The words of a name in lower case, without separators.
fn joined(name: &str) -> String {
    let mut joined: String = words(name).collect();
    joined.make_ascii_lowercase();
    joined
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    let not_a_vendor = |word: &&str| !MAKERS.iter().any(|maker| word.eq_ignore_ascii_case(maker));
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.filter(not_a_vendor)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::registry::MODELS;
    use super::*;

    #[test]
    fn requested_models_match_driver_names() {
        let cases = [
            ("RTX_5070ti", "NVIDIA GeForce RTX 5070 Ti", true),
            ("5070ti", "NVIDIA GeForce RTX 5070 Ti", true),
            ("RTX 5070", "NVIDIA GeForce RTX 5070 Ti", false),
            ("A10", "NVIDIA A100-SXM4-80GB", false),
            ("A10", "NVIDIA A10G", false),
            ("A100", "NVIDIA A10", false),
            ("A100", "NVIDIA A100-SXM4-80GB", true),
            ("A100-80GB", "NVIDIA A100-SXM4-80GB", true),
            ("a100-80g", "NVIDIA A100 80GB PCIe", true),
            ("a100-80g", "NVIDIA A100-SXM4-40GB", false),
            ("a100-sxm", "NVIDIA A100-SXM4-40GB", true),
            ("a100-sxm", "NVIDIA A100 80GB PCIe", false),
            ("NVIDIA-A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", true),
            ("H100", "H100-MIG", false),
            ("H100", "NVIDIA H100 80GB HBM3", true),
            ("H100", "NVIDIA H100 PCIe", true),
            ("H100", "NVIDIA H100 NVL", false),
            ("h100-80g", "NVIDIA H100 PCIe", true),
            ("h100-94gb", "NVIDIA H100 NVL", true),
            ("h100-sxm", "NVIDIA H100 80GB HBM3", true),
            ("h100-sxm", "NVIDIA H100 PCIe", false),
            ("h200", "NVIDIA H200", true),
            ("h200", "NVIDIA H200 NVL", false),
            ("rtx4090", "NVIDIA GeForce RTX 4090", true),
            ("V100", "V100M32", true),
            ("V100M32", "Tesla V100-SXM2-32GB", true),
            ("V100M16", "V100M32", false),
            // A device whose name does not say which H100 it is may have less memory.
            ("h100-80g", "NVIDIA H100", false),
            ("", "NVIDIA H200", false),
            ("nvidia", "NVIDIA H200", false),
        ];
        for (requested, device, expected) in cases {
            assert_eq!(matches(requested, device), expected, "{requested} / {device}");
        }
    }

    #[test]
    fn registry_entries_are_consistent() {
        let mut names = BTreeSet::new();
        for model in MODELS {
            assert!(names.insert(model.name), "{} twice", model.name);
            assert_eq!(canonical(model.spellings[0]), model.name, "the driver's name comes first");
            assert_eq!(lookup(model.name), Some(model), "{} resolves to another model", model.name);
            let spelled: BTreeSet<String> = model.spellings.iter().map(|each| joined(each)).collect();
            assert_eq!(spelled.len(), model.spellings.len(), "{} has a spelling twice", model.name);
            let Power { min, default, max } = model.power;
            assert!([min, default, max].iter().flatten().is_sorted(), "{}", model.name);
        }
    }

    #[test]
    fn every_spelling_matches_the_driver_name_of_its_model() {
        for model in MODELS {
            for spelling in model.spellings {
                assert!(matches(spelling, model.spellings[0]), "{spelling} / {}", model.name);
            }
        }
        // No driver's name matches another model, except where the module has the name of the whole product line.
        let pairs = MODELS.iter().flat_map(|one| MODELS.iter().map(move |other| (one.name, other.name)));
        let others = pairs.filter(|(one, other)| one != other && matches(one, other));
        assert_eq!(others.collect::<Vec<_>>(), [("h800", "h800-pcie"), ("h20", "h20-3e")]);
    }

    #[test]
    fn mig_instances_do_not_exceed_their_device() {
        for (model, table) in MODELS.iter().filter_map(|model| Some((model, model.mig?))) {
            let whole = table.profiles.last().unwrap();
            assert!(whole.memory_mib <= model.memory_mib.unwrap(), "{}", model.name);
            assert!(whole.multiprocessors <= model.multiprocessors.unwrap(), "{}", model.name);
            assert!(whole.memory_mib * 100 >= model.memory_mib.unwrap() * 97, "{}", model.name);
            assert!(model.compute_capability.unwrap() >= (8, 0), "{}", model.name);
        }
    }

    #[test]
    fn devices_are_identified_by_name_and_memory() {
        let cases = [
            ("NVIDIA H200", 143_771, Some("h200")),
            ("NVIDIA H200", 130_000, None),
            ("NVIDIA A100-SXM4-80GB", 81_251, Some("a100-sxm4-80gb")),
            ("NVIDIA A40", 49_140, Some("a40")),
            ("GH200", 97_871, Some("gh200-480gb")),
            ("P100", 12_198, Some("p100-pcie-12gb")),
            ("H100", 95_830, None),
            ("NVIDIA H100", 81_559, None),
            ("A100", 81_920, None),
            ("NVIDIA GeForce RTX 5070", 12_227, None),
            ("NVIDIA GeForce RTX 4090 D", 24_564, None),
            ("V100M16", 16_160, Some("v100-sxm2-16gb")),
            ("AMD Instinct MI300X", 196_592, Some("mi300x")),
            ("G2", 24_000, None),
            ("", 0, None),
        ];
        for (name, memory_mib, expected) in cases {
            assert_eq!(of_device(name, memory_mib).map(|model| model.name), expected, "{name}");
        }
        assert_eq!(lookup("H100"), None);
        assert_eq!(lookup("rtx_5070TI").map(|model| model.name), Some("rtx-5070-ti"));
    }

    #[test]
    fn cores_follow_from_multiprocessors() {
        let cores = |name| lookup(name).map(|model| (model.cuda_cores(), model.tensor_cores())).unwrap();
        assert_eq!(cores("h200"), (Some(16_896), Some(528)), "as NVML counted them");
        assert_eq!(cores("a100-sxm4-40gb"), (Some(6_912), Some(432)));
        assert_eq!(cores("v100m32"), (Some(5_120), Some(640)));
        assert_eq!(cores("t4"), (Some(2_560), Some(320)));
        assert_eq!(cores("rtx4090"), (Some(16_384), Some(512)));
        assert_eq!(cores("p40"), (Some(3_840), Some(0)));
        assert_eq!(cores("mi300x"), (None, None));
    }
}
