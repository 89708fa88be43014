//! Phase explain: the verdict of every blocked bucket, that is every reason why its jobs wait.
//!
//! The numbers are those at the end of the round, so that they agree with what people see once the plan is adopted.

pub(crate) mod dry_run;
pub(crate) mod holders;
pub(crate) mod position;
pub(crate) mod remedies;
pub(crate) mod verdicts;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::estimate::expected_end::ExpectedEnd;
use crate::facts::plan::Repartitioning;
use crate::facts::verdict::{Reason, Verdict};
use crate::gpu::gpu_share::Isolation;
use crate::ids::{JobId, NodeId};
use crate::objects::job::PlacedTask;
use crate::objects::shape::Shape;
use crate::objects::window::Window;
use crate::planner::Verdicts;
use crate::planner::draft::{Draft, ReservationOwner};
use crate::planner::request::{KindMatch, Request};
use crate::planner::{Planned, admit, place};
use crate::queue::Bucket;
use crate::resources;
use crate::resources::{Kind, ResourceVec, bits};

/// Write the verdicts and close the draft.
pub(crate) fn explain_blocked(mut draft: Draft) -> Planned {
    let mut verdicts = Verdicts::default();
    let blocked = std::mem::take(&mut draft.output.blocked);
    let facts = if blocked.is_empty() { ClusterFacts::default() } else { ClusterFacts::of(&draft) };
    let mut by_shape: BTreeMap<(Arc<Shape>, ExpectedEnd), Vec<Reason>> = BTreeMap::new();
    for head in blocked {
        let request = draft.request(head.bucket);
        let mut reasons = admit::blockers(&draft, head.bucket, head.policy, &request);
        let waiting = WaitingJob { job: head.job, end: draft.expected_end(head.bucket, head.job) };
        if reasons.is_empty() {
            let quota = quota_of_instance(&draft, head.bucket, waiting);
            if !quota.is_empty() {
                verdicts.add(head.bucket.clone(), Verdict { reasons: quota });
                continue;
            }
        }
        // A reservation of the job itself and limits on devices make the reasons specific to this job.
        if draft.reservations.of(head.job).is_some() || draft.limits_devices(head.bucket) {
            reasons.extend(capacity_reasons(&draft, &facts, waiting, &request));
        } else {
            let shared = by_shape.entry((head.bucket.shape.clone(), waiting.end));
            reasons
                .extend(shared.or_insert_with(|| capacity_reasons(&draft, &facts, waiting, &request)).iter().cloned());
        }
        verdicts.add(head.bucket.clone(), Verdict { reasons });
    }
    for reservation in &draft.reservations.list {
        verdicts.add_reservation(reservation.job, reservation.at);
    }
    for Repartitioning { gpu, profiles, job } in &draft.output.repartitionings {
        let reason = Reason::Partition { gpu: gpu.clone(), profiles: profiles.clone() };
        verdicts.add_reason(draft.state, *job, reason);
    }
    for (job, reasons) in draft.output.reasons {
        verdicts.add_job(job, Verdict { reasons });
    }
    Planned { plan: draft.output.plan, verdicts }
}

/// The waiting job that a verdict is for.
#[derive(Clone, Copy)]
struct WaitingJob {
    job: JobId,
    end: ExpectedEnd,
}

/// The quotas that a gang would exceed where only MIG instances larger than its request are free.
fn quota_of_instance(draft: &Draft, bucket: &Bucket, waiting: WaitingJob) -> Vec<Reason> {
    let request = draft.unlimited_request(bucket).filter(|request| request.may_hold_instances);
    let Some(request) = request.filter(|_| draft.limits_devices(bucket)) else { return Vec::new() };
    let placement = place::find_placement(draft, &request, waiting.end);
    placement.map(|placement| admit::quota(draft, bucket, draft.demand(&request, &placement))).unwrap_or_default()
}

/// Facts that are the same for every shape.
#[derive(Default)]
struct ClusterFacts {
    /// Earmarked space on each node, and the first job it is earmarked for.
    earmarked: BTreeMap<NodeId, (JobId, ResourceVec)>,
    /// Nodes that take no work, or have devices that may not be allocated.
    out_of_service: Vec<OutOfService>,
}

struct OutOfService {
    kind: Arc<Kind>,
    closed: bool,
    /// Devices that may not be allocated, as bits.
    gpus: u64,
}

