//! Hostile jobs: whatever a job does, the node and the neighbours go on. These tests need root, as agents on real nodes do.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use muster_agent::LauncherConfig;
use muster_agent::launcher::DeviceFilterMode;
use muster_agent::logs::Stream;
use muster_protocol::agent::{AttemptOrder, Exit};

use crate::harness::{AgentHarness, for_job, is_alive, is_root, kill, order, script, wait_until, with_stop};

const NEIGHBOUR: &str = "job-2";

/// An ordinary job beside the hostile one.
fn neighbour() -> AttemptOrder {
    for_job(NEIGHBOUR, order(script("sleep 2; echo done")))
}

/// A file in the cgroup of the first attempt, in the hierarchy that has it.
fn cgroup_file(harness: &AgentHarness, name: &str) -> String {
    let found = harness.cgroups().into_iter().map(|dir| dir.join(name)).find(|path| path.exists());
    found.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
}

fn live_in_cgroups(cgroups: &[PathBuf]) -> usize {
    cgroups
        .iter()
        .map(|dir| std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default().lines().count())
        .sum()
}

#[test]
fn a_fork_bomb_is_bounded_and_its_neighbour_runs() {
    if !is_root() {
        return;
    }
    let mut launcher = LauncherConfig::default();
    launcher.limits.pids_max = 60;
    let mut harness = AgentHarness::with_launcher(launcher);
    // Doubles until 1,024 processes wait: a bomb that harms nobody if the limit is missing.
    let bomb = "trap '' TERM; f() { [ $1 -ge 9 ] && exec sleep 300; f $(($1+1)) & f $(($1+1)) & wait; }; echo $$; f 0; sleep 300";
    let (bomb, neighbour) = (order(script(bomb)), neighbour());
    harness.send_orders(vec![bomb.clone(), neighbour.clone()]);
    wait_until("the limit is reached", || {
        cgroup_file(&harness, "pids.events").split_whitespace().nth(1).is_some_and(|count| count != "0")
    });
    let count: u32 = cgroup_file(&harness, "pids.current").trim().parse().unwrap();
    assert!(count <= 60, "{count} processes");
    let cgroups = harness.cgroups();
    harness.send_orders(vec![with_stop(&bomb, 0), neighbour]);
    harness.wait_for_exit_of(&bomb.job);
    assert_eq!(live_in_cgroups(&cgroups), 0);
    assert!(cgroups.iter().all(|dir| !dir.exists()), "the cgroup is removed");
    assert_eq!(harness.wait_for_exit_of(NEIGHBOUR), Exit::Code(0));
    assert_eq!(harness.read_log_of(NEIGHBOUR, 0, Stream::Stdout), "done\n");
}

#[test]
fn a_memory_hog_is_killed_with_its_reason_and_its_neighbour_runs() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    // The last line of 400 MB without a line break: `tail` keeps it in memory.
    let hog = order(script("head -c 400000000 /dev/zero | tail"));
    harness.send_orders(vec![hog.clone(), neighbour()]);
    assert_eq!(harness.wait_for_exit_of(&hog.job), Exit::OutOfMemory { limit_mib: 64 });
    let log = harness.read_log(0, Stream::Stderr);
    assert!(log.contains("muster: the kernel killed a process of this task: out of memory (limit 64 MiB)"), "{log}");
    assert_eq!(harness.wait_for_exit_of(NEIGHBOUR), Exit::Code(0));
}

/// No descendant of a shim any more, in a session of its own, without environment: only the cgroup finds it.
#[test]
fn a_daemon_without_environment_is_killed_when_its_shim_is_lost() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    let job = script(
        "(env -i setsid sh -c 'echo $$ > daemon; sleep 300; sleep 300' &); while [ ! -s daemon ]; do sleep 0.05; done; echo ready; sleep 300",
    );
    harness.send_orders(vec![order(job)]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    let daemon = std::fs::read_to_string(harness.attempt_dir().join("work/daemon")).unwrap().trim().parse().unwrap();
    assert!(is_alive(daemon));
    kill(harness.shim_pid(), "KILL");
    assert!(matches!(harness.wait_for_exit(), Exit::Unknown(_)));
    assert!(!is_alive(daemon), "the daemon has survived its job");
}

#[test]
fn a_job_cannot_signal_its_shim_or_its_agent() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    let agent = std::process::id();
    harness.send_orders(vec![order(script(&format!(
        "kill -9 $PPID && echo shim; kill -9 {agent} && echo agent; exit 5"
    )))]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(5));
    assert_eq!(harness.read_log(0, Stream::Stdout), "");
}

/// A device node of our own for the kernel's log, which no job is given.
struct ForbiddenDevice(PathBuf);

impl ForbiddenDevice {
    fn make(name: &str) -> ForbiddenDevice {
        let path = PathBuf::from(format!("/dev/muster-test-{name}-{}", std::process::id()));
        let made = std::process::Command::new("mknod").args(["-m", "666"]).arg(&path).args(["c", "1", "11"]).status();
        assert!(made.unwrap().success() && path.metadata().unwrap().file_type().is_char_device());
        ForbiddenDevice(path)
    }
}

