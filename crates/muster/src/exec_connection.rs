//! The conversation with a program inside a job: input, output, terminal and signals, over an upgraded connection.

use std::io::{IsTerminal, Read, Write};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use muster_protocol::exec::{
    DATA_BYTES_MAX, DATA_OVERHEAD_BYTES, ExecEnd, ExecMessage, ExecStream, ExecTerminal, data_cost,
};
use muster_wire::exec_frames::{self, MessageReader};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::error::{CliError, Exit, ExitStatus};

const READ_BYTES: usize = 64 << 10;
/// Exit codes of programs that were killed start here, as in a shell.
const SIGNAL_EXIT_BASE: i32 = 128;
/// Signals that are passed on to a program without a terminal.
const PASSED_SIGNALS: [SignalKind; 4] =
    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit(), SignalKind::user_defined1()];

/// The connection to a program.
pub struct ExecConnection {
    reader: ReadHalf<TokioIo<Upgraded>>,
    writer: WriteHalf<TokioIo<Upgraded>>,
    messages: MessageReader,
}

/// Takes the output of the program.
pub type OutputSink<'a> = &'a mut dyn FnMut(ExecStream, &[u8]) -> Result<(), CliError>;

impl ExecConnection {
    pub fn new(upgraded: Upgraded) -> ExecConnection {
        let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
        ExecConnection { reader, writer, messages: MessageReader::default() }
    }

    /// Talks to the program until it has ended. `input` ends with its sender.
    pub async fn converse(
        mut self,
        mut input: mpsc::Receiver<Vec<u8>>,
        has_terminal: bool,
        output: OutputSink<'_>,
    ) -> Result<ExecEnd, CliError> {
        let mut signals = Signals::new(has_terminal)?;
        let mut bytes = vec![0; READ_BYTES];
        let (mut waiting, mut window, mut has_input) = (Vec::new(), 0_u32, true);
        loop {
            while let Some(message) = self.messages.next_message().map_err(|error| broken(&error))? {
                match message {
                    ExecMessage::Data { stream, bytes } => output(stream, &bytes)?,
                    ExecMessage::Credit(granted) => window = window.saturating_add(granted),
                    ExecMessage::Ended(end) => return Ok(end),
                    _ => {}
                }
            }
            self.send_waiting(&mut waiting, &mut window).await?;
            tokio::select! {
                read = self.reader.read(&mut bytes) => match read {
                    Ok(0) => return Err(broken(&"the server closed it")),
                    Ok(read) => self.messages.push(&bytes[..read]),
                    Err(error) => return Err(broken(&error)),
                },
                part = input.recv(), if has_input && waiting.is_empty() => match part {
                    Some(part) => waiting = part,
                    None => {
                        has_input = false;
                        self.send(ExecMessage::EndOfInput).await?;
                    }
                },
                message = signals.next() => self.send(message).await?,
            }
        }
    }

    /// Sends as much of the input as the program takes.
    async fn send_waiting(&mut self, waiting: &mut Vec<u8>, window: &mut u32) -> Result<(), CliError> {
        while !waiting.is_empty() && *window > DATA_OVERHEAD_BYTES {
            let length = waiting.len().min(DATA_BYTES_MAX).min((*window - DATA_OVERHEAD_BYTES) as usize);
            let rest = waiting.split_off(length);
            let bytes = std::mem::replace(waiting, rest);
            *window -= data_cost(length);
            self.send(ExecMessage::Data { stream: ExecStream::Input, bytes }).await?;
        }
        Ok(())
    }

    async fn send(&mut self, message: ExecMessage) -> Result<(), CliError> {
        self.writer.write_all(&exec_frames::encode(message)).await.map_err(|error| broken(&error))
    }
}

fn broken(why: &dyn std::fmt::Display) -> CliError {
    CliError::new(Exit::Unreachable, format!("the connection to the program was lost: {why}"))
        .hint("the program has been ended; the job goes on")
}

/// The exit status of a program, or why it has none.
pub fn status_of(end: ExecEnd) -> Result<ExitStatus, CliError> {
    match end {
        ExecEnd::Exited(code) => Ok(ExitStatus(u8::try_from(code).unwrap_or(1))),
        ExecEnd::Killed(signal) => Ok(ExitStatus(u8::try_from(SIGNAL_EXIT_BASE + signal).unwrap_or(1))),
        ExecEnd::Failed { code, why } => {
            let exit = match code.as_str() {
                "node-not-connected" | "server-stopping" => Exit::Unreachable,
                "token-ended" => Exit::NotAllowed,
                _ => Exit::Conflict,
            };
            Err(CliError::new(exit, format!("the program was ended: {why}")))
        }
    }
}

/// Reads standard input on a thread of its own, which ends with the process.
pub fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, input) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut bytes = vec![0; DATA_BYTES_MAX];
        let mut stdin = std::io::stdin().lock();
        while let Ok(read) = stdin.read(&mut bytes) {
            if read == 0 || sender.blocking_send(bytes[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    input
}

/// No input at all.
pub fn no_input() -> mpsc::Receiver<Vec<u8>> {
    mpsc::channel(1).1
}

/// Writes output where it belongs.
pub fn print_output(stream: ExecStream, bytes: &[u8]) -> Result<(), CliError> {
    if stream == ExecStream::Error {
        let _ = std::io::stderr().write_all(bytes);
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// The terminal of this process as the program should see it; `None` if standard input is none.
pub fn own_terminal() -> Option<ExecTerminal> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let (rows, columns) = terminal_size();
    Some(ExecTerminal { rows, columns, kind: std::env::var("TERM").unwrap_or_default() })
}

fn terminal_size() -> (u16, u16) {
    const USUAL: (u16, u16) = (24, 80);
    tcgetwinsize(std::io::stdin()).map_or(USUAL, |size| (size.ws_row, size.ws_col))
}

/// Passes each key on to the program, until it is dropped.
pub struct RawTerminal(Termios);

impl RawTerminal {
    pub fn enter() -> Result<RawTerminal, CliError> {
        let failed = |error: rustix::io::Errno| CliError::failed(format!("cannot set up the terminal: {error}"));
        let former = tcgetattr(std::io::stdin()).map_err(failed)?;
        let mut raw = former.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &raw).map_err(failed)?;
        Ok(RawTerminal(former))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.0);
    }
}

/// Signals of this process that concern the program: a new size of the terminal, or those that a shell would send to it.
struct Signals {
    resized: Option<Signal>,
    passed: Vec<(i32, Signal)>,
}

impl Signals {
    fn new(has_terminal: bool) -> Result<Signals, CliError> {
        let failed = |error: std::io::Error| CliError::failed(format!("cannot catch signals: {error}"));
        if has_terminal {
            let resized = Some(signal(SignalKind::window_change()).map_err(failed)?);
            return Ok(Signals { resized, passed: Vec::new() });
        }
        let passed = PASSED_SIGNALS.map(|kind| Ok((kind.as_raw_value(), signal(kind)?)));
        Ok(Signals { resized: None, passed: passed.into_iter().collect::<Result<_, _>>().map_err(failed)? })
    }

    async fn next(&mut self) -> ExecMessage {
        if let Some(resized) = &mut self.resized {
            let _ = resized.recv().await;
            let (rows, columns) = terminal_size();
            return ExecMessage::Resize { rows, columns };
        }
        std::future::poll_fn(|context| {
            let ready = self.passed.iter_mut().find_map(|(number, signal)| {
                signal.poll_recv(context).is_ready().then_some(ExecMessage::Signal(*number))
            });
            ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}
