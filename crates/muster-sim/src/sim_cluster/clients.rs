//! Simulated clients: the requests of users and operators, and their retries.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::command::{ArraySpec, IdempotencyKey, JobChange, SubmitJob};
use muster_core::objects::job::{
    CheckpointRule, Dependency, DependencyWhen, OnNodeLost, Resources, RestartRule, Run, TaskGroup,
};
use muster_core::objects::tenant::{Quota, TenantConfig};
use muster_core::{Actor, Answer, Command, JobId, JobSpec, State, TenantId};
use muster_server::cluster::CommandError;

use crate::fault_schedule::{FaultSchedule, JobRequest, ScheduledAction};

const TENANT_NAMES: [&str; 3] = ["default", "red", "blue"];

/// All users and operators of the cluster.
pub struct Clients {
    requests: Vec<ClientRequest>,
    /// The most GPUs on one node, the limit of a task.
    node_gpus_max: u32,
    node_gpus: Vec<u32>,
    /// Some jobs have `on_node_lost: requeue`.
    is_fencing: bool,
}

struct ClientRequest {
    command: Command,
    retries_left: u32,
    is_answered: bool,
    is_accepted: bool,
}

impl Clients {
    pub fn new(schedule: &FaultSchedule) -> Clients {
        let gpus_max = schedule.node_gpus.iter().copied().max().unwrap_or_default();
        Clients {
            requests: Vec::new(),
            node_gpus_max: gpus_max,
            node_gpus: schedule.node_gpus.clone(),
            is_fencing: schedule.self_fence_ms.is_some(),
        }
    }

    /// The actor and command of a request.
    pub fn request(&self, number: u64) -> Option<(Actor, Command)> {
        let request = self.requests.get(number as usize)?;
        Some((Actor::local("ada"), request.command.clone()))
    }

    /// True if an unanswered request is sent again. Without retries left it counts as answered.
    pub fn take_retry(&mut self, number: u64) -> bool {
        let request = self.requests.get_mut(number as usize).filter(|request| !request.is_answered);
        request.is_some_and(|request| {
            let retry = request.retries_left > 0;
            request.retries_left = request.retries_left.saturating_sub(1);
            request.is_answered = !retry;
            retry
        })
    }

    /// Marks a request as answered. `Unavailable` is not an answer.
    pub fn receive_answer(&mut self, number: u64, answer: &Result<Answer, CommandError>) {
        if let Some(request) = self.requests.get_mut(number as usize)
            && !matches!(answer, Err(CommandError::Unavailable { .. }))
        {
            request.is_answered = true;
            request.is_accepted = answer.is_ok();
        }
    }

    /// Whether a request was accepted; `None` while it is open. A request that was given up counts as refused.
    pub fn was_accepted(&self, number: u64) -> Option<bool> {
        let request = self.requests.get(number as usize)?;
        request.is_answered.then_some(request.is_accepted)
    }

    pub fn all_answered(&self) -> bool {
        self.requests.iter().all(|request| request.is_answered)
    }

    /// Adds an operator command, with retries.
    pub fn add_operator_request(&mut self, command: Command) -> u64 {
        self.add_request(command, 3)
    }

    fn add_request(&mut self, command: Command, retries: u32) -> u64 {
        self.requests.push(ClientRequest { command, retries_left: retries, is_answered: false, is_accepted: false });
        self.requests.len() as u64 - 1
    }

