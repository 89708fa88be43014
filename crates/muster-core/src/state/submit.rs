//! Step 4, decide: the guards of `SubmitJob`. Read top-down, they are the admission rule.

use std::collections::BTreeSet;

use crate::facts::command::{Actor, Answer, ArraySpec, SubmitJob};
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::facts::verdict::decimal;
use crate::gpu::gpu_share::{SHARE_MIN, WHOLE};
use crate::ids::JobId;
use crate::objects::job::{Dependency, JobSpec, Outcome, Resources, TaskGroup};
use crate::objects::settings::PRIORITY_MAX;
use crate::objects::shape::Shape;
use crate::resources::infeasible;
use crate::state::State;
use crate::state::decision::Decision;
use crate::time::Timestamp;

/// Longest name of a job.
const NAME_LENGTH_MAX: usize = 255;
/// Most tasks of one gang.
const TASKS_MAX: u32 = 4_096;
/// Most tasks of one array.
const ARRAY_MAX: usize = 100_000;
/// The queue keeps one place in this many for operators.
const KEPT_ONE_IN: u64 = 100;
/// Most places kept for operators.
const KEPT_MAX: u64 = 1_000;
/// More CPU cores than any machine has; keeps sums far from overflow.
pub(super) const CPUS_MAX: u32 = 1 << 20;
/// One exbibyte, for the same reason.
pub(super) const MEMORY_MIB_MAX: u64 = 1 << 40;
/// Ten years.
const TIME_LIMIT_MS_MAX: i64 = 10 * 366 * 24 * 3_600_000;

impl State {
    pub(super) fn decide_submit(&self, by: &Actor, request: &SubmitJob, now: Timestamp) -> Result<Decision, Refusal> {
        if let Some(job) = self.already_accepted(request)? {
            return Ok(Decision { events: Vec::new(), answer: Answer::Job(job) });
        }
        let spec = &request.spec;
        check_spec(spec)?;
        self.check_gang(spec)?;
        check_array(request.array.as_ref())?;
        self.check_tenant(spec)?;
        self.check_priority(by, &spec.tenant, spec.priority)?;
        self.check_pool(spec.pool.as_deref())?;
        self.check_secrets(spec)?;
        self.check_feasible(spec)?;
        self.check_queue(request)?;
        let open_dependencies = self.open_dependencies(request)?;
        let job = JobId::single(self.next_job);
        let submitted = Event::JobSubmitted {
            job,
            spec: spec.clone(),
            array: request.array.clone(),
            held_by: request.hold.then(|| by.name.clone()),
            key: request.key.clone(),
            open_dependencies,
            at: now,
        };
        Ok(Decision { events: vec![submitted], answer: Answer::Job(job) })
    }

    /// The job that an earlier request with the same idempotency key created.
    fn already_accepted(&self, request: &SubmitJob) -> Result<Option<JobId>, Refusal> {
        let Some(key) = &request.key else { return Ok(None) };
        let used = self.keys.get(&request.spec.tenant).and_then(|keys| keys.get(&key.key));
        match used.or(request.known_key.as_ref()) {
            None => Ok(None),
            Some(used) if used.body_hash == key.body_hash => Ok(Some(used.job)),
            Some(used) => Err(Refusal::KeyReused { key: key.key.clone(), job: used.job }),
        }
    }

    fn check_gang(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let tasks = spec.tasks.iter().map(|group| u64::from(group.count_most())).sum::<u64>();
        if tasks > 1 && !self.settings.gangs {
            return Err(Refusal::GangsOff { tasks });
        }
        Ok(())
    }

    fn check_tenant(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let tenant = self.tenant(&spec.tenant)?;
        let least = self.least_demand(spec);
        if !tenant.config.active {
            return Err(Refusal::InactiveTenant { tenant: tenant.id.clone() });
        }
        // The job alone must fit into the quotas of its tenant and all ancestors; usage of other jobs only makes it
        // wait.
        for ancestor in self.lineage(&tenant.id) {
            if let Some(excess) = ancestor.config.maximum.excess(least).into_iter().next() {
                return Err(Refusal::OverQuota { tenant: ancestor.id.clone(), excess });
            }
            if let Some(excess) = ancestor.config.maximum_per_user.excess(least).into_iter().next() {
                return Err(Refusal::OverUserQuota { tenant: ancestor.id.clone(), excess });
            }
        }
        Ok(())
    }

