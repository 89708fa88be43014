//! Real processes: their environment, their logs and exits, and failed starts.

use std::os::unix::fs::PermissionsExt;

use muster_agent::logs::Stream;
use muster_protocol::agent::{AttemptOrder, Exit, GangHost, RunSpec, TaskOrder, TaskShare};

use crate::harness::{AgentHarness, JOB, NODE, command, order, script};

/// Runs one task to its exit.
fn run_to_exit(run: RunSpec) -> (AgentHarness, Exit) {
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![order(run)]);
    let exit = harness.wait_for_exit();
    (harness, exit)
}

fn not_started_reason(run: RunSpec) -> String {
    match run_to_exit(run) {
        (harness, Exit::NotStarted(why)) => {
            assert_eq!(harness.start_report_count(), 0, "a start was reported");
            why
        }
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn the_exit_code_is_reported() {
    assert_eq!(run_to_exit(command(&["sh", "-c", "exit 42"])).1, Exit::Code(42));
}

#[test]
fn the_signal_is_reported() {
    assert_eq!(run_to_exit(script("kill -SEGV $$")).1, Exit::Signal(11));
}

#[test]
fn stdout_and_stderr_are_kept_in_private_files() {
    let (harness, exit) = run_to_exit(script("echo to out; echo to err >&2; echo more"));
    assert_eq!(exit, Exit::Code(0));
    assert_eq!(harness.read_log(0, Stream::Stdout), "to out\nmore\n");
    assert_eq!(harness.read_log(0, Stream::Stderr), "to err\n");
    let mode = |name: &str| harness.attempt_dir().join(name).metadata().unwrap().permissions().mode() & 0o077;
    // The job's user may pass through the attempt directory; nobody may pass through the directory of all attempts.
    assert_eq!((mode("../.."), mode("rank-0.out"), mode("intent.json"), mode("work")), (0, 0, 0, 0));
}

#[test]
fn a_script_runs_in_the_shell_or_its_shebang_interpreter() {
    let (harness, _) = run_to_exit(RunSpec { args: vec!["a b".to_string()], ..script("echo \"$# $1\"") });
    assert_eq!(harness.read_log(0, Stream::Stdout), "1 a b\n");
    let (harness, exit) = run_to_exit(script("#!/usr/bin/env -S awk -f\nBEGIN { print \"from awk\"; exit 5 }\n"));
    assert_eq!((harness.read_log(0, Stream::Stdout).as_str(), exit), ("from awk\n", Exit::Code(5)));
}

#[test]
fn a_command_runs_without_a_shell() {
    let (harness, _) = run_to_exit(RunSpec { args: vec!["$HOME;".to_string()], ..command(&["echo", "*"]) });
    assert_eq!(harness.read_log(0, Stream::Stdout), "* $HOME;\n");
}

#[test]
fn a_task_environment_describes_the_task_and_hides_the_agent() {
    let mut run = script("env; pwd");
    for (key, value) in
        [("LR", "0.1"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3"), ("MUSTER_RANK", "9"), ("MUSTER_NODE_RANK", "9")]
    {
        run.env.insert(key.to_string(), value.to_string());
    }
    let (harness, _) = run_to_exit(run);
    let seen = harness.read_log(0, Stream::Stdout);
    for line in [
        "MUSTER_JOB_ID=job-1",
        "MUSTER_JOB_NAME=demo",
        "MUSTER_TENANT=vision",
        "MUSTER_USER=ann",
        "MUSTER_ATTEMPT=1",
        "MUSTER_RESTART_COUNT=0",
        "MUSTER_RANK=0",
        "MUSTER_GANG_SIZE=1",
        "MUSTER_NODE_RANK=0",
        "MUSTER_GPUS=1,3",
        "CUDA_VISIBLE_DEVICES=1,3",
        "LR=0.1",
    ] {
        assert!(seen.lines().any(|found| found == line), "{line} is missing in\n{seen}");
    }
    assert!(!seen.contains("CARGO"), "the agent's own environment leaks:\n{seen}");
    assert!(seen.trim_end().ends_with(&format!("{JOB}/1/work")), "{seen}");
}

#[test]
fn a_task_environment_describes_its_gpu_share() {
    let lines = |mode: &str, compute_milli| {
        let mut harness = AgentHarness::with_runner();
        let mut attempt_order = order(script("env | grep -E '^(MUSTER_GPU|CUDA_)' | sort"));
        let share = TaskShare { mode: mode.to_string(), compute_milli, memory_mib: 40_779, profile: None, start: None };
        attempt_order.tasks[0].gpus = vec![3];
        attempt_order.tasks[0].share = Some(share);
        attempt_order.run.env.insert("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".to_string(), "100".to_string());
        harness.send_orders(vec![attempt_order]);
        assert_eq!(harness.wait_for_exit(), Exit::Code(0));
        harness.read_log(0, Stream::Stdout)
    };
    let expected = |percentage: &str, limit: &str, milli: u32, mode: &str| {
        format!(
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}\n{limit}CUDA_VISIBLE_DEVICES=3\nMUSTER_GPUS=3\n\
             MUSTER_GPU_MEMORY_MIB=40779\nMUSTER_GPU_SHARE_MILLI={milli}\nMUSTER_GPU_SHARE_MODE={mode}\n"
        )
    };
    // Device 0 is the only GPU that the task sees.
    let limit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40779M\n";
    assert_eq!(lines("mps", 500), expected("50", limit, 500, "mps"));
    assert_eq!(lines("mps", 9), expected("1", limit, 9, "mps"), "a task without any multiprocessor would hang");
    assert_eq!(lines("time-slice", 500), expected("100", "", 500, "time-slice"), "MPS limits mean nothing here");
}

/// The choice of cores is unit-tested: on a machine with one NUMA node it makes no difference.
#[test]
fn a_task_is_bound_to_the_cpus_of_its_numa_nodes() {
    if !std::path::Path::new("/sys/devices/system/node/node0").exists() {
        return; // A kernel without NUMA.
    }
    let seen = |numa_nodes: Vec<u32>, cpus: u32| {
        let mut harness = AgentHarness::with_runner();
        let mut attempt_order =
            order(script("echo nodes=$MUSTER_NUMA_NODES; grep Cpus_allowed_list /proc/self/status"));
        (attempt_order.tasks[0].numa_nodes, attempt_order.tasks[0].cpus) = (numa_nodes, cpus);
        harness.send_orders(vec![attempt_order]);
        assert_eq!(harness.wait_for_exit(), Exit::Code(0));
        harness.read_log(0, Stream::Stdout)
    };
    let free = seen(Vec::new(), 1);
    let own = free.strip_prefix("nodes=\n").unwrap();
    assert!(seen(vec![0], 1).starts_with("nodes=0\nCpus_allowed_list:"));
    // A task that cannot be bound runs unbound.
    assert_eq!(seen(vec![0], 1_000_000), format!("nodes=0\n{own}"));
    assert_eq!(seen(vec![0, 77], 1), format!("nodes=0,77\n{own}"));
}

fn task(rank: u32, group: &str, group_rank: u32) -> TaskOrder {
    TaskOrder {
        rank,
        group: group.to_string(),
        group_rank,
        gpus: vec![],
        share: None,
        numa_nodes: Vec::new(),
        cpus: 1,
        memory_mib: 64,
    }
}

/// The second of three nodes, with tasks of both groups, not in the order of their ranks.
#[test]
fn a_task_environment_describes_its_ranks_and_nodes() {
    let mut harness = AgentHarness::with_runner();
    let mut attempt_order = order(script("env | grep ^MUSTER_ | sort"));
    attempt_order.nodes = ["n7", NODE, "n2"].map(str::to_string).to_vec();
    (attempt_order.node_rank, attempt_order.master_address, attempt_order.gang_size) = (1, "10.0.0.7".to_string(), 6);
    attempt_order.tasks = vec![task(4, "worker", 2), task(1, "lead", 1), task(3, "worker", 1)];
    harness.send_orders(vec![attempt_order]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    for (rank, group, group_rank, local_rank) in [(1, "lead", 1, 0), (3, "worker", 1, 1), (4, "worker", 2, 2)] {
        let seen = harness.read_log(rank, Stream::Stdout);
        for line in [
            format!("MUSTER_RANK={rank}"),
            "MUSTER_GANG_SIZE=6".to_string(),
            format!("MUSTER_LOCAL_RANK={local_rank}"),
            format!("MUSTER_GROUP={group}"),
            format!("MUSTER_GROUP_RANK={group_rank}"),
            format!("MUSTER_NODES=n7,{NODE},n2"),
            "MUSTER_NODE_COUNT=3".to_string(),
            "MUSTER_NODE_RANK=1".to_string(),
            "MUSTER_MASTER=n7".to_string(),
            "MUSTER_MASTER_ADDRESS=10.0.0.7".to_string(),
        ] {
            assert!(seen.lines().any(|found| found == line), "{line} is missing in\n{seen}");
        }
    }
}

/// The words of PyTorch and of Slurm. What the job sets itself wins, and a job with one task is no gang.
#[test]
fn launchers_find_the_ranks_and_the_master_of_a_gang() {
    let lines_of = |gang_size: u32, annotation: &str| {
        let mut harness = AgentHarness::with_runner();
        let text = "env | grep -E '^(RANK|WORLD_|LOCAL_|NODE_RANK|MASTER_|MUSTER_MASTER_PORT|PYTHON|SLURM)' | LC_ALL=C sort; \
                    cat $MUSTER_HOSTFILE";
        let mut attempt_order = order(script(text));
        attempt_order.nodes = ["n7", NODE].map(str::to_string).to_vec();
        attempt_order.hosts = [("10.0.0.7", 4), ("n1.example.org", 2)]
            .map(|(address, tasks)| GangHost { address: address.to_string(), tasks })
            .to_vec();
        (attempt_order.node_rank, attempt_order.master_address) = (1, "10.0.0.7".to_string());
        (attempt_order.gang_size, attempt_order.master_port) = (gang_size, Some(29_507));
        attempt_order.tasks = vec![task(4, "worker", 0), task(5, "worker", 1)];
        attempt_order.annotations.insert("muster.io/slurm-env".to_string(), annotation.to_string());
        attempt_order.run.env.insert("LOCAL_RANK".to_string(), "0".to_string());
        harness.send_orders(vec![attempt_order]);
        assert_eq!(harness.wait_for_exit(), Exit::Code(0));
        harness.read_log(5, Stream::Stdout)
    };
    let hosts = "10.0.0.7 slots=4\nn1.example.org slots=2\n";
    let ranks = "LOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=10.0.0.7\nMASTER_PORT=29507\nMUSTER_MASTER_PORT=29507\n\
                 NODE_RANK=1\nPYTHONUNBUFFERED=1\nRANK=5\n";
    assert_eq!(lines_of(6, "false"), format!("{ranks}WORLD_SIZE=6\n{hosts}"));
    assert_eq!(lines_of(1, ""), format!("LOCAL_RANK=0\nMUSTER_MASTER_PORT=29507\nPYTHONUNBUFFERED=1\n{hosts}"));
    let slurm = "SLURMD_NODENAME=n1.example.org\nSLURM_CPUS_PER_TASK=1\nSLURM_JOBID=1\nSLURM_JOB_ACCOUNT=vision\n\
                 SLURM_JOB_ID=1\nSLURM_JOB_NAME=demo\nSLURM_JOB_NODELIST=10.0.0.7,n1.example.org\n\
                 SLURM_JOB_NUM_NODES=2\nSLURM_JOB_USER=ann\nSLURM_LOCALID=1\nSLURM_NNODES=2\nSLURM_NODEID=1\n\
                 SLURM_NODELIST=10.0.0.7,n1.example.org\nSLURM_NPROCS=6\nSLURM_NTASKS=6\nSLURM_PROCID=5\n\
                 SLURM_RESTART_COUNT=0\nSLURM_TASKS_PER_NODE=4,2\n";
    assert_eq!(lines_of(6, "true"), format!("{ranks}{slurm}WORLD_SIZE=6\n{hosts}"));
}

/// A server of an older release does not send the nodes of the gang.
#[test]
fn gang_variables_are_omitted_when_orders_have_no_nodes() {
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![AttemptOrder { nodes: Vec::new(), ..order(script("env")) }]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    let seen = harness.read_log(0, Stream::Stdout);
    assert!(seen.contains("MUSTER_RANK=0") && !seen.contains("MUSTER_NODE"), "{seen}");
}

#[test]
fn a_gang_has_a_log_per_rank_and_one_exit() {
    let mut harness = AgentHarness::with_runner();
    // Rank 3 would wait forever, as the other ranks of a broken collective do. The others end once it has written its line.
    let mut attempt_order = order(script(
        "echo rank $MUSTER_RANK of $MUSTER_GANG_SIZE; [ $MUSTER_RANK = 3 ] && touch written && exec sleep 1000; \
         while [ ! -e written ]; do sleep 0.05; done; exit $((MUSTER_RANK * 2))",
    ));
    (attempt_order.tasks, attempt_order.gang_size) = ([0, 2, 3].map(|rank| task(rank, "task", rank)).to_vec(), 4);
    harness.send_orders(vec![attempt_order]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(4), "the rank that failed, not the one that was ended for it");
    assert_eq!(harness.read_log(2, Stream::Stdout), "rank 2 of 4\n");
    assert_eq!(harness.read_log(3, Stream::Stdout), "rank 3 of 4\n");
}

#[test]
fn a_missing_or_unexecutable_program_exits_as_in_a_shell_and_logs_why() {
    let cases = [
        (command(&["/no/such/program"]), 127, "`/no/such/program` cannot be started: No such file"),
        (command(&["no-such-word"]), 127, "`no-such-word` cannot be started: No such file"),
        (script("#!/no/such/interpreter\n"), 127, "does the interpreter in its first line exist?"),
        (command(&["/etc/passwd"]), 126, "`/etc/passwd` cannot be started: Permission denied"),
        (command(&["/etc"]), 126, "`/etc` cannot be started: Permission denied"),
        (command(&["/etc/passwd/x"]), 126, "`/etc/passwd/x` cannot be started: Not a directory"),
    ];
    for (run, code, why) in cases {
        let (harness, exit) = run_to_exit(run);
        assert_eq!(exit, Exit::Code(code), "{why}");
        let message = harness.read_log(0, Stream::Stderr);
        assert!(message.starts_with("muster: ") && message.contains(why), "{message}");
    }
}

#[test]
fn a_failed_start_is_reported_with_its_reason() {
    let missing_directory =
        not_started_reason(RunSpec { directory: Some("/no/such/place".to_string()), ..script("true") });
    assert!(
        missing_directory.starts_with("invalid job: the working directory `/no/such/place` of the job")
            && missing_directory.contains("No such file"),
        "{missing_directory}"
    );
    assert!(not_started_reason(RunSpec::default()).contains("nothing to run"));
}

#[test]
fn a_failed_shim_is_reported_as_not_started() {
    for (shim, expected) in [("/no/such/shim", "cannot be started"), ("/bin/false", "before it started a task")] {
        let mut harness = AgentHarness::without_agent();
        let config = muster_agent::RunnerConfig {
            node: crate::harness::NODE.to_string(),
            ..muster_agent::RunnerConfig::new(&harness.data_dir, vec![shim.into()])
        };
        harness.agent = Some(Box::new(muster_agent::Runner::start(config, harness.report_sink()).unwrap()));
        harness.send_orders(vec![order(script("true"))]);
        match harness.wait_for_exit() {
            Exit::NotStarted(why) => assert!(why.contains(expected), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A shim may be suspended before it takes the launch lock, for as long as the agent needs to abandon the launch, report it
/// and clean up, which frees the lock.
#[test]
fn a_late_shim_of_an_attempt_that_is_over_runs_nothing() {
    let (mut harness, exit) = run_to_exit(script("echo ran"));
    assert_eq!(exit, Exit::Code(0));
    let records = ["intent.json", "isolation.json"].map(|name| harness.attempt_dir().join(name));
    let kept = records.clone().map(|path| std::fs::read(path).unwrap());
    harness.send_orders(Vec::new());
    crate::harness::wait_until("the attempt is cleaned up", || !records[0].exists());
    records.iter().zip(kept).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let shim = std::process::Command::new(env!("CARGO_BIN_EXE_muster-shim")).arg(harness.attempt_dir()).status();
    assert!(shim.unwrap().success());
    assert_eq!(harness.read_log(0, Stream::Stdout), "ran\n");
    assert!(!harness.attempt_dir().join("pid.json").exists(), "the lock is given back");
}

#[test]
fn a_dropped_attempt_is_cleaned_up_and_its_logs_stay() {
    let (mut harness, _) = run_to_exit(script("echo kept > file; echo hello"));
    harness.send_orders(vec![]);
    let gone = |name: &str| !harness.attempt_dir().join(name).exists();
    crate::harness::wait_until("it is cleaned up", || gone("intent.json"));
    assert!(gone("pid.json") && gone("script") && gone("shim.log"));
    assert_eq!(harness.read_log(0, Stream::Stdout), "hello\n");
    assert!(!gone("work/file"), "clean-up keeps the job's own files");
}
