//! The last phase: say of every bucket that was blocked what blocks it, with the numbers at the end of the
//! round, so that they agree with what people see once the plan is adopted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::{Free, Kind, bits};
use crate::ids::{JobId, NodeId};
use crate::job::{Isolation, PlacedTask};
use crate::lasting::Ending;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::Draft;
use crate::plan::reserve::Holder;
use crate::plan::{Planned, admit, feasible, place, spread};
use crate::queue::{Bucket, Shape};
use crate::verdict::{Reason, Verdict, Verdicts};
use crate::window::Window;

/// Write the verdicts and close the draft.
pub(super) fn all_blocked(mut draft: Draft) -> Planned {
    let mut verdicts = Verdicts::default();
    let blocked = std::mem::take(&mut draft.blocked);
    let facts = if blocked.is_empty() { Facts::default() } else { Facts::of(&draft) };
    let mut known: BTreeMap<(Arc<Shape>, Ending), Vec<Reason>> = BTreeMap::new();
    for turn in blocked {
        let ask = draft.ask(turn.bucket);
        let mut reasons = admit::blockers(&draft, (turn.bucket, turn.word), &ask);
        let who = Who { job: turn.job, ending: draft.ending(turn.bucket, turn.job) };
        if reasons.is_empty() {
            let quota = quota_of_instance(&draft, turn.bucket, who);
            if !quota.is_empty() {
                verdicts.add(turn.bucket.clone(), Verdict { reasons: quota });
                continue;
            }
        }
        // What is reserved for the job itself, and what its tenant may not use, make the answer its own.
        if draft.reservations.of(turn.job).is_some() || draft.limits_devices(turn.bucket) {
            reasons.extend(no_room(&draft, &facts, who, &ask));
        } else {
            let shared = known.entry((turn.bucket.shape.clone(), who.ending));
            reasons.extend(shared.or_insert_with(|| no_room(&draft, &facts, who, &ask)).iter().cloned());
        }
        verdicts.add(turn.bucket.clone(), Verdict { reasons });
    }
    for reservation in &draft.reservations.list {
        verdicts.add_reservation(reservation.job, reservation.at);
    }
    for cut in &draft.cuts {
        let reason = Reason::Partition { gpu: cut.gpu.clone(), profiles: cut.profiles.clone() };
        verdicts.add_reason(draft.state, cut.job, reason);
    }
    for (job, reasons) in draft.reasons {
        verdicts.add_job(job, Verdict { reasons });
    }
    Planned { plan: draft.plan, verdicts }
}

/// Whose answer it is.
#[derive(Clone, Copy)]
struct Who {
    job: JobId,
    ending: Ending,
}

/// The quotas that a gang would exceed in the only room there is: MIG instances larger than it asks for.
fn quota_of_instance(draft: &Draft, bucket: &Bucket, who: Who) -> Vec<Reason> {
    let ask = draft.unlimited_ask(bucket).filter(|ask| ask.may_hold_instances);
    let Some(ask) = ask.filter(|_| draft.limits_devices(bucket)) else { return Vec::new() };
    let spot = place::find(draft, &ask, who.ending);
    spot.map(|spot| admit::quota(draft, bucket, draft.demand(&ask, &spot))).unwrap_or_default()
}

/// What is the same for every shape.
#[derive(Default)]
struct Facts {
    /// What is set aside on each node, and the first job it is for.
    asides: BTreeMap<NodeId, (JobId, Free)>,
    /// Nodes that take no work, or have devices that may not be given out.
    out_of_service: Vec<OutOfService>,
}

struct OutOfService {
    kind: Arc<Kind>,
    closed: bool,
    /// Devices that may not be given out, as bits.
    gpus: u64,
}

impl Facts {
    fn of(draft: &Draft) -> Facts {
        let mut asides: BTreeMap<NodeId, (JobId, Free)> = BTreeMap::new();
        for (job, aside) in &draft.asides {
            for (node, aside) in aside {
                let (_, space) = asides.entry(node.clone()).or_insert((*job, Free::default()));
                *space = space.with(*aside);
            }
        }
        let nodes = draft.state.capacity.nodes();
        let out = nodes.map(|(node, filed)| OutOfService {
            kind: filed.kind.clone(),
            closed: !filed.open,
            gpus: if filed.open { !draft.state.usable_gpus(node) } else { u64::MAX },
        });
        let worth_telling = |out: &OutOfService| out.closed || out.gpus & out.kind.empty().gpus != 0;
        Facts { asides, out_of_service: out.filter(worth_telling).collect() }
    }
}

