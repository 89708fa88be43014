//! The registry of GPU models: spellings, memory, compute capability, multiprocessors, power limits, NVLink and MIG.
//!
//! Several models may share a spelling: `A100-80GB` is a module or a card, and a request for it accepts both. Only a
//! spelling of exactly one model identifies the model of a device.
//!
//! Sources: the H200 was measured on our own card; memory, power and multiprocessors of most others come from published
//! output of `nvidia-smi` and CUDA device properties, the rest from data sheets. Memory is the total that drivers since
//! R510 report with the factory ECC mode; older drivers report one or two percent less, and another ECC mode changes it
//! by up to seven percent. A value that could not be established is `None`.

use super::{Model, Power};
use crate::gpu::mig::tables;

/// All models, by vendor and generation.
pub static MODELS: &[Model] = &[
    // Pascal. The Alibaba trace of 2023 (`openb`) spells them `P4` and `P100`.
    nvidia("p4", &["Tesla P4"], 7_680, (6, 1), 20).watts(75),
    nvidia("p40", &["Tesla P40"], 23_040, (6, 1), 30).watts(250),
    nvidia("p100-pcie-12gb", &["Tesla P100-PCIE-12GB", "P100", "P100-12GB", "p100-pcie"], 12_288, (6, 0), 56)
        .watts(250),
    nvidia("p100-pcie-16gb", &["Tesla P100-PCIE-16GB", "P100", "P100-16GB", "p100-pcie"], 16_384, (6, 0), 56)
        .watts(250),
    nvidia(
        "p100-sxm2-16gb",
        &["Tesla P100-SXM2-16GB", "P100", "P100-16GB", "p100-sxm", "p100-sxm2"],
        16_384,
        (6, 0),
        56,
    )
    .watts(300)
    .nvlink(),
    // Volta. `V100M16` and `V100M32` are spellings of the Alibaba trace of 2023, resolved by the memory table of its
    // simulator; the trace counts its few V100S as `V100M32`.
    nvidia(
        "v100-pcie-16gb",
        &["Tesla V100-PCIE-16GB", "V100", "V100-16GB", "V100-16g", "v100-pcie"],
        16_384,
        (7, 0),
        80,
    )
    .watts(250),
    nvidia(
        "v100-pcie-32gb",
        &["Tesla V100-PCIE-32GB", "V100", "V100-32GB", "V100-32g", "v100-pcie"],
        32_768,
        (7, 0),
        80,
    )
    .watts(250),
    nvidia(
        "v100-sxm2-16gb",
        &["Tesla V100-SXM2-16GB", "V100M16", "V100", "V100-16GB", "V100-16g", "v100-sxm", "v100-sxm2"],
        16_384,
        (7, 0),
        80,
    )
    .watts(300)
    .nvlink(),
    nvidia(
        "v100-sxm2-32gb",
        &["Tesla V100-SXM2-32GB", "V100M32", "V100", "V100-32GB", "V100-32g", "v100-sxm", "v100-sxm2"],
        32_768,
        (7, 0),
        80,
    )
    .watts(300)
    .nvlink(),
    // Turing.
    nvidia("t4", &["Tesla T4", "t4-16gb"], 15_360, (7, 5), 40).watts(70),
    nvidia("rtx-2080-ti", &["NVIDIA GeForce RTX 2080 Ti", "2080ti"], 11_264, (7, 5), 68).watts(250).nvlink(),
    // Ampere. An A16 is four devices on one card; the figures are those of one device.
    nvidia("a2", &["NVIDIA A2"], 15_356, (8, 6), 10).watts(60),
    nvidia("a10", &["NVIDIA A10", "a10-24gb", "a10-pcie"], 23_028, (8, 6), 72).watts(150),
    nvidia("a10g", &["NVIDIA A10G", "a10g-24gb"], 23_028, (8, 6), 80).power(100, 300, 300),
    nvidia("a16", &["NVIDIA A16"], 15_356, (8, 6), 10).watts(62),
    nvidia("a30", &["NVIDIA A30", "a30-24gb"], 24_576, (8, 0), 56).watts(165).nvlink().mig(&tables::A30_24GB),
    nvidia("a40", &["NVIDIA A40", "a40-48gb"], 46_068, (8, 6), 84).watts(300).nvlink(),
    nvidia(
        "a100-pcie-40gb",
        &["NVIDIA A100-PCIE-40GB", "A100", "A100-40GB", "a100-40g", "a100-pcie"],
        40_960,
        (8, 0),
        108,
    )
    .watts(250)
    .nvlink()
    .mig(&tables::A100_40GB),
    nvidia(
        "a100-80gb-pcie",
        &["NVIDIA A100 80GB PCIe", "A100-PCIE-80GB", "A100", "A100-80GB", "a100-80g", "a100-pcie"],
        81_920,
        (8, 0),
        108,
    )
    .watts(300)
    .nvlink()
    .mig(&tables::A100_80GB),
    nvidia(
        "a100-sxm4-40gb",
        &["NVIDIA A100-SXM4-40GB", "A100", "A100-40GB", "a100-40g", "a100-sxm", "a100-sxm4", "a100-sxm-40gb"],
        40_960,
        (8, 0),
        108,
    )
    .power(100, 400, 400)
    .nvlink()
    .mig(&tables::A100_40GB),
    nvidia(
        "a100-sxm4-80gb",
        &["NVIDIA A100-SXM4-80GB", "A100", "A100-80GB", "a100-80g", "a100-sxm", "a100-sxm4", "a100-sxm-80gb"],
        81_920,
        (8, 0),
        108,
    )
    .power(100, 400, 400)
    .nvlink()
    .mig(&tables::A100_80GB),
    // NVIDIA's GPU Operator partitions an A800 like an A100.
    nvidia("a800-40gb-pcie", &["NVIDIA A800 40GB PCIe", "A800", "A800-40GB", "a800-40g"], 40_960, (8, 0), 108)
        .nvlink()
        .mig(&tables::A100_40GB),
    nvidia("a800-80gb-pcie", &["NVIDIA A800 80GB PCIe", "A800", "A800-80GB", "a800-80g"], 81_920, (8, 0), 108)
        .nvlink()
        .mig(&tables::A100_80GB),
    nvidia(
        "a800-sxm4-80gb",
        &["NVIDIA A800-SXM4-80GB", "A800", "A800-80GB", "a800-80g", "a800-sxm", "a800-sxm4"],
        81_920,
        (8, 0),
        108,
    )
    .watts(400)
    .nvlink()
    .mig(&tables::A100_80GB),
    nvidia("rtx-3090", &["NVIDIA GeForce RTX 3090", "3090"], 24_576, (8, 6), 82).watts(350).nvlink(),
    nvidia("rtx-a4000", &["NVIDIA RTX A4000", "A4000"], 16_376, (8, 6), 48).watts(140),
    nvidia("rtx-a5000", &["NVIDIA RTX A5000", "A5000"], 24_564, (8, 6), 64).watts(230).nvlink(),
    nvidia("rtx-a6000", &["NVIDIA RTX A6000", "A6000"], 49_140, (8, 6), 84).watts(300).nvlink(),
    // Ada.
    nvidia("l4", &["NVIDIA L4", "l4-24gb"], 23_034, (8, 9), 58).watts(72),
    nvidia("l40", &["NVIDIA L40", "l40-48gb"], 46_068, (8, 9), 142).watts(300),
    nvidia("l40s", &["NVIDIA L40S", "l40s-48gb"], 46_068, (8, 9), 142).watts(350),
    nvidia("rtx-4090", &["NVIDIA GeForce RTX 4090", "4090"], 24_564, (8, 9), 128).watts(450),
    nvidia(
        "rtx-6000-ada-generation",
        &["NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada", "6000ada"],
        49_140,
        (8, 9),
        142,
    )
    .watts(300),
    // Hopper. The NVL is a separate model: `H100` does not match it.
    nvidia("h100-pcie", &["NVIDIA H100 PCIe", "H100", "H100-80GB", "h100-80g", "h100-pcie-80gb"], 81_559, (9, 0), 114)
        .watts(350)
        .nvlink()
        .mig(&tables::H100_PCIE_80GB),
    nvidia(
        "h100-80gb-hbm3",
        &["NVIDIA H100 80GB HBM3", "H100", "H100-80GB", "h100-80g", "h100-sxm", "h100-sxm5", "h100-sxm5-80gb"],
        81_559,
        (9, 0),
        132,
    )
    .power(200, 700, 700)
    .nvlink()
    .mig(&tables::H100_SXM_80GB),
    // Its default power limit is 310 W or 400 W, depending on the card.
    Model {
        power: Power { min: Some(200), default: None, max: Some(400) },
        ..nvidia("h100-nvl", &["NVIDIA H100 NVL", "H100-94GB", "h100-94g"], 95_830, (9, 0), 132)
            .nvlink()
            .mig(&tables::H100_94GB)
    },
    // NVIDIA's GPU Operator partitions an H800 like an H100. The multiprocessor count of the card is unknown.
    Model {
        multiprocessors: None,
        ..nvidia("h800-pcie", &["NVIDIA H800 PCIe", "H800-80GB", "h800-80g"], 81_559, (9, 0), 0).nvlink()
    },
    nvidia("h800", &["NVIDIA H800", "H800-80GB", "h800-80g", "h800-sxm", "h800-sxm5"], 81_559, (9, 0), 132)
        .watts(700)
        .nvlink()
        .mig(&tables::H100_SXM_80GB),
    // An H20 also has seven MIG slices; the sizes of its instances are not published.
    nvidia("h20", &["NVIDIA H20", "h20-96gb"], 97_871, (9, 0), 78).watts(500).nvlink(),
    nvidia("h20-3e", &["NVIDIA H20-3e", "h20-141gb"], 143_771, (9, 0), 78).nvlink(),
    nvidia("h200", &["NVIDIA H200", "h200-141gb", "h200-141g", "h200-sxm", "h200-sxm5"], 143_771, (9, 0), 132)
        .power(200, 700, 700)
        .nvlink()
        .mig(&tables::H200_141GB),
    // NVIDIA's GPU Operator partitions it like the module.
    nvidia("h200-nvl", &["NVIDIA H200 NVL"], 143_771, (9, 0), 132).watts(600).nvlink().mig(&tables::H200_141GB),
    // The driver names a GH200 after the memory of its CPU.
    nvidia("gh200-480gb", &["NVIDIA GH200 480GB", "NVIDIA GH200 120GB", "GH200", "gh200-96gb"], 97_871, (9, 0), 132)
        .power(100, 900, 900)
        .nvlink()
        .mig(&tables::GH200_96GB),
    Model {
        memory_mib: None,
        ..nvidia("gh200-144g-hbm3e", &["NVIDIA GH200 144G HBM3e", "GH200", "gh200-144gb"], 0, (9, 0), 132).nvlink()
    },
    // Blackwell. All but the GeForce support MIG; except for the B200 and the RTX PRO 6000 only profile names are
    // published.
    Model { memory_mib: None, multiprocessors: None, ..nvidia("b100", &["NVIDIA B100"], 0, (10, 0), 0).nvlink() },
    nvidia("b200", &["NVIDIA B200", "b200-180gb", "b200-sxm"], 183_359, (10, 0), 148)
        .watts(1_000)
        .nvlink()
        .mig(&tables::B200_180GB),
    Model {
        multiprocessors: None,
        ..nvidia("b300-sxm6-ac", &["NVIDIA B300 SXM6 AC", "NVIDIA B300", "b300-sxm"], 275_040, (10, 3), 0)
            .watts(1_100)
            .nvlink()
    },
    nvidia("gb200", &["NVIDIA GB200"], 189_471, (10, 0), 152).watts(1_200).nvlink(),
    Model { multiprocessors: None, ..nvidia("gb300", &["NVIDIA GB300"], 284_208, (10, 3), 0).watts(1_400).nvlink() },
    nvidia("rtx-5070-ti", &["NVIDIA GeForce RTX 5070 Ti", "5070ti"], 16_303, (12, 0), 70).watts(300),
    nvidia("rtx-5080", &["NVIDIA GeForce RTX 5080", "5080"], 16_303, (12, 0), 84).watts(360),
    nvidia("rtx-5090", &["NVIDIA GeForce RTX 5090", "5090"], 32_607, (12, 0), 170).watts(575),
    nvidia(
        "rtx-pro-6000-blackwell-server-edition",
        &["NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", "rtx-pro-6000-blackwell", "pro6000"],
        97_887,
        (12, 0),
        188,
    )
    .watts(600)
    .mig(&tables::RTX_PRO_6000_96GB),
    nvidia(
        "rtx-pro-6000-blackwell-workstation-edition",
        &["NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000", "rtx-pro-6000-blackwell", "pro6000"],
        97_887,
        (12, 0),
        188,
    )
    .watts(600)
    .mig(&tables::RTX_PRO_6000_96GB),
    nvidia(
        "rtx-pro-6000-blackwell-max-q-workstation-edition",
        &["NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"],
        97_887,
        (12, 0),
        188,
    )
    .watts(300)
    .mig(&tables::RTX_PRO_6000_96GB),
    // AMD, with compute units. An MI250X is two devices on one module; the figures are those of one device. Only the
    // MI300X has memory as the driver reports it; the others are their data sheets less the difference seen there.
    amd("mi210", &["AMD Instinct MI210"], 65_520, 104).watts(300),
    amd("mi250x", &["AMD Instinct MI250X"], 65_520, 110),
    amd("mi300x", &["AMD Instinct MI300X", "AMD Instinct MI300X OAM", "mi300x-192gb"], 196_592, 304).watts(750),
    amd("mi325x", &["AMD Instinct MI325X", "AMD Instinct MI325X OAM", "mi325x-256gb"], 262_128, 304).watts(1_000),
    amd("mi355x", &["AMD Instinct MI355X", "AMD Instinct MI355X OAM", "mi355x-288gb"], 294_896, 256).watts(1_400),
    // Models that the Alibaba trace of 2023 does not disclose.
    undisclosed("g2", &["G2"]),
    undisclosed("g3", &["G3"]),
];