impl ClusterFacts {
    fn of(draft: &Draft) -> ClusterFacts {
        let mut earmarked: BTreeMap<NodeId, (JobId, ResourceVec)> = BTreeMap::new();
        for (job, nodes) in &draft.space.earmarked {
            for (node, space) in nodes {
                let (_, sum) = earmarked.entry(node.clone()).or_insert((*job, ResourceVec::default()));
                *sum = sum.plus(*space);
            }
        }
        let nodes = draft.state.resources.nodes();
        let out = nodes.map(|(node, entry)| OutOfService {
            kind: entry.kind.clone(),
            closed: !entry.open,
            gpus: if entry.open { !draft.state.usable_gpus(node) } else { u64::MAX },
        });
        let is_out = |out: &OutOfService| out.closed || out.gpus & out.kind.empty().gpus != 0;
        ClusterFacts { earmarked, out_of_service: out.filter(is_out).collect() }
    }
}

/// Why the job has no placement; empty if it has one.
fn capacity_reasons(draft: &Draft, facts: &ClusterFacts, waiting: WaitingJob, request: &Request) -> Vec<Reason> {
    if !request.feasible || (request.matches.is_empty() && !request.model_limits.is_empty()) {
        return infeasible(draft, request);
    }
    if place::find_placement(draft, request, waiting.end).is_some() {
        return Vec::new();
    }
    if let Some(reason) = master_ports_held(draft, waiting, request) {
        return vec![reason];
    }
    let mut reasons = Vec::new();
    reasons.extend(held_for_others(draft, facts, waiting, request));
    reasons.push(shortage(draft, waiting, request));
    reasons.extend(container_runtime_busy(draft, waiting, request));
    reasons.extend(delivery_of_secrets_busy(draft, waiting, request));
    reasons.extend(out_of_service(facts, request));
    reasons
}

fn infeasible(draft: &Draft, request: &Request) -> Vec<Reason> {
    if !request.model_limits.is_empty() {
        return Vec::new();
    }
    let (problem, _) = resources::infeasible(&draft.state.resources, &request.shape);
    vec![Reason::Infeasible { problem }]
}

/// The first other job, or the window, that free eligible space is kept for: reserved for a later start, or earmarked
/// until victims are gone.
fn held_for_others(draft: &Draft, facts: &ClusterFacts, waiting: WaitingJob, request: &Request) -> Option<Reason> {
    let reserved = || {
        let placement = place::find_placement(draft, request, ExpectedEnd::NOW)?;
        let holder = |task: &PlacedTask| draft.reservations.first_on(&task.node, waiting.job, waiting.end);
        placement.tasks.iter().find_map(holder).map(|holder| reservation_reason(draft, holder))
    };
    let reserved = if draft.reservations.is_empty() { None } else { reserved() };
    let on_one = || earmarked_on_one_node(draft, facts, waiting, request);
    let on_many = || if request.may_span() { earmarked_on_many_nodes(draft, facts, waiting, request) } else { None };
    let kept_for = |job| Reason::Reservation { job, claimed: draft.state.claims.contains_key(&job) };
    reserved.or_else(|| on_one().or_else(on_many).map(kept_for))
}

fn reservation_reason(draft: &Draft, holder: ReservationOwner) -> Reason {
    match holder {
        ReservationOwner::Job(job) => Reason::Reservation { job, claimed: false },
        ReservationOwner::Window(index) => {
            let window = draft.state.windows.values().nth(index as usize);
            let named = |window: &Window| Reason::Window { window: window.name.clone(), why: window.why.clone() };
            window.map_or(Reason::Considering, named)
        }
    }
}

fn earmarked_on_one_node(draft: &Draft, facts: &ClusterFacts, waiting: WaitingJob, request: &Request) -> Option<JobId> {
    let fits = |(node, (_, space)): &(&NodeId, &(JobId, ResourceVec))| {
        let entry = draft.space.resources.entry(node).filter(|entry| entry.open);
        let found = entry
            .and_then(|entry| Some((request.match_for(&entry.kind).filter(|found| found.holds_gang)?, entry.free)));
        found.is_some_and(|(found, free)| request.fits(found, free.plus(*space)))
    };
    let holders = facts.earmarked.iter().filter(fits).map(|(_, (first, _))| *first);
    holders.into_iter().find(|holder| *holder != waiting.job)
}

/// The same for a gang that may span nodes. It costs a copy of the resource index.
fn earmarked_on_many_nodes(
    draft: &Draft,
    facts: &ClusterFacts,
    waiting: WaitingJob,
    request: &Request,
) -> Option<JobId> {
    if facts.earmarked.is_empty() {
        return None;
    }
    let mut resources = draft.space.resources.clone();
    for (node, (_, space)) in &facts.earmarked {
        let free = resources.entry(node).map(|entry| entry.free).unwrap_or_default();
        resources.set_free(node, free.plus(*space));
    }
    let placement = place::multi_node::find(draft.state, &resources, request, &|_, free| Some(free))?;
    let holder = |node: &NodeId| facts.earmarked.get(node).map(|(first, _)| *first);
    placement.tasks.iter().filter_map(|task| holder(&task.node)).find(|holder| *holder != waiting.job)
}

