//! Guards of `SubmitJob`: read top-down, this is the admission rule.

use std::collections::BTreeSet;

use crate::command::{Actor, Answer, ArrayAsk, SubmitJob};
use crate::event::Event;
use crate::ids::JobId;
use crate::job::{Dependency, JobSpec, Outcome, Resources, TaskGroup};
use crate::plan::infeasible;
use crate::queue::Shape;
use crate::refusal::Refusal;
use crate::settings::PRIORITY_MAX;
use crate::share::{SHARE_MIN, WHOLE};
use crate::state::State;
use crate::state::decide::Decision;
use crate::time::Timestamp;
use crate::wiring::Wish;

/// Longest name of a job.
const NAME_LENGTH_MAX: usize = 255;
/// Most tasks of one gang.
const TASKS_MAX: u32 = 4_096;
/// Most tasks of one array.
const ARRAY_MAX: usize = 100_000;
/// One place of the queue in so many is kept for operators,
const KEPT_ONE_IN: u64 = 100;
/// and so many at most.
const KEPT_MAX: u64 = 1_000;
/// More CPU cores than any machine has; keeps sums far from overflow.
pub(super) const CPUS_MAX: u32 = 1 << 20;
/// One exbibyte, for the same reason.
pub(super) const MEMORY_MIB_MAX: u64 = 1 << 40;
/// Ten years.
const TIME_LIMIT_MS_MAX: i64 = 10 * 366 * 24 * 3_600_000;

impl State {
    pub(super) fn decide_submit(
        &self,
        by: &Actor,
        ask: &SubmitJob,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        if let Some(job) = self.already_accepted(ask)? {
            return Ok(Decision { events: Vec::new(), answer: Answer::Job(job) });
        }
        let spec = &ask.spec;
        check_spec(spec)?;
        self.check_gang(spec)?;
        check_array(ask.array.as_ref())?;
        self.check_tenant(spec)?;
        self.check_priority(by, &spec.tenant, spec.priority)?;
        self.check_pool(spec.pool.as_deref())?;
        self.check_feasible(spec)?;
        self.check_queue(ask)?;
        let open_dependencies = self.open_dependencies(ask)?;
        let job = JobId::single(self.next_job);
        let submitted = Event::JobSubmitted {
            job,
            spec: spec.clone(),
            array: ask.array.clone(),
            held_by: ask.hold.then(|| by.name.clone()),
            key: ask.key.clone(),
            open_dependencies,
            at: now,
        };
        Ok(Decision { events: vec![submitted], answer: Answer::Job(job) })
    }

    /// The job that an earlier request with the same key has made.
    fn already_accepted(&self, ask: &SubmitJob) -> Result<Option<JobId>, Refusal> {
        let Some(key) = &ask.key else { return Ok(None) };
        let used = self.keys.get(&ask.spec.tenant).and_then(|keys| keys.get(&key.key));
        match used.or(ask.known_key.as_ref()) {
            None => Ok(None),
            Some(used) if used.body_hash == key.body_hash => Ok(Some(used.job)),
            Some(used) => Err(Refusal::KeyReused { key: key.key.clone(), job: used.job }),
        }
    }

    fn check_gang(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let tasks = spec.tasks.iter().map(|group| u64::from(group.most())).sum::<u64>();
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
        // What others use only blocks; the job alone must fit, here and everywhere above.
        for above in self.lineage(&tenant.id) {
            if let Some(excess) = above.config.maximum.excess(least).into_iter().next() {
                return Err(Refusal::OverQuota { tenant: above.id.clone(), excess });
            }
            if let Some(excess) = above.config.maximum_per_user.excess(least).into_iter().next() {
                return Err(Refusal::OverUserQuota { tenant: above.id.clone(), excess });
            }
        }
        Ok(())
    }

    fn check_feasible(&self, spec: &JobSpec) -> Result<(), Refusal> {
        // With no node registered nothing is known to be impossible.
        let shape = Shape::of(spec);
        if self.capacity.is_empty() || self.capacity.could_ever_hold(&shape) {
            return Ok(());
        }
        let (problem, nearest) = infeasible(&self.capacity, &shape);
        Err(Refusal::Infeasible { problem, nearest })
    }

    fn check_queue(&self, ask: &SubmitJob) -> Result<(), Refusal> {
        let more = ask.array.as_ref().map_or(1, |array| array.indexes.len() as u64);
        let tenant = self.tenant(&ask.spec.tenant)?;
        let (jobs, limit) = (tenant.live_jobs, self.settings.tenant_jobs_max);
        if limit > 0 && jobs + more > limit {
            return Err(Refusal::TenantQueueFull { tenant: tenant.id.clone(), jobs, more, limit });
        }
        let most = self.settings.queue_size_max;
        // A full queue must not keep an operator from submitting the job that repairs it.
        let kept = if ask.is_operator { 0 } else { (most / KEPT_ONE_IN).min(KEPT_MAX) };
        let (waiting, limit) = (self.waiting(), most - kept);
        if waiting + more > limit { Err(Refusal::QueueFull { waiting, limit }) } else { Ok(()) }
    }

