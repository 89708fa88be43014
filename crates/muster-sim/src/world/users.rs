//! Users and operators: what they write, and how long they go on asking.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::command::{ArrayAsk, IdempotencyKey, JobChange, SubmitJob};
use muster_core::job::{CheckpointRule, Dependency, DependencyWhen, Resources, RestartRule, Run, TaskGroup};
use muster_core::tenant::{Quota, TenantConfig};
use muster_core::{Actor, Answer, Command, JobId, JobSpec, State, TenantId};
use muster_server::cluster::Declined;

use crate::story::{Act, Story, Wish};

const TENANTS: [&str; 3] = ["default", "red", "blue"];

/// Everyone who writes letters to the cluster.
pub struct Users {
    letters: Vec<Letter>,
    /// The most GPUs that one task can have here.
    gpus_max: u32,
    nodes: Vec<u32>,
}

struct Letter {
    command: Command,
    /// How often it is sent again.
    patience: u32,
    is_answered: bool,
}

impl Users {
    /// Nobody has written yet.
    pub fn new(story: &Story) -> Users {
        let gpus_max = story.nodes.iter().copied().max().unwrap_or_default();
        Users { letters: Vec::new(), gpus_max, nodes: story.nodes.clone() }
    }

    /// What a letter says.
    pub fn letter(&self, number: u64) -> Option<(Actor, Command)> {
        let letter = self.letters.get(number as usize)?;
        Some((Actor::local("ada"), letter.command.clone()))
    }

    /// Whether its writer asks once more.
    pub fn asks_again(&mut self, number: u64) -> bool {
        let letter = self.letters.get_mut(number as usize).filter(|letter| !letter.is_answered);
        letter.is_some_and(|letter| {
            let again = letter.patience > 0;
            letter.patience = letter.patience.saturating_sub(1);
            letter.is_answered = !again;
            again
        })
    }

    /// An answer came. A server that could not take it is no answer.
    pub fn hear(&mut self, number: u64, answer: &Result<Answer, Declined>) {
        if let Some(letter) = self.letters.get_mut(number as usize)
            && !matches!(answer, Err(Declined::Unavailable { .. }))
        {
            letter.is_answered = true;
        }
    }

    /// Whether nobody waits for an answer any more.
    pub fn all_answered(&self) -> bool {
        self.letters.iter().all(|letter| letter.is_answered)
    }

    /// An operator writes, and insists.
    pub fn operator(&mut self, command: Command) -> u64 {
        self.write(command, 3)
    }

    fn write(&mut self, command: Command, patience: u32) -> u64 {
        self.letters.push(Letter { command, patience, is_answered: false });
        self.letters.len() as u64 - 1
    }

    /// Do a deed of the story: the letters that are sent for it.
    pub fn act(&mut self, deed: &Act, state: &State) -> Vec<u64> {
        let job = |number: &u64| {
            let jobs: Vec<JobId> = state.jobs.keys().copied().collect();
            (!jobs.is_empty()).then(|| jobs[(number % jobs.len() as u64) as usize])
        };
        let command = match deed {
            Act::Submit(wish) => return self.submit(wish, state),
            Act::Cancel(number) => job(number).map(|job| Command::CancelJob { job }),
            Act::Hold(number) => job(number).map(|job| Command::HoldJob { job, why: "a person".to_string() }),
            Act::Release(number) => job(number).map(|job| Command::ReleaseJob { job }),
            Act::Requeue(number) => job(number).map(|job| Command::RequeueJob { job }),
            Act::Reprioritise(number, priority) => job(number).map(|job| {
                let change = JobChange { priority: Some(*priority), ..JobChange::default() };
                Command::ChangeJob { job, change }
            }),
            Act::Quota(tenant, gpus) => quota(TENANTS[tenant % TENANTS.len()], *gpus),
            _ => None,
        };
        command.map(|command| self.write(command, 0)).into_iter().collect()
    }

    /// The job itself, and its tenant the first time.
    fn submit(&mut self, wish: &Wish, state: &State) -> Vec<u64> {
        let tenant = TENANTS[wish.tenant % TENANTS.len()];
        let Ok(id) = tenant.parse::<TenantId>() else { return Vec::new() };
        let mut letters = Vec::new();
        if !state.tenants.contains_key(&id) {
            let config = Box::new(TenantConfig::unlimited(tenant));
            letters.push(self.write(Command::CreateTenant { id: id.clone(), config }, 0));
        }
        let key = format!("letter-{}", self.letters.len());
        let submit = SubmitJob {
            spec: Arc::new(self.spec(wish, id, state)),
            array: wish.array.map(|tasks| ArrayAsk { indexes: (0..tasks).collect(), running_max: Some(2) }),
            hold: false,
            key: Some(IdempotencyKey { key, body_hash: "the same".to_string() }),
            known_outcomes: BTreeMap::new(),
            known_key: None,
            is_operator: true,
        };
        letters.push(self.write(Command::SubmitJob(submit), wish.patience));
        letters
    }

    /// A job that the whole cluster could run if it were empty.
    fn spec(&self, wish: &Wish, tenant: TenantId, state: &State) -> JobSpec {
        let gpus = wish.gpus.min(self.gpus_max);
        let room: u32 = self.nodes.iter().map(|has| has.checked_div(gpus).unwrap_or(8)).sum();
        let each = Resources {
            gpus,
            gpu_models: Default::default(),
            gpu_memory_mib: 0,
            gpu_compute_milli: wish.milli,
            isolation: Default::default(),
            cpus: 1,
            memory_mib: 1_024,
        };
        let tasks =
            TaskGroup { name: "task".to_string(), count: wish.tasks.min(room.max(1)), count_max: None, each };
        let last = JobId::single(state.next_job.saturating_sub(1));
        let after = (wish.after_last && state.jobs.contains_key(&last))
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
            time_limit_ms: wish.limit_ms,
            restart: RestartRule { max_restarts: wish.restarts, ..RestartRule::default() },
            on_node_lost: Default::default(),
            checkpoint: wish
                .saves
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

fn quota(tenant: &str, gpus: u64) -> Option<Command> {
    let maximum = Quota { gpus: Some(gpus), ..Quota::default() };
    let config = Box::new(TenantConfig { maximum, ..TenantConfig::unlimited(tenant) });
    Some(Command::ChangeTenant { id: tenant.parse().ok()?, config })
}
