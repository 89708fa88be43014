//! Runs the lines of a scenario: one line, one command.

use std::collections::BTreeSet;

use muster_core::facts::command::{
    Actor, ActorKind, Answer, ArraySpec, Command, IdempotencyKey, JobChange, SubmitJob, TaskReport,
};
use muster_core::objects::job::{Attempt, Exit, Job};
use muster_core::objects::node::{NodeStatus, PowerAction, Sight};
use muster_core::objects::settings::{Objective, PortRange, Repartition};
use muster_core::objects::tenant::{TenantConfig, Tier};
use muster_core::objects::token::Role;
use muster_core::objects::window::Window;
use muster_core::planner::Verdicts;
use muster_core::time::HOUR;
use muster_core::{JobId, NodeId, Refusal};

use super::gpus;
use super::line::{Line, mib, number, span, yes};
use crate::builders::{node, submission, window};
use crate::world::{World, actor};

/// A running scenario.
pub struct ScenarioRunner {
    pub world: World,
    pub names: Vec<(String, JobId)>,
    pub verdicts: Verdicts,
    refused: Option<Refusal>,
    /// Results of query lines since the last status table.
    pub shown: Vec<String>,
    /// The status table shows sentences instead of codes and numbers.
    pub wording: bool,
}

impl ScenarioRunner {
    pub fn new() -> ScenarioRunner {
        let (world, verdicts) = (World::new(), Verdicts::default());
        ScenarioRunner { world, names: Vec::new(), verdicts, refused: None, shown: Vec::new(), wording: false }
    }

    /// Run one line.
    pub fn line(&mut self, text: &str) -> Result<(), String> {
        let line = Line::of(text);
        if line.verb.is_empty() {
            return Ok(());
        }
        if line.verb == "refused" {
            return self.expect_refused(text);
        }
        if line.verb == "wording" {
            self.wording = true;
            return Ok(());
        }
        self.finish()?;
        self.run_line(&line)
    }

    /// A refusal must be expected by the next line.
    pub fn finish(&mut self) -> Result<(), String> {
        match self.refused.take() {
            None => Ok(()),
            Some(refusal) => Err(format!("the command before was refused ({}): {refusal}", refusal.code())),
        }
    }

    fn expect_refused(&mut self, line: &str) -> Result<(), String> {
        let refusal = self.refused.take().ok_or("nothing was refused")?;
        let actual = format!("refused {}: {refusal}; {}", refusal.code(), refusal.hint().unwrap_or_default());
        let actual = self.with_names(&actual);
        let code = format!("refused {}", refusal.code());
        let text = line.split_once(": ").map_or("", |(_, text)| text);
        let right = line.split(": ").next() == Some(&code) && actual.contains(text);
        if right { Ok(()) } else { Err(format!("the refusal is `{actual}`")) }
    }

    fn run_line(&mut self, line: &Line) -> Result<(), String> {
        match line.verb {
            "as" => self.act_as(line),
            "settings" => self.settings(line),
            "tenant" => self.tenant(line),
            "node" => self.node(line),
            "drain" if line.get("deadline").is_some() => self.drain(line, false),
            "drain" => self.node_state(line, NodeStatus::Draining),
            "reboot" => self.drain(line, true),
            "power" => self.power(line),
            "power-failed" => self.power_report(line, Some(line.rest(3))),
            "power-done" => self.power_report(line, None),
            "show-drain" => self.show_drain(line),
            "undrain" => self.node_state(line, NodeStatus::Ready),
            "unreachable" => self.node_state(line, NodeStatus::Unreachable),
            "fence" => self.node_state(line, NodeStatus::Fenced),
            "silent" => self.silent(line),
            "seen" => self.sight(line, Sight::Seen, 0, Vec::new()),
            "remove" => self.run(Command::RemoveNode { node: line.object().parse().unwrap() }),
            "gpu" => self.gpu(line),
            "partition" => self.partition(line),
            "instances" => self.instances(line),
            "window" => self.window(line),
            "close" => self.run(Command::CloseWindow { name: line.object().to_string() }),
            "submit" => self.submit(line),
            "cancel" => self.steer(line, |job| Command::CancelJob { job }),
            "hold" => self.steer(line, |job| Command::HoldJob { job, why: line.rest(2) }),
            "release" => self.steer(line, |job| Command::ReleaseJob { job }),
            "requeue" => self.steer(line, |job| Command::RequeueJob { job }),
            "change" => self.change(line),
            "plan" => self.plan(),
            "tick" => self.tick(line),
            "takeover" => {
                self.world.led_since = self.world.now;
                Ok(())
            }
            "start" => self.report(line, TaskReport::Started),
            "checkpoint" => self.report(line, TaskReport::Saved),
            "signalled" => self.signalled(line),
            "port" => self.port(line),
            "receipt" => self.receipt(line),
            "remedies" => self.remedies(line),
            "show-node" => self.show_node(line),
            "end" => self.report(line, end_report(line)),
            "prolog-failed" => {
                self.report(line, TaskReport::PrologFailed { why: format!("prolog failed: {}", line.rest(2)) })
            }
            "epilog-failed" => self.report(line, TaskReport::EpilogFailed { why: line.rest(2) }),
            "unkillable" => self.report(line, TaskReport::Unkillable { processes: line.rest(2) }),
            "unhealthy" => self.health(line, Some(line.rest(2))),
            "healthy" => self.health(line, None),
            "dry-run" => self.dry_run(line),
            "score" => self.score(line),
            "used" => self.used(line),
            verb => Err(format!("no verb `{verb}`")),
        }
    }