const fn undisclosed(name: &'static str, spellings: &'static [&'static str]) -> Model {
    Model {
        name,
        spellings,
        memory_mib: None,
        compute_capability: None,
        multiprocessors: None,
        power: Power { min: None, default: None, max: None },
        nvlink: None,
        mig: None,
    }
}

const fn nvidia(
    name: &'static str,
    spellings: &'static [&'static str],
    memory_mib: u64,
    compute_capability: (u8, u8),
    multiprocessors: u16,
) -> Model {
    Model {
        memory_mib: Some(memory_mib),
        compute_capability: Some(compute_capability),
        multiprocessors: Some(multiprocessors),
        nvlink: Some(false),
        ..undisclosed(name, spellings)
    }
}

const fn amd(name: &'static str, spellings: &'static [&'static str], memory_mib: u64, compute_units: u16) -> Model {
    Model {
        memory_mib: Some(memory_mib),
        multiprocessors: Some(compute_units),
        nvlink: Some(false),
        ..undisclosed(name, spellings)
    }
}

impl Model {
    /// Sets the default power limit only; the settable range is unknown.
    const fn watts(self, default: u16) -> Model {
        Model { power: Power { min: None, default: Some(default), max: None }, ..self }
    }

    const fn power(self, min: u16, default: u16, max: u16) -> Model {
        Model { power: Power { min: Some(min), default: Some(default), max: Some(max) }, ..self }
    }

    const fn nvlink(self) -> Model {
        Model { nvlink: Some(true), ..self }
    }

    const fn mig(self, table: &'static crate::gpu::mig::MigTable) -> Model {
        Model { mig: Some(table), ..self }
    }
}
