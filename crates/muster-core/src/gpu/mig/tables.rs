//! MIG profile tables of each device model.
//!
//! The H200 table is the output of `nvidia-smi mig -lgip` and `-lgipp` on our own card (driver 580). The others are
//! published outputs, checked against the profiles in NVIDIA's MIG user guide. Memory differs slightly between drivers;
//! where two outputs differ, the table has the lower value.

use super::{MigTable, Profile};

/// A30 with 24 GB.
pub static A30_24GB: MigTable = quarters(&A30_24GB_PROFILES, 1);
/// A100 with 40 GB, card and module; A800 with 40 GB.
pub static A100_40GB: MigTable = sevenths(&A100_40GB_PROFILES);
/// A100 with 80 GB, card and module; A800 with 80 GB.
pub static A100_80GB: MigTable = sevenths(&A100_80GB_PROFILES);
/// H100 with 80 GB on a PCIe card.
pub static H100_PCIE_80GB: MigTable = sevenths(&H100_PCIE_80GB_PROFILES);
/// H100 with 80 GB on an SXM module; H800 on an SXM module.
pub static H100_SXM_80GB: MigTable = sevenths(&H100_SXM_80GB_PROFILES);
/// H100 NVL.
pub static H100_94GB: MigTable = sevenths(&H100_94GB_PROFILES);
/// The H100 of a GH200 with 96 GB.
pub static GH200_96GB: MigTable = sevenths(&GH200_96GB_PROFILES);
/// H200, module and NVL.
pub static H200_141GB: MigTable = sevenths(&H200_141GB_PROFILES);
/// B200 with 180 GB.
pub static B200_180GB: MigTable = sevenths(&B200_180GB_PROFILES);
/// RTX PRO 6000 Blackwell with 96 GB. Its profiles for graphics (`+gfx`), with all media engines (`+me.all`) and with
/// none (`-me`) are omitted: they have the starts of the plain ones.
pub static RTX_PRO_6000_96GB: MigTable = quarters(&RTX_PRO_6000_96GB_PROFILES, 3);

// Published outputs, with and without `2g.12gb+me`, which came with R525.
static A30_24GB_PROFILES: [Profile; 5] = [
    profile(("1g.6gb", 14), (1, 1), 5_952, 14, &[0, 1, 2, 3], 4),
    profile(("1g.6gb+me", 21), (1, 1), 5_952, 14, &[0, 1, 2, 3], 1),
    profile(("2g.12gb", 5), (2, 2), 11_968, 28, &[0, 2], 2),
    profile(("2g.12gb+me", 6), (2, 2), 11_968, 28, &[0, 2], 1),
    profile(("4g.24gb", 0), (4, 4), 24_000, 56, &[0], 1),
];

// An A100-SXM4-40GB. MIG exposes 98 of its 108 multiprocessors.
static A100_40GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"],
    [4_864, 9_984, 20_096, 40_320],
    [14, 14, 28, 42, 56, 98],
);

// Two published outputs that agree.
static A100_80GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
    [9_728, 19_968, 40_192, 80_896],
    [14, 14, 28, 42, 56, 98],
);

// One published output, driver 570; the placements are those of the H100 module.
static H100_PCIE_80GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
    [9_984, 20_096, 40_448, 81_152],
    [14, 14, 30, 46, 62, 114],
);

// Three published outputs that agree, one with placements.
static H100_SXM_80GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
    [9_984, 20_096, 40_448, 81_152],
    [16, 26, 32, 60, 64, 132],
);

// Four published outputs with two different memory sizes; the lower ones. Two with placements.
static H100_94GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"],
    [10_880, 22_016, 47_232, 94_848],
    [16, 26, 32, 60, 64, 132],
);

// One published output; the placements are those of the H100 module.
static GH200_96GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"],
    [11_264, 23_552, 47_616, 95_232],
    [16, 26, 32, 60, 64, 132],
);

// Our own card.
static H200_141GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"],
    [16_384, 33_280, 71_424, 143_360],
    [16, 26, 32, 60, 64, 132],
);

// One published output, with placements.
static B200_180GB_PROFILES: [Profile; 7] = seven_profiles(
    ["1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"],
    [20_992, 45_312, 91_136, 182_784],
    [18, 30, 36, 70, 72, 148],
);

// Two published outputs, one with placements: twelve memory slices, in steps of three.
static RTX_PRO_6000_96GB_PROFILES: [Profile; 4] = [
    profile(("1g.24gb", 14), (1, 3), 24_192, 46, &[0, 3, 6, 9], 4),
    profile(("1g.24gb+me", 21), (1, 3), 24_192, 46, &[0, 3, 6, 9], 1),
    profile(("2g.48gb", 5), (2, 6), 48_512, 94, &[0, 6], 2),
    profile(("4g.96gb", 0), (4, 12), 97_280, 188, &[0], 1),
];

const fn quarters(profiles: &'static [Profile], slices_each: u8) -> MigTable {
    MigTable { memory_slices: 4 * slices_each, compute_slices: 4, profiles }
}

const fn sevenths(profiles: &'static [Profile]) -> MigTable {
    MigTable { memory_slices: 8, compute_slices: 7, profiles }
}

/// The seven profiles that all large cards have, with the same starts.
///
/// `memory_mib` is for one, two, four and all eight memory slices. `processors` is for one compute slice, for one with
/// twice the memory, and for two, three, four and all.
const fn seven_profiles(names: [&'static str; 7], memory_mib: [u64; 4], processors: [u16; 6]) -> [Profile; 7] {
    [
        profile((names[0], 19), (1, 1), memory_mib[0], processors[0], &[0, 1, 2, 3, 4, 5, 6], 7),
        profile((names[1], 20), (1, 1), memory_mib[0], processors[0], &[0, 1, 2, 3, 4, 5, 6], 1),
        profile((names[2], 15), (1, 2), memory_mib[1], processors[1], &[0, 2, 4, 6], 4),
        profile((names[3], 14), (2, 2), memory_mib[1], processors[2], &[0, 2, 4], 3),
        profile((names[4], 9), (3, 4), memory_mib[2], processors[3], &[0, 4], 2),
        profile((names[5], 5), (4, 4), memory_mib[2], processors[4], &[0], 1),
        profile((names[6], 0), (7, 8), memory_mib[3], processors[5], &[0], 1),
    ]
}

const fn profile(
    (name, nvml_id): (&'static str, u8),
    (compute_slices, memory_slices): (u8, u8),
    memory_mib: u64,
    multiprocessors: u16,
    starts: &'static [u8],
    instances_max: u8,
) -> Profile {
    Profile { name, nvml_id, compute_slices, memory_slices, memory_mib, multiprocessors, starts, instances_max }
}
