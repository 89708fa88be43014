//! The language of the scenarios: one line, one command.

use std::collections::BTreeSet;

use muster_core::command::{
    Actor, ActorKind, Answer, ArrayAsk, Command, IdempotencyKey, JobChange, Said, SubmitJob,
};
use muster_core::job::{
    Attempt, CheckpointRule, Dependency, DependencyWhen, Exit, Isolation, Job, JobSpec, OnNodeLost,
    Resources, TaskGroup, Topology,
};
use muster_core::node::NodeWord;
use muster_core::plan::{Remedy, Verdicts, outlook, remedies};
use muster_core::settings::{Objective, Repartition};
use muster_core::tenant::{TenantConfig, Tier};
use muster_core::time::{HOUR, MINUTE, SECOND};
use muster_core::token::Role;
use muster_core::window::Window;
use muster_core::{Event, JobId, NodeId, Refusal};

use crate::devices;
use crate::words::{Words, mib, number, span, tasks, yes};
use crate::world::{World, actor, facts, spec, submission};

/// A story being told.
pub struct Script {
    pub world: World,
    pub names: Vec<(String, JobId)>,
    pub verdicts: Verdicts,
    refused: Option<Refusal>,
    /// What `outlook` lines saw since the last board.
    pub seen: Vec<String>,
}

impl Script {
    pub fn new() -> Script {
        let (world, verdicts) = (World::new(), Verdicts::default());
        Script { world, names: Vec::new(), verdicts, refused: None, seen: Vec::new() }
    }

