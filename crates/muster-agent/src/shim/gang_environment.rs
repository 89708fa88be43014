//! What tasks learn about their gang: the variables that torchrun, MPI and Slurm programs read, and a host file.

use std::ffi::OsString;

use muster_protocol::agent::{AttemptOrder, TaskOrder};

use crate::attempt_dir::{AttemptDir, HOST_FILE};

/// The annotation of a job whose tasks get `SLURM_…` variables. Programs change their behaviour when they see them: mpirun, for
/// example, starts its daemons by `srun` then, which does not exist here.
const SLURM_ANNOTATION: &str = "muster.io/slurm-env";

type Variables = Vec<(&'static str, OsString)>;

/// The variables by which a task finds its gang. What the job itself sets has precedence. A job with one task has no gang:
/// a program that started several processes by itself would believe that each of them is rank 0 of one.
pub(super) fn defaults(order: &AttemptOrder, task: &TaskOrder) -> Variables {
    // Otherwise the output of a Python program appears only once its buffer is full.
    let mut variables = vec![("PYTHONUNBUFFERED", OsString::from("1"))];
    if order.gang_size > 1 && !order.nodes.is_empty() {
        variables.extend([
            ("RANK", text(task.rank)),
            ("WORLD_SIZE", text(order.gang_size)),
            ("LOCAL_RANK", text(local_rank(order, task))),
            ("LOCAL_WORLD_SIZE", text(order.tasks.len())),
            ("NODE_RANK", text(order.node_rank)),
            ("MASTER_ADDR", OsString::from(&order.master_address)),
        ]);
        variables.extend(order.master_port.map(|port| ("MASTER_PORT", text(port))));
    }
    if order.annotations.get(SLURM_ANNOTATION).is_some_and(|value| value == "true") {
        variables.extend(slurm_variables(order, task));
    }
    variables
}

/// The same in muster's own words, which a job cannot change. Empty if the orders have no nodes: a launcher would believe a
/// node count of 0.
pub(super) fn muster_variables(attempt_dir: &AttemptDir, order: &AttemptOrder, task: &TaskOrder) -> Variables {
    let Some(master) = order.nodes.first() else { return Vec::new() };
    let mut variables = vec![
        ("MUSTER_NODES", OsString::from(order.nodes.join(","))),
        ("MUSTER_NODE_COUNT", text(order.nodes.len())),
        ("MUSTER_NODE_RANK", text(order.node_rank)),
        ("MUSTER_MASTER", OsString::from(master)),
        ("MUSTER_MASTER_ADDRESS", OsString::from(&order.master_address)),
        ("MUSTER_LOCAL_RANK", text(local_rank(order, task))),
        ("MUSTER_LOCAL_SIZE", text(order.tasks.len())),
        ("MUSTER_GROUP", OsString::from(&task.group)),
        ("MUSTER_GROUP_RANK", text(task.group_rank)),
    ];
    variables.extend(order.master_port.map(|port| ("MUSTER_MASTER_PORT", text(port))));
    if !order.hosts.is_empty() {
        variables.push(("MUSTER_HOSTFILE", attempt_dir.file(HOST_FILE).into_os_string()));
    }
    variables
}

/// The text of the host file, as Open MPI reads it; `None` if the orders do not say how many tasks each node has.
pub(super) fn host_file_text(order: &AttemptOrder) -> Option<String> {
    let lines = order.hosts.iter().map(|host| format!("{} slots={}\n", host.address, host.tasks));
    (!order.hosts.is_empty()).then(|| lines.collect())
}

fn slurm_variables(order: &AttemptOrder, task: &TaskOrder) -> Variables {
    let (number, index) = job_number_and_index(&order.job);
    let hosts: Vec<&str> = order.hosts.iter().map(|host| host.address.as_str()).collect();
    let (hosts, tasks_per_node) = (hosts.join(","), tasks_per_node(order));
    let own_host = order.hosts.get(order.node_rank as usize).map(|host| host.address.clone()).unwrap_or_default();
    let mut variables = vec![
        ("SLURM_JOB_ID", OsString::from(number)),
        ("SLURM_JOBID", OsString::from(number)),
        ("SLURM_JOB_NAME", OsString::from(&order.name)),
        ("SLURM_JOB_USER", OsString::from(&order.user)),
        ("SLURM_JOB_ACCOUNT", OsString::from(&order.tenant)),
        ("SLURM_RESTART_COUNT", text(order.attempt.saturating_sub(1))),
        ("SLURM_PROCID", text(task.rank)),
        ("SLURM_LOCALID", text(local_rank(order, task))),
        ("SLURM_NODEID", text(order.node_rank)),
        ("SLURM_NTASKS", text(order.gang_size)),
        ("SLURM_NPROCS", text(order.gang_size)),
        ("SLURM_NNODES", text(order.nodes.len())),
        ("SLURM_JOB_NUM_NODES", text(order.nodes.len())),
        ("SLURM_JOB_NODELIST", OsString::from(&hosts)),
        ("SLURM_NODELIST", OsString::from(hosts)),
        ("SLURM_TASKS_PER_NODE", OsString::from(tasks_per_node)),
        ("SLURM_CPUS_PER_TASK", text(task.cpus)),
        ("SLURMD_NODENAME", OsString::from(own_host)),
    ];
    if let Some(index) = index {
        let array = [("SLURM_ARRAY_JOB_ID", OsString::from(number)), ("SLURM_ARRAY_TASK_ID", OsString::from(index))];
        variables.extend(array);
    }
    variables
}

/// `job-42.3` is task 3 of array job 42.
fn job_number_and_index(job: &str) -> (&str, Option<&str>) {
    let number = job.strip_prefix("job-").unwrap_or(job);
    number.split_once('.').map_or((number, None), |(number, index)| (number, Some(index)))
}

/// In the notation of Slurm, where equal neighbours are counted: `4(x2),1`.
fn tasks_per_node(order: &AttemptOrder) -> String {
    let counts: Vec<u32> = order.hosts.iter().map(|host| host.tasks).collect();
    let runs = counts.chunk_by(|one, other| one == other);
    let shown = runs.map(|run| if run.len() == 1 { run[0].to_string() } else { format!("{}(x{})", run[0], run.len()) });
    shown.collect::<Vec<_>>().join(",")
}

fn local_rank(order: &AttemptOrder, task: &TaskOrder) -> usize {
    order.tasks.iter().filter(|other| other.rank < task.rank).count()
}

fn text(number: impl ToString) -> OsString {
    OsString::from(number.to_string())
}
