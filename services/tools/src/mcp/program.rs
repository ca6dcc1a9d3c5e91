//! A program that speaks the protocol on its standard input and output: started in a process group of its
//! own, with no more of the environment than programs need, and ended with its connection.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

/// What it is given of this process's environment; secrets and keys of models are none of its business.
const KEPT: &[&str] = &[
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
];
/// How long it may take to end once its input is closed.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of its standard error that are kept to be told.
const LAST_WORDS: usize = 1_000;

/// How long it may take until all is read of what it said.
const LISTENING: Duration = Duration::from_secs(1);

/// What a program has written to standard error last.
#[derive(Clone, Default)]
struct LastWords {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    /// Set once there will be no more.
    is_all: CancellationToken,
}

/// A running program.
pub(super) struct Program {
    group: Option<Group>,
    last_words: LastWords,
    has_overrun: Arc<AtomicBool>,
}

/// A process and all it has started, which end together.
struct Group {
    child: Child,
    id: Pid,
}

impl Drop for Group {
    fn drop(&mut self) {
        // It may have ended, and all of its group.
        killpg(self.id, Signal::SIGKILL).ok();
    }
}

impl Program {
    /// Starts it. No message of it may be longer than `longest`, in bytes.
    pub(super) fn start(
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        longest: usize,
    ) -> Result<(Self, Lines, ChildStdin), String> {
        let kept = KEPT.iter();
        let kept = kept.filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let started = Command::new(command)
            .args(args)
            .env_clear()
            .envs(kept)
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = started.map_err(|error| format!("cannot start `{command}`: {error}"))?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let (Some(input), Some(output), Some(errors), Some(id)) = (input, output, errors, id)
        else {
            return Err(format!("`{command}` ended as it was started"));
        };
        let last_words = LastWords::default();
        tokio::spawn(listen(errors, last_words.clone()));
        let has_overrun = Arc::new(AtomicBool::new(false));
        let lines = Lines {
            output,
            longest,
            length: 0,
            has_overrun: Arc::clone(&has_overrun),
        };
        let id = Pid::from_raw(id);
        let group = Some(Group { child, id });
        let program = Self {
            group,
            last_words,
            has_overrun,
        };
        Ok((program, lines, input))
    }

    /// Why it is gone, as far as that can be told.
    pub(super) async fn reason(&self, longest: usize) -> String {
        if self.has_overrun.load(Ordering::Relaxed) {
            return format!(": it sent a message of more than {longest} bytes");
        }
        let words = &self.last_words;
        tokio::time::timeout(LISTENING, words.is_all.cancelled())
            .await
            .ok();
        let mut words = words.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(words.make_contiguous());
        match text.trim() {
            "" => String::new(),
            text => format!("; it said last: {text}"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(mut group) = self.group.take() else {
            return;
        };
        // Where there is no time left, dropping the group ends it at once.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if tokio::time::timeout(GRACE, group.child.wait())
                    .await
                    .is_err()
                {
                    killpg(group.id, Signal::SIGKILL).ok();
                    group.child.wait().await.ok();
                }
            });
        }
    }
}

/// Keeps the end of what a program writes to standard error.
async fn listen(mut errors: ChildStderr, last_words: LastWords) {
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut bytes).await {
        let mut words = last_words
            .bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        words.extend(&bytes[..read]);
        let over = words.len().saturating_sub(LAST_WORDS);
        words.drain(..over);
    }
    last_words.is_all.cancel();
}

/// The output of a program, which ends where a line grows too long: a reader of lines would read it for ever.
pub(super) struct Lines {
    output: ChildStdout,
    longest: usize,
    length: usize,
    has_overrun: Arc<AtomicBool>,
}

impl AsyncRead for Lines {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.output).poll_read(context, buffer);
        let read = &buffer.filled()[before..];
        self.length = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => read.len() - end - 1,
            None => self.length + read.len(),
        };
        if self.length > self.longest {
            self.has_overrun.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(std::io::Error::other("a line is too long")));
        }
        polled
    }
}
