//! Builder of job specifications, and submissions of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::Timestamp;
use muster_core::facts::command::SubmitJob;
use muster_core::objects::job::{CheckpointRule, JobSpec, OnNodeLost, Resources, Run, TaskGroup, Topology};

/// A job of one task with 1 GPU, 1 core and 1 GiB, of the user `ada` in the tenant `default`, at priority 100.
pub fn job() -> JobBuilder {
    let each = Resources {
        gpus: 1,
        gpu_models: Default::default(),
        gpu_memory_mib: 0,
        gpu_compute_milli: 1_000,
        isolation: Default::default(),
        cpus: 1,
        memory_mib: 1_024,
    };
    let tasks = vec![TaskGroup { name: "task".to_string(), count: 1, count_max: None, each }];
    JobBuilder(JobSpec {
        run: Run { command: vec!["true".to_string()], ..Run::default() },
        ..JobSpec::new("job", "default".parse().unwrap(), "ada", tasks)
    })
}

/// Builds a [`JobSpec`]. Methods about tasks change the last task group, which is the only one without
/// [`JobBuilder::next_group`].
#[derive(Debug, Clone)]
pub struct JobBuilder(JobSpec);

impl JobBuilder {
    fn with(mut self, change: impl FnOnce(&mut JobSpec)) -> JobBuilder {
        change(&mut self.0);
        self
    }

    fn group(self, change: impl FnOnce(&mut TaskGroup)) -> JobBuilder {
        self.with(|spec| change(spec.tasks.last_mut().unwrap()))
    }

    fn each(self, change: impl FnOnce(&mut Resources)) -> JobBuilder {
        self.group(|group| change(&mut group.each))
    }

    pub fn name(self, name: &str) -> JobBuilder {
        self.with(|spec| spec.name = name.to_string())
    }

    pub fn tenant(self, tenant: &str) -> JobBuilder {
        self.with(|spec| spec.tenant = tenant.parse().unwrap())
    }

    pub fn user(self, user: &str) -> JobBuilder {
        self.with(|spec| spec.user = user.to_string())
    }

    pub fn priority(self, priority: u32) -> JobBuilder {
        self.with(|spec| spec.priority = priority)
    }

    /// The name of the task group.
    pub fn group_name(self, name: &str) -> JobBuilder {
        self.group(|group| group.name = name.to_string())
    }

    /// Adds a task group: one task with the resources of the last one.
    pub fn next_group(self, name: &str) -> JobBuilder {
        self.with(|spec| {
            let each = spec.tasks.last().unwrap().each.clone();
            spec.tasks.push(TaskGroup { name: name.to_string(), count: 1, count_max: None, each });
        })
    }

    pub fn tasks(self, count: u32) -> JobBuilder {
        self.group(|group| group.count = count)
    }

    /// An elastic gang that takes up to this many tasks.
    pub fn tasks_max(self, count_max: u32) -> JobBuilder {
        self.group(|group| group.count_max = Some(count_max))
    }

    /// GPUs of each task.
    pub fn gpus(self, gpus: u32) -> JobBuilder {
        self.each(|each| each.gpus = gpus)
    }

    /// A share of one GPU, in thousandths.
    pub fn share(self, milli: u32) -> JobBuilder {
        self.each(|each| each.gpu_compute_milli = milli)
    }

    pub fn model(self, model: &str) -> JobBuilder {
        self.each(|each| each.gpu_models = [model.to_string()].into())
    }

    /// Minimum memory of each GPU.
    pub fn gpu_memory_mib(self, gpu_memory_mib: u64) -> JobBuilder {
        self.each(|each| each.gpu_memory_mib = gpu_memory_mib)
    }

    pub fn cpus(self, cpus: u32) -> JobBuilder {
        self.each(|each| each.cpus = cpus)
    }

    pub fn memory_mib(self, memory_mib: u64) -> JobBuilder {
        self.each(|each| each.memory_mib = memory_mib)
    }

    pub fn pool(self, pool: &str) -> JobBuilder {
        self.with(|spec| spec.pool = Some(pool.to_string()))
    }

    pub fn topology(self, topology: Topology) -> JobBuilder {
        self.with(|spec| spec.topology = topology)
    }

    pub fn limit_ms(self, limit_ms: i64) -> JobBuilder {
        self.with(|spec| spec.time_limit_ms = Some(limit_ms))
    }

    pub fn checkpoint_every_ms(self, every_ms: i64) -> JobBuilder {
        let rule = CheckpointRule { path: "/out".to_string(), every_ms: Some(every_ms) };
        self.with(|spec| spec.checkpoint = Some(rule))
    }

    pub fn start_after(self, at: Timestamp) -> JobBuilder {
        self.with(|spec| spec.start_after = Some(at))
    }

    pub fn restarts(self, max_restarts: u32) -> JobBuilder {
        self.with(|spec| spec.restart.max_restarts = max_restarts)
    }

    pub fn on_node_lost(self, rule: OnNodeLost) -> JobBuilder {
        self.with(|spec| spec.on_node_lost = rule)
    }

    pub fn command(self, command: &str) -> JobBuilder {
        self.with(|spec| spec.run.command = vec![command.to_string()])
    }

    pub fn label(self, key: &str, value: &str) -> JobBuilder {
        self.with(|spec| spec.labels.extend([(key.to_string(), value.to_string())]))
    }

    pub fn build(self) -> JobSpec {
        self.0
    }
}

impl From<JobBuilder> for JobSpec {
    fn from(builder: JobBuilder) -> JobSpec {
        builder.0
    }
}

/// A submission by an operator, without array, hold or idempotency key.
pub fn submission(spec: impl Into<JobSpec>) -> SubmitJob {
    SubmitJob {
        spec: Arc::new(spec.into()),
        array: None,
        hold: false,
        key: None,
        known_outcomes: BTreeMap::new(),
        known_key: None,
        is_operator: true,
    }
}