    fn check_feasible(&self, spec: &JobSpec) -> Result<(), Refusal> {
        // Without a registered node no job is known to be infeasible.
        let shape = Shape::of(spec);
        if self.resources.is_empty() || self.resources.could_ever_hold(&shape) {
            return Ok(());
        }
        let (problem, nearest) = infeasible(&self.resources, &shape);
        Err(Refusal::Infeasible { problem, nearest })
    }

    fn check_queue(&self, request: &SubmitJob) -> Result<(), Refusal> {
        let more = request.array.as_ref().map_or(1, |array| array.indexes.len() as u64);
        let tenant = self.tenant(&request.spec.tenant)?;
        let (jobs, limit) = (tenant.live_jobs, self.settings.tenant_jobs_max);
        if limit > 0 && jobs + more > limit {
            return Err(Refusal::TenantQueueFull { tenant: tenant.id.clone(), jobs, more, limit });
        }
        let most = self.settings.queue_size_max;
        // A full queue must not keep an operator from submitting the job that repairs it.
        let kept = if request.is_operator { 0 } else { (most / KEPT_ONE_IN).min(KEPT_MAX) };
        let (waiting, limit) = (self.waiting(), most - kept);
        if waiting + more > limit { Err(Refusal::QueueFull { waiting, limit }) } else { Ok(()) }
    }

    /// Number of jobs without an attempt, held jobs included.
    fn waiting(&self) -> u64 {
        (self.jobs.len() - self.ends.len()) as u64
    }

    /// Dependencies that are not met yet; one that can never be met is refused.
    fn open_dependencies(&self, request: &SubmitJob) -> Result<BTreeSet<Dependency>, Refusal> {
        let mut open = BTreeSet::new();
        for dependency in &request.spec.after {
            match self.outcome(dependency.job, request) {
                None if self.is_live(dependency.job) => {
                    open.insert(*dependency);
                }
                None => return Err(Refusal::UnknownJob { job: dependency.job }),
                Some(outcome) if outcome.satisfies(dependency.when) => {}
                Some(outcome) => {
                    let why = format!("it has ended as {}", outcome.as_str());
                    return Err(Refusal::DeadDependency { job: dependency.job, why });
                }
            }
        }
        Ok(open)
    }

    fn outcome(&self, job: JobId, request: &SubmitJob) -> Option<Outcome> {
        let remembered = self.ended.get(&job).map(|ended| ended.outcome);
        remembered.or_else(|| request.known_outcomes.get(&job).copied())
    }

    /// True if the id refers to a live job or to an array with live tasks.
    pub(crate) fn is_live(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job) || (job.index.is_none() && self.arrays.contains_key(&job.number))
    }
}

fn invalid(field: &'static str, problem: impl Into<String>) -> Refusal {
    Refusal::Invalid { field, problem: problem.into() }
}

/// The name of a submitted or changed job.
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    match (1..=NAME_LENGTH_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(invalid("name", format!("must be 1 to {NAME_LENGTH_MAX} printable characters"))),
    }
}

fn check_spec(spec: &JobSpec) -> Result<(), Refusal> {
    check_name(&spec.name)?;
    if spec.priority > PRIORITY_MAX {
        return Err(invalid("priority", format!("{} is above {PRIORITY_MAX}", spec.priority)));
    }
    if spec.time_limit_ms.is_some_and(|ms| !(1..=TIME_LIMIT_MS_MAX).contains(&ms)) {
        return Err(invalid("time_limit", "must be above zero and below ten years"));
    }
    check_tasks(&spec.tasks)?;
    check_locality(spec)?;
    check_run(spec)
}

