//! The engine of the commissioning document: load policies, and ask whether a GPU may be given out.

use std::path::{Path, PathBuf};

use muster_core::rules::{Device, Rules};

use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{is_policy, load_file};

/// A GPU that someone asks about.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Its number.
    pub id: u32,
    /// What its driver calls it.
    pub name: String,
    /// Its name for ever.
    pub uuid: String,
    /// Its memory in GB.
    pub memory_gb: f64,
    /// Its temperature in degrees.
    pub temperature_c: f64,
    /// What it draws in watts.
    pub power_w: f64,
    /// Whether it answers.
    pub online: bool,
    /// Whether somebody registered it.
    pub registered: bool,
    /// The pool it was put into; none where it is empty.
    pub pool: String,
    /// Free words.
    pub tags: Vec<String>,
}

impl Gpu {
    /// One to try policies on: a cool card with 24 GB.
    pub fn synthetic(id: u32) -> Gpu {
        Gpu {
            id,
            name: "NVIDIA GeForce RTX 5070 Ti".to_string(),
            uuid: format!("GPU-{id:08x}"),
            memory_gb: 24.0,
            temperature_c: 35.0,
            power_w: 10.0,
            online: true,
            registered: false,
            pool: String::new(),
            tags: Vec::new(),
        }
    }
}

/// What is asked of a GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Requirements {
    /// Least memory in GB.
    pub min_memory: Option<f64>,
    /// Highest temperature in degrees.
    pub max_temp: Option<f64>,
    /// Words it must have.
    pub tags: Vec<String>,
}

impl Requirements {
    fn hold(&self, gpu: &Gpu) -> bool {
        self.min_memory.is_none_or(|least| gpu.memory_gb >= least)
            && self.max_temp.is_none_or(|most| gpu.temperature_c <= most)
            && self.tags.iter().all(|tag| gpu.tags.contains(tag))
    }
}

/// Policies that were loaded, and what they registered.
#[derive(Debug, Clone)]
pub struct PolicyEngine {
    policy_dir: PathBuf,
    limits: Limits,
    rules: Rules,
    /// The files that were loaded, in order.
    loaded: Vec<PathBuf>,
}

impl PolicyEngine {
    /// One that looks for policies in a folder.
    pub fn new(policy_dir: impl Into<PathBuf>) -> PolicyEngine {
        let (limits, rules, loaded) = (Limits::default(), Rules::default(), Vec::new());
        let policy_dir = policy_dir.into();
        let policy_dir = found_above(&policy_dir).unwrap_or(policy_dir);
        PolicyEngine { policy_dir, limits, rules, loaded }
    }

    /// The folder it looks in.
    pub fn policy_dir(&self) -> &Path {
        &self.policy_dir
    }

    /// Load a policy: the path as it is, or inside the folder.
    pub fn load_policy(&mut self, path: &Path) -> Result<(), PolicyError> {
        let inside = Some(self.policy_dir.join(path)).filter(|inside| !path.is_file() && inside.is_file());
        let path = inside.or_else(|| found_above(path)).unwrap_or_else(|| path.to_path_buf());
        self.rules.extend(load_file(&path, &self.limits)?);
        self.loaded.push(path);
        Ok(())
    }

    /// Load every policy of the folder, in the order of their names. Those with an error are left out and told.
    pub fn load_all_policies(&mut self) -> (usize, Vec<PolicyError>) {
        let mut errors = Vec::new();
        let before = self.loaded.len();
        for path in self.policies() {
            if let Err(error) = self.load_policy(&path) {
                errors.push(error);
            }
        }
        (self.loaded.len() - before, errors)
    }

    /// The policies of the folder; none where there is no such folder. Tests of policies are no policies.
    fn policies(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.policy_dir).into_iter().flatten().flatten();
        let is_one = |path: &PathBuf| {
            path.file_name().is_some_and(|name| is_policy(&name.to_string_lossy())) && path.is_file()
        };
        let mut paths: Vec<PathBuf> = files.map(|file| file.path()).filter(is_one).collect();
        paths.sort();
        paths
    }

    /// What was registered.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The files that were loaded.
    pub fn loaded(&self) -> &[PathBuf] {
        &self.loaded
    }

    /// Whether a GPU may be given out: some pool has it, and it is what is asked for.
    pub fn evaluate_allocation(&self, gpu: &Gpu, requirements: &Requirements) -> bool {
        let device = Device {
            model: &gpu.name,
            memory_milli_gb: milli(gpu.memory_gb),
            temp_milli_c: milli(gpu.temperature_c),
            pool: Some(gpu.pool.as_str()).filter(|pool| !pool.is_empty()),
        };
        self.rules.any_pool_holds(&device) && requirements.hold(gpu)
    }

    /// Those that may be given out, the best first; among equals as they came.
    pub fn recommended<'a>(&self, gpus: &'a [Gpu], requirements: &Requirements) -> Vec<&'a Gpu> {
        let mut fit: Vec<&Gpu> =
            gpus.iter().filter(|gpu| self.evaluate_allocation(gpu, requirements)).collect();
        fit.sort_by_key(|gpu| std::cmp::Reverse(score_tenths(gpu)));
        fit
    }
}

/// How good a GPU is, in tenths.
fn score_tenths(gpu: &Gpu) -> i32 {
    let online = if gpu.online { 5 } else { 0 };
    let large = if gpu.memory_gb >= 16.0 { 3 } else { 0 };
    let cool = match gpu.temperature_c {
        cool if cool < 60.0 => 2,
        hot if hot > 80.0 => -3,
        _ => 0,
    };
    10 + online + large + cool
}

fn milli(number: f64) -> i64 {
    (number * 1_000.0).round() as i64
}

/// What is not there, but seen from the folder above: commands from `python/` find the policies of the project.
fn found_above(path: &Path) -> Option<PathBuf> {
    let above = Path::new("..").join(path);
    (path.is_relative() && !path.exists() && above.exists()).then_some(above)
}
