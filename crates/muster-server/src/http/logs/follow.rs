//! A followed log: new output is sent as soon as it exists, until the attempt has ended.

use std::sync::Arc;

use muster_core::{Event, JobId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::task_output::{OutputPart, TaskOutput};
use crate::cluster::Batch;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::sse::{ClientDisconnected, KEEP_ALIVE_INTERVAL, SseWriter, TOKEN_CHECK_INTERVAL};
use crate::identity::Caller;
use crate::log_source::LogError;

/// Follow several outputs in one response, each with the offset of its first byte.
pub fn spawn_all(app: AppState, caller: Caller, outputs: Vec<(TaskOutput, u64)>, writer: SseWriter) {
    let writer = Arc::new(writer); // The response ends with the last of them.
    for (output, offset) in outputs {
        let (app, caller, writer) = (app.clone(), caller.clone(), writer.clone());
        tokio::spawn(async move {
            let _ = follow(app, caller, output, offset, &writer).await;
        });
    }
}

/// Send new output until the attempt has ended or the client has disconnected. A server that stops closes the stream
/// without `end`, so that the client knows that it has to read on elsewhere.
async fn follow(
    app: AppState,
    caller: Caller,
    mut output: TaskOutput,
    mut offset: u64,
    writer: &SseWriter,
) -> Result<(), ClientDisconnected> {
    let mut events = app.cluster.subscribe();
    let mut stopping = app.stopping.clone();
    let mut silence = Silence::default();
    loop {
        if let Err(error) = app.check_token(&caller) {
            return writer.send("problem", None, &error.problem()).await;
        }
        // Read the state before the output, so that the last piece contains all that was written before the end.
        let ended = output.has_ended_now(&app).await.unwrap_or(false);
        if let Err(error) = output.locate(&app).await {
            return writer.send("problem", None, &error.problem()).await;
        }
        let part = tokio::select! {
            part = output.read(&*app.logs, offset, ended, TOKEN_CHECK_INTERVAL) => part,
            () = next_attempt_event(&mut events, output.job) => continue,
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(()),
        };
        match part {
            Ok(part) if part.complete => {
                let piece = output.log_piece(part);
                return writer.send("end", Some(piece.next_offset), &piece).await;
            }
            Ok(part) => offset = silence.send_part(writer, &output, part).await?,
            Err(LogError::NotConnected { node, since }) if !ended => {
                silence.send_notice(writer, LogError::NotConnected { node, since }).await?;
                tokio::time::sleep(TOKEN_CHECK_INTERVAL).await;
            }
            Err(error) => return writer.send("problem", None, &ApiError::from(error).problem()).await,
        }
    }
}

/// Waits until an attempt of the job is placed or has ended.
async fn next_attempt_event(events: &mut Receiver<Arc<Batch>>, job: JobId) {
    loop {
        match events.recv().await {
            Ok(batch) if batch.events().any(|event| is_attempt_event(event, job)) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn is_attempt_event(event: &Event, wanted: JobId) -> bool {
    matches!(event, Event::JobPlaced { job, .. } | Event::AttemptEnded { job, .. } if *job == wanted)
}

/// What the client was last sent, and when.
struct Silence {
    since: Instant,
    noticed: bool,
}

impl Default for Silence {
    fn default() -> Silence {
        Silence { since: Instant::now(), noticed: false }
    }
}

impl Silence {
    /// Returns the next offset.
    async fn send_part(
        &mut self,
        writer: &SseWriter,
        output: &TaskOutput,
        part: OutputPart,
    ) -> Result<u64, ClientDisconnected> {
        self.noticed = false;
        let has_news = part.has_news();
        let piece = output.log_piece(part);
        if has_news {
            writer.send("piece", Some(piece.next_offset), &piece).await?;
            self.since = Instant::now();
        } else {
            self.keep_alive(writer).await?;
        }
        Ok(piece.next_offset)
    }

    /// Once for each outage.
    async fn send_notice(&mut self, writer: &SseWriter, error: LogError) -> Result<(), ClientDisconnected> {
        if !std::mem::replace(&mut self.noticed, true) {
            writer.send("notice", None, &ApiError::from(error).problem()).await?;
            self.since = Instant::now();
        }
        self.keep_alive(writer).await
    }

    async fn keep_alive(&mut self, writer: &SseWriter) -> Result<(), ClientDisconnected> {
        if self.since.elapsed() >= KEEP_ALIVE_INTERVAL {
            writer.keep_alive().await?;
            self.since = Instant::now();
        }
        Ok(())
    }
}
