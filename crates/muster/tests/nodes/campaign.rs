//! The campaign: what is done to the cluster, and the judgement at the end.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use super::job_files::{JobFiles, WrittenAttempt};
use super::namespaces::Cut;
use super::outages::{Outages, now_us};
use super::random::SeededRandom;
use super::site::{self, Node, Site};

const NODES: usize = 8;
const GPUS_PER_NODE: u32 = 4;
const ALL_GPUS: usize = NODES * GPUS_PER_NODE as usize;
/// Longest pause between two acts.
const PAUSE_MAX_MS: usize = 300;
/// Longest time that a killed process is away, and that a frozen or cut one is: below the self-fence deadline.
const DOWNTIME_MAX_MS: usize = 600;
const BRIEF_OUTAGE_MAX_MS: usize = 1_500;
/// Shortest runtime of a job; the longest is nearly twice as long.
const SHORT_RUNTIME_MS: usize = 1_200;
/// Longer than the self-fence deadline, so that a cut node has attempts to end.
const LONG_RUNTIME_MS: usize = 6_000;

/// The server and each agent live longer than this, so that the server acknowledges a heartbeat in between.
const LIFETIME_MIN: Duration = Duration::from_millis(2_500);

pub struct Campaign {
    site: Site,
    self_fence_ms: u64,
    nodes: Vec<Node>,
    files: JobFiles,
    outages: Outages,
    random: SeededRandom,
    server_started_at: Instant,
    agents_started_at: Vec<Instant>,
    /// Ids of the submitted arrays, and their sizes.
    arrays: Vec<(String, usize)>,
    agent_kills: usize,
    agent_kills_with_open_attempts: usize,
    fenced_nodes: usize,
}

impl Campaign {
    /// A cluster with one server.
    pub fn start(name: &str, self_fence_ms: u64) -> Campaign {
        Campaign::of(Site::start(name, self_fence_ms), self_fence_ms)
    }

    /// A cluster with a leader and a standby.
    pub fn start_pair(name: &str, self_fence_ms: u64, database: String) -> Campaign {
        Campaign::of(Site::start_pair(name, self_fence_ms, database), self_fence_ms)
    }

    fn of(site: Site, self_fence_ms: u64) -> Campaign {
        let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
        println!("SEED={seed}");
        let files = JobFiles::create(site.folder.join("files"));
        let nodes: Vec<Node> =
            (1..=NODES).map(|number| site.join(&format!("g{number}"), number, GPUS_PER_NODE)).collect();
        Campaign {
            site,
            self_fence_ms,
            server_started_at: Instant::now(),
            agents_started_at: vec![Instant::now(); nodes.len()],
            nodes,
            files,
            outages: Outages::watch(),
            random: SeededRandom::new(seed),
            arrays: Vec::new(),
            agent_kills: 0,
            agent_kills_with_open_attempts: 0,
            fenced_nodes: 0,
        }
    }

    fn submit(&mut self, jobs: usize, parallel: usize, runtime_ms: usize) {
        let files = self.files.folder().display().to_string();
        let env = BTreeMap::from([("FILES".to_string(), files), ("RUNTIME_MS".to_string(), runtime_ms.to_string())]);
        let array = self.site.submit_array((jobs, parallel), &self.files.script(), &env);
        self.arrays.push((array.unwrap(), jobs));
    }

    /// Kills the server, agents and shims, one after the other, while jobs start and end all the time.
    pub fn kill_at_random(&mut self, kills: usize) {
        self.submit(kills * 9, ALL_GPUS, SHORT_RUNTIME_MS);
        for number in 0..kills {
            std::thread::sleep(self.random.pause(PAUSE_MAX_MS));
            match self.random.below(10) {
                0..=1 if self.server_started_at.elapsed() > LIFETIME_MIN => self.kill_server(),
                0..=7 => self.kill_agent(),
                _ => self.kill_shim(),
            }
            if number % 50 == 49 {
                println!("{} kills, {:?} jobs unfinished", number + 1, self.site.unfinished_jobs());
            }
        }
        let (all, open) = (self.agent_kills, self.agent_kills_with_open_attempts);
        assert!(open * 3 >= all, "only {open} of {all} killed agents had an attempt between intent and exit record");
    }

