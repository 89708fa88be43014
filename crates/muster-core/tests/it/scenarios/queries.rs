//! Query lines of a scenario: dry runs, receipts, remedies, scores, node states and charges.

use std::collections::BTreeSet;

use muster_core::objects::job::Job;
use muster_core::objects::node::{Service, Sight};
use muster_core::planner::{self, Remedy, dry_run, remedies};
use muster_core::time::{MINUTE, SECOND};
use muster_core::{Event, NodeId, Timestamp};

use super::line::{Line, span};
use super::runner::ScenarioRunner;

impl ScenarioRunner {
    pub fn dry_run(&mut self, line: &Line) -> Result<(), String> {
        let found = dry_run(&self.world.state, &self.spec(line)?, self.world.now);
        let shown = match (&found.start, &found.eviction) {
            (Some(tasks), _) => {
                let gpus =
                    tasks.iter().flat_map(|task| task.gpus.iter().map(move |gpu| format!("{}/gpu-{gpu}", task.node)));
                format!("would start  {}", gpus.collect::<Vec<_>>().join(" "))
            }
            (None, Some(eviction)) => {
                let victims: Vec<String> = eviction.victims.iter().map(|victim| format!("`{victim}`")).collect();
                let nodes: BTreeSet<String> = eviction.tasks.iter().map(|task| task.node.to_string()).collect();
                let nodes: Vec<String> = nodes.into_iter().collect();
                format!("would preempt  {} on {}", victims.join(" "), nodes.join(" "))
            }
            (None, None) => {
                let sentences: Vec<String> = found.verdict.reasons.iter().map(|reason| reason.sentence()).collect();
                format!("would wait  {}", sentences.join("; "))
            }
        };
        let position = found.position;
        let shown = format!("{}  {shown} ({} of {})", line.object(), position.position, position.of);
        self.shown.push(self.with_names(&shown));
        Ok(())
    }

    /// Show the last preemption receipt of a job.
    pub fn receipt(&mut self, line: &Line) -> Result<(), String> {
        let job = self.job(line.object())?;
        let mut receipts = self.world.events.iter().filter_map(|event| match event {
            Event::AttemptEnded { job: of, receipt: Some(receipt), .. } if *of == job => Some(receipt),
            _ => None,
        });
        let last = receipts.next_back().ok_or("the job has no receipt")?;
        let shown = format!(
            "{}  lost {}s of GPU time to `{}`, ran {}s",
            line.object(),
            last.lost_gpu_ms / SECOND as u64,
            last.by,
            last.ran_ms / SECOND
        );
        self.shown.push(self.with_names(&shown));
        Ok(())
    }

    /// Show the state of a node, its actor and its reason; both axes if they differ from `Ready` and `Seen`.
    pub fn show_node(&mut self, line: &Line) -> Result<(), String> {
        let id: NodeId = line.object().parse().unwrap();
        let node = self.world.state.nodes.get(&id).ok_or("no such node")?;
        let one = |word: &str, by: &str, since: Timestamp, why: &str| {
            format!("{word} by {by} since minute {}: {why}", since.0 / MINUTE)
        };
        let state = &node.state;
        let (word, service, sight) = (state.combined(), &state.service, &state.sight);
        let mut shown = vec![one(word.status.as_str(), &word.by, word.since, &word.why)];
        let service_text = one(service.status.as_str(), &service.by, service.since, &service.why);
        let sight_text = one(sight.status.as_str(), &sight.by, sight.since, &sight.why);
        if service.status != Service::Ready && sight.status != Sight::Seen {
            shown.extend([service_text, sight_text].into_iter().filter(|text| *text != shown[0]).collect::<Vec<_>>());
        }
        self.shown.push(format!("{id}  {}", shown.join("; ")));
        Ok(())
    }

