//! Step 4, decide: check a command against the state, and return its events or a refusal. Nothing is changed here.
//!
//! Each family of commands has a file beside this one: guards first, then the events.

use crate::facts::command::{Actor, Answer, Command};
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::GpuId;
use crate::state::State;
use crate::state::decision::Decision;
use crate::state::drain::DrainRequest;
use crate::state::node_state::Silence;
use crate::state::nodes::HealthUpdate;
use crate::state::power::PowerReport;
use crate::time::Timestamp;

/// Characters of an act or its object that the audit log keeps. Only the path of a refused request may be longer.
const AUDIT_CHARS_MAX: usize = 200;

impl State {
    /// The events and the answer of a command, or why it is refused.
    pub fn decide(&self, by: &Actor, command: &Command, now: Timestamp) -> Result<Decision, Refusal> {
        let now = now.max(self.clock);
        match command {
            Command::SubmitJob(request) => self.decide_submit(by, request, now),
            Command::CancelJob { job } => self.decide_cancel(by, *job, now),
            Command::HoldJob { job, why } => self.decide_hold(by, *job, why, now),
            Command::ReleaseJob { job } => self.decide_release(by, *job, now),
            Command::RequeueJob { job } => self.decide_requeue(by, *job, now),
            Command::ChangeJob { job, change } => self.decide_change(by, *job, change, now),
            Command::CreateTenant { id, config } => self.decide_create_tenant(id, config, now),
            Command::ChangeTenant { id, config } => self.decide_change_tenant(id, config, now),
            Command::DeleteTenant { id } => self.decide_delete_tenant(by, id, now),
            Command::RegisterNode { node, facts } => self.decide_register(node, facts, now),
            Command::DeclareNode { node, facts } => self.decide_declare(by, node, facts, now),
            Command::LabelNode { node, labels, taints } => {
                self.decide_label(by, node, labels.as_ref(), taints.as_ref(), now)
            }
            Command::RemoveGpu { node, gpu } => self.decide_remove_gpu(by, node, *gpu, now),
            Command::SetNodeState { node, status, why } => self.decide_node_state(by, node, *status, why, now),
            Command::DrainNode { node, why, deadline_ms, reboot } => {
                let request = DrainRequest { why, deadline_ms: *deadline_ms, reboot: *reboot };
                self.decide_drain(by, node, &request, now)
            }
            Command::ControlPower { node, action, force } => self.decide_control_power(node, *action, *force),
            Command::ReportPower { node, action, failure, attempts } => {
                let report = PowerReport { action: *action, failure: failure.as_deref(), attempts };
                self.decide_power_report(node, &report, now)
            }
            Command::SetNodeSight { node, sight, silent_ms, fenced } => {
                self.decide_node_sight(node, *sight, &Silence { ms: *silent_ms, fenced }, now)
            }
            Command::ReportHealth { node, failure } => self.decide_health(node, failure.as_deref(), now),
            Command::RemoveNode { node } => self.decide_remove_node(node, now),
            Command::SetGpuHealth { node, gpu, status, why, cooling_until, temperature_c, jobs } => {
                let update = HealthUpdate {
                    gpu: GpuId { node: node.clone(), index: *gpu },
                    status: *status,
                    why,
                    cooling_until: *cooling_until,
                    temperature_c: *temperature_c,
                };
                let decision = self.decide_gpu_health(by, &update, now)?;
                Ok(self.with_jobs_of_gpu(decision, by, &update, *jobs, now))
            }
            Command::PartitionGpu { node, gpu, profiles, why } => {
                let gpu = GpuId { node: node.clone(), index: *gpu };
                self.decide_partition(by, why, gpu, profiles, now)
            }
            Command::OpenWindow { window } => self.decide_open_window(by, window, now),
            Command::CloseWindow { name } => self.decide_close_window(name, now),
            Command::SetSecret { secret } => self.decide_set_secret(by, secret, now),
            Command::RemoveSecret { id } => self.decide_remove_secret(by, id, now),
            Command::AdoptPlan { plan, epoch } => Ok(self.decide_adopt(plan, *epoch, now)),
            Command::ReportTask { node, job, attempt, report } => {
                self.check_may_change_if_known(by, *job)?;
                self.decide_report(node, *job, *attempt, report, now)
            }
            Command::EnterJob { job, .. } => self.decide_enter(by, *job),
            Command::Tick => Ok(self.decide_tick(now)),
            Command::StopLateGangs { led_ms } => Ok(self.decide_late_gangs(*led_ms, now)),
            Command::NoteWaits { waits } => {
                let noted = waits.iter().cloned();
                let noted = noted.map(|(bucket, reasons)| Event::WaitNoted { bucket, reasons, at: now });
                Ok(Decision::done(noted.collect()))
            }
            Command::NoteForecast { ranges } => Ok(self.decide_forecast(ranges, now)),
            Command::NoteRefusal { act, object, code } => Ok(Decision::done(vec![Event::Acted {
                by: by.name.clone(),
                by_kind: Some(by.kind_name().to_string()),
                act: truncated(act),
                object: truncated(object),
                refused: Some(code.clone()),
                times: 1,
                at: now,
            }])),
            Command::Configure { settings } => Ok(self.decide_configure(settings, now)),
            Command::ApplyPolicy { scope, bundle, why } => self.decide_apply_policy(by, why, scope, bundle, now),
            Command::RollBackPolicy { scope, number, why } => {
                self.decide_roll_back_policy(by, why, scope, *number, now)
            }
            Command::NoteAnswers { bundles, answers, limits, retries } => {
                self.decide_answers(bundles, answers, limits, retries, now)
            }
            Command::AddToken { token } => self.decide_add_token(by, token, now),
            Command::RevokeToken { id } => self.decide_revoke_token(id, now),
            Command::AddJoinToken { token } => self.decide_add_join_token(token, now),
            Command::EnrolNode { node, token } => self.decide_enrol(node, token, now),
            Command::ChooseClusterCa { fingerprint } => self.decide_cluster_ca(fingerprint, now),
        }
    }

    /// Decide, and record administrative acts for the audit log, done or refused.
    ///
    /// The caller applies the events in either case.
    pub fn decide_audited(
        &self,
        by: &Actor,
        command: &Command,
        now: Timestamp,
    ) -> (Vec<Event>, Result<Answer, Refusal>) {
        let (mut events, answer) = match self.decide(by, command, now) {
            Ok(decision) => (decision.events, Ok(decision.answer)),
            Err(refusal) => (Vec::new(), Err(refusal)),
        };
        if let Some((act, object)) = command.act().filter(|_| !by.is_system()) {
            let refused = answer.as_ref().err().map(|refusal| refusal.code().to_string());
            let (at, object) = (now.max(self.clock), truncated(&object));
            events.push(Event::Acted {
                by: by.name.clone(),
                by_kind: Some(by.kind_name().to_string()),
                act: act.to_string(),
                object,
                refused,
                times: 1,
                at,
            });
        }
        (events, answer)
    }
}

/// A caller's text, shortened for the audit log. An ellipsis marks a cut.
fn truncated(text: &str) -> String {
    match text.char_indices().nth(AUDIT_CHARS_MAX) {
        None => text.to_string(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