    pub fn run(&mut self, command: Command) -> Result<(), String> {
        if let Err(refusal) = self.world.run(command) {
            self.refused = Some(refusal);
        }
        Ok(())
    }

    /// `as ann role=member tenant=red max_priority=2000`: the following commands act under such a token; `as local`
    /// ends it.
    fn act_as(&mut self, line: &Line) -> Result<(), String> {
        let Some(role) = line.get("role") else {
            self.world.by = actor();
            return Ok(());
        };
        let roles = [Role::Viewer, Role::Member, Role::TenantAdmin, Role::Operator, Role::Admin];
        let role = roles.into_iter().find(|known| known.as_str() == role).ok_or(format!("no role `{role}`"))?;
        self.world.by = Actor {
            name: line.object().to_string(),
            kind: ActorKind::Token {
                role,
                tenant: line.get("tenant").map(|tenant| tenant.parse().unwrap()),
                priority_max: line.get("max_priority").map(number),
            },
        };
        Ok(())
    }

    fn settings(&mut self, line: &Line) -> Result<(), String> {
        let mut settings = self.world.state.settings.clone();
        for (key, value) in &line.options {
            match *key {
                "objective" => settings.objective = objective(value)?,
                "aging_after" => settings.aging_after_ms = span(value),
                "aging_per_minute" => settings.aging_per_minute = number(value),
                "aging_max" => settings.aging_max = number(value),
                "fair_share" => settings.fair_share_max = number(value),
                "half_life" => settings.usage_half_life_ms = span(value),
                "max_wait" => settings.max_wait_ms = span(value),
                "reservations" => settings.reservations = number(value),
                "reserve_one_node_in" => settings.reserve_one_node_in = number(value),
                "default_runtime" => settings.default_runtime_ms = span(value),
                "preemption" => settings.preemption = yes(value),
                "min_runtime" => settings.preemption_min_runtime_ms = span(value),
                "cooldown" => settings.preemption_cooldown_ms = span(value),
                "grace" => settings.stop_grace_ms = span(value),
                "fence_drift" => settings.fence_drift_per_mille = number(value),
                "fence_margin" => settings.fence_margin_ms = span(value),
                "self_fence" => settings.self_fence_ms = span(value),
                "gang_start" => settings.gang_start_timeout_ms = span(value),
                "master_ports" => settings.master_ports = port_range(value),
                "health_resumes" => settings.health_resumes = yes(value),
                "claim" => settings.claim_ms = span(value),
                "backoff" => settings.launch_backoff_ms = span(value),
                "queue_size" => settings.queue_size_max = number(value),
                "gangs" => settings.gangs = yes(value),
                "memory" => settings.memory_ms = span(value),
                "defragment" => settings.defragment = yes(value),
                "repartition" => settings.repartition = repartition(value)?,
                "repartition_after" => settings.repartition_after_ms = span(value),
                "repartition_cooldown" => settings.repartition_cooldown_ms = span(value),
                "fragmentation" => settings.weights.fragmentation = number(value),
                "locality" => settings.weights.locality = number(value),
                "health" => settings.weights.health = number(value),
                key => return Err(format!("no setting `{key}`")),
            }
        }
        self.run(Command::Configure { settings: Box::new(settings) })
    }