    fn kill_server(&mut self) {
        let from = now_us();
        self.site.kill_server(0);
        std::thread::sleep(self.random.pause(DOWNTIME_MAX_MS));
        self.site.start_server(0);
        self.server_started_at = Instant::now();
        self.note_outage_of_all_nodes(from);
    }

    fn kill_agent(&mut self) {
        let downtime = self.random.pause(DOWNTIME_MAX_MS);
        let number = self.random.below(self.nodes.len());
        std::thread::sleep(LIFETIME_MIN.saturating_sub(self.agents_started_at[number].elapsed()));
        let (node, from) = (&mut self.nodes[number], now_us());
        self.agent_kills_with_open_attempts += usize::from(!node.open_attempts().is_empty());
        self.agent_kills += 1;
        node.kill_agent();
        self.outages.note_agent_kill(&node.name, now_us());
        std::thread::sleep(downtime);
        node.start_agent();
        self.agents_started_at[number] = Instant::now();
        self.outages.note(&node.name, from, now_us());
    }

    /// Kills the shim of a running attempt, if the chosen node has one.
    fn kill_shim(&mut self) {
        let node = &self.nodes[self.random.below(self.nodes.len())];
        let open = node.open_attempts();
        if open.is_empty() {
            return;
        }
        let (job, attempt, dir) = &open[self.random.below(open.len())];
        if let Some(pid) = site::shim_pid(dir) {
            self.outages.note_killed_shim(job, *attempt);
            site::signal(pid, "KILL");
        }
    }

    /// Freezes the server or an agent, or cuts a node off, for less than the self-fence deadline: no attempt ends.
    pub fn freeze_and_cut_briefly(&mut self, times: usize) {
        self.submit(times * 10, ALL_GPUS, SHORT_RUNTIME_MS);
        for _ in 0..times {
            std::thread::sleep(self.random.pause(PAUSE_MAX_MS));
            let (outage, from) = (self.random.pause(BRIEF_OUTAGE_MAX_MS), now_us());
            let choice = self.random.below(6);
            let node = &self.nodes[self.random.below(self.nodes.len())];
            match choice {
                0 => {
                    self.site.signal_server(0, "STOP");
                    std::thread::sleep(outage);
                    self.site.signal_server(0, "CONT");
                    self.note_outage_of_all_nodes(from);
                }
                1..=2 => {
                    node.signal_agent("STOP");
                    std::thread::sleep(outage);
                    node.signal_agent("CONT");
                    self.outages.note(&node.name, from, now_us());
                }
                _ => {
                    let cut = [Cut::Link, Cut::ToServer, Cut::ToNode][choice - 3];
                    node.network.cut(cut);
                    std::thread::sleep(outage);
                    node.network.heal(cut);
                    self.outages.note(&node.name, from, now_us());
                }
            }
        }
    }

    /// Cuts off, freezes or kills nodes until the server has fenced their attempts, half of the nodes at a time.
    pub fn fence(&mut self, nodes: usize) {
        self.submit(nodes * 8, ALL_GPUS, LONG_RUNTIME_MS);
        while self.fenced_nodes < nodes {
            std::thread::sleep(Duration::from_secs(1));
            let first = self.random.below(self.nodes.len());
            let count = (self.nodes.len() / 2).min(nodes - self.fenced_nodes);
            let chosen: Vec<usize> = (0..count).map(|offset| (first + offset) % self.nodes.len()).collect();
            self.fence_at_once(&chosen);
            self.fenced_nodes += chosen.len();
        }
    }

