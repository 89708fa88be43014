//! The process of a worker, seen from outside: asked with a clock, and killed beyond it.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::letter::{self, Answer};
use super::{Launch, ended};
use crate::error::PolicyError;

/// Of what it says on standard error, so much is kept: its last words.
const LAST_WORDS_BYTES: usize = 4 << 10;

/// A running worker.
#[derive(Debug)]
pub struct Process {
    child: Child,
    letters: Sender<Vec<u8>>,
    answers: Receiver<io::Result<Vec<u8>>>,
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
        let (letters, to_send) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        std::thread::spawn(move || carry(&to_send, &answer, (stdin, stdout), answer_bytes));
        let last_words = Some(std::thread::spawn(move || last_words_of(stderr)));
        Ok(Process { child, letters, answers, last_words })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its answer, if it comes in time.
    pub fn ask(&mut self, letter: Vec<u8>, within: Duration) -> Result<Answer, End> {
        // Who carries letters is gone once the process is; then there is no answer either.
        let _ = self.letters.send(letter);
        match self.answers.recv_timeout(within) {
            Ok(Ok(letter)) => Answer::read(&letter).ok_or(End::Unreadable),
            Err(RecvTimeoutError::Timeout) => Err(End::Late),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
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

/// Bring letters to the process and answers back, one at a time, until there is nobody to bring them to.
fn carry(
    letters: &Receiver<Vec<u8>>,
    answers: &Sender<io::Result<Vec<u8>>>,
    (mut stdin, mut stdout): (ChildStdin, ChildStdout),
    answer_bytes: usize,
) {
    for letter in letters {
        let answer = letter::write(&mut stdin, &letter)
            .and_then(|()| letter::read(&mut stdout, answer_bytes))
            .and_then(|answer| answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        let over = answer.is_err();
        if answers.send(answer).is_err() || over {
            return;
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