impl Drop for ForbiddenDevice {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a job says that writes to null and opens a forbidden device.
fn device_job_log(mode: DeviceFilterMode, device: &Path) -> (String, String) {
    let mut harness = AgentHarness::with_launcher(LauncherConfig { device_filter: mode, ..LauncherConfig::default() });
    let job = format!(
        "echo x > /dev/null && echo null; head -c 1 /dev/urandom | wc -c; : > {0} && echo opened",
        device.display()
    );
    harness.send_orders(vec![order(script(&job))]);
    harness.wait_for_exit();
    (
        harness.label("muster.io/device-filter"),
        harness.read_log(0, Stream::Stdout) + &harness.read_log(0, Stream::Stderr),
    )
}

#[test]
fn a_device_that_was_not_given_cannot_be_opened() {
    if !is_root() {
        return;
    }
    let device = ForbiddenDevice::make("device");
    let (label, log) = device_job_log(DeviceFilterMode::Off, &device.0);
    assert_eq!((label.as_str(), log.as_str()), ("none", "null\n1\nopened\n"), "without a filter");
    for (mode, expected) in [(DeviceFilterMode::Bpf, "bpf"), (DeviceFilterMode::V1, "v1")] {
        let (label, log) = device_job_log(mode, &device.0);
        if label == "none" && mode == DeviceFilterMode::V1 {
            eprintln!("skipped: this host has no v1 controller `devices`");
            continue;
        }
        assert_eq!(label, expected);
        assert!(log.starts_with("null\n1\n") && !log.contains("opened"), "{log}");
        assert!(log.contains("Operation not permitted"), "{log}");
    }
}

/// Tells what a second job can read of the files of the first.
fn neighbour_view(launcher: LauncherConfig, users: [&str; 2]) -> String {
    let mut harness = AgentHarness::with_launcher(launcher);
    let job =
        "umask 0; echo secret > /tmp/secret; echo secret > /dev/shm/secret; echo secret > secret; echo $$; sleep 300";
    let victim = AttemptOrder { user: users[0].to_string(), ..order(script(job)) };
    harness.send_orders(vec![victim.clone()]);
    harness.wait_for_start();
    let pid = harness.wait_for_first_line();
    let work = harness.attempt_dir().join("work");
    let spy = format!(
        "cat /tmp/secret; cat /dev/shm/secret; cat {0}/secret; cat /proc/{pid}/root/{0}/secret; cat /proc/{pid}/environ; \
         cat {1}/intent.json; ls /tmp | grep -v muster-agent; echo end",
        work.display(),
        work.parent().unwrap().display()
    );
    let spy = AttemptOrder { user: users[1].to_string(), ..for_job(NEIGHBOUR, order(script(&spy))) };
    harness.send_orders(vec![AttemptOrder { started: true, ..victim }, spy]);
    assert_eq!(harness.wait_for_exit_of(NEIGHBOUR), Exit::Code(0));
    harness.read_log_of(NEIGHBOUR, 0, Stream::Stdout)
}

#[test]
fn a_job_reads_nothing_of_the_job_of_another_user() {
    if !is_root() {
        return;
    }
    let users = [("ann".to_string(), "20001:20001".to_string()), ("bob".to_string(), "20002:20002".to_string())].into();
    assert_eq!(neighbour_view(LauncherConfig { users, ..LauncherConfig::default() }, ["ann", "bob"]), "end\n");
}

/// With one account for all jobs the kernel lets one job inspect another by `/proc`, but paths do not lead to its files.
#[test]
fn a_job_has_tmp_shm_and_work_of_its_own_under_a_shared_account() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    let victim = order(script(
        "umask 0; echo secret > /tmp/secret; echo secret > /dev/shm/secret; echo secret > secret; echo ok; sleep 300",
    ));
    harness.send_orders(vec![victim.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    let work = harness.attempt_dir().join("work");
    let spy = format!("cat /tmp/secret; cat /dev/shm/secret; cat {}/secret; echo end", work.display());
    harness.send_orders(vec![AttemptOrder { started: true, ..victim }, for_job(NEIGHBOUR, order(script(&spy)))]);
    assert_eq!(harness.wait_for_exit_of(NEIGHBOUR), Exit::Code(0));
    assert_eq!(harness.read_log_of(NEIGHBOUR, 0, Stream::Stdout), "end\n");
}

#[test]
fn a_crash_writes_no_core_file() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![order(script("ulimit -c; ulimit -c unlimited; kill -SEGV $$"))]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(11));
    assert_eq!(harness.read_log(0, Stream::Stdout), "0\n");
    assert_eq!(std::fs::read_dir(harness.attempt_dir().join("work")).unwrap().count(), 0);
}