    fn fence_at_once(&mut self, chosen: &[usize]) {
        let from = now_us();
        let ways: Vec<usize> = chosen.iter().map(|_| self.random.below(5)).collect();
        for (number, way) in chosen.iter().zip(&ways) {
            let node = &mut self.nodes[*number];
            match way {
                0 => node.signal_agent("STOP"),
                1 => node.kill_agent(),
                way => node.network.cut([Cut::Link, Cut::ToServer, Cut::ToNode][way - 2]),
            }
        }
        std::thread::sleep(self.until_proven_dead() + Duration::from_secs(1));
        for number in chosen {
            let name = self.nodes[*number].name.clone();
            self.site.wait(&format!("{name} is fenced"), || {
                matches!(self.site.node_state(&name).as_str(), "Fenced" | "Unreachable")
            });
        }
        for (number, way) in chosen.iter().zip(&ways) {
            let node = &mut self.nodes[*number];
            match way {
                0 => node.signal_agent("CONT"),
                1 => node.start_agent(),
                way => node.network.heal([Cut::Link, Cut::ToServer, Cut::ToNode][way - 2]),
            }
            self.outages.note(&node.name, from, now_us());
        }
        for number in chosen {
            let name = &self.nodes[*number].name;
            self.site.wait(&format!("{name} is back"), || self.site.node_state(name) == "Ready");
        }
    }

    /// Kills the leader again and again, while jobs run. Returns the times from the kill until a job runs that was submitted
    /// afterwards.
    pub fn kill_leaders(&mut self, times: usize) -> Vec<Duration> {
        self.submit(times * 60, ALL_GPUS / 2, SHORT_RUNTIME_MS);
        (0..times).map(|_| self.kill_leader()).collect()
    }

