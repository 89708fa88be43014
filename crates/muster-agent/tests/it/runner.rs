//! Real processes: what they see, what we keep of them, and what cannot start.

use std::os::unix::fs::PermissionsExt;

use muster_agent::logs::Stream;
use muster_protocol::agent::{Exit, Order, Run, TaskOrder, TaskShare};

use crate::bench::{Bench, JOB, NODE, command, order, script};

/// Run one thing to its end.
fn run(run: Run) -> (Bench, Exit) {
    let mut bench = Bench::real();
    bench.order(vec![order(run)]);
    let exit = bench.await_end();
    (bench, exit)
}

fn not_started(run_this: Run) -> String {
    match run(run_this) {
        (bench, Exit::NotStarted(why)) => {
            assert_eq!(bench.starts(), 0, "it was said to have started");
            why
        }
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn the_exit_code_is_reported() {
    assert_eq!(run(command(&["sh", "-c", "exit 42"])).1, Exit::Code(42));
}

#[test]
fn the_signal_is_reported() {
    assert_eq!(run(script("kill -SEGV $$")).1, Exit::Signal(11));
}

#[test]
fn both_outputs_are_kept_and_private() {
    let (bench, exit) = run(script("echo to out; echo to err >&2; echo more"));
    assert_eq!(exit, Exit::Code(0));
    assert_eq!(bench.log(0, Stream::Stdout), "to out\nmore\n");
    assert_eq!(bench.log(0, Stream::Stderr), "to err\n");
    let mode = |name: &str| bench.attempt_dir().join(name).metadata().unwrap().permissions().mode() & 0o077;
    assert_eq!((mode("."), mode("rank-0.out"), mode("intent.json")), (0, 0, 0));
}

#[test]
fn a_script_goes_to_the_shell_or_to_the_interpreter_it_names() {
    let (bench, _) = run(Run { args: vec!["a b".to_string()], ..script("echo \"$# $1\"") });
    assert_eq!(bench.log(0, Stream::Stdout), "1 a b\n");
    let (bench, exit) = run(script("#!/usr/bin/env -S awk -f\nBEGIN { print \"from awk\"; exit 5 }\n"));
    assert_eq!((bench.log(0, Stream::Stdout).as_str(), exit), ("from awk\n", Exit::Code(5)));
}

#[test]
fn a_command_meets_no_shell() {
    let (bench, _) = run(Run { args: vec!["$HOME;".to_string()], ..command(&["echo", "*"]) });
    assert_eq!(bench.log(0, Stream::Stdout), "* $HOME;\n");
}

#[test]
fn a_task_is_told_who_it_is_and_nothing_of_the_agent() {
    let mut run_this = script("env; pwd");
    for (key, value) in
        [("LR", "0.1"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3"), ("MUSTER_RANK", "9"), ("MUSTER_NODE_RANK", "9")]
    {
        run_this.env.insert(key.to_string(), value.to_string());
    }
    let (bench, _) = run(run_this);
    let seen = bench.log(0, Stream::Stdout);
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
fn a_task_is_told_what_it_has_of_a_shared_gpu() {
    let lines = |mode: &str, compute_milli| {
        let mut bench = Bench::real();
        let mut asked = order(script("env | grep -E '^(MUSTER_GPU|CUDA_)' | sort"));
        let share = TaskShare {
            mode: mode.to_string(),
            compute_milli,
            memory_mib: 40_779,
            profile: None,
            start: None,
        };
        asked.tasks[0].gpus = vec![3];
        asked.tasks[0].share = Some(share);
        asked.run.env.insert("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".to_string(), "100".to_string());
        bench.order(vec![asked]);
        assert_eq!(bench.await_end(), Exit::Code(0));
        bench.log(0, Stream::Stdout)
    };
    let told = |percentage: &str, limit: &str, milli: u32, mode: &str| {
        format!(
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}\n{limit}CUDA_VISIBLE_DEVICES=3\nMUSTER_GPUS=3\n\
             MUSTER_GPU_MEMORY_MIB=40779\nMUSTER_GPU_SHARE_MILLI={milli}\nMUSTER_GPU_SHARE_MODE={mode}\n"
        )
    };
    // The device is the first that the task sees.
    let limit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40779M\n";
    assert_eq!(lines("mps", 500), told("50", limit, 500, "mps"));
    assert_eq!(lines("mps", 9), told("1", limit, 9, "mps"), "a task without any multiprocessor would hang");
    assert_eq!(lines("time-slice", 500), told("100", "", 500, "time-slice"), "MPS limits mean nothing here");
}

/// Which cores those are is tested beside the code: on a machine with one NUMA node nobody sees a difference.
#[test]
fn a_task_stays_on_the_cores_that_are_near_to_its_gpus() {
    if !std::path::Path::new("/sys/devices/system/node/node0").exists() {
        return; // A kernel without NUMA.
    }
    let seen = |numa_nodes: Vec<u32>, cpus: u32| {
        let mut bench = Bench::real();
        let mut asked =
            order(script("echo nodes=$MUSTER_NUMA_NODES; grep Cpus_allowed_list /proc/self/status"));
        (asked.tasks[0].numa_nodes, asked.tasks[0].cpus) = (numa_nodes, cpus);
        bench.order(vec![asked]);
        assert_eq!(bench.await_end(), Exit::Code(0));
        bench.log(0, Stream::Stdout)
    };
    let free = seen(Vec::new(), 1);
    let own = free.strip_prefix("nodes=\n").unwrap();
    assert!(seen(vec![0], 1).starts_with("nodes=0\nCpus_allowed_list:"));
    // What cannot be kept leaves the task where it would be without.
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
        memory_mib: 1,
    }
}

/// The second of three nodes, with a task of each group, in an order that is not that of the ranks.
#[test]
fn a_task_of_a_gang_is_told_its_place_among_the_others() {
    let mut bench = Bench::real();
    let mut asked = order(script("env | grep ^MUSTER_ | sort"));
    asked.nodes = ["n7", NODE, "n2"].map(str::to_string).to_vec();
    (asked.node_rank, asked.master_address, asked.gang_size) = (1, "10.0.0.7".to_string(), 6);
    asked.tasks = vec![task(4, "worker", 2), task(1, "lead", 1), task(3, "worker", 1)];
    bench.order(vec![asked]);
    assert_eq!(bench.await_end(), Exit::Code(0));
    for (rank, group, group_rank, local_rank) in [(1, "lead", 1, 0), (3, "worker", 1, 1), (4, "worker", 2, 2)]
    {
        let seen = bench.log(rank, Stream::Stdout);
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

/// A server of an older release does not know where the others are; then nothing is made up.
#[test]
fn a_task_is_told_nothing_of_a_gang_that_nobody_told_us_of() {
    let mut bench = Bench::real();
    bench.order(vec![Order { nodes: Vec::new(), ..order(script("env")) }]);
    assert_eq!(bench.await_end(), Exit::Code(0));
    let seen = bench.log(0, Stream::Stdout);
    assert!(seen.contains("MUSTER_RANK=0") && !seen.contains("MUSTER_NODE"), "{seen}");
}

#[test]
fn a_gang_has_a_log_per_rank_and_one_exit() {
    let mut bench = Bench::real();
    // Rank 3 would wait for ever, as the survivors of a broken collective do.
    let mut asked = order(script(
        "echo rank $MUSTER_RANK of $MUSTER_GANG_SIZE; [ $MUSTER_RANK = 3 ] && exec sleep 1000; exit $((MUSTER_RANK * 2))",
    ));
    (asked.tasks, asked.gang_size) = ([0, 2, 3].map(|rank| task(rank, "task", rank)).to_vec(), 4);
    bench.order(vec![asked]);
    assert_eq!(bench.await_end(), Exit::Code(4), "the rank that failed, not the one that was ended for it");
    assert_eq!(bench.log(2, Stream::Stdout), "rank 2 of 4\n");
    assert_eq!(bench.log(3, Stream::Stdout), "rank 3 of 4\n");
}

#[test]
fn a_program_that_is_none_fails_as_in_a_shell_and_says_why() {
    let cases = [
        (command(&["/no/such/program"]), 127, "`/no/such/program` cannot be started: No such file"),
        (command(&["no-such-word"]), 127, "`no-such-word` cannot be started: No such file"),
        (script("#!/no/such/interpreter\n"), 127, "does the interpreter in its first line exist?"),
        (command(&["/etc/passwd"]), 126, "`/etc/passwd` cannot be started: Permission denied"),
        (command(&["/etc"]), 126, "`/etc` cannot be started: Permission denied"),
        (command(&["/etc/passwd/x"]), 126, "`/etc/passwd/x` cannot be started: Not a directory"),
    ];
    for (run_this, code, why) in cases {
        let (bench, exit) = run(run_this);
        assert_eq!(exit, Exit::Code(code), "{why}");
        let said = bench.log(0, Stream::Stderr);
        assert!(said.starts_with("muster: ") && said.contains(why), "{said}");
    }
}

#[test]
fn what_cannot_start_says_why() {
    let nowhere = not_started(Run { directory: Some("/no/such/place".to_string()), ..script("true") });
    assert!(nowhere.contains("`/no/such/place`") && nowhere.contains("No such file"), "{nowhere}");
    let image = not_started(Run { image: Some("pytorch".to_string()), ..Run::default() });
    assert_eq!(image, "no container runtime is configured; use a script or command");
    assert!(not_started(Run::default()).contains("nothing to run"));
}

#[test]
fn a_shim_that_cannot_run_is_an_attempt_that_did_not_start() {
    for (shim, expected) in
        [("/no/such/shim", "cannot be started"), ("/bin/false", "before it started anything")]
    {
        let mut bench = Bench::empty();
        let config = muster_agent::RunnerConfig {
            node: crate::bench::NODE.to_string(),
            ..muster_agent::RunnerConfig::new(&bench.data_dir, vec![shim.into()])
        };
        bench.agent = Some(Box::new(muster_agent::Runner::start(config, bench.mouth()).unwrap()));
        bench.order(vec![order(script("true"))]);
        match bench.await_end() {
            Exit::NotStarted(why) => assert!(why.contains(expected), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_dropped_attempt_is_tidied_up_and_its_logs_stay() {
    let (mut bench, _) = run(script("echo kept > file; echo hello"));
    bench.order(vec![]);
    let gone = |name: &str| !bench.attempt_dir().join(name).exists();
    crate::bench::wait_until("it is tidied up", || gone("intent.json"));
    assert!(gone("pid.json") && gone("script") && gone("shim.log"));
    assert_eq!(bench.log(0, Stream::Stdout), "hello\n");
    assert!(!gone("work/file"), "the job's own files are not ours");
}
