//! What is missing for a shape on every node, and the smallest change that would make it feasible.
//!
//! One wish at a time is taken away. The first one without which a node could hold the gang is the problem,
//! and the best that those nodes offer is the nearest change.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::capacity::{Capacity, Kind};
use crate::ids::NodeId;
use crate::job::Isolation;
use crate::model;
use crate::queue::Shape;

/// What is missing on every node, and the nearest change, in words. For shapes that no node could hold.
pub fn infeasible(capacity: &Capacity, shape: &Shape) -> (String, String) {
    if capacity.is_empty() {
        return ("no node is registered".to_string(), "register a node".to_string());
    }
    if let Some(found) = too_far_apart(capacity, shape) {
        return found;
    }
    if shape.may_span() {
        return no_seats(capacity, shape);
    }
    let single = [
        not_apart,
        too_many_gpus,
        too_many_cores,
        too_much_memory,
        too_much_gpu_memory,
        wrong_model,
        wrong_labels,
        wrong_pool,
    ];
    let single = single.into_iter().find_map(|problem| problem(capacity, shape));
    single.unwrap_or_else(|| nothing_comes_close(capacity, shape))
}

type Problem = Option<(String, String)>;

/// All of it could be held, but nowhere as close together as it must be.
fn too_far_apart(capacity: &Capacity, shape: &Shape) -> Problem {
    let relaxed = shape.anywhere();
    if relaxed == *shape || !capacity.could_ever_hold(&relaxed) {
        return None;
    }
    let place = shape.demanded();
    let problem = format!("nowhere are there {} {place}", gpus(shape));
    Some((problem, format!("ask for fewer GPUs, or do not ask for them {place}")))
}

/// A gang that may sit on several nodes: a task of it finds no node at all, or not all of them do at once.
fn no_seats(capacity: &Capacity, shape: &Shape) -> (String, String) {
    for (count, each) in &shape.groups {
        let one = Shape { groups: vec![(1, each.clone())], ..shape.clone() };
        if !capacity.could_ever_hold(&one) {
            return infeasible(capacity, &one);
        }
        let seats = |(kind, nodes): (&Arc<Kind>, usize)| {
            u64::from(kind.could_hold_tasks(shape, each)).saturating_mul(nodes as u64)
        };
        let most = capacity.kinds().map(seats).fold(0, u64::saturating_add);
        if most < u64::from(*count) {
            let tasks = format!("{count} tasks{} at once", with_gpus(&one));
            return (
                format!("all nodes together could not hold {tasks}"),
                format!("ask for at most {most} tasks"),
            );
        }
    }
    let problem = "all nodes together could not hold all groups of its tasks at once".to_string();
    (problem, "ask for fewer tasks, or for less each".to_string())
}

/// A part of a device that is kept apart from its neighbours more strictly than any device can.
fn not_apart(capacity: &Capacity, shape: &Shape) -> Problem {
    let asked = shape.groups.iter().map(|(_, each)| each).filter(|each| each.is_shared());
    let asked = asked.map(|each| each.isolation).max()?;
    let enough = |isolation: Isolation| {
        let relaxed = without(shape, |each| each.isolation = each.isolation.min(isolation));
        kinds_for(capacity, &relaxed).into_iter().next().map(|kind| (isolation, kind))
    };
    let (nearest, kind) = [Isolation::Memory, Isolation::None].into_iter().find_map(enough)?;
    let problem = format!("no GPU that would do is shared with isolation `{}`", asked.word());
    let nearest =
        format!("ask for isolation `{}` ({}), or for a whole GPU", nearest.word(), example(capacity, kind));
    Some((problem, nearest))
}

fn too_many_gpus(capacity: &Capacity, shape: &Shape) -> Problem {
    let kinds = kinds_for(capacity, &without(shape, |each| each.gpus = 0)).into_iter();
    let (most, kind) = kinds.map(|kind| (useful(kind, shape), kind)).max_by_key(|(gpus, _)| *gpus)?;
    let problem = format!("no node has {}{}", gpus(shape), of_models(shape));
    if most == 0 || most >= shape.gpus() {
        return None;
    }
    Some((problem, format!("ask for at most {most} ({})", example(capacity, kind))))
}

fn too_many_cores(capacity: &Capacity, shape: &Shape) -> Problem {
    let kinds = kinds_for(capacity, &without(shape, |each| each.cpus = 0));
    let kind = kinds.into_iter().max_by_key(|kind| kind.cpus)?;
    let problem = format!("no node{} has {} CPU cores", with_gpus(shape), shape.cpus());
    Some((problem, format!("ask for at most {} in all ({})", kind.cpus, example(capacity, kind))))
}

fn too_much_memory(capacity: &Capacity, shape: &Shape) -> Problem {
    let kinds = kinds_for(capacity, &without(shape, |each| each.memory_mib = 0));
    let kind = kinds.into_iter().max_by_key(|kind| kind.memory_mib)?;
    let problem = format!("no node{} has {} MiB of memory", with_gpus(shape), shape.memory_mib());
    Some((problem, format!("ask for at most {} MiB in all ({})", kind.memory_mib, example(capacity, kind))))
}