    fn tenant(&mut self, line: &Line) -> Result<(), String> {
        let id: muster_core::TenantId = line.object().parse().unwrap();
        let known = self.world.state.tenants.get(&id).map(|tenant| tenant.config.clone());
        let mut config = known.clone().unwrap_or_else(|| TenantConfig::unlimited(line.object()));
        for (key, value) in &line.options {
            match *key {
                "gpus" => config.maximum.gpus = Some(number(value)),
                "cpus" => config.maximum.cpus = Some(number(value)),
                "memory" => config.maximum.memory_mib = Some(mib(value)),
                "jobs" => config.maximum.jobs = Some(number(value)),
                "user_gpus" => config.maximum_per_user.gpus = Some(number(value)),
                "user_gpu_memory" => config.maximum_per_user.gpu_memory_mib = Some(mib(value)),
                "user_cpus" => config.maximum_per_user.cpus = Some(number(value)),
                "user_memory" => config.maximum_per_user.memory_mib = Some(mib(value)),
                "user_jobs" => config.maximum_per_user.jobs = Some(number(value)),
                "guaranteed" => config.guaranteed.gpus = Some(number(value)),
                "gpu_hours" => config.budget.gpu_ms = Some(number::<u64>(value) * HOUR as u64),
                "kwh" => config.budget.energy_mj = Some(number::<u64>(value) * 3_600_000_000),
                "cost" => config.budget.cost_micro = Some(number::<u64>(value) * 1_000_000),
                "price" => (config.billed, config.price_gpu_hour_micro) = (true, number::<u64>(value) * 1_000_000),
                "tier" => config.tier = tier(value)?,
                "max_priority" => config.priority_max = Some(number(value)),
                "weight" => config.weight = number(value),
                "decay" => config.decay_milli_per_day = number(value),
                "parent" => config.parent = Some(value.parse().unwrap()),
                "can_preempt" => config.may_preempt = yes(value),
                "preemptable" => config.may_be_preempted = yes(value),
                "preemption_loss" => config.preemption_loss_gpu_ms_per_day = Some(span(value) as u64),
                "preemptions_max" => config.preemptions_per_job_max = Some(number(value)),
                key => match key.split_once('.') {
                    Some(("model", model)) => {
                        config.maximum_by_model.insert(model.to_string(), number(value));
                    }
                    Some(("guaranteed", model)) => {
                        config.guaranteed_by_model.insert(model.to_string(), number(value));
                    }
                    _ => return Err(format!("tenants have no `{key}`")),
                },
            }
        }
        let config = Box::new(config);
        match known {
            Some(_) => self.run(Command::ChangeTenant { id, config }),
            None => self.run(Command::CreateTenant { id, config }),
        }
    }

    fn node(&mut self, line: &Line) -> Result<(), String> {
        let option = |key, default| line.get(key).unwrap_or(default);
        let (gpus, model) = (number(option("gpus", "8")), option("model", "NVIDIA H100 80GB HBM3"));
        let node = node().gpus(gpus).model(model).cpus(number(option("cpus", "64")));
        let mut facts = node.memory_mib(mib(option("memory", "512g"))).build();
        // `model=H100,A100`: alternating.
        for (gpu, model) in facts.gpus.iter_mut().zip(model.split(',').cycle()) {
            gpu.model = model.to_string();
            gpu.memory_mib = mib(option("gpu_memory", "80g"));
            gpu.power_limit_milliwatts = line.get("watts").map(|watts| number::<u64>(watts) * 1_000);
        }
        gpus::set_topology(&mut facts, line)?;
        gpus::set_instances(&mut facts, line);
        facts.simulated = !line.has("real");
        facts.boot_id = option("boot", "").to_string();
        facts.labels = line.labels();
        facts.rack = line.get("rack").map(str::to_string);
        facts.block = line.get("block").map(str::to_string);
        facts.taints = line.get("taint").map(str::to_string).into_iter().collect();
        self.run(Command::RegisterNode { node: line.object().parse().unwrap(), facts: Box::new(facts) })
    }

    fn node_state(&mut self, line: &Line, status: NodeStatus) -> Result<(), String> {
        let node = line.object().parse().unwrap();
        self.run(Command::SetNodeState { node, status, why: line.rest(2) })
    }

    /// `drain n1 deadline=2h new fans`, `reboot n1 new kernel`.
    fn drain(&mut self, line: &Line, reboot: bool) -> Result<(), String> {
        let (node, deadline_ms) = (line.object().parse().unwrap(), line.get("deadline").map(span));
        self.run(Command::DrainNode { node, why: line.rest(2), deadline_ms, reboot })
    }