    /// Creates the requests of an action and returns their numbers.
    pub fn requests_of_action(&mut self, action: &ScheduledAction, state: &State) -> Vec<u64> {
        let job = |number: &u64| {
            let jobs: Vec<JobId> = state.jobs.keys().copied().collect();
            (!jobs.is_empty()).then(|| jobs[(number % jobs.len() as u64) as usize])
        };
        let command = match action {
            ScheduledAction::Submit(job) => return self.submission_requests(job, state),
            ScheduledAction::Cancel(number) => job(number).map(|job| Command::CancelJob { job }),
            ScheduledAction::Hold(number) => {
                job(number).map(|job| Command::HoldJob { job, why: "a person".to_string() })
            }
            ScheduledAction::Release(number) => job(number).map(|job| Command::ReleaseJob { job }),
            ScheduledAction::Requeue(number) => job(number).map(|job| Command::RequeueJob { job }),
            ScheduledAction::Reprioritise(number, priority) => job(number).map(|job| {
                let change = JobChange { priority: Some(*priority), ..JobChange::default() };
                Command::ChangeJob { job, change }
            }),
            ScheduledAction::SetQuota(tenant, gpus) => {
                set_quota_command(TENANT_NAMES[tenant % TENANT_NAMES.len()], *gpus)
            }
            _ => None,
        };
        command.map(|command| self.add_request(command, 0)).into_iter().collect()
    }

    /// The submission of a job, and before it the creation of its tenant if it is new.
    fn submission_requests(&mut self, job: &JobRequest, state: &State) -> Vec<u64> {
        let tenant = TENANT_NAMES[job.tenant % TENANT_NAMES.len()];
        let Ok(id) = tenant.parse::<TenantId>() else { return Vec::new() };
        let mut requests = Vec::new();
        if !state.tenants.contains_key(&id) {
            let config = Box::new(TenantConfig::unlimited(tenant));
            requests.push(self.add_request(Command::CreateTenant { id: id.clone(), config }, 0));
        }
        let key = format!("letter-{}", self.requests.len());
        let submit = SubmitJob {
            spec: Arc::new(self.job_spec(job, id, state)),
            array: job.array_size.map(|tasks| ArraySpec { indexes: (0..tasks).collect(), running_max: Some(2) }),
            hold: false,
            key: Some(IdempotencyKey { key, body_hash: "the same".to_string() }),
            known_outcomes: BTreeMap::new(),
            known_key: None,
            is_operator: true,
        };
        requests.push(self.add_request(Command::SubmitJob(submit), job.retries_max));
        requests
    }

    /// A job that the empty cluster could run.
    fn job_spec(&self, job: &JobRequest, tenant: TenantId, state: &State) -> JobSpec {
        let gpus = job.gpus.min(self.node_gpus_max);
        let tasks_max: u32 = self.node_gpus.iter().map(|node_gpus| node_gpus.checked_div(gpus).unwrap_or(8)).sum();
        let each = Resources {
            gpus,
            gpu_models: Default::default(),
            gpu_memory_mib: 0,
            gpu_compute_milli: job.gpu_milli,
            isolation: Default::default(),
            cpus: 1,
            memory_mib: 1_024,
        };
        let tasks =
            TaskGroup { name: "task".to_string(), count: job.tasks.min(tasks_max.max(1)), count_max: None, each };
        let last = JobId::single(state.next_job.saturating_sub(1));
        let dependency = (job.depends_on_last && state.jobs.contains_key(&last))
            .then_some(Dependency { job: last, when: DependencyWhen::Ended });
        JobSpec {
            priority: job.priority,
            time_limit_ms: job.time_limit_ms,
            restart: RestartRule { max_restarts: job.restarts, ..RestartRule::default() },
            on_node_lost: match self.requests.len() % 3 {
                1 | 2 if self.is_fencing => OnNodeLost::Requeue,
                _ => OnNodeLost::Wait,
            },
            checkpoint: job.has_checkpoints.then(|| CheckpointRule { path: "/tmp".to_string(), every_ms: Some(2_000) }),
            after: dependency.into_iter().collect(),
            run: Run { command: vec!["work".to_string()], ..Run::default() },
            ..JobSpec::new("played", tenant, &format!("user-{}", job.user), vec![tasks])
        }
    }
}

fn set_quota_command(tenant: &str, gpus: u64) -> Option<Command> {
    let maximum = Quota { gpus: Some(gpus), ..Quota::default() };
    let config = Box::new(TenantConfig { maximum, ..TenantConfig::unlimited(tenant) });
    Some(Command::ChangeTenant { id: tenant.parse().ok()?, config })
}