    /// Show what follows the drain of a node, when its jobs end, and the failure of the power program.
    pub fn show_drain(&mut self, line: &Line) -> Result<(), String> {
        let id: NodeId = line.object().parse().unwrap();
        let node = self.world.state.nodes.get(&id).ok_or("no such node")?;
        let at = |at: Timestamp| format!("{}:{:02}", at.0 / MINUTE, at.0 % MINUTE / SECOND);
        let mut shown = vec![node.state.service.status.as_str().to_string()];
        if let Some(drain) = &node.drain {
            shown.extend(drain.deadline.map(|deadline| format!("until {}", at(deadline))));
            shown.extend(drain.reboot.as_ref().map(|reboot| format!("reboots from {}", reboot.boot_id)));
        }
        shown.extend(node.due_reboot().map(|reboot| format!("due, confirmed {}", reboot.confirmed)));
        for holder in planner::holders_of_node(&self.world.state, node, self.world.now) {
            let end = holder.end.map_or("unknown".to_string(), at);
            shown.push(format!("{} ends {end} ({} GPUs)", self.with_names(&format!("`{}`", holder.job)), holder.gpus));
        }
        let failure = node.power_failure.as_ref();
        shown.extend(failure.map(|known| format!("{} failed {}x: {}", known.action.as_str(), known.times, known.why)));
        self.shown.push(format!("{id}  {}", shown.join("; ")));
        Ok(())
    }

    /// Show when the tasks of a job got the early signal.
    pub fn signalled(&mut self, line: &Line) -> Result<(), String> {
        let job = self.job(line.object())?;
        let attempt = self.world.state.jobs.get(&job).and_then(Job::attempt).ok_or("the job has no attempt")?;
        let at = attempt.signalled_at.map(|at| format!("signalled at minute {}", at.0 / MINUTE));
        let shown = at.unwrap_or_else(|| "not signalled".to_string());
        self.shown.push(format!("{}  {shown}", line.object()));
        Ok(())
    }

    /// Show the master and the port of a gang.
    pub fn port(&mut self, line: &Line) -> Result<(), String> {
        let job = self.job(line.object())?;
        let attempt = self.world.state.jobs.get(&job).and_then(Job::attempt).ok_or("the job has no attempt")?;
        let held = attempt.master_and_port().map(|(node, port)| format!("port {port} of {node}"));
        self.shown.push(format!("{}  {}", line.object(), held.unwrap_or_else(|| "no port".to_string())));
        Ok(())
    }

    /// Show the score of a placement, term by term.
    pub fn score(&mut self, line: &Line) -> Result<(), String> {
        let job = self.job(line.object())?;
        let attempt = self.world.state.jobs.get(&job).and_then(Job::attempt).ok_or("the job has no placement")?;
        let shown = match &attempt.score {
            None => "was not compared".to_string(),
            Some(score) => {
                let terms = score.terms.iter().map(|term| format!("{} {}, ", term.name.as_str(), term.milli));
                format!("{}{} compared", terms.collect::<String>(), score.compared)
            }
        };
        self.shown.push(format!("{}  {shown}", line.object()));
        Ok(())
    }

    pub fn remedies(&mut self, line: &Line) -> Result<(), String> {
        let job = self.job(line.object())?;
        let found = remedies(&self.world.state, &self.world.by, job, self.world.now);
        let phrases: Vec<String> = found.iter().map(Remedy::phrase).collect();
        self.shown.push(format!("{}  remedies: {}", line.object(), phrases.join(" · ")));
        Ok(())
    }

    /// `used TENANT SPAN`: the GPU time charged so far.
    pub fn used(&mut self, line: &Line) -> Result<(), String> {
        let used = self.world.state.ledger.account(&line.object().parse().unwrap()).used;
        let expected = line.plain.get(1).map(|text| span(text) as u64);
        if expected == Some(used.gpu_ms) { Ok(()) } else { Err(format!("{} GPU-ms were used", used.gpu_ms)) }
    }
}