    /// `power n1 off force`: an operator wants the power program to run.
    fn power(&mut self, line: &Line) -> Result<(), String> {
        let (node, action) = (line.object().parse().unwrap(), power_action(line)?);
        self.run(Command::ControlPower { node, action, force: line.has("force") })
    }

    /// `power-done n1 fence`: the program started when the attempts of now existed, or those of `attempts=1,2`.
    fn power_report(&mut self, line: &Line, failure: Option<String>) -> Result<(), String> {
        let (node, action): (NodeId, PowerAction) = (line.object().parse().unwrap(), power_action(line)?);
        let attempts = self.world.state.attempts_on(&node);
        let attempts = attempts.filter_map(|job| Some((job.id, job.attempt()?.number)));
        let known = line.get("attempts").map(|names| names.split(',').collect::<Vec<_>>());
        let known = known.map(|names| names.iter().map(|name| self.job(name)).collect::<Result<Vec<_>, _>>());
        let known = known.transpose()?;
        let is_known = |job: &JobId| known.as_ref().is_none_or(|known| known.contains(job));
        let attempts = attempts.filter(|(job, _)| is_known(job)).collect();
        self.world.by = Actor::system();
        let outcome = self.run(Command::ReportPower { node, action, failure, attempts });
        self.world.by = actor();
        outcome
    }

    /// `silent n1 for=6m`: what the leader reports after this silence. It names every attempt on the node; the state
    /// decides which of them are proven dead.
    fn silent(&mut self, line: &Line) -> Result<(), String> {
        let silent_ms = line.get("for").map_or(0, span);
        let node: NodeId = line.object().parse().unwrap();
        let attempts = self.world.state.attempts_on(&node);
        let attempts = attempts.filter_map(|job| Some((job.id, job.attempt()?.number))).collect();
        let sight = if silent_ms < 30_000 { Sight::Suspect } else { Sight::Unreachable };
        self.sight(line, sight, silent_ms, attempts)
    }

    fn sight(&mut self, line: &Line, sight: Sight, silent_ms: i64, fenced: Vec<(JobId, u32)>) -> Result<(), String> {
        let node = line.object().parse().unwrap();
        self.world.by = Actor::system();
        let outcome = self.run(Command::SetNodeSight { node, sight, silent_ms, fenced });
        self.world.by = actor();
        outcome
    }

    fn health(&mut self, line: &Line, failure: Option<String>) -> Result<(), String> {
        let node = line.object().parse().unwrap();
        self.world.by = Actor::system();
        let outcome = self.run(Command::ReportHealth { node, failure });
        self.world.by = actor();
        outcome
    }

    /// `window NAME nodes=n1,n2 from=10m for=1h tenant=red`.
    fn window(&mut self, line: &Line) -> Result<(), String> {
        let from = self.world.now.plus(line.get("from").map_or(0, span));
        let nodes: Vec<&str> = line.get("nodes").unwrap_or_default().split(',').collect();
        let until = from.plus(line.get("for").map_or(HOUR, span));
        let window = Window {
            tenant: line.get("tenant").map(|tenant| tenant.parse().unwrap()),
            why: line.rest(2),
            ..window(line.object(), &nodes, from, until)
        };
        self.run(Command::OpenWindow { window: Box::new(window) })
    }

    fn submit(&mut self, line: &Line) -> Result<(), String> {
        let spec = self.spec(line)?;
        let key = line.get("key").map(|key| IdempotencyKey { key: key.to_string(), body_hash: line.body_hash() });
        let (array, hold) = (line.get("array").map(array), line.has("hold"));
        let submission = SubmitJob { array, hold, key, ..submission(spec) };
        match self.world.run(Command::SubmitJob(submission)) {
            Ok(Answer::Job(job)) => self.names.push((line.object().to_string(), job)),
            Ok(answer) => return Err(format!("answered {answer:?}")),
            Err(refusal) => self.refused = Some(refusal),
        }
        Ok(())
    }

    fn steer(&mut self, line: &Line, command: impl FnOnce(JobId) -> Command) -> Result<(), String> {
        let job = self.job(line.object())?;
        self.run(command(job))
    }

    fn change(&mut self, line: &Line) -> Result<(), String> {
        let priority = line.get("priority").map(number);
        let time_limit_ms = line.get("limit").map(|limit| Some(span(limit)));
        let change = JobChange { priority, time_limit_ms, ..JobChange::default() };
        self.steer(line, |job| Command::ChangeJob { job, change })
    }

