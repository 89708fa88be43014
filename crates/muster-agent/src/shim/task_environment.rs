//! The environment of a task: what it inherits, what the job says, and what muster says about the task.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use muster_protocol::agent::{AttemptOrder, TaskOrder, TaskShare};

use super::gang_environment;
use crate::attempt_dir::AttemptDir;
use crate::attempt_processes::ATTEMPT_DIR_VARIABLE;
use crate::isolation::Isolation;
use crate::job_user::JobUser;
use crate::secret_files::{SECRETS_DIR, SECRETS_DIR_VARIABLE};

/// Runs scripts without a first line `#!…`, and is the shell of accounts.
pub(crate) const SHELL: &str = "/bin/sh";

/// The variables that a task inherits from the agent's environment. The others may contain secrets of the server.
const INHERITED_ENVIRONMENT: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"];
/// Those that it inherits as well if it runs as the user of the agent.
const ENVIRONMENT_OF_THE_SAME_USER: [&str; 5] = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"];

/// The variables of a task that runs as the user of its isolation, or as the user of the agent, in `directory`. What the job itself says comes after
/// what it inherits; what muster says comes last, so that a job cannot give itself other GPUs.
pub(crate) fn of_task(
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    task: &TaskOrder,
    isolation: &Isolation,
    directory: &Path,
) -> Vec<(OsString, OsString)> {
    let inherited = |name: &&str| Some((OsString::from(name), std::env::var_os(name)?));
    let mut variables: Vec<(OsString, OsString)> = INHERITED_ENVIRONMENT.iter().filter_map(inherited).collect();
    match &isolation.user {
        None => variables.extend(ENVIRONMENT_OF_THE_SAME_USER.iter().filter_map(inherited)),
        Some(user) => variables.extend(account_environment(user, directory)),
    }
    variables.extend(owned(gang_environment::defaults(order, task)));
    variables.extend(order.run.env.iter().map(|(name, value)| (name.into(), value.into())));
    variables.extend(owned(task_environment(attempt_dir, order, task)));
    variables.extend(isolation.secrets_dir(attempt_dir.path()).map(|dir| (SECRETS_DIR_VARIABLE.into(), dir.into())));
    variables
}

/// The variables of a task in a container: those of the image, the job and muster, and nothing of the host. The directory
/// that the container shares with the host is its home.
pub(super) fn in_container(
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    task: &TaskOrder,
    isolation: &Isolation,
) -> Vec<(OsString, OsString)> {
    let user = isolation.user.as_ref();
    let mut variables = vec![(OsString::from("HOME"), attempt_dir.file("work").into_os_string())];
    let names = user.into_iter().flat_map(|user| ["USER", "LOGNAME"].map(|name| (name, &user.name)));
    variables.extend(names.map(|(name, value)| (name.into(), value.into())));
    variables.extend(owned(gang_environment::defaults(order, task)));
    variables.extend(order.run.env.iter().map(|(name, value)| (name.into(), value.into())));
    variables.extend(owned(task_environment(attempt_dir, order, task)));
    let has_secrets = isolation.secrets.is_some();
    variables.extend(has_secrets.then(|| (SECRETS_DIR_VARIABLE.into(), attempt_dir.file(SECRETS_DIR).into())));
    variables
}

fn owned(variables: Vec<(&'static str, OsString)>) -> impl Iterator<Item = (OsString, OsString)> {
    variables.into_iter().map(|(name, value)| (OsString::from(name), value))
}

/// The variables of an account that is not the agent's.
fn account_environment(user: &JobUser, directory: &Path) -> Vec<(OsString, OsString)> {
    let home = user.home.as_deref().unwrap_or(directory);
    let variables = [("HOME", home.as_os_str()), ("USER", user.name.as_ref()), ("LOGNAME", user.name.as_ref())];
    let variables = variables.into_iter().chain([("SHELL", OsStr::new(SHELL))]);
    variables.map(|(name, value)| (OsString::from(name), value.to_os_string())).collect()
}

/// The variables that describe a task to itself.
fn task_environment(attempt_dir: &AttemptDir, order: &AttemptOrder, task: &TaskOrder) -> Vec<(&'static str, OsString)> {
    let gpus = task.gpus.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    let mut variables = vec![
        ("MUSTER_JOB_ID", OsString::from(&order.job)),
        ("MUSTER_JOB_NAME", OsString::from(&order.name)),
        ("MUSTER_TENANT", OsString::from(&order.tenant)),
        ("MUSTER_USER", OsString::from(&order.user)),
        ("MUSTER_ATTEMPT", OsString::from(order.attempt.to_string())),
        ("MUSTER_RESTART_COUNT", OsString::from(order.attempt.saturating_sub(1).to_string())),
        ("MUSTER_RANK", OsString::from(task.rank.to_string())),
        ("MUSTER_GANG_SIZE", OsString::from(order.gang_size.to_string())),
        ("MUSTER_GPUS", OsString::from(&gpus)),
        ("CUDA_VISIBLE_DEVICES", OsString::from(gpus)), // Empty without GPUs: then CUDA shows none.
        (ATTEMPT_DIR_VARIABLE, attempt_dir.path().as_os_str().to_os_string()),
    ];
    if !task.numa_nodes.is_empty() {
        let numbers: Vec<String> = task.numa_nodes.iter().map(u32::to_string).collect();
        variables.push(("MUSTER_NUMA_NODES", OsString::from(numbers.join(","))));
    }
    if let Some(milliwatts) = order.gpu_milliwatts_max {
        variables.push(("MUSTER_GPU_POWER_MAX_MW", OsString::from(milliwatts.to_string())));
    }
    variables.extend(task.share.as_ref().map(gpu_share_environment).unwrap_or_default());
    variables.extend(gang_environment::muster_variables(attempt_dir, order, task));
    variables
}

/// The variables of a task that shares its GPU. The limits are those that an MPS server enforces for its clients;
/// device 0 is the only GPU that the task sees.
fn gpu_share_environment(share: &TaskShare) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        ("MUSTER_GPU_SHARE_MODE", OsString::from(&share.mode)),
        ("MUSTER_GPU_SHARE_MILLI", OsString::from(share.compute_milli.to_string())),
        ("MUSTER_GPU_MEMORY_MIB", OsString::from(share.memory_mib.to_string())),
    ];
    if share.mode == "mps" {
        let percentage = (share.compute_milli / 10).max(1);
        variables.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", OsString::from(percentage.to_string())));
        variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", OsString::from(format!("0={}M", share.memory_mib))));
    }
    variables
}
