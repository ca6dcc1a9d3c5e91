//! Being told to stop: Ctrl-C and SIGTERM.

use crate::error::Exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM: the process is to end.
    Terminate,
}

/// From its creation on, neither signal ends the process by itself.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of either; cancel safe.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::Interrupt,
            _ = self.terminate.recv() => Told::Terminate,
        }
    }

    /// Drains, unless told to stop once more: whoever comes next takes up what is in flight.
    pub(crate) async fn drained_or_left(mut self, drained: impl Future<Output = ()>) {
        tokio::select! {
            () = drained => {}
            _ = self.next() => std::process::exit(Exit::Left as i32),
        }
    }
}