/// What is missing: GPUs in total, GPUs on one node, or locality, cores or memory although enough GPUs are free.
fn shortage(draft: &Draft, waiting: WaitingJob, request: &Request) -> Reason {
    if let Some(reason) = locality_unmet(draft, waiting, request).or_else(|| no_fraction_free(draft, waiting, request))
    {
        return reason;
    }
    let (needs_gpus, blocks) = (request.gpus(), free_blocks(draft, waiting, request));
    let free_gpus = blocks.iter().map(|(gpus, _)| gpus).sum();
    let largest_block = blocks.iter().map(|(gpus, _)| *gpus).max().unwrap_or_default();
    if free_gpus < needs_gpus {
        return Reason::Capacity { needs_gpus, free_gpus, short_of: "GPUs".to_string() };
    }
    if largest_block < needs_gpus && !request.may_span() {
        return Reason::Fragmented { needs_gpus, largest_block, free_gpus };
    }
    if request.may_span() {
        return gang_fragmented(draft, waiting, request);
    }
    let large = || blocks.iter().filter(|(gpus, _)| *gpus >= needs_gpus);
    let cores = large().all(|(_, free)| free.cpus < request.demand.cpus);
    let memory = large().all(|(_, free)| free.memory_mib < request.demand.memory_mib);
    let short_of = match (cores, memory) {
        (true, false) => "CPU cores",
        (false, true) => "memory",
        (true, true) => "CPU cores and memory",
        // Some nodes lack cores, others memory; or task groups need devices that only some nodes have.
        (false, false) => "CPU cores, memory and GPUs for all tasks of the job",
    };
    Reason::Capacity { needs_gpus, free_gpus, short_of: short_of.to_string() }
}

/// For a request with a required locality: the gang would fit without it.
fn locality_unmet(draft: &Draft, waiting: WaitingJob, request: &Request) -> Option<Reason> {
    let relaxed = request.shape.without_locality();
    if relaxed == *request.shape {
        return None;
    }
    let relaxed = Request::new(&draft.state.resources, &Arc::new(relaxed));
    let found = place::find_placement(draft, &relaxed, waiting.end);
    found.map(|_| Reason::LocalityUnmet { locality: request.shape.locality_phrase().to_string() })
}

/// For a gang: it would fit on nodes without a free master port.
fn master_ports_held(draft: &Draft, waiting: WaitingJob, request: &Request) -> Option<Reason> {
    let nodes = draft.reservations.without_master_ports.len() as u32;
    if nodes == 0 || !waiting.end.needs_master_port {
        return None;
    }
    let relaxed = ExpectedEnd { needs_master_port: false, ..waiting.end };
    place::find_placement(draft, request, relaxed)?;
    Some(Reason::MasterPorts { nodes, ports: draft.state.settings.master_ports })
}

/// For a job with an image: it would fit on nodes without a container runtime.
fn container_runtime_busy(draft: &Draft, waiting: WaitingJob, request: &Request) -> Option<Reason> {
    if !request.shape.in_container {
        return None;
    }
    fits_as(draft, waiting, Shape { in_container: false, ..(*request.shape).clone() })?;
    let count = |counts: &dyn Fn(&Kind) -> bool| count_nodes(draft, counts);
    Some(Reason::ContainerRuntime { nodes: count(&|kind| kind.runs_images), of_nodes: count(&|_| true) })
}

/// For a job with secrets: it would fit on nodes that do not deliver them.
fn delivery_of_secrets_busy(draft: &Draft, waiting: WaitingJob, request: &Request) -> Option<Reason> {
    if !request.shape.has_secrets {
        return None;
    }
    fits_as(draft, waiting, Shape { has_secrets: false, ..(*request.shape).clone() })?;
    let count = |counts: &dyn Fn(&Kind) -> bool| count_nodes(draft, counts);
    Some(Reason::SecretDelivery { nodes: count(&|kind| kind.delivers_secrets), of_nodes: count(&|_| true) })
}

/// Whether a job of another shape would be placed now.
fn fits_as(draft: &Draft, waiting: WaitingJob, shape: Shape) -> Option<()> {
    let relaxed = Request::new(&draft.state.resources, &Arc::new(shape));
    place::find_placement(draft, &relaxed, waiting.end).map(drop)
}

fn count_nodes(draft: &Draft, counts: &dyn Fn(&Kind) -> bool) -> u32 {
    let kinds = draft.state.resources.kinds().filter(|(kind, _)| counts(kind));
    kinds.fold(0, |sum, (_, nodes)| sum.saturating_add(u32::try_from(nodes).unwrap_or(u32::MAX)))
}