/// Why there is no room; nothing if there is.
fn no_room(draft: &Draft, facts: &Facts, who: Who, ask: &Ask) -> Vec<Reason> {
    if !ask.feasible || (ask.matches.is_empty() && !ask.model_limits.is_empty()) {
        return infeasible(draft, ask);
    }
    if place::find(draft, ask, who.ending).is_some() {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    reasons.extend(kept_for_others(draft, facts, who, ask));
    reasons.push(too_little(draft, who, ask));
    reasons.extend(out_of_service(facts, ask));
    reasons
}

fn infeasible(draft: &Draft, ask: &Ask) -> Vec<Reason> {
    if !ask.model_limits.is_empty() {
        return Vec::new();
    }
    let (problem, _) = feasible::infeasible(&draft.state.capacity, &ask.shape);
    vec![Reason::Infeasible { problem }]
}

/// The first job for whom space is kept that would do: reserved for later, or set aside until its victims are gone.
fn kept_for_others(draft: &Draft, facts: &Facts, who: Who, ask: &Ask) -> Option<Reason> {
    let reserved = || {
        let spot = place::find(draft, ask, Ending::NOW)?;
        let holder = |task: &PlacedTask| draft.reservations.first_on(&task.node, who.job, who.ending);
        spot.tasks.iter().find_map(holder).map(|holder| kept_for(draft, holder))
    };
    let reserved = if draft.reservations.is_empty() { None } else { reserved() };
    let aside = || set_aside_on_one_node(draft, facts, who, ask);
    let across = || if ask.may_span() { set_aside_across(draft, facts, who, ask) } else { None };
    let aside = || aside().or_else(across).map(|job| Reason::Reservation { job });
    reserved.or_else(aside)
}

fn kept_for(draft: &Draft, holder: Holder) -> Reason {
    match holder {
        Holder::Job(job) => Reason::Reservation { job },
        Holder::Window(index) => {
            let window = draft.state.windows.values().nth(index as usize);
            let named =
                |window: &Window| Reason::Window { window: window.name.clone(), why: window.why.clone() };
            window.map_or(Reason::Considering, named)
        }
    }
}

fn set_aside_on_one_node(draft: &Draft, facts: &Facts, who: Who, ask: &Ask) -> Option<JobId> {
    let fits = |(node, (_, aside)): &(&NodeId, &(JobId, Free))| {
        let filed = draft.capacity.filed(node).filter(|filed| filed.open);
        let found =
            filed.and_then(|filed| Some((ask.on(&filed.kind).filter(|found| found.whole)?, filed.free)));
        found.is_some_and(|(found, free)| ask.fits(found, free.with(*aside)))
    };
    let holders = facts.asides.iter().filter(fits).map(|(_, (first, _))| *first);
    holders.into_iter().find(|holder| *holder != who.job)
}

/// The same for a gang that sits on several nodes. Costs a copy of the capacity.
fn set_aside_across(draft: &Draft, facts: &Facts, who: Who, ask: &Ask) -> Option<JobId> {
    if facts.asides.is_empty() {
        return None;
    }
    let mut capacity = draft.capacity.clone();
    for (node, (_, aside)) in &facts.asides {
        let free = capacity.filed(node).map(|filed| filed.free).unwrap_or_default();
        capacity.set_free(node, free.with(*aside));
    }
    let spot = spread::find(draft.state, &capacity, ask, &|_, free| Some(free))?;
    let holder = |node: &NodeId| facts.asides.get(node).map(|(first, _)| *first);
    spot.tasks.iter().filter_map(|task| holder(&task.node)).find(|holder| *holder != who.job)
}

/// Too little in all, or too little in one place, or GPUs enough but not what goes with them.
fn too_little(draft: &Draft, who: Who, ask: &Ask) -> Reason {
    if let Some(reason) = too_far_apart(draft, who, ask).or_else(|| no_part_free(draft, who, ask)) {
        return reason;
    }
    let (needs_gpus, blocks) = (ask.gpus(), free_blocks(draft, who, ask));
    let free_gpus = blocks.iter().map(|(gpus, _)| gpus).sum();
    let largest_block = blocks.iter().map(|(gpus, _)| *gpus).max().unwrap_or_default();
    if free_gpus < needs_gpus {
        return Reason::Capacity { needs_gpus, free_gpus, short_of: "GPUs".to_string() };
    }
    if largest_block < needs_gpus && !ask.may_span() {
        return Reason::Fragmented { needs_gpus, largest_block, free_gpus };
    }
    if ask.may_span() {
        return seats_short(draft, who, ask);
    }
    let large = || blocks.iter().filter(|(gpus, _)| *gpus >= needs_gpus);
    let cores = large().all(|(_, free)| free.cpus < ask.demand.cpus);
    let memory = large().all(|(_, free)| free.memory_mib < ask.demand.memory_mib);
    let short_of = match (cores, memory) {
        (true, false) => "CPU cores",
        (false, true) => "memory",
        (true, true) => "CPU cores and memory",
        // Some lack the one, some the other; or groups of the gang want devices that only some have.
        (false, false) => "CPU cores, memory or GPUs of each kind",
    };
    Reason::Capacity { needs_gpus, free_gpus, short_of: short_of.to_string() }
}

/// Where it must be close together: there is room, but not there.
fn too_far_apart(draft: &Draft, who: Who, ask: &Ask) -> Option<Reason> {
    let relaxed = ask.shape.anywhere();
    if relaxed == *ask.shape {
        return None;
    }
    let relaxed = Ask::new(&draft.state.capacity, &Arc::new(relaxed));
    let found = place::find(draft, &relaxed, who.ending);
    found.map(|_| Reason::Apart { place: ask.shape.demanded().to_string() })
}

/// For tasks that share GPUs: parts that are large enough are not free, whatever else is.
fn no_part_free(draft: &Draft, who: Who, ask: &Ask) -> Option<Reason> {
    let [(count, each)] = &ask.shape.groups[..] else { return None };
    let blocks = free_blocks_by_match(draft, who, ask);
    let beside = |free: Free| Free { cpus: u64::MAX, memory_mib: u64::MAX, ..free };
    let seats = blocks.iter().map(|(found, free)| ask.tasks_that_fit(found, 0, beside(*free)));
    if !each.is_shared() || seats.fold(0, u32::saturating_add) >= *count {
        return None;
    }
    let parts = blocks.iter().flat_map(|(found, free)| {
        let devices = bits(found.useful).into_iter();
        let memory_of = |device: u8| found.kind.gpus.get(usize::from(device)).map_or(0, |gpu| gpu.memory_mib);
        let part = |device: u8| {
            let part = free.part(device);
            (u64::from(part.compute), u64::from(part.memory) * memory_of(device) / 1_000)
        };
        devices.map(part).collect::<Vec<_>>()
    });
    let parts: Vec<(u64, u64)> = parts.collect();
    let (largest, largest_mib) = parts.iter().copied().max().unwrap_or_default();
    Some(Reason::Share {
        needs_milli: each.gpu_compute_milli,
        needs_mib: each.gpu_memory_mib,
        instance: each.isolation == Isolation::Full,
        largest_milli: largest as u32,
        largest_mib,
        free_milli: parts.iter().map(|(compute, _)| compute).sum(),
    })
}

/// Where a gang may sit on several nodes: the first group of tasks that would not all find room, even alone.
fn seats_short(draft: &Draft, who: Who, ask: &Ask) -> Reason {
    let seats = |group: usize| -> u64 {
        let blocks = free_blocks_by_match(draft, who, ask).into_iter();
        blocks.map(|(found, free)| u64::from(ask.tasks_that_fit(found, group, free))).sum()
    };
    let mut groups = ask.groups_by_size().into_iter().map(|group| (group, seats(group)));
    match groups.find(|(group, seats)| *seats < u64::from(ask.shape.groups[*group].0)) {
        Some((group, seats)) => {
            let (tasks, each) = &ask.shape.groups[group];
            Reason::Seats { tasks: *tasks, gpus_each: each.gpus, seats: seats as u32 }
        }
        None => Reason::Seats { tasks: ask.shape.tasks(), gpus_each: 0, seats: ask.shape.tasks() },
    }
}

/// Free GPUs that would do, node by node, and what is free beside them.
fn free_blocks(draft: &Draft, who: Who, ask: &Ask) -> Vec<(u32, Free)> {
    let blocks = free_blocks_by_match(draft, who, ask).into_iter();
    let parts = ask.whole_gpus() == 0;
    let count = |found: &Match, free: Free| match parts {
        true => free.without_host().on_devices(found.useful).touched().count_ones(),
        false => (free.gpus & found.useful).count_ones(),
    };
    blocks.map(|(found, free)| (count(found, free), free)).collect()
}

fn free_blocks_by_match<'a>(draft: &Draft, who: Who, ask: &'a Ask) -> Vec<(&'a Match, Free)> {
    // Tasks without GPUs may sit where none is free.
    let least = ask.least_gpus().min(1);
    let mut blocks = Vec::new();
    for found in &ask.matches {
        for (_, node) in draft.capacity.with_free(&found.kind, least) {
            let usable = |free| draft.reservations.usable(node, free, who.ending, Some(who.job));
            blocks.extend(draft.free_on(node).and_then(usable).map(|free| (found, free)));
        }
    }
    blocks
}

/// Nodes and GPUs that would do but may not be given out now.
fn out_of_service(facts: &Facts, ask: &Ask) -> Option<Reason> {
    let (mut nodes, mut gpus, mut gpus_alone) = (0, 0, 0);
    for out in &facts.out_of_service {
        let Some(found) = ask.on(&out.kind) else { continue };
        let missing = (found.useful & out.gpus).count_ones();
        match out.closed {
            true => (nodes, gpus) = (nodes + 1, gpus + missing),
            false => gpus_alone += missing,
        }
    }
    (nodes + gpus_alone > 0).then_some(Reason::NodeHealth { nodes, gpus, gpus_alone })
}
