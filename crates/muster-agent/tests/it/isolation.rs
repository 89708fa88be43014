//! Isolation of ordinary jobs: the account, the limits and the mounts of a task, and what remains without root's rights.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use muster_agent::LauncherConfig;
use muster_agent::logs::Stream;
use muster_protocol::agent::{AttemptOrder, Exit, TaskOrder};

use crate::harness::{AgentHarness, is_root, order, script, wait_until};

fn run(launcher: LauncherConfig, attempt_order: AttemptOrder) -> (AgentHarness, Exit) {
    let mut harness = AgentHarness::with_launcher(launcher);
    harness.send_orders(vec![attempt_order]);
    let exit = harness.wait_for_exit();
    (harness, exit)
}

fn gang(count: u32, text: &str) -> AttemptOrder {
    let mut gang = order(script(text));
    let task = gang.tasks[0].clone();
    gang.tasks = (0..count).map(|rank| TaskOrder { rank, group_rank: rank, ..task.clone() }).collect();
    gang.gang_size = count;
    gang
}

#[test]
fn a_task_runs_as_its_account_without_capabilities() {
    if !is_root() {
        return;
    }
    let users = [("ann".to_string(), "20001:20002:20003+20004".to_string())].into();
    let job = "id -u; id -g; id -G; echo $USER $HOME; grep -E '^(NoNewPrivs|CapBnd|CapEff|CapInh)' /proc/self/status; umask; \
               touch file; readlink /proc/self/fd/0; echo again > /dev/stderr";
    let (harness, exit) = run(LauncherConfig { users, ..LauncherConfig::default() }, order(script(job)));
    assert_eq!(exit, Exit::Code(0), "{}", harness.read_log(0, Stream::Stderr));
    let work = harness.attempt_dir().join("work");
    let none = "0000000000000000";
    let expected = format!(
        "20001\n20002\n20002 20003 20004\nann {}\nCapInh:\t{none}\nCapEff:\t{none}\nCapBnd:\t{none}\nNoNewPrivs:\t1\n0027\n/dev/null\n",
        work.display()
    );
    assert_eq!(harness.read_log(0, Stream::Stdout), expected);
    assert_eq!(harness.read_log(0, Stream::Stderr), "again\n");
    let file = work.join("file").metadata().unwrap();
    assert_eq!((file.uid(), file.gid(), file.permissions().mode() & 0o777), (20_001, 20_002, 0o640));
}

#[test]
fn a_user_who_is_not_in_the_map_is_not_started() {
    if !is_root() {
        return;
    }
    let users = [("bob".to_string(), "20001:20001".to_string())].into();
    let (_, exit) = run(LauncherConfig { users, ..LauncherConfig::default() }, order(script("true")));
    assert!(matches!(&exit, Exit::NotStarted(why) if why.contains("the user `ann` has no account")), "{exit:?}");
}

#[test]
fn a_working_directory_is_checked_with_the_rights_of_the_account() {
    if !is_root() {
        return;
    }
    let base = std::env::temp_dir().join(format!("muster-directory-{}", std::process::id()));
    std::fs::create_dir_all(base.join("open")).unwrap();
    std::fs::write(base.join("open/data"), "data\n").unwrap();
    let set_mode = |mode| std::fs::set_permissions(&base, std::fs::Permissions::from_mode(mode)).unwrap();
    let run_in = |directory: &std::path::Path| {
        let mut job = order(script("pwd; cat data; ls /tmp | grep -v ^muster-agent"));
        job.run.directory = Some(directory.display().to_string());
        run(LauncherConfig::default(), job)
    };
    set_mode(0o755);
    let (harness, exit) = run_in(&base.join("open"));
    let seen = harness.read_log(0, Stream::Stdout);
    assert_eq!(exit, Exit::Code(0));
    let expected = format!("{}\ndata\n{}\n", base.join("open").display(), base.file_name().unwrap().display());
    assert_eq!(seen, expected, "a directory below /tmp is shown, and nothing else of it");
    set_mode(0o700);
    let (_, exit) = run_in(&base.join("open"));
    assert!(matches!(&exit, Exit::NotStarted(why) if why.contains("Permission denied")), "{exit:?}");
    std::fs::remove_dir_all(&base).unwrap();
}