fn check_tasks(tasks: &[TaskGroup]) -> Result<(), Refusal> {
    let sum = |of: fn(&TaskGroup) -> u32| tasks.iter().try_fold(0u32, |sum, group| sum.checked_add(of(group)));
    match (sum(|group| group.count), sum(TaskGroup::count_most)) {
        (Some(1..=TASKS_MAX), Some(1..=TASKS_MAX)) => {}
        _ => return Err(invalid("tasks", format!("a gang has 1 to {TASKS_MAX} tasks"))),
    }
    let is_inverted = |group: &&TaskGroup| group.count_max.is_some_and(|max| max < group.count);
    if let Some(group) = tasks.iter().find(is_inverted) {
        let most = group.count_max.unwrap_or_default();
        let problem = format!("`{}` needs {} tasks, so it cannot take at most {most}", group.name, group.count);
        return Err(invalid("tasks", problem));
    }
    tasks.iter().try_for_each(|group| check_resources(&group.each))
}

fn check_resources(each: &Resources) -> Result<(), Refusal> {
    if each.gpus > crate::gpu::device::GPUS_PER_NODE_MAX as u32 {
        return Err(invalid("gpus", format!("{} on one node; no machine has that many", each.gpus)));
    }
    if each.cpus > CPUS_MAX {
        return Err(invalid("cpus", format!("{} is more than any machine has", each.cpus)));
    }
    if each.memory_mib > MEMORY_MIB_MAX || each.gpu_memory_mib > MEMORY_MIB_MAX {
        return Err(invalid("memory", "is more than any machine has"));
    }
    check_share(each)
}

/// Locality within a node is required of whole GPUs; each share is on one device.
fn check_locality(spec: &JobSpec) -> Result<(), Refusal> {
    let shares = spec.tasks.iter().any(|group| group.each.is_shared());
    let is_gang = spec.tasks.iter().map(TaskGroup::count_most).sum::<u32>() > 1;
    if spec.locality().is_required() && shares && is_gang {
        let problem = "tasks that share GPUs cannot require one NUMA node or NVLink";
        return Err(invalid("topology", problem));
    }
    Ok(())
}

fn check_share(each: &Resources) -> Result<(), Refusal> {
    if each.gpu_compute_milli < WHOLE && each.gpus > 1 {
        let problem = format!("a task shares one GPU, not {}; ask for several tasks", each.gpus);
        return Err(invalid("gpu_share", problem));
    }
    if each.gpus > 0 && !(SHARE_MIN..=WHOLE).contains(&each.gpu_compute_milli) {
        let [least, most, not] = [SHARE_MIN, WHOLE, each.gpu_compute_milli].map(|milli| decimal(u64::from(milli)));
        let problem = format!("must be {least} to {most} of a GPU, not {not}");
        return Err(invalid("gpu_share", problem));
    }
    Ok(())
}

fn check_run(spec: &JobSpec) -> Result<(), Refusal> {
    let run = &spec.run;
    if run.image.is_none() && run.script.is_none() && run.command.is_empty() {
        return Err(invalid("command", "there is nothing to run: give a command, a script or an image"));
    }
    let is_bad_image = |image: &&String| {
        image.starts_with('-') || image.chars().any(|letter| letter.is_whitespace() || letter.is_control())
    };
    if let Some(image) = run.image.as_ref().filter(is_bad_image) {
        return Err(invalid("image", format!("`{image}` cannot be the name of an image")));
    }
    if run.image.is_none() && !run.mounts.is_empty() {
        return Err(invalid("mounts", "only a job with an image has mounts; other jobs see the files of the node"));
    }
    // A line break would be another line in the environment file of a container.
    let bad_key = |key: &&String| key.is_empty() || key.contains('=') || key.contains(char::is_control);
    if let Some(key) = run.env.keys().find(bad_key) {
        return Err(invalid("environment", format!("`{key}` cannot name a variable")));
    }
    let texts = run.env.values().chain(&run.script).chain(&run.command).chain(&run.args);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err(invalid("command", "a NUL byte cannot be passed to a process"));
    }
    Ok(())
}

fn check_array(array: Option<&ArraySpec>) -> Result<(), Refusal> {
    let Some(array) = array else { return Ok(()) };
    if array.indexes.is_empty() || array.indexes.len() > ARRAY_MAX {
        return Err(invalid("array", format!("an array has 1 to {ARRAY_MAX} tasks")));
    }
    if !array.indexes.is_sorted_by(|a, b| a < b) {
        return Err(invalid("array", "indexes must ascend without repetition"));
    }
    if array.running_max == Some(0) {
        return Err(invalid("array", "a limit of 0 would never let a task run"));
    }
    Ok(())
}
