//! Who waits, filed so that the planner looks at kinds of jobs and not at every job.
//!
//! Jobs that ask for the same for about as long, for the same tenant and user, at the same priority, stand in one
//! bucket in the order of their submission. Aging never changes the order inside a bucket, so the planner only compares the heads;
//! and when the head does not fit, nobody behind it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{JobId, TenantId};
use crate::job::{Job, JobSpec, Phase, Resources, Topology};
use crate::lasting::rounded;
use crate::policy::{Marks, Policies};
use crate::time::Timestamp;
use crate::wiring::{Nvlink, Wish};

/// What a gang asks of the cluster, without names: jobs of one shape fit in the same places.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// How many tasks, and what each needs; in the order of the job's groups.
    pub groups: Vec<(u32, Resources)>,
    /// How close together its nodes must be.
    pub topology: Topology,
    /// How close together its GPUs are wished.
    pub wish: Wish,
    /// Labels that the nodes must carry.
    pub node_labels: BTreeMap<String, String>,
    /// A pool to stay inside of.
    pub pool: Option<String>,
}

impl Shape {
    /// The shape of a job.
    pub fn of(spec: &JobSpec) -> Shape {
        Shape {
            groups: spec.tasks.iter().map(|group| (group.count, group.each.clone())).collect(),
            topology: spec.topology,
            wish: Wish::of_job(spec),
            node_labels: spec.node_labels.clone(),
            pool: spec.pool.clone(),
        }
    }

    /// Whether its tasks may sit on several nodes. Who asks for one NUMA node or for NVLink asks it of all GPUs of the
    /// gang, and they are on one node then.
    pub fn may_span(&self) -> bool {
        !self.wish.is_demand() && self.tasks() > 1
    }

    /// Whether its nodes must stand in one rack.
    pub fn must_share_a_rack(&self) -> bool {
        self.topology == Topology::SameRack
    }

    /// The same for a gang that may sit anywhere.
    pub fn anywhere(&self) -> Shape {
        let topology = Topology::Any;
        let wish = if self.wish.is_demand() { self.wish.as_wish() } else { self.wish };
        Shape { topology, wish, ..self.clone() }
    }

    /// How close together it must be, in words.
    pub fn demanded(&self) -> &'static str {
        match (self.wish.same_numa, self.wish.nvlink == Nvlink::Required) {
            (true, true) => "on one NUMA node and joined by NVLink",
            (true, false) => "on one NUMA node",
            (false, true) => "joined by NVLink",
            (false, false) if self.must_share_a_rack() => "in one rack",
            (false, false) => "anywhere",
        }
    }

    /// Tasks of the gang.
    pub fn tasks(&self) -> u32 {
        self.groups.iter().map(|(count, _)| count).sum()
    }

    /// GPUs of the gang, whole or shared.
    pub fn gpus(&self) -> u32 {
        self.groups.iter().map(|(count, each)| count * each.gpus).sum()
    }

    /// GPUs that the gang needs for itself.
    pub fn whole_gpus(&self) -> u32 {
        self.groups.iter().map(|(count, each)| count * each.whole_gpus()).sum()
    }

    /// How much of GPUs the gang takes, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        let groups = self.groups.iter();
        groups.map(|(count, each)| u64::from(*count) * each.demand().gpu_milli).sum()
    }

    /// CPU cores of the gang.
    pub fn cpus(&self) -> u64 {
        self.groups.iter().map(|(count, each)| u64::from(*count) * u64::from(each.cpus)).sum()
    }

    /// Main memory of the gang.
    pub fn memory_mib(&self) -> u64 {
        self.groups.iter().map(|(count, each)| u64::from(*count) * each.memory_mib).sum()
    }
}

/// Jobs that the planner need not tell apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// Who pays.
    pub tenant: TenantId,
    /// Who asked.
    pub user: String,
    /// The priority asked for.
    pub priority: u32,
    /// What they ask.
    pub shape: Arc<Shape>,
    /// How long they may run, rounded up.
    pub limit_ms: Option<i64>,
    /// How long they may run, exactly, where a budget must cover it.
    pub budget_limit_ms: Option<i64>,
    /// The array, if it limits how many of its tasks run at once.
    pub array: Option<u64>,
    /// What policies could tell them by.
    pub marks: Arc<Marks>,
}

impl Bucket {
    /// The bucket of jobs that ask for this.
    pub fn of_spec(spec: &JobSpec, array: Option<u64>, policies: &Policies) -> Bucket {
        Bucket {
            tenant: spec.tenant.clone(),
            user: spec.user.clone(),
            priority: spec.priority,
            shape: Arc::new(Shape::of(spec)),
            limit_ms: spec.time_limit_ms.map(rounded),
            budget_limit_ms: spec.time_limit_ms.filter(|_| policies.exact_limits.contains(&spec.tenant)),
            array,
            marks: policies.marks(spec),
        }
    }