    /// Jobs without an attempt, held ones too.
    fn waiting(&self) -> u64 {
        (self.jobs.len() - self.ends.len()) as u64
    }

    /// Dependencies that have not come true yet; one that never can is refused.
    fn open_dependencies(&self, ask: &SubmitJob) -> Result<BTreeSet<Dependency>, Refusal> {
        let mut open = BTreeSet::new();
        for dependency in &ask.spec.after {
            match self.outcome(dependency.job, ask) {
                None if self.is_live(dependency.job) => {
                    open.insert(*dependency);
                }
                None => return Err(Refusal::UnknownJob { job: dependency.job }),
                Some(outcome) if outcome.satisfies(dependency.when) => {}
                Some(outcome) => {
                    let why = format!("it has ended as {}", outcome.word());
                    return Err(Refusal::DeadDependency { job: dependency.job, why });
                }
            }
        }
        Ok(open)
    }

    fn outcome(&self, job: JobId, ask: &SubmitJob) -> Option<Outcome> {
        let remembered = self.ended.get(&job).map(|ended| ended.outcome);
        remembered.or_else(|| ask.known_outcomes.get(&job).copied())
    }

    /// Whether the id means a live job or an array with live tasks.
    pub(crate) fn is_live(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job) || (job.index.is_none() && self.arrays.contains_key(&job.number))
    }
}

fn invalid(field: &'static str, problem: impl Into<String>) -> Refusal {
    Refusal::Invalid { field, problem: problem.into() }
}

/// The name of a job, new or changed.
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
    check_closeness(spec)?;
    check_run(spec)
}

fn check_tasks(tasks: &[TaskGroup]) -> Result<(), Refusal> {
    let sum =
        |of: fn(&TaskGroup) -> u32| tasks.iter().try_fold(0u32, |sum, group| sum.checked_add(of(group)));
    match (sum(|group| group.count), sum(TaskGroup::most)) {
        (Some(1..=TASKS_MAX), Some(1..=TASKS_MAX)) => {}
        _ => return Err(invalid("tasks", format!("a gang has 1 to {TASKS_MAX} tasks"))),
    }
    let below = |group: &&TaskGroup| group.count_max.is_some_and(|max| max < group.count);
    if let Some(group) = tasks.iter().find(below) {
        let most = group.count_max.unwrap_or_default();
        let problem =
            format!("`{}` needs {} tasks, so it cannot take at most {most}", group.name, group.count);
        return Err(invalid("tasks", problem));
    }
    tasks.iter().try_for_each(|group| check_resources(&group.each))
}

fn check_resources(each: &Resources) -> Result<(), Refusal> {
    if each.gpus > crate::node::GPUS_PER_NODE_MAX as u32 {
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

/// Closeness is demanded of whole GPUs; parts are on one device each.
fn check_closeness(spec: &JobSpec) -> Result<(), Refusal> {
    let shares = spec.tasks.iter().any(|group| group.each.is_shared());
    let several = spec.tasks.iter().map(TaskGroup::most).sum::<u32>() > 1;
    if Wish::of_job(spec).is_demand() && shares && several {
        let problem = "tasks that share GPUs cannot be held on one NUMA node or joined by NVLink";
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
        let problem =
            format!("must be {SHARE_MIN} to {WHOLE} thousandths of a GPU, not {}", each.gpu_compute_milli);
        return Err(invalid("gpu_share", problem));
    }
    Ok(())
}

fn check_run(spec: &JobSpec) -> Result<(), Refusal> {
    let run = &spec.run;
    if run.image.is_none() && run.script.is_none() && run.command.is_empty() {
        return Err(invalid("command", "there is nothing to run: give a command, a script or an image"));
    }
    let bad_key = |key: &&String| key.is_empty() || key.contains(['=', '\0']);
    if let Some(key) = run.env.keys().find(bad_key) {
        return Err(invalid("environment", format!("`{key}` cannot name a variable")));
    }
    let texts = run.env.values().chain(&run.script).chain(&run.command).chain(&run.args);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err(invalid("command", "a NUL byte cannot be passed to a process"));
    }
    Ok(())
}

fn check_array(array: Option<&ArrayAsk>) -> Result<(), Refusal> {
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