    /// Play one line.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        let words = Words::of(line);
        if words.verb.is_empty() {
            return Ok(());
        }
        if words.verb == "refused" {
            return self.expect_refused(line);
        }
        self.finish()?;
        self.play(&words)
    }

    /// A refusal must be expected by the line after it.
    pub fn finish(&mut self) -> Result<(), String> {
        match self.refused.take() {
            None => Ok(()),
            Some(refusal) => Err(format!("the command before was refused ({}): {refusal}", refusal.code())),
        }
    }

    fn expect_refused(&mut self, line: &str) -> Result<(), String> {
        let refusal = self.refused.take().ok_or("nothing was refused")?;
        let said = format!("refused {}: {refusal}; {}", refusal.code(), refusal.hint().unwrap_or_default());
        let said = self.with_names(&said);
        let code = format!("refused {}", refusal.code());
        let text = line.split_once(": ").map_or("", |(_, text)| text);
        let right = line.split(": ").next() == Some(&code) && said.contains(text);
        if right { Ok(()) } else { Err(format!("it said `{said}`")) }
    }

    fn play(&mut self, words: &Words) -> Result<(), String> {
        match words.verb {
            "as" => self.act_as(words),
            "settings" => self.settings(words),
            "tenant" => self.tenant(words),
            "node" => self.node(words),
            "drain" => self.node_state(words, NodeWord::Draining),
            "undrain" => self.node_state(words, NodeWord::Ready),
            "unreachable" => self.node_state(words, NodeWord::Unreachable),
            "fence" => self.node_state(words, NodeWord::Fenced),
            "remove" => self.tell(Command::RemoveNode { node: words.object().parse().unwrap() }),
            "gpu" => self.gpu(words),
            "partition" => self.partition(words),
            "instances" => self.instances(words),
            "window" => self.window(words),
            "close" => self.tell(Command::CloseWindow { name: words.object().to_string() }),
            "submit" => self.submit(words),
            "cancel" => self.steer(words, |job| Command::CancelJob { job }),
            "hold" => self.steer(words, |job| Command::HoldJob { job, why: words.rest(2) }),
            "release" => self.steer(words, |job| Command::ReleaseJob { job }),
            "requeue" => self.steer(words, |job| Command::RequeueJob { job }),
            "change" => self.change(words),
            "plan" => self.plan(),
            "tick" => self.tick(words),
            "start" => self.report(words, Said::Started),
            "saved" => self.report(words, Said::Saved),
            "receipt" => self.receipt(words),
            "remedies" => self.remedies(words),
            "look" => self.look(words),
            "end" => self.report(words, said_end(words)),
            "outlook" => self.outlook(words),
            "score" => self.score(words),
            "used" => self.used(words),
            verb => Err(format!("`{verb}` is not a word of the language")),
        }
    }

    pub fn tell(&mut self, command: Command) -> Result<(), String> {
        if let Err(refusal) = self.world.ask(command) {
            self.refused = Some(refusal);
        }
        Ok(())
    }

    /// `as ann role=member tenant=red max_priority=2000`: the bearer of such a token acts from here on; `as local`
    /// ends it.
    fn act_as(&mut self, words: &Words) -> Result<(), String> {
        let Some(role) = words.get("role") else {
            self.world.by = actor();
            return Ok(());
        };
        let roles = [Role::Viewer, Role::Member, Role::TenantAdmin, Role::Operator, Role::Admin];
        let role = roles.into_iter().find(|known| known.word() == role).ok_or(format!("no role `{role}`"))?;
        self.world.by = Actor {
            name: words.object().to_string(),
            kind: ActorKind::Token {
                role,
                tenant: words.get("tenant").map(|tenant| tenant.parse().unwrap()),
                priority_max: words.get("max_priority").map(number),
            },
        };
        Ok(())
    }

    fn settings(&mut self, words: &Words) -> Result<(), String> {
        let mut settings = self.world.state.settings.clone();
        for (key, value) in &words.options {
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
                "claim" => settings.claim_ms = span(value),
                "backoff" => settings.launch_backoff_ms = span(value),
                "queue_size" => settings.queue_size_max = number(value),
                "gangs" => settings.gangs = yes(value),
                "memory" => settings.memory_ms = span(value),
                "defragment" => settings.defragment = yes(value),
                "repartition" => settings.repartition = repartition(value)?,
                "repartition_after" => settings.repartition_after_ms = span(value),
                "repartition_cooldown" => settings.repartition_cooldown_ms = span(value),
                "waste" => settings.weights.waste = number(value),
                "locality" => settings.weights.locality = number(value),
                "health" => settings.weights.health = number(value),
                key => return Err(format!("no setting `{key}`")),
            }
        }
        self.tell(Command::Configure { settings: Box::new(settings) })
    }

    fn tenant(&mut self, words: &Words) -> Result<(), String> {
        let id: muster_core::TenantId = words.object().parse().unwrap();
        let known = self.world.state.tenants.get(&id).map(|tenant| tenant.config.clone());
        let mut config = known.clone().unwrap_or_else(|| TenantConfig::unlimited(words.object()));
        for (key, value) in &words.options {
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
                "price" => {
                    (config.billed, config.price_gpu_hour_micro) = (true, number::<u64>(value) * 1_000_000)
                }
                "tier" => config.tier = tier(value)?,
                "max_priority" => config.priority_max = Some(number(value)),
                "weight" => config.weight = number(value),
                "decay" => config.decay_milli_per_day = number(value),
                "parent" => config.parent = Some(value.parse().unwrap()),
                "can_preempt" => config.may_preempt = yes(value),
                "preemptable" => config.may_be_preempted = yes(value),
                "damage" => config.damage_gpu_ms_per_day = Some(span(value) as u64),
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
            Some(_) => self.tell(Command::ChangeTenant { id, config }),
            None => self.tell(Command::CreateTenant { id, config }),
        }
    }

    fn node(&mut self, words: &Words) -> Result<(), String> {
        let option = |key, default| words.get(key).unwrap_or(default);
        let (gpus, model) = (number(option("gpus", "8")), option("model", "NVIDIA H100 80GB HBM3"));
        let mut facts = facts(gpus, model, number(option("cpus", "64")), mib(option("memory", "512g")));
        // `model=H100,A100`: by turns.
        for (gpu, model) in facts.gpus.iter_mut().zip(model.split(',').cycle()) {
            gpu.model = model.to_string();
            gpu.memory_mib = mib(option("gpu_memory", "80g"));
            gpu.power_limit_milliwatts = words.get("watts").map(|watts| number::<u64>(watts) * 1_000);
        }
        devices::wire(&mut facts, words)?;
        devices::cut(&mut facts, words);
        facts.simulated = !words.has("real");
        facts.labels = words.labels();
        facts.rack = words.get("rack").map(str::to_string);
        facts.block = words.get("block").map(str::to_string);
        facts.taints = words.get("taint").map(str::to_string).into_iter().collect();
        self.tell(Command::RegisterNode { node: words.object().parse().unwrap(), facts: Box::new(facts) })
    }

    fn node_state(&mut self, words: &Words, word: NodeWord) -> Result<(), String> {
        let node = words.object().parse().unwrap();
        self.tell(Command::SetNodeState { node, word, why: words.rest(2) })
    }

    /// `window NAME nodes=n1,n2 from=10m for=1h tenant=red`.
    fn window(&mut self, words: &Words) -> Result<(), String> {
        let from = self.world.now.plus(words.get("from").map_or(0, span));
        let window = Window {
            name: words.object().to_string(),
            nodes: words
                .get("nodes")
                .unwrap_or_default()
                .split(',')
                .map(|node| node.parse().unwrap())
                .collect(),
            from,
            until: from.plus(words.get("for").map_or(HOUR, span)),
            tenant: words.get("tenant").map(|tenant| tenant.parse().unwrap()),
            why: words.rest(2),
            by: String::new(),
        };
        self.tell(Command::OpenWindow { window: Box::new(window) })
    }

    fn submit(&mut self, words: &Words) -> Result<(), String> {
        let spec = self.spec(words)?;
        let key =
            words.get("key").map(|key| IdempotencyKey { key: key.to_string(), body_hash: words.line() });
        let (array, hold) = (words.get("array").map(array), words.has("hold"));
        let ask = SubmitJob { array, hold, key, ..submission(spec) };
        match self.world.ask(Command::SubmitJob(ask)) {
            Ok(Answer::Job(job)) => self.names.push((words.object().to_string(), job)),
            Ok(answer) => return Err(format!("answered {answer:?}")),
            Err(refusal) => self.refused = Some(refusal),
        }
        Ok(())
    }

    fn spec(&self, words: &Words) -> Result<JobSpec, String> {
        let mut spec = spec(words.object(), 1);
        for (key, value) in &words.options {
            let group = &mut spec.tasks[0];
            match *key {
                "tenant" => spec.tenant = value.parse().unwrap(),
                "user" => spec.user = value.to_string(),
                "priority" => spec.priority = number(value),
                "tasks" => (group.count, group.count_max) = tasks(value),
                "gpus" => group.each.gpus = number(value),
                "cpus" => group.each.cpus = number(value),
                "memory" => group.each.memory_mib = mib(value),
                "gpu_memory" => group.each.gpu_memory_mib = mib(value),
                "models" => group.each.gpu_models = value.split(',').map(str::to_string).collect(),
                "share" => group.each.gpu_compute_milli = number(value),
                "isolation" => group.each.isolation = isolation(value)?,
                "topology" => spec.topology = topology(value)?,
                "prefer_nvlink" => spec.prefer_nvlink = *value == "yes",
                "cross_numa" => spec.allow_cross_numa = Some(*value == "yes"),
                "launcher" => spec.tasks.push(TaskGroup {
                    name: "launcher".to_string(),
                    count: 1,
                    count_max: None,
                    each: Resources { gpus: 0, cpus: number(value), ..spec.tasks[0].each.clone() },
                }),
                "saves_every" => {
                    let every_ms = Some(span(value));
                    spec.checkpoint = Some(CheckpointRule { path: "/out".to_string(), every_ms });
                }
                "limit" => spec.time_limit_ms = Some(span(value)),
                "start" => spec.start_after = Some(self.world.now.plus(span(value))),
                "restarts" => spec.restart.max_restarts = number(value),
                "requeues" => spec.restart.max_requeues = number(value),
                "lost" => {
                    spec.on_node_lost =
                        if *value == "requeue" { OnNodeLost::Requeue } else { OnNodeLost::Wait }
                }
                "after" => spec.after.push(self.dependency(value, DependencyWhen::Succeeded)?),
                "after_failed" => spec.after.push(self.dependency(value, DependencyWhen::Failed)?),
                "after_any" => spec.after.push(self.dependency(value, DependencyWhen::Ended)?),
                "array" | "key" => {}
                key if key.starts_with("label.") => {}
                key => return Err(format!("jobs have no `{key}`")),
            }
        }
        spec.node_labels = words.labels();
        Ok(spec)
    }

    fn dependency(&self, name: &str, when: DependencyWhen) -> Result<Dependency, String> {
        Ok(Dependency { job: self.job(name)?, when })
    }

    fn steer(&mut self, words: &Words, command: impl FnOnce(JobId) -> Command) -> Result<(), String> {
        let job = self.job(words.object())?;
        self.tell(command(job))
    }

    fn change(&mut self, words: &Words) -> Result<(), String> {
        let priority = words.get("priority").map(number);
        let time_limit_ms = words.get("limit").map(|limit| Some(span(limit)));
        let change = JobChange { priority, time_limit_ms, ..JobChange::default() };
        self.steer(words, |job| Command::ChangeJob { job, change })
    }

    fn plan(&mut self) -> Result<(), String> {
        self.verdicts = self.world.plan().verdicts;
        Ok(())
    }

    fn tick(&mut self, words: &Words) -> Result<(), String> {
        self.world.tick(span(words.object()));
        Ok(())
    }

    /// An agent speaks, or all that have a part; of the attempt under way unless the line names another.
    fn report(&mut self, words: &Words, said: Said) -> Result<(), String> {
        let job = self.job(words.object())?;
        let attempt = self.world.state.jobs.get(&job).and_then(Job::attempt);
        let nodes = attempt.map(Attempt::nodes).unwrap_or_default();
        let named: Option<NodeId> = words.get("node").map(|node| node.parse().unwrap());
        let nodes = named.map_or(nodes, |node| BTreeSet::from([node]));
        let number = words.get("attempt").map(number).or(attempt.map(|attempt| attempt.number)).unwrap_or(1);
        if nodes.is_empty() {
            return Err("it has no node".to_string());
        }
        nodes.into_iter().try_for_each(|node| {
            self.tell(Command::ReportTask { node, job, attempt: number, said: said.clone() })
        })
    }

    fn outlook(&mut self, words: &Words) -> Result<(), String> {
        let found = outlook(&self.world.state, &self.spec(words)?, self.world.now);
        let seen = match (&found.start, &found.room) {
            (Some(tasks), _) => {
                let gpus = tasks
                    .iter()
                    .flat_map(|task| task.gpus.iter().map(move |gpu| format!("{}/gpu-{gpu}", task.node)));
                format!("would start  {}", gpus.collect::<Vec<_>>().join(" "))
            }
            (None, Some(room)) => {
                let victims: Vec<String> = room.victims.iter().map(|victim| format!("`{victim}`")).collect();
                let nodes: BTreeSet<String> = room.tasks.iter().map(|task| task.node.to_string()).collect();
                let nodes: Vec<String> = nodes.into_iter().collect();
                format!("would displace  {} on {}", victims.join(" "), nodes.join(" "))
            }
            (None, None) => {
                let sentences: Vec<String> =
                    found.verdict.reasons.iter().map(|reason| reason.sentence()).collect();
                format!("would wait  {}", sentences.join("; "))
            }
        };
        let position = found.position;
        let line = format!("{}  {seen} ({} of {})", words.object(), position.position, position.of);
        self.seen.push(self.with_names(&line));
        Ok(())
    }

    /// What displacing a job has cost so far: `receipt JOB LOST`.
    fn receipt(&mut self, words: &Words) -> Result<(), String> {
        let job = self.job(words.object())?;
        let mut receipts = self.world.events.iter().filter_map(|event| match event {
            Event::AttemptEnded { job: of, receipt: Some(receipt), .. } if *of == job => Some(receipt),
            _ => None,
        });
        let last = receipts.next_back().ok_or("it has no receipt")?;
        let line = format!(
            "{}  lost {}s of GPU time to `{}`, ran {}s",
            words.object(),
            last.lost_gpu_ms / SECOND as u64,
            last.by,
            last.ran_ms / SECOND
        );
        self.seen.push(self.with_names(&line));
        Ok(())
    }

    /// Where a node stands, who said so and why.
    fn look(&mut self, words: &Words) -> Result<(), String> {
        let id: NodeId = words.object().parse().unwrap();
        let node = self.world.state.nodes.get(&id).ok_or("no such node")?;
        let (state, minutes) = (&node.state, node.state.since.0 / MINUTE);
        self.seen
            .push(format!("{id}  {:?} by {} since minute {minutes}: {}", state.word, state.by, state.why));
        Ok(())
    }

    /// What a job's place cost, term by term.
    fn score(&mut self, words: &Words) -> Result<(), String> {
        let job = self.job(words.object())?;
        let attempt = self.world.state.jobs.get(&job).and_then(Job::attempt).ok_or("it has no place")?;
        let told = match &attempt.score {
            None => "was not compared".to_string(),
            Some(score) => {
                let terms = score.terms.iter().map(|term| format!("{} {}, ", term.name.word(), term.milli));
                format!("{}{} compared", terms.collect::<String>(), score.compared)
            }
        };
        self.seen.push(format!("{}  {told}", words.object()));
        Ok(())
    }

    fn remedies(&mut self, words: &Words) -> Result<(), String> {
        let job = self.job(words.object())?;
        let found = remedies(&self.world.state, &self.world.by, job, self.world.now);
        let said: Vec<String> = found.iter().map(Remedy::words).collect();
        self.seen.push(format!("{}  sooner with: {}", words.object(), said.join(" · ")));
        Ok(())
    }

    fn used(&mut self, words: &Words) -> Result<(), String> {
        let used = self.world.state.ledger.account(&words.object().parse().unwrap()).used;
        let expected = words.plain.get(1).map(|text| span(text) as u64);
        if expected == Some(used.gpu_ms) { Ok(()) } else { Err(format!("{} GPU-ms were used", used.gpu_ms)) }
    }

    fn job(&self, name: &str) -> Result<JobId, String> {
        let found = |name: &str| self.names.iter().find(|(known, _)| known == name).map(|(_, job)| *job);
        let task = || {
            let (name, index) = name.split_once('.')?;
            Some(JobId::of_array(found(name)?.number, index.parse().ok()?))
        };
        found(name).or_else(task).ok_or_else(|| format!("no job is called `{name}`"))
    }

    /// People read the names of the story, not numbers.
    pub fn with_names(&self, text: &str) -> String {
        let mut text = text.to_string();
        for (name, job) in &self.names {
            text = text.replace(&format!("`{job}`"), &format!("`{name}`"));
            text = text.replace(&format!("`{job}."), &format!("`{name}."));
        }
        text
    }
}

