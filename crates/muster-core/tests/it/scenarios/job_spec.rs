//! The job of a `submit` or `dry-run` line.

use muster_core::gpu::gpu_share::Isolation;
use muster_core::objects::job::{
    CheckpointRule, Dependency, DependencyWhen, EarlySignal, JobSpec, OnNodeLost, Resources, TaskGroup, Topology,
};

use super::line::{Line, mib, number, span, tasks};
use super::runner::ScenarioRunner;
use crate::builders::job;

impl ScenarioRunner {
    pub fn spec(&self, line: &Line) -> Result<JobSpec, String> {
        let mut spec = job().name(line.object()).build();
        for (key, value) in &line.options {
            let group = &mut spec.tasks[0];
            match *key {
                "tenant" => spec.tenant = value.parse().unwrap(),
                "user" => spec.user = value.to_string(),
                "priority" => spec.priority = number(value),
                "tasks" => (group.count, group.count_max) = tasks(value),
                "gpus" => group.each.gpus = number(value),
                "cpus" => group.each.cpus = number(value),
                "memory" => group.each.memory_mib = mib(value),
                "gpu_memory" => group.each.gpu_memory_mib = mib(value),
                "models" => group.each.gpu_models = value.split(',').map(str::to_string).collect(),
                "share" => group.each.gpu_compute_milli = number(value),
                "isolation" => group.each.isolation = isolation(value)?,
                "topology" => spec.topology = topology(value)?,
                "prefer_nvlink" => spec.prefer_nvlink = *value == "yes",
                "cross_numa" => spec.allow_cross_numa = Some(*value == "yes"),
                "launcher" => spec.tasks.push(TaskGroup {
                    name: "launcher".to_string(),
                    count: 1,
                    count_max: None,
                    each: Resources { gpus: 0, cpus: number(value), ..spec.tasks[0].each.clone() },
                }),
                "checkpoint_every" => {
                    let every_ms = Some(span(value));
                    spec.checkpoint = Some(CheckpointRule { path: "/out".to_string(), every_ms });
                }
                "limit" => spec.time_limit_ms = Some(span(value)),
                "signal_before" => spec.early_signal = Some(EarlySignal { signal: 10, before_ms: span(value) }),
                "start" => spec.start_after = Some(self.world.now.plus(span(value))),
                "restarts" => spec.restart.max_restarts = number(value),
                "requeues" => spec.restart.max_requeues = number(value),
                "on_node_lost" => {
                    spec.on_node_lost = match *value {
                        "requeue" => OnNodeLost::Requeue,
                        "requeue-unsafe" => OnNodeLost::RequeueUnsafe,
                        "wait" => OnNodeLost::Wait,
                        rule => return Err(format!("no rule `{rule}`")),
                    }
                }
                "after" => spec.after.push(self.dependency(value, DependencyWhen::Succeeded)?),
                "after_failed" => spec.after.push(self.dependency(value, DependencyWhen::Failed)?),
                "after_any" => spec.after.push(self.dependency(value, DependencyWhen::Ended)?),
                "image" => spec.run.image = Some(value.to_string()),
                "array" | "key" => {}
                key if key.starts_with("label.") => {}
                key => return Err(format!("jobs have no `{key}`")),
            }
        }
        spec.node_labels = line.labels();
        Ok(spec)
    }

    fn dependency(&self, name: &str, when: DependencyWhen) -> Result<Dependency, String> {
        Ok(Dependency { job: self.job(name)?, when })
    }
}

fn isolation(text: &str) -> Result<Isolation, String> {
    match text {
        "none" => Ok(Isolation::None),
        "memory" => Ok(Isolation::Memory),
        "full" => Ok(Isolation::Full),
        text => Err(format!("no isolation `{text}`")),
    }
}

fn topology(text: &str) -> Result<Topology, String> {
    match text {
        "any" => Ok(Topology::Any),
        "same-rack" => Ok(Topology::SameRack),
        "same-numa" => Ok(Topology::SameNuma),
        "nvlink" => Ok(Topology::Nvlink),
        text => Err(format!("no topology `{text}`")),
    }
}
