//! Users and operators: what they write, and how long they go on asking.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::command::{ArraySpec, IdempotencyKey, JobChange, SubmitJob};
use muster_core::objects::job::{
    CheckpointRule, Dependency, DependencyWhen, Resources, RestartRule, Run, TaskGroup,
};
use muster_core::objects::tenant::{Quota, TenantConfig};
use muster_core::{Actor, Answer, Command, JobId, JobSpec, State, TenantId};
use muster_server::cluster::CommandError;

use crate::fault_schedule::{ScheduledAction, FaultSchedule, JobRequest};

const TENANT_NAMES: [&str; 3] = ["default", "red", "blue"];

/// Everyone who writes letters to the cluster.
pub struct Clients {
    requests: Vec<ClientRequest>,
    /// The most GPUs that one task can have here.
    node_gpus_max: u32,
    node_gpus: Vec<u32>,
}

struct ClientRequest {
    command: Command,
    /// How often it is sent again.
    retries_left: u32,
    is_answered: bool,
}

impl Clients {
    /// Nobody has written yet.
    pub fn new(story: &FaultSchedule) -> Clients {
        let gpus_max = story.node_gpus.iter().copied().max().unwrap_or_default();
        Clients { requests: Vec::new(), node_gpus_max: gpus_max, node_gpus: story.node_gpus.clone() }
    }

    /// What a letter says.
    pub fn request(&self, number: u64) -> Option<(Actor, Command)> {
        let letter = self.requests.get(number as usize)?;
        Some((Actor::local("ada"), letter.command.clone()))
    }

    /// Whether its writer asks once more.
    pub fn take_retry(&mut self, number: u64) -> bool {
        let letter = self.requests.get_mut(number as usize).filter(|letter| !letter.is_answered);
        letter.is_some_and(|letter| {
            let again = letter.retries_left > 0;
            letter.retries_left = letter.retries_left.saturating_sub(1);
            letter.is_answered = !again;
            again
        })
    }

    /// An answer came. A server that could not take it is no answer.
    pub fn receive_answer(&mut self, number: u64, answer: &Result<Answer, CommandError>) {
        if let Some(letter) = self.requests.get_mut(number as usize)
            && !matches!(answer, Err(CommandError::Unavailable { .. }))
        {
            letter.is_answered = true;
        }
    }

    /// Whether nobody waits for an answer any more.
    pub fn all_answered(&self) -> bool {
        self.requests.iter().all(|letter| letter.is_answered)
    }

    /// An operator writes, and insists.
    pub fn add_operator_request(&mut self, command: Command) -> u64 {
        self.add_request(command, 3)
    }

    fn add_request(&mut self, command: Command, patience: u32) -> u64 {
        self.requests.push(ClientRequest { command, retries_left: patience, is_answered: false });
        self.requests.len() as u64 - 1
    }

    /// Do a deed of the story: the letters that are sent for it.
    pub fn requests_of_action(&mut self, deed: &ScheduledAction, state: &State) -> Vec<u64> {
        let job = |number: &u64| {
            let jobs: Vec<JobId> = state.jobs.keys().copied().collect();
            (!jobs.is_empty()).then(|| jobs[(number % jobs.len() as u64) as usize])
        };
        let command = match deed {
            ScheduledAction::Submit(wish) => return self.submission_requests(wish, state),
            ScheduledAction::Cancel(number) => job(number).map(|job| Command::CancelJob { job }),
            ScheduledAction::Hold(number) => job(number).map(|job| Command::HoldJob { job, why: "a person".to_string() }),
            ScheduledAction::Release(number) => job(number).map(|job| Command::ReleaseJob { job }),
            ScheduledAction::Requeue(number) => job(number).map(|job| Command::RequeueJob { job }),
            ScheduledAction::Reprioritise(number, priority) => job(number).map(|job| {
                let change = JobChange { priority: Some(*priority), ..JobChange::default() };
                Command::ChangeJob { job, change }
            }),
            ScheduledAction::SetQuota(tenant, gpus) => set_quota_command(TENANT_NAMES[tenant % TENANT_NAMES.len()], *gpus),
            _ => None,
        };
        command.map(|command| self.add_request(command, 0)).into_iter().collect()
    }

    /// The job itself, and its tenant the first time.
    fn submission_requests(&mut self, wish: &JobRequest, state: &State) -> Vec<u64> {
        let tenant = TENANT_NAMES[wish.tenant % TENANT_NAMES.len()];
        let Ok(id) = tenant.parse::<TenantId>() else { return Vec::new() };
        let mut letters = Vec::new();
        if !state.tenants.contains_key(&id) {
            let config = Box::new(TenantConfig::unlimited(tenant));
            letters.push(self.add_request(Command::CreateTenant { id: id.clone(), config }, 0));
        }
        let key = format!("letter-{}", self.requests.len());
        let submit = SubmitJob {
            spec: Arc::new(self.job_spec(wish, id, state)),
            array: wish.array_size.map(|tasks| ArraySpec { indexes: (0..tasks).collect(), running_max: Some(2) }),
            hold: false,
            key: Some(IdempotencyKey { key, body_hash: "the same".to_string() }),
            known_outcomes: BTreeMap::new(),
            known_key: None,
            is_operator: true,
        };
        letters.push(self.add_request(Command::SubmitJob(submit), wish.retries_max));
        letters
    }

    /// A job that the whole cluster could run if it were empty.
    fn job_spec(&self, wish: &JobRequest, tenant: TenantId, state: &State) -> JobSpec {
        let gpus = wish.gpus.min(self.node_gpus_max);
        let room: u32 = self.node_gpus.iter().map(|has| has.checked_div(gpus).unwrap_or(8)).sum();
        let each = Resources {
            gpus,
            gpu_models: Default::default(),
            gpu_memory_mib: 0,
            gpu_compute_milli: wish.gpu_milli,
            isolation: Default::default(),
            cpus: 1,
            memory_mib: 1_024,
        };
        let tasks =
            TaskGroup { name: "task".to_string(), count: wish.tasks.min(room.max(1)), count_max: None, each };
        let last = JobId::single(state.next_job.saturating_sub(1));
        let after = (wish.depends_on_last && state.jobs.contains_key(&last))
            .then_some(Dependency { job: last, when: DependencyWhen::Ended });
        JobSpec {
            name: "played".to_string(),
            tenant,
            user: format!("user-{}", wish.user),
            priority: wish.priority,
            tasks: vec![tasks],
            topology: Default::default(),
            allow_cross_numa: None,
            prefer_nvlink: false,
            gang_scheduling: None,
            time_limit_ms: wish.time_limit_ms,
            restart: RestartRule { max_restarts: wish.restarts, ..RestartRule::default() },
            on_node_lost: Default::default(),
            checkpoint: wish
                .has_checkpoints
                .then(|| CheckpointRule { path: "/tmp".to_string(), every_ms: Some(2_000) }),
            after: after.into_iter().collect(),
            start_after: None,
            pool: None,
            node_labels: BTreeMap::new(),
            run: Run { command: vec!["work".to_string()], ..Run::default() },
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

fn set_quota_command(tenant: &str, gpus: u64) -> Option<Command> {
    let maximum = Quota { gpus: Some(gpus), ..Quota::default() };
    let config = Box::new(TenantConfig { maximum, ..TenantConfig::unlimited(tenant) });
    Some(Command::ChangeTenant { id: tenant.parse().ok()?, config })
}