fn said_end(words: &Words) -> Said {
    let exit = match (words.get("exit"), words.get("signal")) {
        (Some("not-started"), _) => Exit::NotStarted { why: "the image is missing".to_string() },
        (Some("unknown"), _) => Exit::Unknown { why: "nobody saw it".to_string() },
        (Some(code), _) => Exit::Code { code: number(code) },
        (None, Some(signal)) => Exit::Signal { signal: number(signal) },
        (None, None) => Exit::Code { code: 0 },
    };
    Said::Ended { exit, stopped: words.has("stopped"), ended_ms_ago: None }
}

fn tier(text: &str) -> Result<Tier, String> {
    let tiers = [Tier::Low, Tier::Medium, Tier::High, Tier::Critical];
    tiers.into_iter().find(|tier| tier.word() == text).ok_or(format!("no tier `{text}`"))
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

fn isolation(text: &str) -> Result<Isolation, String> {
    match text {
        "none" => Ok(Isolation::None),
        "memory" => Ok(Isolation::Memory),
        "full" => Ok(Isolation::Full),
        text => Err(format!("no isolation `{text}`")),
    }
}

fn topology(text: &str) -> Result<Topology, String> {
    match text {
        "any" => Ok(Topology::Any),
        "same-rack" => Ok(Topology::SameRack),
        "same-numa" => Ok(Topology::SameNuma),
        "nvlink" => Ok(Topology::Nvlink),
        text => Err(format!("no topology `{text}`")),
    }
}

/// `0-3`, `0-3%2`.
fn array(text: &str) -> ArrayAsk {
    let (range, max) = text.split_once('%').map_or((text, None), |(range, max)| (range, Some(number(max))));
    let (first, last) = range.split_once('-').unwrap();
    ArrayAsk { indexes: (number(first)..=number(last)).collect(), running_max: max }
}
