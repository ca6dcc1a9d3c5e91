//! A query that somebody else wrote, in a process of its own.
//!
//! No check beforehand tells what a query will take: doubling a text thirty times is short, and
//! comparing constants reads nothing that could notice a cancellation. So the system keeps the
//! bounds: this process is copied, the copy runs the query on the memory that it shares with this
//! one, writes the answer into a pipe and ends. It can be killed at any moment, and a limit of its
//! memory is nobody else's. A copy costs milliseconds; reading the log into another process would
//! cost seconds and the memory of a second graph.
//!
//! A copy has one thread, and finds every lock as it was. So the caller of [`start`] sees to it that
//! no other thread is inside the store. Whatever else might be held makes a query time out, no more.
#![allow(unsafe_code)] // `fork` and what must follow it have no safe form.

use super::{memory, run};
use crate::error::Error;
use crate::{Answer, QueryOptions};
use oxigraph::sparql::CancellationToken;
use oxigraph::store::Store;
use serde::{Deserialize, Serialize};
use spargebra::Query;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Of the memory of a query, the part that its answer may have.
const ANSWER: u64 = 16;
/// What lies far behind the work of others.
const NICE: libc::c_int = 10;

/// What a copy says before it ends.
#[derive(Serialize, Deserialize)]
enum Told {
    Answer(Answer),
    TooManyRows,
    Failed(String),
}

/// The copy that runs one query.
#[derive(Debug, Default)]
pub(crate) struct Copy(Mutex<Life>);

#[derive(Debug, Default)]
enum Life {
    #[default]
    Unborn,
    Running(libc::pid_t),
    Over,
}

impl Copy {
    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, wherever it is; one that has not begun never will.
    pub(crate) fn end(&self) {
        let mut life = self.life();
        match *life {
            // It has not been waited for, so the number is still its own.
            Life::Running(pid) => drop(unsafe { libc::kill(pid, libc::SIGKILL) }),
            Life::Unborn => *life = Life::Over,
            Life::Over => {}
        }
    }

    /// Memory it holds, if it runs and the system says.
    pub(crate) fn resident(&self) -> Option<u64> {
        match *self.life() {
            Life::Running(pid) => memory::resident_of(pid),
            Life::Unborn | Life::Over => None,
        }
    }
}

/// Where the answer of a running copy comes from.
pub(crate) struct Started {
    answer: File,
    pid: libc::pid_t,
}

/// Starts a copy that runs the query. No other thread may be inside the store.
pub(crate) fn start(
    copy: &Copy,
    query: Query,
    store: &Store,
    options: &QueryOptions,
    bytes: u64,
) -> Result<Started, Error> {
    let mut life = copy.life();
    if matches!(*life, Life::Over) {
        return Err(Error::Stopped);
    }
    let mut ends: [RawFd; 2] = [0; 2];
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(Error::engine(std::io::Error::last_os_error()));
    }
    // Both are open, and nobody else's.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    for end in [&read, &write] {
        // A program that is started meanwhile must not keep the pipe open.
        unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    let most = memory::address_space().map(|now| now.saturating_add(bytes));
    match unsafe { libc::fork() } {
        -1 => Err(Error::engine(std::io::Error::last_os_error())),
        0 => {
            confine(write.as_raw_fd(), most, options);
            let told = catch_unwind(AssertUnwindSafe(|| tell(query, store, options, write)));
            // Nothing of the process it was copied from may be cleaned up here.
            unsafe { libc::_exit(i32::from(!matches!(told, Ok(Ok(()))))) }
        }
        pid => {
            *life = Life::Running(pid);
            let answer = File::from(read);
            Ok(Started { answer, pid })
        }
    }
}

/// Bounds the copy, and lets go of all that it shares but the memory and the pipe.
fn confine(pipe: RawFd, most: Option<u64>, options: &QueryOptions) {
    let seconds = options.timeout.as_secs().saturating_add(2);
    let limit = |of, most: u64| {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        unsafe { libc::setrlimit(of, &raw const limit) };
    };
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM] {
            libc::signal(signal, libc::SIG_DFL);
        }
        // Should the process that waits for it be killed.
        libc::alarm(u32::try_from(seconds).unwrap_or(u32::MAX));
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        libc::dup2(nowhere, libc::STDERR_FILENO);
        #[cfg(target_os = "linux")]
        {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Locks and listeners of the other process must end with it.
            let (first, last) = (libc::STDERR_FILENO + 1, libc::c_uint::MAX);
            libc::syscall(libc::SYS_close_range, first, pipe - 1, 0);
            libc::syscall(libc::SYS_close_range, pipe + 1, last, 0);
        }
        libc::nice(NICE);
    }
    // If the machine runs out of memory all the same, this process goes first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    limit(libc::RLIMIT_CORE, 0);
    limit(libc::RLIMIT_CPU, seconds);
    if let Some(most) = most {
        limit(libc::RLIMIT_AS, most);
    }
}

fn tell(query: Query, store: &Store, options: &QueryOptions, pipe: OwnedFd) -> Result<(), ()> {
    let told = match run::run(query, store, CancellationToken::new(), options.max_rows) {
        Ok(answer) => Told::Answer(answer),
        Err(Error::TooManyRows(_)) => Told::TooManyRows,
        Err(Error::Evaluation(reason)) => Told::Failed(reason.to_string()),
        Err(other) => Told::Failed(other.to_string()),
    };
    let mut pipe = BufWriter::new(File::from(pipe));
    serde_json::to_writer(&mut pipe, &told).map_err(drop)?;
    pipe.flush().map_err(drop)
}

impl Started {
    /// Waits for the answer, and for the end of the copy.
    pub(crate) fn finish(
        self,
        copy: &Copy,
        options: &QueryOptions,
        bytes: u64,
    ) -> Result<Answer, Error> {
        let Self { answer, pid } = self;
        let (mut told, most) = (Vec::new(), bytes / ANSWER);
        let read = answer.take(most + 1).read_to_end(&mut told);
        let too_long = told.len() as u64 > most;
        if too_long || read.is_err() {
            copy.end();
        }
        let ended = wait(copy, pid);
        let too_much = || Error::TooMuchMemory(bytes >> 20);
        if too_long {
            return Err(too_much());
        }
        match ended {
            Some(libc::SIGALRM | libc::SIGXCPU) => return Err(Error::Timeout(options.timeout)),
            // Memory it was refused aborts it; the system kills what takes the last there is.
            Some(libc::SIGABRT | libc::SIGKILL) => return Err(too_much()),
            Some(_) => return Err(Error::Stopped),
            None => {}
        }
        match serde_json::from_slice(&told).map_err(|_| Error::Stopped)? {
            Told::Answer(answer) => Ok(answer),
            Told::TooManyRows => Err(Error::TooManyRows(options.max_rows)),
            Told::Failed(reason) => Err(Error::Evaluation(reason.into())),
        }
    }
}

/// Waits until a copy has ended; the signal that ended it, if one did.
fn wait(copy: &Copy, pid: libc::pid_t) -> Option<libc::c_int> {
    let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
    let id = libc::id_t::try_from(pid).unwrap_or_default();
    // Ended and not yet waited for: until then its number stays its own, and `end` may use it.
    while unsafe {
        libc::waitid(
            libc::P_PID,
            id,
            &raw mut info,
            libc::WEXITED | libc::WNOWAIT,
        )
    } != 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
    let mut life = copy.life();
    *life = Life::Over;
    let mut status = 0;
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}
