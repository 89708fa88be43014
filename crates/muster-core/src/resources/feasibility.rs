//! Infeasibility messages: why no registered node could ever hold a shape, and the smallest change that makes it
//! feasible.
//!
//! The checks relax one requirement at a time. The first requirement without which a node could hold the gang is the
//! problem, and the best that those nodes offer is the nearest change.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::gpu::gpu_share::Isolation;
use crate::gpu::model;
use crate::ids::NodeId;
use crate::objects::shape::Shape;
use crate::resources::{Kind, ResourceIndex};

/// The problem and the nearest change, as sentences. For shapes that no node could hold.
pub fn infeasible(capacity: &ResourceIndex, shape: &Shape) -> (String, String) {
    if capacity.is_empty() {
        return ("no node is registered".to_string(), "register a node".to_string());
    }
    if let Some(problem) = no_container_runtime(capacity, shape)
        .or_else(|| no_delivery_of_secrets(capacity, shape))
        .or_else(|| too_far_apart(capacity, shape))
    {
        return problem;
    }
    if shape.may_span() {
        return gang_infeasible(capacity, shape);
    }
    let single = [
        isolation_infeasible,
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

/// The cluster could hold the gang without its image.
fn no_container_runtime(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let relaxed = Shape { in_container: false, ..shape.clone() };
    if !shape.in_container || !capacity.could_ever_hold(&relaxed) {
        return None;
    }
    let (problem, nearest) = match capacity.kinds().any(|(kind, _)| kind.runs_images) {
        false => (
            "the job has an image, and no node has a container runtime",
            "install podman, docker, nerdctl or apptainer on a node and restart its agent, or submit the job without an \
             image",
        ),
        true => (
            "the job has an image, and no node with a container runtime could hold the job",
            "ask for less, or submit the job without an image",
        ),
    };
    Some((problem.to_string(), nearest.to_string()))
}

/// The cluster could hold the gang without its secrets.
fn no_delivery_of_secrets(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let relaxed = Shape { has_secrets: false, ..shape.clone() };
    if !shape.has_secrets || !capacity.could_ever_hold(&relaxed) {
        return None;
    }
    let (problem, nearest) = match capacity.kinds().any(|(kind, _)| kind.delivers_secrets) {
        false => (
            "the job has secrets, and the agent of no node delivers them",
            "upgrade the agents; their log says why a node cannot deliver secrets",
        ),
        true => (
            "the job has secrets, and no node that delivers them could hold the job",
            "ask for less, or upgrade the agents of the other nodes",
        ),
    };
    Some((problem.to_string(), nearest.to_string()))
}

/// The cluster could hold the gang, but not with the required locality.
fn too_far_apart(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let relaxed = shape.without_locality();
    if relaxed == *shape || !capacity.could_ever_hold(&relaxed) {
        return None;
    }
    let locality = shape.locality_phrase();
    let problem = format!("no placement provides {} {locality}", gpus(shape));
    Some((problem, format!("ask for fewer GPUs, or do not require them {locality}")))
}

/// A gang that may span nodes: one of its tasks fits on no node, or not all tasks fit at once.
fn gang_infeasible(capacity: &ResourceIndex, shape: &Shape) -> (String, String) {
    for (count, each) in &shape.groups {
        let one = Shape { groups: vec![(1, each.clone())], ..shape.clone() };
        if !capacity.could_ever_hold(&one) {
            return infeasible(capacity, &one);
        }
        let tasks_on = |(kind, nodes): (&Arc<Kind>, usize)| {
            u64::from(kind.could_hold_tasks(shape, each)).saturating_mul(nodes as u64)
        };
        let most = capacity.kinds().map(tasks_on).fold(0, u64::saturating_add);
        if most < u64::from(*count) {
            let tasks = format!("{count} tasks{} at once", with_gpus(&one));
            return (format!("all nodes together could not hold {tasks}"), format!("ask for at most {most} tasks"));
        }
    }
    let problem = "all nodes together could not hold all task groups of the job at once".to_string();
    (problem, "ask for fewer tasks, or for fewer resources per task".to_string())
}

/// A task that shares a device asks for a stricter isolation than any eligible device offers.
fn isolation_infeasible(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let sharing = shape.groups.iter().map(|(_, each)| each).filter(|each| each.is_shared());
    let requested = sharing.map(|each| each.isolation).max()?;
    let offered = |isolation: Isolation| {
        let relaxed = without(shape, |each| each.isolation = each.isolation.min(isolation));
        kinds_for(capacity, &relaxed).into_iter().next().map(|kind| (isolation, kind))
    };
    let (nearest, kind) = [Isolation::Memory, Isolation::None].into_iter().find_map(offered)?;
    let problem = format!("no eligible GPU can be shared with isolation `{}`", requested.as_str());
    let nearest = format!("ask for isolation `{}` ({}), or for a whole GPU", nearest.as_str(), example(capacity, kind));
    Some((problem, nearest))
}

fn too_many_gpus(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let kinds = kinds_for(capacity, &without(shape, |each| each.gpus = 0)).into_iter();
    let (most, kind) = kinds.map(|kind| (useful(kind, shape), kind)).max_by_key(|(gpus, _)| *gpus)?;
    let problem = format!("no node has {}{}", gpus(shape), of_models(shape));
    if most == 0 || most >= shape.gpus() {
        return None;
    }
    Some((problem, format!("request at most {most} GPUs (as on {})", example(capacity, kind))))
}

fn too_many_cores(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let kinds = kinds_for(capacity, &without(shape, |each| each.cpus = 0));
    let kind = kinds.into_iter().max_by_key(|kind| kind.cpus)?;
    let problem = format!("no node{} has {} CPU cores", with_gpus(shape), shape.cpus());
    Some((
        problem,
        format!("request at most {} CPU cores for all tasks together (as on {})", kind.cpus, example(capacity, kind)),
    ))
}

fn too_much_memory(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let kinds = kinds_for(capacity, &without(shape, |each| each.memory_mib = 0));
    let kind = kinds.into_iter().max_by_key(|kind| kind.memory_mib)?;
    let problem = format!("no node{} has {} MiB of memory", with_gpus(shape), shape.memory_mib());
    Some((
        problem,
        format!(
            "request at most {} MiB of memory for all tasks together (as on {})",
            kind.memory_mib,
            example(capacity, kind)
        ),
    ))
}

fn too_much_gpu_memory(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let relaxed = without(shape, |each| each.gpu_memory_mib = 0);
    let most = |kind: &&Kind| enough_gpus_with(kind, &relaxed);
    let kind = kinds_for(capacity, &relaxed).into_iter().max_by_key(most)?;
    let requested = shape.groups.iter().map(|(_, each)| each.gpu_memory_mib).max().unwrap_or_default();
    let problem = format!("no node has {}{} with {requested} MiB", gpus(shape), of_models(shape));
    let nearest = format!("ask for at most {} MiB of GPU memory ({})", most(&kind), example(capacity, kind));
    Some((problem, nearest))
}

fn wrong_model(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let relaxed = without(shape, |each| each.gpu_models.clear());
    let models: BTreeSet<String> = kinds_for(capacity, &relaxed)
        .into_iter()
        .flat_map(|kind| kind.gpus.iter().map(|gpu| model::canonical(&gpu.model)))
        .collect();
    if models.is_empty() {
        return None;
    }
    let models: Vec<String> = models.into_iter().collect();
    let problem = format!("no node has {}{}", gpus(shape), of_models(shape));
    Some((problem, format!("ask for one of {}", models.join(", "))))
}

fn wrong_labels(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    let relaxed = Shape { node_labels: Default::default(), ..shape.clone() };
    let kind = kinds_for(capacity, &relaxed).into_iter().next()?;
    let missing = shape.node_labels.iter().filter(|(key, value)| kind.labels.get(*key) != Some(value));
    let missing: Vec<String> = missing.map(|(key, value)| format!("`{key}={value}`")).collect();
    let problem = format!("no node that could hold the job carries {}", missing.join(" and "));
    Some((problem, format!("leave out {} ({})", missing.join(" and "), example(capacity, kind))))
}

/// Nodes could hold the gang, but not with GPUs of the requested pool.
fn wrong_pool(capacity: &ResourceIndex, shape: &Shape) -> Problem {
    shape.pool.as_ref()?;
    let relaxed = Shape { pool: None, ..shape.clone() };
    let kind = kinds_for(capacity, &relaxed).into_iter().next()?;
    let problem = format!("no node has {}{}", gpus(shape), of_models(shape));
    let nearest = format!("name another pool or none ({} could hold the job)", example(capacity, kind));
    Some((problem, nearest))
}

fn nothing_comes_close(capacity: &ResourceIndex, shape: &Shape) -> (String, String) {
    let kinds = capacity.kinds().map(|(kind, _)| kind.as_ref());
    let largest = kinds.max_by_key(|kind| (kind.taints.is_empty(), kind.gpus.len(), kind.cpus, kind.memory_mib));
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
fn kinds_for<'a>(capacity: &'a ResourceIndex, shape: &Shape) -> Vec<&'a Kind> {
    capacity.kinds().map(|(kind, _)| kind.as_ref()).filter(|kind| kind.could_hold(shape)).collect()
}

fn without(shape: &Shape, change: impl Fn(&mut crate::objects::job::Resources)) -> Shape {
    let mut shape = shape.clone();
    shape.groups.iter_mut().for_each(|(_, each)| change(each));
    shape
}

/// The number of devices of a kind that are eligible for some task.
fn useful(kind: &Kind, shape: &Shape) -> u32 {
    let with_gpus = shape.groups.iter().filter(|(_, each)| each.gpus > 0);
    with_gpus.fold(0u64, |mask, (_, each)| mask | kind.eligible(shape, each).devices()).count_ones()
}

/// The most GPU memory that can be requested of a kind: as many GPUs as the shape needs have at least this much.
fn enough_gpus_with(kind: &Kind, shape: &Shape) -> u64 {
    let mut sizes: Vec<u64> = kind.gpus.iter().map(|gpu| gpu.memory_mib).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let needed = (shape.gpus() as usize).max(1);
    sizes.get(needed - 1).copied().unwrap_or_default()
}

/// The first node of a kind, by name.
fn example<'a>(capacity: &'a ResourceIndex, kind: &Kind) -> &'a str {
    let nodes = capacity.nodes().filter(|(_, entry)| *entry.kind == *kind);
    nodes.map(|(node, _): (&NodeId, _)| node.as_str()).next().unwrap_or("a node")
}

fn gpus(shape: &Shape) -> String {
    format!("{} GPU{}", shape.gpus(), if shape.gpus() == 1 { "" } else { "s" })
}

/// The requested models and pool, if any.
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
