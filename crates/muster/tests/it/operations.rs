//! Operating nodes with real processes: drains, reboots, the power program, installation, and upgrades with jobs running.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::agents::Site;

/// A program that muster may run: its own file, in a folder that nobody else can change.
fn site_program(site: &Site, name: &str, text: &str) -> String {
    let path = site.folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Adds lines to the section `nodes` of the server, which starts again with them.
fn configure_nodes(site: &mut Site, lines: &[String]) {
    let path = site.folder.join("muster.yaml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{config}nodes:\n{}", indented(lines))).unwrap();
    site.kill_server();
    site.start_server();
}

fn agent_config(site: &Site, lines: &[String]) -> String {
    let path = site.folder.join("agent.yaml");
    std::fs::write(&path, format!("agent:\n{}", indented(lines))).unwrap();
    path.display().to_string()
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// A job that writes its process id, then a line each 100 ms, until the file `end` exists.
fn ticking_job(site: &Site, words: &[&str]) -> String {
    let end = site.folder.join("end");
    let script =
        format!("echo pid $$; while [ ! -e {} ]; do echo tick; sleep 0.1; done; echo last; exit 7", end.display());
    let job = site.ok(&[&["submit", "--gpus", "1"], words, &["--", "sh", "-c", &script]].concat());
    let job = job.trim().to_string();
    site.wait("the job runs", || site.ok(&["logs", &job]).contains("tick"));
    job
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_drain_lists_what_remains_waits_and_ends_it_at_its_deadline_also_after_a_restart() {
    let mut site = Site::new("drain");
    let _g1 = site.joined("g1", &["--gpus", "2"]);
    let job = ticking_job(&site, &["--name", "long"]);
    let listed = site.ok(&["node", "drain", "g1", "--why", "new fans", "--deadline", "6s"]);
    assert!(listed.contains(&job) && listed.contains("long") && listed.contains("Running"), "{listed}");
    let shown = site.ok(&["node", "show", "g1"]);
    assert!(shown.contains("Draining") && shown.contains("drain deadline"), "{shown}");
    site.kill_server();
    site.start_server();
    // Only once the job has ended on the node.
    let waited = site.muster(&["node", "drain", "g1", "--why", "new fans", "--deadline", "1s", "--wait"]);
    let stderr = String::from_utf8_lossy(&waited.stderr).into_owned();
    assert!(waited.status.success() && stderr.contains("node `g1` is empty"), "{stderr}");
    assert_eq!(site.phase(&job), "Queued", "it queues again");
    assert!(site.ok(&["why", &job]).contains("reached its deadline"));
    site.ok(&["node", "resume", "g1"]);
    site.wait("it runs again", || site.phase(&job) == "Running");
    site.ok(&["node", "drain", "g1", "--requeue"]);
    site.wait("the node is empty", || site.ok(&["node", "show", "g1", "-o", "json"]).contains("\"jobs\": []"));
    site.ok(&["node", "undrain", "g1"]);
    assert_eq!(site.node_state("g1"), "Ready");
}

#[test]
fn an_interrupted_wait_says_how_to_go_on_and_the_drain_stays() {
    let site = Site::new("wait");
    let _g1 = site.joined("g1", &["--gpus", "1"]);
    ticking_job(&site, &[]);
    let mut command = Command::new(site.folder.join("bin/muster"));
    command.args(["node", "drain", "g1", "--wait"]).env("MUSTER_SERVER", format!("http://{}", site.address));
    let mut wait = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(wait.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("stays in force")).unwrap();
    assert!(said.contains("muster node drain g1 --wait` goes on"), "{said}");
    wait.kill().unwrap();
    wait.wait().unwrap();
    assert_eq!(site.node_state("g1"), "Draining");
}

/// The program only notes that it ran: a test must not reboot this machine.
#[test]
fn a_node_reboots_when_it_is_idle_and_the_order_survives_a_restart_of_the_server() {
    let mut site = Site::new("reboot");
    let note = site.folder.join("rebooted");
    let program = site_program(&site, "reboot", &format!("echo once >> {}", note.display()));
    let config = agent_config(&site, &[format!("reboot_program: {program}")]);
    let g1 = site.joined("g1", &["--gpus", "1", "--config", &config]);
    let job = ticking_job(&site, &[]);
    site.ok(&["node", "reboot", "g1", "--when-idle", "--why", "new kernel"]);
    site.kill_server();
    site.start_server();
    site.wait_for_node("g1", "Draining");
    assert!(site.ok(&["node", "show", "g1"]).contains("when its jobs have ended"));
    assert!(!note.exists(), "a job runs");
    std::fs::write(site.folder.join("end"), "").unwrap();
    site.muster(&["wait", &job]);
    site.wait("the reboot program has run", || note.exists());
    drop(g1);
    // An agent that starts again in the same boot has not rebooted: it tries again.
    std::fs::remove_file(&note).unwrap();
    let _g1 = site.agent("g1", &["--gpus", "1", "--config", &config]);
    site.wait("the reboot program has run again", || note.exists());
    assert_eq!(site.node_state("g1"), "Draining");
    site.ok(&["node", "resume", "g1"]);
    assert_eq!(site.node_state("g1"), "Ready");
}

#[test]
fn a_reboot_that_fails_is_shown() {
    let site = Site::new("reboot-fails");
    let program = site_program(&site, "reboot", "echo the firmware refuses; exit 3");
    let config = agent_config(&site, &[format!("reboot_program: {program}")]);
    let _g1 = site.joined("g1", &["--gpus", "1", "--config", &config]);
    site.ok(&["node", "reboot", "g1", "--when-idle"]);
    site.wait("the failure is shown", || {
        site.ok(&["node", "show", "g1"]).contains("exit code 3: the firmware refuses")
    });
    assert_eq!(site.node_state("g1"), "Draining");
}

#[test]
fn the_power_program_spares_busy_nodes_and_only_its_success_fences() {
    let mut site = Site::new("power");
    let (called, works) = (site.folder.join("called"), site.folder.join("works"));
    let text = format!(
        "echo $1 $2 $MUSTER_LABEL_BMC >> {}; [ $1 = status ] && echo is on && exit 0; [ -e {} ] || {{ echo no BMC; exit 2; }}",
        called.display(),
        works.display()
    );
    let program = site_program(&site, "power", &text);
    configure_nodes(&mut site, &[format!("power_program: {program}")]);
    let _g1 = site.joined("g1", &["--gpus", "1", "--label", "bmc=10.0.0.9"]);
    let job = ticking_job(&site, &[]);
    assert_eq!(site.ok(&["node", "power", "g1", "status"]).trim(), "is on");
    let refused = site.refused(&["node", "power", "g1", "reset", "--yes"]);
    assert!(refused.contains("still runs 1 jobs") && refused.contains("--force"), "{refused}");
    let refused = site.refused(&["node", "fence", "g1", "--yes"]);
    assert!(refused.contains("exit code 2: no BMC") && refused.contains("--skip-program"), "{refused}");
    assert_eq!(
        (site.node_state("g1").as_str(), site.phase(&job).as_str()),
        ("Ready", "Running"),
        "a failure proves nothing"
    );
    assert!(site.ok(&["node", "show", "g1"]).contains("fence failed once"));
    assert_eq!(read(&called), "status g1 10.0.0.9\nfence g1 10.0.0.9\n");
    std::fs::write(&works, "").unwrap();
    site.ok(&["node", "power", "g1", "reset", "--force", "--yes"]);
    site.ok(&["node", "fence", "g1", "--yes"]);
    assert!(!site.ok(&["node", "show", "g1"]).contains("fence failed"));
    let audit = site.ok(&["audit", "-o", "json"]);
    assert!(audit.contains("g1 (reset)") && audit.contains("g1 (fence)"), "{audit}");
}

#[test]
fn an_unreachable_node_is_fenced_by_the_power_program_and_its_job_starts_elsewhere() {
    let mut site = Site::new("power-fence");
    let job_pid = site.folder.join("job-pid");
    // The program fails once, then kills what runs on the node, as a BMC does.
    let tried = site.folder.join("tried");
    let text = format!(
        "[ $1 = fence ] || exit 9; [ -e {tried} ] || {{ touch {tried}; echo BMC is busy; exit 1; }}; kill -9 $(cat {pid}); exit 0",
        tried = tried.display(),
        pid = job_pid.display()
    );
    let program = site_program(&site, "power", &text);
    let lines = [
        format!("power_program: {program}"),
        "fence_with_program: true".to_string(),
        "suspect_after: 1s".to_string(),
        "unreachable_after: 2s".to_string(),
    ];
    configure_nodes(&mut site, &lines);
    let g1 = site.joined("g1", &["--gpus", "1"]);
    let script = format!("[ -e {} ] || {{ echo pid $$; exec sleep 600; }}", job_pid.display());
    let job = site.ok(&["submit", "--gpus", "1", "--on-node-lost", "requeue", "--", "sh", "-c", &script]);
    let job = job.trim();
    let pid_of = || site.ok(&["logs", job]).trim().strip_prefix("pid ").map(str::to_string);
    site.wait("the job runs", || pid_of().is_some());
    std::fs::write(&job_pid, pid_of().unwrap()).unwrap();
    let _g2 = site.joined("g2", &["--gpus", "1"]);
    drop(g1);
    site.wait("the failure is shown", || site.ok(&["node", "show", "g1"]).contains("BMC is busy"));
    assert!(site.ok(&["why", job]).contains("could not fence the node"));
    site.wait("the node is fenced", || site.node_state("g1") == "Fenced");
    site.ok(&["wait", job]);
    assert!(site.ok(&["show", job]).contains("g2"));
}

#[test]
fn an_upgrade_of_agent_and_server_keeps_jobs_running() {
    let mut site = Site::new("upgrade");
    let binary = site.folder.join("bin/muster");
    let install = |site: &Site| {
        // As a package manager does: a new file takes the name of the old one.
        let new = site.folder.join("bin/muster.new");
        std::fs::copy(env!("CARGO_BIN_EXE_muster"), &new).unwrap();
        std::fs::rename(&new, &binary).unwrap();
        std::fs::canonicalize(&binary).unwrap()
    };
    install(&site);
    site.kill_server();
    site.start_server();
    let g1 = site.joined("g1", &["--gpus", "2"]);
    let job = ticking_job(&site, &[]);
    let pid_line = |site: &Site, job: &str| site.ok(&["logs", job]).lines().next().unwrap_or_default().to_string();
    let pid = pid_line(&site, &job);
    install(&site);
    // Between the new file and the restart, the agent of the old file still starts jobs.
    let between = site.ok(&["submit", "--gpus", "1", "--", "sh", "-c", "echo between"]);
    site.ok(&["wait", between.trim()]);
    g1.terminate();
    let g1 = site.agent("g1", &["--gpus", "2"]);
    site.wait_for_node("g1", "Ready");
    install(&site);
    site.stop_server();
    site.start_server();
    site.wait("the agent is connected again", || site.muster(&["logs", &job]).status.success());
    let ticks = site.ok(&["logs", &job]).lines().count();
    site.wait("output still arrives", || site.ok(&["logs", &job]).lines().count() > ticks);
    assert_eq!((site.phase(&job).as_str(), pid_line(&site, &job)), ("Running", pid), "the same process");
    let after = site.ok(&["submit", "--gpus", "1", "--", "true"]);
    site.ok(&["wait", after.trim()]);
    std::fs::write(site.folder.join("end"), "").unwrap();
    assert_eq!(site.muster(&["wait", &job]).status.code(), Some(7), "its own exit code");
    assert_eq!(site.ok(&["logs", &job]).lines().last(), Some("last"));
    let shown = site.ok(&["show", &job, "-o", "json"]);
    assert!(!shown.contains("\"attempts\": 2"), "one attempt: {shown}");
    drop(g1);
}

/// The files below the root of a package.
struct Package {
    site: Site,
    root: PathBuf,
}

impl Package {
    fn install(&self, words: &[&str]) -> std::process::Output {
        let root = self.root.display().to_string();
        self.site.muster(&[&["agent", "install", "--root", &root], words].concat())
    }

    fn read(&self, path: &str) -> String {
        read(&self.root.join(path))
    }
}

#[test]
fn an_installation_is_repeatable_and_keeps_changes_by_hand() {
    let site = Site::new("install");
    let package = Package { root: site.folder.join("root"), site };
    let url = package.site.ok(&["node", "token"]);
    let url_file = package.site.folder.join("url");
    std::fs::write(&url_file, &url).unwrap();
    let words = ["--gpus", "4", "--label", "zone=a b", "--join-file", url_file.to_str().unwrap()];
    let done = package.install(&words);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let unit = package.read("etc/systemd/system/muster-agent.service");
    for line in ["Delegate=yes", "KillMode=process", "Restart=on-failure", "WantedBy=multi-user.target"] {
        assert!(unit.lines().any(|known| known == line), "{unit}");
    }
    let binary = std::fs::canonicalize(env!("CARGO_BIN_EXE_muster")).unwrap();
    assert!(unit.contains(&format!("ExecStart={} agent --config /etc/muster/agent.yaml", binary.display())), "{unit}");
    assert!(unit.contains("--gpus 4 --label \"zone=a b\""), "{unit}");
    verify_unit(&package.root.join("etc/systemd/system/muster-agent.service"));
    let join = package.root.join("etc/muster/join-url");
    assert_eq!(read(&join), url);
    assert_eq!(std::fs::metadata(&join).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(package.read("usr/lib/sysusers.d/muster-agent.conf").contains("u muster-job"));
    let config = package.root.join("etc/muster/agent.yaml");
    package.site.ok(&["config", "check", config.to_str().unwrap()]);
    let again = package.install(&words);
    assert!(String::from_utf8_lossy(&again.stderr).contains("unchanged: "), "{again:?}");
    // Other flags are no change by hand.
    assert!(package.install(&["--gpus", "8"]).status.success());
    assert!(package.read("etc/systemd/system/muster-agent.service").contains("--gpus 8"));
    let by_hand = read(&config).replace("#agent:", "agent:").replace("#  pids_max: 4096", "  pids_max: 999");
    std::fs::write(&config, &by_hand).unwrap();
    let refused = package.install(&["--gpus", "2"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("-  pids_max: 999") && stderr.contains("--force"), "{stderr}");
    assert!(package.read("etc/systemd/system/muster-agent.service").contains("--gpus 8"), "nothing was written");
    assert!(package.install(&["--gpus", "2", "--keep"]).status.success());
    assert_eq!(read(&config), by_hand);
    assert!(package.install(&["--force"]).status.success());
    assert!(!read(&config).contains("999"));
}

/// systemd's own opinion, where its tool is installed.
fn verify_unit(unit: &Path) {
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output() else {
        eprintln!("skipped: `systemd-analyze` is not installed, so the unit was not verified");
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let about_it: Vec<&str> = stderr.lines().filter(|line| line.contains("muster-agent.service")).collect();
    assert!(output.status.success() && about_it.is_empty(), "{stderr}");
}

#[test]
fn the_stored_join_url_is_used_once_and_removed() {
    let site = Site::new("join-file");
    let url_file = site.folder.join("url");
    std::fs::write(&url_file, site.ok(&["node", "token"])).unwrap();
    let words = ["--join-file", url_file.to_str().unwrap()];
    let g1 = site.agent("g1", &words);
    site.wait_for_node("g1", "Ready");
    assert!(!url_file.exists(), "it holds a secret that is used up");
    g1.terminate();
    let _g1 = site.agent("g1", &words);
    site.wait_for_node("g1", "Ready");
}

#[test]
fn doctor_checks_a_node_and_its_link() {
    let mut site = Site::new("doctor");
    let words = |site: &Site| {
        let folder = site.folder.join("g1").display().to_string();
        ["doctor", "--node", "--agent-data-dir", &folder, "-o", "json"].map(str::to_string)
    };
    let doctor = |site: &Site| {
        let words = words(site);
        let output = site.muster(&words.each_ref().map(String::as_str));
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (_, before) = doctor(&site);
    assert!(before.contains("this node has not joined"), "{before}");
    let _g1 = site.joined("g1", &["--gpus", "1"]);
    site.wait("the leader has a heartbeat", || doctor(&site).1.contains("ms ago; the node is Ready"));
    let (_, found) = doctor(&site);
    for check in [
        "cgroups",
        "device filter",
        "mount namespaces",
        "job user",
        "containers",
        "disk",
        "log limit",
        "clock",
        "certificate",
        "inotify watches",
        "pids",
        "open files",
        "heartbeat",
    ] {
        assert!(found.contains(&format!("\"check\": \"{check}\"")), "{check}: {found}");
    }
    assert!(found.contains(" leads, version ") && found.contains("valid until"), "{found}");
    site.kill_server();
    let (is_well, found) = doctor(&site);
    assert!(
        !is_well && found.contains("no connection") && found.contains("none of the known servers leads"),
        "{found}"
    );
    site.start_server();
}
