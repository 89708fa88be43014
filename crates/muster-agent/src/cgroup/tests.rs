//! The files of both versions on a temporary directory, and the real hierarchies of this host if this process may use them.

use std::process::{Child, Command};

use super::*;
use crate::test_fixtures::TempDir;

fn limits() -> CgroupLimits {
    CgroupLimits {
        memory_mib: Some(512),
        pids_max: Some(40),
        cores: 4,
        cpu_limit: CpuLimit::Quota,
        cpu_list: Some("0-1".to_string()),
    }
}

fn v2_cgroup(dir: &Path, files: &[&str]) -> Cgroup {
    let path = dir.join("job-1.1");
    fs::create_dir_all(&path).unwrap();
    files.iter().for_each(|name| fs::write(path.join(name), "").unwrap());
    Cgroup { unified: Some(path), v1: BTreeMap::new() }
}

#[test]
fn v2_limits_are_written_in_the_units_of_the_kernel() {
    let dir = TempDir::new();
    let files =
        ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpuset.cpus", "cpu.weight", "cpu.max"];
    let cgroup = v2_cgroup(&dir, &files);
    cgroup.create(&limits()).unwrap();
    let seen = files.map(|name| fs::read_to_string(dir.join("job-1.1").join(name)).unwrap());
    assert_eq!(seen, ["536870912", "0", "1", "40", "0-1", "400", "400000 100000"]);
}

#[test]
fn a_v2_hierarchy_without_controllers_gets_no_limits() {
    let dir = TempDir::new();
    let cgroup = v2_cgroup(&dir, &["cgroup.procs"]);
    cgroup.create(&limits()).unwrap();
    assert_eq!(fs::read_dir(dir.join("job-1.1")).unwrap().count(), 1, "no file was made up");
}

#[test]
fn v1_limits_are_written_in_the_units_of_the_kernel() {
    let dir = TempDir::new();
    fs::write(dir.join("cpuset.mems"), "0\n").unwrap();
    let all = [Controller::Cpu, Controller::Cpuset, Controller::Memory, Controller::Pids];
    let path = dir.join("job-1.1");
    let cgroup = Cgroup { unified: None, v1: all.map(|controller| (controller, path.clone())).into() };
    cgroup.create(&limits()).unwrap();
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert_eq!([read("cpu.shares"), read("cpu.cfs_quota_us")], ["4096", "400000"]);
    assert_eq!([read("cpuset.cpus"), read("cpuset.mems")], ["0-1", "0"]);
    assert_eq!([read("memory.limit_in_bytes"), read("pids.max")], ["536870912", "40"]);
}

#[test]
fn kills_for_lack_of_memory_are_counted() {
    let dir = TempDir::new();
    let cgroup = v2_cgroup(&dir, &[]);
    assert_eq!(cgroup.out_of_memory_kills(), 0, "no file");
    fs::write(dir.join("job-1.1/memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
    assert_eq!(cgroup.out_of_memory_kills(), 2);
    fs::write(dir.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n").unwrap();
    let v1 = Cgroup { unified: None, v1: [(Controller::Memory, dir.to_path_buf())].into() };
    assert_eq!(v1.out_of_memory_kills(), 1);
}

/// The cgroup of this host; `None`, with a message, where this process may not make one.
fn host_cgroup(name: &str) -> Option<(CgroupBase, Cgroup)> {
    let base = CgroupBase::open(&format!("unit-{}-{name}", std::process::id()));
    let base = base.inspect_err(|why| eprintln!("skipped: {why}")).ok()?;
    let cgroup = base.attempt("job-1", 1);
    cgroup
        .create(&CgroupLimits { memory_mib: Some(64), pids_max: Some(20), cores: 1, ..CgroupLimits::default() })
        .unwrap();
    Some((base, cgroup))
}

/// A shell that has entered the cgroup and left every trace of this process: session, group, environment.
fn daemon_in(cgroup: &Cgroup) -> Child {
    let enter: Vec<String> = cgroup.dirs().map(|dir| format!("echo 0 > {}/cgroup.procs", dir.display())).collect();
    let script = format!("{}; exec env -i setsid sleep 300", enter.join("; "));
    Command::new("sh").args(["-c", &script]).spawn().unwrap()
}

fn wait_for_processes(cgroup: &Cgroup, count: usize) {
    for _ in 0..500 {
        if cgroup.processes().len() == count {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("expected {count} processes, found {:?}", cgroup.processes());
}

fn remove_base(base: &CgroupBase, cgroup: &Cgroup) {
    base.remove_leftovers(|_| false);
    assert!(cgroup.dirs().all(|dir| !dir.exists()), "an empty cgroup stays");
    base.remove();
}

#[test]
fn a_daemon_is_killed_by_its_cgroup_on_this_host() {
    let Some((base, cgroup)) = host_cgroup("kill") else { return };
    let mut daemon = daemon_in(&cgroup);
    wait_until_in_every_hierarchy(&cgroup);
    base.remove_leftovers(|_| false);
    assert!(cgroup.dirs().all(Path::exists), "a cgroup with a process stays");
    assert_eq!(cgroup.kill(), 1);
    assert_eq!(daemon.wait().unwrap().to_string(), "signal: 9 (SIGKILL)");
    wait_for_processes(&cgroup, 0);
    remove_base(&base, &cgroup);
}

/// A process joins one hierarchy after the other.
fn wait_until_in_every_hierarchy(cgroup: &Cgroup) {
    for dir in cgroup.dirs() {
        wait_for_processes(&Cgroup { unified: Some(dir.to_path_buf()), v1: BTreeMap::new() }, 1);
    }
}

/// The path of kernels before 5.14 and of pure v1 hosts.
#[test]
fn a_daemon_is_killed_by_the_freezer_on_this_host() {
    let Some((base, cgroup)) = host_cgroup("freezer") else { return };
    let without_unified = Cgroup { unified: None, ..cgroup.clone() };
    let mut daemon = daemon_in(&cgroup);
    wait_until_in_every_hierarchy(&cgroup);
    match without_unified.v1.is_empty() {
        true => cgroup.freeze_and_kill(),
        false => assert_eq!(without_unified.kill(), 1),
    }
    assert_eq!(daemon.wait().unwrap().to_string(), "signal: 9 (SIGKILL)");
    wait_for_processes(&cgroup, 0);
    remove_base(&base, &cgroup);
}

#[test]
fn a_container_runtime_gets_one_path_for_all_hierarchies() {
    let path = |path: &str| PathBuf::from(path);
    let pure = Cgroup { unified: Some(path("/sys/fs/cgroup/a/muster/n/job-1.1")), v1: BTreeMap::new() };
    assert_eq!(pure.path_in_hierarchies(), Some(path("/a/muster/n/job-1.1")));
    assert_eq!(pure.at_one_path().as_ref(), Some(&pure));
    let v1 = [
        (Controller::Memory, path("/sys/fs/cgroup/memory/service/muster/n/job-1.1")),
        (Controller::Pids, path("/sys/fs/cgroup/pids/muster/n/job-1.1")),
    ];
    let hybrid = Cgroup { unified: Some(path("/sys/fs/cgroup/unified/muster/n/job-1.1")), v1: v1.into() };
    assert_eq!(hybrid.path_in_hierarchies(), None, "the agent is in a service in one of them");
    let one = hybrid.at_one_path().unwrap();
    assert_eq!(one.v1[&Controller::Memory], path("/sys/fs/cgroup/memory/muster/n/job-1.1"));
    assert_eq!(one.path_in_hierarchies(), Some(path("/muster/n/job-1.1")));
}
