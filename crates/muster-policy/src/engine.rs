//! The engine of the specification: loads policies and decides whether a GPU may be allocated.

use std::path::{Path, PathBuf};

use muster_core::objects::policy::rules::{PoolDevice, Rules};

use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::load_file;
use crate::policy_files::is_policy_file;

/// A GPU to be allocated.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    pub id: u32,
    /// The model, as the driver reports it.
    pub name: String,
    pub uuid: String,
    pub memory_gb: f64,
    pub temperature_c: f64,
    /// Power draw.
    pub power_w: f64,
    pub online: bool,
    pub registered: bool,
    /// The pool it is assigned to; empty for none.
    pub pool: String,
    pub tags: Vec<String>,
}

impl Gpu {
    /// A sample GPU: 24 GB at 35 °C.
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

/// Requirements on a GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Requirements {
    /// In GB.
    pub min_memory: Option<f64>,
    /// In degrees Celsius.
    pub max_temp: Option<f64>,
    /// Tags that the GPU must have.
    pub tags: Vec<String>,
}

impl Requirements {
    fn are_met_by(&self, gpu: &Gpu) -> bool {
        self.min_memory.is_none_or(|min| gpu.memory_gb >= min)
            && self.max_temp.is_none_or(|max| gpu.temperature_c <= max)
            && self.tags.iter().all(|tag| gpu.tags.contains(tag))
    }
}

/// Loaded policies and what they registered.
#[derive(Debug, Clone)]
pub struct PolicyEngine {
    policy_dir: PathBuf,
    limits: Limits,
    rules: Rules,
    /// The loaded files, in order.
    loaded: Vec<PathBuf>,
}

impl PolicyEngine {
    /// An engine whose policies are in this folder.
    pub fn new(policy_dir: impl Into<PathBuf>) -> PolicyEngine {
        let (limits, rules, loaded) = (Limits::default(), Rules::default(), Vec::new());
        let policy_dir = policy_dir.into();
        let policy_dir = path_in_parent_dir(&policy_dir).unwrap_or(policy_dir);
        PolicyEngine { policy_dir, limits, rules, loaded }
    }

    pub fn policy_dir(&self) -> &Path {
        &self.policy_dir
    }

    /// Load a policy by its path, or by its path inside the folder.
    pub fn load_policy(&mut self, path: &Path) -> Result<(), PolicyError> {
        let inside = Some(self.policy_dir.join(path)).filter(|inside| !path.is_file() && inside.is_file());
        let path = inside.or_else(|| path_in_parent_dir(path)).unwrap_or_else(|| path.to_path_buf());
        self.rules.extend(load_file(&path, &self.limits)?);
        self.loaded.push(path);
        Ok(())
    }

    /// Load every policy of the folder, in the order of file names. Returns the number of loaded files and the errors
    /// of the others.
    pub fn load_all_policies(&mut self) -> (usize, Vec<PolicyError>) {
        let mut errors = Vec::new();
        let before = self.loaded.len();
        for path in self.policy_paths() {
            if let Err(error) = self.load_policy(&path) {
                errors.push(error);
            }
        }
        (self.loaded.len() - before, errors)
    }

    /// The policies of the folder without test files; empty if the folder does not exist.
    fn policy_paths(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.policy_dir).into_iter().flatten().flatten();
        let is_policy = |path: &PathBuf| {
            path.file_name().is_some_and(|name| is_policy_file(&name.to_string_lossy())) && path.is_file()
        };
        let mut paths: Vec<PathBuf> = files.map(|file| file.path()).filter(is_policy).collect();
        paths.sort();
        paths
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The loaded files, in order.
    pub fn loaded(&self) -> &[PathBuf] {
        &self.loaded
    }

    /// True if the GPU may be allocated: it is in a pool and meets the requirements.
    pub fn evaluate_allocation(&self, gpu: &Gpu, requirements: &Requirements) -> bool {
        let device = PoolDevice {
            model: &gpu.name,
            memory_milli_gb: to_milli(gpu.memory_gb),
            temp_milli_c: to_milli(gpu.temperature_c),
            pool: Some(gpu.pool.as_str()).filter(|pool| !pool.is_empty()),
        };
        self.rules.any_pool_holds(&device) && requirements.are_met_by(gpu)
    }

    /// The GPUs that may be allocated, best score first; equal scores keep their order.
    pub fn recommended_gpus<'a>(&self, gpus: &'a [Gpu], requirements: &Requirements) -> Vec<&'a Gpu> {
        let mut fit: Vec<&Gpu> = gpus.iter().filter(|gpu| self.evaluate_allocation(gpu, requirements)).collect();
        fit.sort_by_key(|gpu| std::cmp::Reverse(score_tenths(gpu)));
        fit
    }
}

/// The score of a GPU, in tenths.
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

fn to_milli(number: f64) -> i64 {
    (number * 1_000.0).round() as i64
}

/// A relative path that exists only in the parent folder. It lets commands run in `python/` find the project's
/// policies.
fn path_in_parent_dir(path: &Path) -> Option<PathBuf> {
    let above = Path::new("..").join(path);
    (path.is_relative() && !path.exists() && above.exists()).then_some(above)
}
