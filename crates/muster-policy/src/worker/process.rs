//! The process of a worker, seen from outside: asked with a clock, and killed beyond it.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::letter::{self, Answer};
use super::pipe::{self, TimedPipe};
use super::{Launch, ended};
use crate::error::PolicyError;

/// Of what it says on standard error, so much is kept: its last words.
const LAST_WORDS_BYTES: usize = 4 << 10;

/// A running worker.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Bytes of one answer.
    answer_bytes: usize,
    last_words: Option<JoinHandle<Vec<u8>>>,
}

/// Why a process gave no answer.
#[derive(Debug)]
pub enum End {
    /// Its time was up.
    Late,
    /// It ended by itself.
    Gone {
        /// How.
        status: Option<ExitStatus>,
        /// What it said at last.
        words: String,
    },
    /// Nobody can read what it answers.
    Unreadable,
}

impl Process {
    /// Start one, with nothing but its own bounds to set.
    pub fn start(launch: &Launch, answer_bytes: usize) -> Result<Process, PolicyError> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.words).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed =
            |error: io::Error| ended(format!("`{}` cannot be started: {error}", launch.program.display()));
        let mut child = command.spawn().map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(ended("its process has no pipes".to_string()));
        };
        pipe::never_block(&stdin).and_then(|()| pipe::never_block(&stdout)).map_err(failed)?;
        let last_words = Some(std::thread::spawn(move || last_words_of(stderr)));
        Ok(Process { child, stdin, stdout, answer_bytes, last_words })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its answer, if it comes in time.
    pub fn ask(&mut self, letter: &[u8], within: Duration) -> Result<Answer, End> {
        // `Duration::MAX` overflows: no deadline.
        let until = Instant::now().checked_add(within);
        match self.exchange(letter, until) {
            Ok(Some(letter)) => Answer::read(&letter).ok_or(End::Unreadable),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(End::Late),
            Ok(None) | Err(_) => Err(self.gone()),
        }
    }

    /// In the thread that asks: a thread between the two would cost two changes of context more for each letter.
    fn exchange(&mut self, letter: &[u8], until: Option<Instant>) -> io::Result<Option<Vec<u8>>> {
        letter::write(&mut TimedPipe::new(&mut self.stdin, until), letter)?;
        letter::read(&mut TimedPipe::new(&mut self.stdout, until), self.answer_bytes)
    }

    fn gone(&mut self) -> End {
        let status = self.end();
        let words = self.last_words.take().and_then(|words| words.join().ok()).unwrap_or_default();
        End::Gone { status, words: String::from_utf8_lossy(&words).into_owned() }
    }

    /// End it, whatever it does. What it was ended by is told where it had ended before.
    fn end(&mut self) -> Option<ExitStatus> {
        // One that is ending needs a moment until the kernel says so; after that, a kill changes nothing.
        for _ in 0..20 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl End {
    /// In a sentence.
    pub fn told(&self, within: Duration, memory_mib: u64) -> String {
        match self {
            End::Late => format!("it took longer than {} ms and was ended", within.as_millis()),
            End::Unreadable => "its process answered something that nobody can read".to_string(),
            End::Gone { words, .. } if words.contains("memory allocation of") => {
                format!("it wanted more memory than the {memory_mib} MiB it may have, and was ended")
            }
            End::Gone { words, .. } if words.contains("overflowed its stack") => {
                "it went deeper than its stack, and was ended".to_string()
            }
            End::Gone { status, .. } => match status.as_ref().and_then(ExitStatus::signal) {
                Some(signal) => format!("its process was ended by signal {signal}"),
                None => "its process ended without an answer".to_string(),
            },
        }
    }
}

/// What it said at last. All is read, so that it never waits for us.
fn last_words_of(mut stderr: ChildStderr) -> Vec<u8> {
    let (mut words, mut some) = (Vec::new(), [0; 1 << 10]);
    while let Ok(read @ 1..) = stderr.read(&mut some) {
        words.extend_from_slice(&some[..read]);
        words.drain(..words.len().saturating_sub(LAST_WORDS_BYTES));
    }
    words
}