fn too_much_gpu_memory(capacity: &Capacity, shape: &Shape) -> Problem {
    let relaxed = without(shape, |each| each.gpu_memory_mib = 0);
    let most = |kind: &&Kind| enough_gpus_with(kind, &relaxed);
    let kind = kinds_for(capacity, &relaxed).into_iter().max_by_key(most)?;
    let asked = shape.groups.iter().map(|(_, each)| each.gpu_memory_mib).max().unwrap_or_default();
    let problem = format!("no node has {}{} with {asked} MiB", gpus(shape), of_models(shape));
    let nearest = format!("ask for at most {} MiB of GPU memory ({})", most(&kind), example(capacity, kind));
    Some((problem, nearest))
}

fn wrong_model(capacity: &Capacity, shape: &Shape) -> Problem {
    let relaxed = without(shape, |each| each.gpu_models.clear());
    let models: BTreeSet<String> = kinds_for(capacity, &relaxed)
        .into_iter()
        .flat_map(|kind| kind.gpus.iter().map(|gpu| model::canonical(&gpu.model)))
        .collect();
    if models.is_empty() {
        return None;
    }
    let there: Vec<String> = models.into_iter().collect();
    let problem = format!("no node has {}{}", gpus(shape), of_models(shape));
    Some((problem, format!("ask for one of {}", there.join(", "))))
}

fn wrong_labels(capacity: &Capacity, shape: &Shape) -> Problem {
    let relaxed = Shape { node_labels: Default::default(), ..shape.clone() };
    let kind = kinds_for(capacity, &relaxed).into_iter().next()?;
    let missing = shape.node_labels.iter().filter(|(key, value)| kind.labels.get(*key) != Some(value));
    let missing: Vec<String> = missing.map(|(key, value)| format!("`{key}={value}`")).collect();
    let problem = format!("no node that could hold it carries {}", missing.join(" and "));
    Some((problem, format!("leave out {} ({})", missing.join(" and "), example(capacity, kind))))
}

/// Nodes could hold it, but not with GPUs of the pool that it names.
fn wrong_pool(capacity: &Capacity, shape: &Shape) -> Problem {
    shape.pool.as_ref()?;
    let relaxed = Shape { pool: None, ..shape.clone() };
    let kind = kinds_for(capacity, &relaxed).into_iter().next()?;
    let problem = format!("no node has {}{}", gpus(shape), of_models(shape));
    let nearest = format!("name another pool or none ({} could hold it)", example(capacity, kind));
    Some((problem, nearest))
}

fn nothing_comes_close(capacity: &Capacity, shape: &Shape) -> (String, String) {
    let kinds = capacity.kinds().map(|(kind, _)| kind.as_ref());
    let largest =
        kinds.max_by_key(|kind| (kind.taints.is_empty(), kind.gpus.len(), kind.cpus, kind.memory_mib));
    let problem = format!(
        "no node has {}{}, {} CPU cores and {} MiB of memory together",
        gpus(shape),
        of_models(shape),
        shape.cpus(),
        shape.memory_mib()
    );
    let nearest = largest.map(|kind| {
        format!(
            "ask for less: {} has {} GPUs, {} CPU cores and {} MiB",
            example(capacity, kind),
            kind.gpus.len(),
            kind.cpus,
            kind.memory_mib
        )
    });
    (problem, nearest.unwrap_or_default())
}

/// Kinds that could hold the shape when empty.
fn kinds_for<'a>(capacity: &'a Capacity, shape: &Shape) -> Vec<&'a Kind> {
    capacity.kinds().map(|(kind, _)| kind.as_ref()).filter(|kind| kind.could_hold(shape)).collect()
}

fn without(shape: &Shape, change: impl Fn(&mut crate::job::Resources)) -> Shape {
    let mut shape = shape.clone();
    shape.groups.iter_mut().for_each(|(_, each)| change(each));
    shape
}

/// Devices of a kind that would do for some task.
fn useful(kind: &Kind, shape: &Shape) -> u32 {
    let asking = shape.groups.iter().filter(|(_, each)| each.gpus > 0);
    asking.fold(0u64, |mask, (_, each)| mask | kind.eligible(shape, each).devices()).count_ones()
}

/// The most memory that enough GPUs of a kind have.
fn enough_gpus_with(kind: &Kind, shape: &Shape) -> u64 {
    let mut sizes: Vec<u64> = kind.gpus.iter().map(|gpu| gpu.memory_mib).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let needed = (shape.gpus() as usize).max(1);
    sizes.get(needed - 1).copied().unwrap_or_default()
}

/// The first node of a kind, by name.
fn example<'a>(capacity: &'a Capacity, kind: &Kind) -> &'a str {
    let nodes = capacity.nodes().filter(|(_, filed)| *filed.kind == *kind);
    nodes.map(|(node, _): (&NodeId, _)| node.as_str()).next().unwrap_or("a node")
}

fn gpus(shape: &Shape) -> String {
    format!("{} GPU{}", shape.gpus(), if shape.gpus() == 1 { "" } else { "s" })
}

/// The models that would do and the pool, as far as the job names them.
fn of_models(shape: &Shape) -> String {
    let models: BTreeSet<&str> =
        shape.groups.iter().flat_map(|(_, each)| &each.gpu_models).map(String::as_str).collect();
    let models: Vec<&str> = models.into_iter().collect();
    let models = if models.is_empty() { String::new() } else { format!(" of model {}", models.join(" or ")) };
    let pool = shape.pool.as_ref().map(|pool| format!(" in pool `{pool}`"));
    models + &pool.unwrap_or_default()
}

fn with_gpus(shape: &Shape) -> String {
    match shape.gpus() {
        0 => String::new(),
        _ => format!(" with {}{}", gpus(shape), of_models(shape)),
    }
}