    /// A short name for what all its jobs have in common, for the history.
    pub fn key(&self) -> String {
        let Bucket { tenant, user, priority, shape, limit_ms, budget_limit_ms, array, marks } = self;
        let mut text = format!(
            "Bucket {{ tenant: {tenant:?}, user: {user:?}, priority: {priority:?}, shape: {shape:?}, \
             limit_ms: {limit_ms:?}, array: {array:?} }}"
        );
        if let Some(limit_ms) = budget_limit_ms {
            text.push_str(&format!("budget {limit_ms}"));
        }
        if !marks.is_empty() {
            text.push_str(&format!("{marks:?}"));
        }
        // FNV-1a: short and the same everywhere. Two buckets with one key would share their history, no more.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// A place in a bucket: earlier submission first, then the lower id.
pub type Place = (Timestamp, JobId);

/// All queued jobs. Derived from the jobs; `State::check` builds it anew and compares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    /// Ready to be placed.
    ready: BTreeMap<Bucket, BTreeSet<Place>>,
    /// How many buckets of each tenant there are.
    tenants: BTreeMap<TenantId, usize>,
    /// Asleep until a moment.
    asleep: BTreeSet<(Timestamp, JobId)>,
    /// Waiting for other jobs to end.
    dependent: BTreeSet<JobId>,
    /// How many in all.
    len: u64,
}

impl Queue {
    /// Queued jobs, ready or not.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buckets of jobs that are ready, in a fixed order.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, &BTreeSet<Place>)> {
        self.ready.iter()
    }

    /// The jobs of one bucket.
    pub fn bucket(&self, bucket: &Bucket) -> Option<&BTreeSet<Place>> {
        self.ready.get(bucket)
    }

    /// Tenants that have jobs that are ready, each once.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    /// Whether a tenant has jobs that are ready.
    pub fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// Sleepers whose moment has come.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = JobId> + '_ {
        self.asleep.iter().take_while(move |(at, _)| *at <= now).map(|(_, job)| *job)
    }

    /// The next moment at which a sleeper wakes.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.asleep.first().map(|(at, _)| *at)
    }

    /// File a job that waits. `limited` says whether its array limits how many run at once.
    pub(crate) fn add(&mut self, job: &Job, limited: bool, policies: &Policies) {
        assert!(job.is_queued(), "{} is not queued", job.id);
        self.len += 1;
        let new = match job.wakes_at {
            _ if !job.open_dependencies.is_empty() => self.dependent.insert(job.id),
            Some(at) => self.asleep.insert((at, job.id)),
            None => self.add_ready(job, bucket_of(job, limited, policies)),
        };
        assert!(new, "{} is queued twice", job.id);
    }

    fn add_ready(&mut self, job: &Job, bucket: Bucket) -> bool {
        if !self.ready.contains_key(&bucket) {
            *self.tenants.entry(bucket.tenant.clone()).or_default() += 1;
        }
        self.ready.entry(bucket).or_default().insert(place_of(job))
    }

    /// Take a job out that was filed as it is now. Says which bucket is empty now, if one is.
    pub(crate) fn remove(&mut self, job: &Job, limited: bool, policies: &Policies) -> Option<Bucket> {
        self.len -= 1;
        let mut emptied = None;
        let found = match job.wakes_at {
            _ if !job.open_dependencies.is_empty() => self.dependent.remove(&job.id),
            Some(at) => self.asleep.remove(&(at, job.id)),
            None => self.remove_ready(job, bucket_of(job, limited, policies), &mut emptied),
        };
        assert!(found, "{} was not queued", job.id);
        emptied
    }

    fn remove_ready(&mut self, job: &Job, bucket: Bucket, emptied: &mut Option<Bucket>) -> bool {
        let Some(places) = self.ready.get_mut(&bucket) else { return false };
        let found = places.remove(&place_of(job));
        if places.is_empty() {
            self.ready.remove(&bucket);
            self.forget_bucket_of(&bucket.tenant);
            *emptied = Some(bucket);
        }
        found
    }

    fn forget_bucket_of(&mut self, tenant: &TenantId) {
        if let Some(buckets) = self.tenants.get_mut(tenant) {
            *buckets -= 1;
            if *buckets == 0 {
                self.tenants.remove(tenant);
            }
        }
    }
}

/// The bucket a job stands in when it is ready.
pub fn bucket_of(job: &Job, limited: bool, policies: &Policies) -> Bucket {
    Bucket::of_spec(&job.spec, limited.then_some(job.id.number), policies)
}

/// The place of a job inside its bucket.
pub fn place_of(job: &Job) -> Place {
    (job.submitted_at, job.id)
}

/// Since when a job counts as waiting, for people.
pub fn waiting_since(job: &Job) -> Option<Timestamp> {
    match &job.phase {
        Phase::Queued { since, .. } | Phase::Held { since, .. } => Some(*since),
        Phase::Active(_) => None,
    }
}