#[test]
fn a_set_user_id_program_gains_nothing() {
    if !is_root() {
        return;
    }
    let program = PathBuf::from(format!("/var/tmp/muster-test-id-{}", std::process::id()));
    std::fs::copy("/usr/bin/id", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![order(script(&format!("{0} -u; {0} -G", program.display())))]);
    let exit = harness.wait_for_exit();
    std::fs::remove_file(&program).unwrap();
    assert_eq!(exit, Exit::Code(0));
    let seen = harness.read_log(0, Stream::Stdout);
    assert!(!seen.lines().any(|line| line.split(' ').any(|id| id == "0")), "{seen}");
}

/// The second stage has the rights of the agent: what the job says must not run in it.
#[test]
fn the_environment_of_a_job_does_not_reach_the_second_stage() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::with_runner();
    let mut job = order(script("echo hello"));
    job.run.env.insert("LD_PRELOAD".to_string(), "/no/such/library.so".to_string());
    harness.send_orders(vec![job]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    let complaints = harness.read_log(0, Stream::Stderr).matches("cannot be preloaded").count();
    assert_eq!(complaints, 1, "the shell loads it, and nothing before");
}

/// The bytes of a flood; a gigabyte with `MUSTER_FLOOD=1024`.
fn flood_mib() -> u64 {
    std::env::var("MUSTER_FLOOD").ok().and_then(|mib| mib.parse().ok()).unwrap_or(96)
}

fn disk_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| std::os::unix::fs::MetadataExt::blocks(&metadata) * 512)
}

#[test]
fn a_flood_of_output_uses_a_bounded_part_of_the_disk_and_its_neighbour_runs() {
    let mut launcher = LauncherConfig::default();
    launcher.limits.log_max_mib = Some(8);
    let mut harness = AgentHarness::with_launcher(launcher);
    let mib = flood_mib();
    let flood = order(script(&format!(
        "for i in $(seq {mib}); do head -c 1048576 /dev/zero | tr '\\0' x; done; echo; echo last"
    )));
    harness.send_orders(vec![flood.clone(), neighbour()]);
    harness.wait_for_start();
    let log = harness.attempt_dir().join("rank-0.out");
    let mut most = 0;
    wait_until("the flood is over", || {
        most = most.max(disk_bytes(&log));
        !harness.reported_exits().is_empty() && harness.attempt_dir().join("exit.json").exists()
    });
    assert_eq!(harness.wait_for_exit_of(&flood.job), Exit::Code(0));
    let part = muster_agent::logs::read_part(&log, 0, 10).unwrap();
    assert_eq!(part.size, (mib << 20) + 6, "offsets stay");
    assert!(part.offset >= (mib - 8) << 20, "{} MiB are gone", part.offset >> 20);
    let end = muster_agent::logs::read_part(&log, part.size - 6, 10).unwrap();
    assert_eq!(end.bytes, b"\nlast\n");
    println!("most disk space during a flood of {mib} MiB: {} MiB", most >> 20);
    assert!(disk_bytes(&log) <= 8 << 20, "{} MiB at the end", disk_bytes(&log) >> 20);
    // The job may write for one look longer than the limit; a loaded machine looks late.
    assert!(most <= mib << 19, "{} MiB", most >> 20);
    assert_eq!(harness.wait_for_exit_of(NEIGHBOUR), Exit::Code(0));
}

/// A small file system, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path, mib: u32) -> SmallDisk {
        let options = format!("size={mib}m,mode=0755");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path);
        assert!(mount.status().unwrap().success());
        SmallDisk(path.to_path_buf())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The job leaves its file behind, so that not even the exit record finds a free block.
#[test]
fn a_job_that_fills_the_disk_ends_with_its_own_exit_and_the_agent_goes_on() {
    if !is_root() {
        return;
    }
    let mut harness = AgentHarness::without_agent();
    let _disk = SmallDisk::mount(&harness.data_dir, 16);
    harness.start_runner();
    let job = order(script("head -c 100000000 /dev/zero > fill; echo full; sleep 2; exit 4"));
    harness.send_orders(vec![job.clone()]);
    harness.wait_for_start();
    let fill = harness.attempt_dir().join("work/fill");
    wait_until("the disk is full", || rustix::fs::statvfs(&harness.data_dir).unwrap().f_bavail == 0);
    harness.wait_for_heartbeats(3);
    // A second job cannot be launched now; the server places it elsewhere, or later.
    harness.send_orders(vec![AttemptOrder { started: true, ..job.clone() }, neighbour()]);
    let refused = harness.wait_for_exit_of(NEIGHBOUR);
    assert!(matches!(&refused, Exit::NotStarted(why) if why.contains("No space left")), "{refused:?}");
    assert_eq!(harness.wait_for_exit_of(&job.job), Exit::Code(4), "the exit is not lost");
    std::fs::remove_file(fill).unwrap();
    harness.send_orders(vec![for_job("job-3", neighbour())]);
    assert_eq!(harness.wait_for_exit_of("job-3"), Exit::Code(0));
}
