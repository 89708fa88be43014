//! Step 4, decide: which facts may happen. Guards first, then the facts; nothing is changed here.
//!
//! Each family of commands has a file beside this one, with its guards together.

use crate::command::{Actor, Answer, Command};
use crate::event::Event;
use crate::refusal::Refusal;
use crate::state::State;
use crate::time::Timestamp;

/// Characters of an act or its object that are put on record. Names are shorter; a path of a refused request may not be.
const AUDIT_CHARS_MAX: usize = 200;

/// What an accepted command leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The facts, in order. None when the command asks for what is already so.
    pub events: Vec<Event>,
    /// What the asker is told.
    pub answer: Answer,
}

impl Decision {
    /// Facts, and nothing more to tell.
    pub(super) fn done(events: Vec<Event>) -> Decision {
        Decision { events, answer: Answer::Done }
    }
}

impl State {
    /// Say which facts a command leads to, or why it is declined.
    pub fn decide(&self, by: &Actor, command: &Command, now: Timestamp) -> Result<Decision, Refusal> {
        let now = now.max(self.clock);
        match command {
            Command::SubmitJob(ask) => self.decide_submit(by, ask, now),
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
                self.decide_label(by, node, (labels.as_ref(), taints.as_ref()), now)
            }
            Command::RemoveGpu { node, gpu } => self.decide_remove_gpu(by, node, *gpu, now),
            Command::SetNodeState { node, word, why } => self.decide_node_state(by, node, *word, why, now),
            Command::RemoveNode { node } => self.decide_remove_node(node, now),
            Command::SetGpuHealth { node, gpu, word, why, cooling_until, temperature_c, jobs } => {
                let said = self.decide_gpu_health(
                    (node, *gpu),
                    (by, why),
                    (*word, *temperature_c),
                    *cooling_until,
                    now,
                )?;
                Ok(self.with_jobs_of_gpu(said, (node, *gpu), (*word, why), (by, *jobs), now))
            }
            Command::PartitionGpu { node, gpu, profiles, why } => {
                self.decide_partition((by, why), (node, *gpu), profiles, now)
            }
            Command::OpenWindow { window } => self.decide_open_window(by, window, now),
            Command::CloseWindow { name } => self.decide_close_window(name, now),
            Command::AdoptPlan { plan, epoch } => Ok(self.decide_adopt(plan, *epoch, now)),
            Command::ReportTask { node, job, attempt, said } => {
                self.check_may_change_if_known(by, *job)?;
                self.decide_report(node, (*job, *attempt), said, now)
            }
            Command::Tick => Ok(self.decide_tick(now)),
            Command::NoteWaits { waits } => {
                let noted = waits.iter().cloned();
                let noted = noted.map(|(bucket, reasons)| Event::WaitNoted { bucket, reasons, at: now });
                Ok(Decision::done(noted.collect()))
            }
            Command::NoteForecast { ranges } => Ok(self.decide_forecast(ranges, now)),
            Command::NoteRefusal { act, object, code } => Ok(Decision::done(vec![Event::Acted {
                by: by.name.clone(),
                by_kind: Some(by.kind_word().to_string()),
                act: cut(act),
                object: cut(object),
                refused: Some(code.clone()),
                times: 1,
                at: now,
            }])),
            Command::Configure { settings } => Ok(self.decide_configure(settings, now)),
            Command::ApplyPolicy { scope, bundle, why } => {
                self.decide_apply_policy((by, why), scope, bundle, now)
            }
            Command::RollBackPolicy { scope, number, why } => {
                self.decide_roll_back_policy((by, why), scope, *number, now)
            }
            Command::NoteAnswers { bundles, answers, limits, retries } => {
                self.decide_answers(bundles, (answers, limits, retries), now)
            }
            Command::AddToken { token } => self.decide_add_token(by, token, now),
            Command::RevokeToken { id } => self.decide_revoke_token(id, now),
        }
    }

    /// Decide, and put administrative acts on record whether they were done or refused.
    ///
    /// The events are to be applied in either case.
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
            let (at, object) = (now.max(self.clock), cut(&object));
            events.push(Event::Acted {
                by: by.name.clone(),
                by_kind: Some(by.kind_word().to_string()),
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

/// A text of a caller, short enough for a record. A cut is marked by an ellipsis.
fn cut(text: &str) -> String {
    match text.char_indices().nth(AUDIT_CHARS_MAX) {
        None => text.to_string(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