    fn kill_leader(&mut self) -> Duration {
        let (leader, files) = (self.site.leader(), self.files.folder().display().to_string());
        let env = BTreeMap::from([("FILES".to_string(), files), ("RUNTIME_MS".to_string(), "1".to_string())]);
        let killed_us = now_us();
        self.site.kill_server(leader);
        let array = loop {
            match self.site.submit_array((1, 1), &self.files.script(), &env) {
                Some(array) => break array,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let job = format!("{array}.0");
        self.site.wait("a new job runs", || self.files.attempts().contains_key(&job));
        let began_us = self.files.attempts()[&job][0].first_us;
        self.arrays.push((array, 1));
        println!("a new job ran {} ms after the leader was killed", (began_us - killed_us) / 1_000);
        self.site.start_server(leader);
        self.note_outage_of_all_nodes(killed_us);
        for node in &self.nodes {
            self.site.wait(&format!("{} follows", node.name), || self.site.node_state(&node.name) == "Ready");
        }
        Duration::from_micros(began_us - killed_us)
    }

    /// Until the server has proven that a silent node has ended its attempts: self-fence with clock drift, grace and margin,
    /// and a round of the check for silent nodes.
    fn until_proven_dead(&self) -> Duration {
        Duration::from_millis(self.self_fence_ms * 101 / 100 + 500 + 500 + 1_000)
    }

    fn note_outage_of_all_nodes(&mut self, from_us: u64) {
        let until = now_us();
        self.nodes.iter().for_each(|node| self.outages.note(&node.name, from_us, until));
    }

    /// Waits until all jobs have ended, and judges.
    pub fn finish_and_judge(mut self) {
        let begin = Instant::now();
        while self.site.unfinished_jobs() != Some(0) {
            std::thread::sleep(Duration::from_millis(100));
            assert!(begin.elapsed() < Duration::from_secs(600), "jobs do not end:\n{}", self.site.tail_of_logs());
        }
        let written = self.files.attempts();
        let mut counts = Counts::default();
        for (array, size) in &self.arrays {
            for index in 0..*size {
                let job = format!("{array}.{index}");
                self.judge(&job, written.get(&job).map(Vec::as_slice).unwrap_or_default(), &mut counts);
            }
        }
        self.nodes.iter_mut().for_each(Node::stop_agent);
        assert_eq!(running_scripts(), "", "processes of jobs are left");
        assert!(counts.fenced >= self.fenced_nodes, "{} attempts of {} nodes", counts.fenced, self.fenced_nodes);
        println!(
            "{} jobs, 0 lost, 0 with two live attempts, 0 attempts ended without need; {} killed agents ({} with an \
             attempt between intent and exit record), {} killed shims, {} fenced nodes; attempts ended by them: {} by a \
             killed shim, {} fenced, {} launches interrupted",
            counts.jobs,
            self.agent_kills,
            self.agent_kills_with_open_attempts,
            self.outages.killed_shims(),
            self.fenced_nodes,
            counts.shim_killed,
            counts.fenced,
            counts.interrupted_launches,
        );
    }

    fn judge(&self, job: &str, written: &[WrittenAttempt], counts: &mut Counts) {
        counts.jobs += 1;
        let summary = self.site.get(&format!("/api/v1/jobs/{job}")).unwrap();
        assert_eq!(summary["state"], "completed", "{job} was lost: {summary:#}");
        assert!(written.last().is_some_and(|attempt| attempt.is_done), "{job} was not done: {written:?}");
        for pair in written.windows(2) {
            assert!(pair[0].number < pair[1].number, "{job}: an attempt was started twice: {pair:?}");
            assert!(pair[0].last_us < pair[1].first_us, "{job}: two live attempts: {pair:?}");
        }
        let attempts = self.site.get(&format!("/api/v1/jobs/{job}/attempts")).unwrap();
        for attempt in attempts["attempts"].as_array().unwrap() {
            let number = u32::try_from(attempt["attempt"].as_u64().unwrap()).unwrap();
            let written = written.iter().find(|written| written.number == number);
            // A node may also be fenced after an attempt was done and before its end was reported.
            if attempt["state"] != "Done" {
                counts.note(self.need_of_end(job, number, attempt, written));
            }
        }
    }

    /// Why an attempt had to end early.
    fn need_of_end(
        &self,
        job: &str,
        number: u32,
        attempt: &serde_json::Value,
        written: Option<&WrittenAttempt>,
    ) -> NeedOfEnd {
        let node = attempt["nodes"][0].as_str().unwrap_or_default();
        let ended_us = attempt["ended_at_ms"].as_u64().unwrap_or_default() * 1_000;
        let message = attempt["message"].as_str().unwrap_or_default();
        let self_fence_us = self.self_fence_ms * 1_000;
        if self.outages.was_shim_killed(job, number) {
            return NeedOfEnd::ShimKilled;
        }
        let is_fenced = message.contains("self-fence");
        // The report of a self-fenced attempt comes when the node is back.
        let since_us = written.map_or(ended_us, |written| written.last_us) - 2 * self_fence_us;
        if is_fenced && self.outages.was_away(node, self_fence_us / 10 * 9, since_us, ended_us) {
            return NeedOfEnd::Fenced;
        }
        if written.is_none() && self.outages.was_agent_killed(node, ended_us, self_fence_us) {
            return NeedOfEnd::LaunchInterrupted;
        }
        panic!(
            "attempt {number} of {job} on {node} ended without need: {message}\n{attempt:#}\nwritten: {written:?}\n{}",
            self.site.tail_of_logs()
        );
    }
}

enum NeedOfEnd {
    ShimKilled,
    Fenced,
    /// The agent was killed between the launch intent and the start of the shim.
    LaunchInterrupted,
}

#[derive(Debug, Default)]
struct Counts {
    jobs: usize,
    shim_killed: usize,
    fenced: usize,
    interrupted_launches: usize,
}

impl Counts {
    fn note(&mut self, need: NeedOfEnd) {
        match need {
            NeedOfEnd::ShimKilled => self.shim_killed += 1,
            NeedOfEnd::Fenced => self.fenced += 1,
            NeedOfEnd::LaunchInterrupted => self.interrupted_launches += 1,
        }
    }
}

/// Processes that run the script of the jobs. All processes of this namespace belong to the test.
fn running_scripts() -> String {
    let output = Command::new("pgrep").args(["-af", "job.sh"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