#[test]
fn the_ranks_of_a_gang_share_shm_and_tmp_and_have_a_cgroup_each() {
    if !is_root() {
        return;
    }
    let text = "grep -h 0:: /proc/self/cgroup; if [ $MUSTER_RANK = 0 ]; then echo one > /tmp/x; echo two > /dev/shm/y; fi; \
                while [ ! -s /dev/shm/y ]; do sleep 0.02; done; cat /tmp/x /dev/shm/y";
    let (harness, exit) = run(LauncherConfig::default(), gang(2, text));
    assert_eq!(exit, Exit::Code(0), "{}", harness.read_log(0, Stream::Stderr));
    for rank in 0..2 {
        let log = harness.read_log(rank, Stream::Stdout);
        assert!(log.ends_with("one\ntwo\n"), "{log}");
        assert!(log.lines().next().unwrap().ends_with(&format!("/job-1.1/rank-{rank}")), "{log}");
    }
    let tmp = harness.attempt_dir().join("tmp"); // After the exit record, which must not wait for it.
    crate::harness::wait_until("the private /tmp is removed", || !tmp.exists());
}

/// `muster run` names the folder in which it is called, which may contain the data folder.
#[test]
fn a_working_directory_above_the_data_folder_hides_other_attempts() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    let mut job = order(script("pwd; ls attempts; echo ok; ls attempts/job-1/1/work"));
    job.run.directory = Some(harness.data_dir.display().to_string());
    std::fs::create_dir_all(harness.data_dir.join("attempts/job-7/1/work")).unwrap();
    harness.send_orders(vec![job]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0), "{}", harness.read_log(0, Stream::Stderr));
    assert_eq!(harness.read_log(0, Stream::Stdout), format!("{}\njob-1\nok\n", harness.data_dir.display()));
}

/// The first rank is ready before the second one fails, and runs nothing.
#[test]
fn no_rank_runs_if_one_cannot_start() {
    let mut harness = AgentHarness::without_agent();
    let obstacle = harness.attempt_dir().join("rank-1.err");
    std::fs::create_dir_all(&obstacle).unwrap();
    harness.start_runner();
    harness.send_orders(vec![gang(2, "echo started")]);
    let exit = harness.wait_for_exit();
    assert!(matches!(&exit, Exit::NotStarted(why) if why.contains("rank-1.err")), "{exit:?}");
    assert_eq!(harness.read_log(0, Stream::Stdout), "");
}

#[test]
fn a_cgroup_of_a_crashed_attempt_is_removed_at_the_next_start() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![order(script("sleep 300"))]);
    harness.wait_for_start();
    let leftover: Vec<_> = harness.cgroups().iter().map(|dir| dir.with_file_name("job-99.1")).collect();
    leftover.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    harness.crash_agent();
    harness.start_runner();
    wait_until("the leftover is removed", || leftover.iter().all(|dir| !dir.exists()));
    assert!(harness.cgroups().iter().all(|dir| dir.exists()), "the running attempt keeps its own");
}

/// As a user without root's rights: the same jobs run, and the node says what is missing.
#[test]
fn without_any_protection_jobs_run_and_the_node_says_so() {
    let launcher = LauncherConfig { use_cgroups: false, private_tmp: false, ..LauncherConfig::default() };
    let (harness, exit) = run(launcher, order(script("echo hello; ulimit -c")));
    assert_eq!((exit, harness.read_log(0, Stream::Stdout).as_str()), (Exit::Code(0), "hello\n0\n"));
    for name in ["cgroup", "device-filter", "private-tmp"] {
        assert_eq!(harness.label(&format!("muster.io/{name}")), "none");
    }
}