    fn plan(&mut self) -> Result<(), String> {
        self.verdicts = self.world.plan().verdicts;
        Ok(())
    }

    fn tick(&mut self, line: &Line) -> Result<(), String> {
        self.world.tick(span(line.object()));
        Ok(())
    }

    /// A report of one node, or of all nodes of the job, about the current attempt unless the line names another.
    fn report(&mut self, line: &Line, report: TaskReport) -> Result<(), String> {
        let job = self.job(line.object())?;
        let attempt = self.world.state.jobs.get(&job).and_then(Job::attempt);
        let nodes = attempt.map(Attempt::nodes).unwrap_or_default();
        let named: Option<NodeId> = line.get("node").map(|node| node.parse().unwrap());
        let nodes = named.map_or(nodes, |node| BTreeSet::from([node]));
        let number = line.get("attempt").map(number).or(attempt.map(|attempt| attempt.number)).unwrap_or(1);
        if nodes.is_empty() {
            return Err("the job has no node".to_string());
        }
        nodes
            .into_iter()
            .try_for_each(|node| self.run(Command::ReportTask { node, job, attempt: number, report: report.clone() }))
    }

    pub fn job(&self, name: &str) -> Result<JobId, String> {
        let found = |name: &str| self.names.iter().find(|(known, _)| known == name).map(|(_, job)| *job);
        let task = || {
            let (name, index) = name.split_once('.')?;
            Some(JobId::of_array(found(name)?.number, index.parse().ok()?))
        };
        found(name).or_else(task).ok_or_else(|| format!("no job is called `{name}`"))
    }

    /// Job ids replaced by the names of the scenario.
    pub fn with_names(&self, text: &str) -> String {
        let mut text = text.to_string();
        for (name, job) in &self.names {
            text = text.replace(&format!("`{job}`"), &format!("`{name}`"));
            text = text.replace(&format!("`{job}."), &format!("`{name}."));
        }
        text
    }
}

fn end_report(line: &Line) -> TaskReport {
    let exit = match (line.get("exit"), line.get("signal")) {
        (Some("invalid-job"), _) => Exit::InvalidJob { why: "the working directory is missing".to_string() },
        (Some("not-started"), _) => Exit::NotStarted { why: "the image is missing".to_string() },
        (Some("unknown"), _) => Exit::Unknown { why: "unknown".to_string() },
        (Some(code), _) => Exit::Code { code: number(code) },
        (None, Some(signal)) => Exit::Signal { signal: number(signal) },
        (None, None) => Exit::Code { code: 0 },
    };
    TaskReport::Ended { exit, stopped: line.has("stopped"), ended_ms_ago: None }
}

/// The action of `power n1 ACTION`.
fn power_action(line: &Line) -> Result<PowerAction, String> {
    let name = line.plain.get(1).copied().unwrap_or_default();
    let known = PowerAction::ALL.into_iter().find(|action| action.as_str() == name);
    known.ok_or(format!("no action `{name}`"))
}

fn tier(text: &str) -> Result<Tier, String> {
    let tiers = [Tier::Low, Tier::Medium, Tier::High, Tier::Critical];
    tiers.into_iter().find(|tier| tier.as_str() == text).ok_or(format!("no tier `{text}`"))
}

fn objective(text: &str) -> Result<Objective, String> {
    match text {
        "fair" => Ok(Objective::Fair),
        "fast" => Ok(Objective::Fast),
        text => Err(format!("no objective `{text}`")),
    }
}

fn repartition(text: &str) -> Result<Repartition, String> {
    match text {
        "off" => Ok(Repartition::Off),
        "propose" => Ok(Repartition::Propose),
        "apply" => Ok(Repartition::Apply),
        text => Err(format!("no repartition `{text}`")),
    }
}

/// `29500-29501`.
fn port_range(text: &str) -> PortRange {
    let (first, last) = text.split_once('-').unwrap();
    PortRange { first: number(first), last: number(last) }
}

/// `0-3`, `0-3%2`.
fn array(text: &str) -> ArraySpec {
    let (range, max) = text.split_once('%').map_or((text, None), |(range, max)| (range, Some(number(max))));
    let (first, last) = range.split_once('-').unwrap();
    ArraySpec { indexes: (number(first)..=number(last)).collect(), running_max: max }
}