/// For tasks that share GPUs: too few GPU fractions of the requested size are free, cores and memory aside.
fn no_fraction_free(draft: &Draft, waiting: WaitingJob, request: &Request) -> Option<Reason> {
    let [(count, each)] = &request.shape.groups[..] else { return None };
    let blocks = free_blocks_by_match(draft, waiting, request);
    let any_host = |free: ResourceVec| ResourceVec { cpus: u64::MAX, memory_mib: u64::MAX, ..free };
    let fitting = blocks.iter().map(|(found, free)| request.tasks_that_fit(found, 0, any_host(*free)));
    if !each.is_shared() || fitting.fold(0, u32::saturating_add) >= *count {
        return None;
    }
    let fractions = blocks.iter().flat_map(|(found, free)| {
        let devices = bits(found.useful).into_iter();
        let memory_of = |device: u8| found.kind.gpus.get(usize::from(device)).map_or(0, |gpu| gpu.memory_mib);
        let fraction = |device: u8| {
            let fraction = free.fraction_of(device);
            (u64::from(fraction.compute), u64::from(fraction.memory) * memory_of(device) / 1_000)
        };
        devices.map(fraction).collect::<Vec<_>>()
    });
    let fractions: Vec<(u64, u64)> = fractions.collect();
    let (largest, largest_mib) = fractions.iter().copied().max().unwrap_or_default();
    Some(Reason::Share {
        needs_milli: each.gpu_compute_milli,
        needs_mib: each.gpu_memory_mib,
        instance: each.isolation == Isolation::Full,
        largest_milli: largest as u32,
        largest_mib,
        free_milli: fractions.iter().map(|(compute, _)| compute).sum(),
    })
}

/// For a gang that may span nodes: the first task group that does not fit whole, even alone.
fn gang_fragmented(draft: &Draft, waiting: WaitingJob, request: &Request) -> Reason {
    let fitting = |group: usize| -> u64 {
        let blocks = free_blocks_by_match(draft, waiting, request).into_iter();
        blocks.map(|(found, free)| u64::from(request.tasks_that_fit(found, group, free))).sum()
    };
    let mut groups = request.groups_by_size().into_iter().map(|group| (group, fitting(group)));
    match groups.find(|(group, fitting)| *fitting < u64::from(request.shape.groups[*group].0)) {
        Some((group, fitting)) => {
            let (tasks, each) = &request.shape.groups[group];
            Reason::GangFragmented { tasks: *tasks, gpus_each: each.gpus, fitting_tasks: fitting as u32 }
        }
        None => {
            Reason::GangFragmented { tasks: request.shape.tasks(), gpus_each: 0, fitting_tasks: request.shape.tasks() }
        }
    }
}

/// Free eligible GPUs of each node, and all that is free there.
fn free_blocks(draft: &Draft, waiting: WaitingJob, request: &Request) -> Vec<(u32, ResourceVec)> {
    let blocks = free_blocks_by_match(draft, waiting, request).into_iter();
    let is_shared = request.whole_gpus() == 0;
    let count = |found: &KindMatch, free: ResourceVec| match is_shared {
        true => free.without_host().on_devices(found.useful).touched_devices().count_ones(),
        false => (free.gpus & found.useful).count_ones(),
    };
    blocks.map(|(found, free)| (count(found, free), free)).collect()
}

fn free_blocks_by_match<'a>(
    draft: &Draft,
    waiting: WaitingJob,
    request: &'a Request,
) -> Vec<(&'a KindMatch, ResourceVec)> {
    // Tasks without GPUs may run where no GPU is free.
    let least = request.least_gpus().min(1);
    let mut blocks = Vec::new();
    for found in &request.matches {
        for (_, node) in draft.space.resources.with_free(&found.kind, least) {
            let usable = |free| draft.reservations.usable(node, free, waiting.end, Some(waiting.job));
            blocks.extend(draft.space.free_on(node).and_then(usable).map(|free| (found, free)));
        }
    }
    blocks
}

/// Eligible nodes and GPUs that may not be allocated now.
fn out_of_service(facts: &ClusterFacts, request: &Request) -> Option<Reason> {
    let (mut nodes, mut gpus, mut gpus_alone) = (0, 0, 0);
    for out in &facts.out_of_service {
        let Some(found) = request.match_for(&out.kind) else { continue };
        let missing = (found.useful & out.gpus).count_ones();
        match out.closed {
            true => (nodes, gpus) = (nodes + 1, gpus + missing),
            false => gpus_alone += missing,
        }
    }
    (nodes + gpus_alone > 0).then_some(Reason::NodeHealth { nodes, gpus, gpus_alone })
}
