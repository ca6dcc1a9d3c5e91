//! What every command shares in talking to people and programs.

use crate::cli::Color;
use crate::error::{Exit, Failure};
use agentfleet_console::lanes::{self, AnswerAs, Screen};
use agentfleet_console::style::{Line, paint_all};
use agentfleet_console::{Look, table, text};
use agentfleet_schema::redacted;
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use terminal_size::terminal_size;

/// Writes to standard output; a reader that has left (`| head`) ends the program quietly.
macro_rules! out {
    ($($part:tt)*) => { $crate::ui::write(&format!($($part)*)) };
}

/// Writes a line to standard output.
macro_rules! outln {
    () => { $crate::ui::write("\n") };
    ($($part:tt)*) => { $crate::ui::write(&format!("{}\n", format!($($part)*))) };
}

/// Writes a line to standard error, for whoever still reads there.
macro_rules! errln {
    () => { $crate::ui::tell("\n") };
    ($($part:tt)*) => { $crate::ui::tell(&format!("{}\n", format!($($part)*))) };
}

/// What the macros call. Whatever is printed is visible: nothing in a value moves the cursor, forges a
/// line or hides.
pub(crate) fn write(text: &str) {
    painted(&text::visible(text));
}

/// Writes data in a form of its own, which a reader wants to the byte; to a terminal as all else.
pub(crate) fn exact(text: &str) {
    if std::io::stdout().is_terminal() {
        write(text);
    } else {
        painted(text);
    }
}

/// Writes what `agentfleet_console` has laid out: the values in it are visible already, and the colours
/// are its own.
pub(crate) fn painted(text: &str) {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Ok(()) => {}
        // Nobody reads any more; the run itself is durable.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            tell(&format!("error: cannot write the output: {error}\n"));
            std::process::exit(Exit::Unavailable as i32);
        }
    }
}

/// What the macros call. That nobody listens is no reason to end a run.
pub(crate) fn tell(text: &str) {
    use std::io::Write as _;
    let text = redacted(text);
    std::io::stderr()
        .write_all(text::visible(&text).as_bytes())
        .ok();
}

/// Asks whether something is meant. `undone` says what did not happen where nobody says so.
pub(crate) fn agreed(question: &str, undone: &str) -> Result<(), Failure> {
    tell(&format!("{question}: "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "yes") {
        return Ok(());
    }
    errln!();
    let says = format!("{undone}, because nobody said `yes`");
    Err(Failure::usage(says).hint("type it, or give `--yes`"))
}

/// Whether an answer could not be written although somebody reads it, as on a full disk.
static ANSWER_LOST: AtomicBool = AtomicBool::new(false);

pub(crate) fn answer_is_lost() -> bool {
    ANSWER_LOST.load(Ordering::Relaxed)
}

/// Standard output for an answer. The run goes on whatever becomes of it; what is lost is told once.
#[derive(Debug)]
pub(crate) struct Answer(pub Stdout);

impl Answer {
    fn heed(written: std::io::Result<()>) {
        if let Err(error) = written
            && error.kind() != ErrorKind::BrokenPipe
            && !ANSWER_LOST.swap(true, Ordering::Relaxed)
        {
            tell(&format!("error: cannot write the answer: {error}\n"));
        }
    }
}

impl std::io::Write for Answer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Self::heed(self.0.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Self::heed(self.0.flush());
        Ok(())
    }
}

/// A writer whose reader may leave: what is said is lost then, and nothing else.
#[derive(Debug)]
pub(crate) struct Heedless<W>(pub W);

impl<W: std::io::Write> std::io::Write for Heedless<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(bytes).ok();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().ok();
        Ok(())
    }
}

impl Color {
    /// Whether to write colours: the flag comes first, then `NO_COLOR` (<https://no-color.org>), then
    /// `CLICOLOR_FORCE`, terminal or not, then `TERM`.
    fn resolve(self, variable: impl Fn(&str) -> Option<OsString>, is_terminal: bool) -> bool {
        let said = |name: &str| variable(name).filter(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if said("NO_COLOR").is_some() => false,
            Self::Auto if said("CLICOLOR_FORCE").is_some_and(|force| force != "0") => true,
            Self::Auto => is_terminal && said("TERM").is_none_or(|term| term != "dumb"),
        }
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// A bar of progress on standard error, where that is a terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// How output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ui {
    pub color: bool,
    pub width: usize,
    progress_color: bool,
    /// Standard error is a terminal that can be drawn on.
    live: bool,
}

impl Ui {
    pub(crate) fn new(color: Color) -> Self {
        let resolve = |is_terminal| color.resolve(variable, is_terminal);
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok());
        let width = columns
            .or_else(|| terminal_size().map(|(width, _)| usize::from(width.0)))
            .unwrap_or(100);
        let progress = std::io::stderr().is_terminal();
        Self {
            color: resolve(std::io::stdout().is_terminal()),
            width: width.clamp(40, 240),
            progress_color: resolve(progress),
            live: progress && variable("TERM").is_none_or(|term| term != "dumb"),
        }
    }

    pub(crate) fn look(self) -> Look {
        Look {
            width: self.width,
            color: self.color,
        }
    }

    /// How a run is watched.
    pub(crate) fn settings(self) -> lanes::Settings {
        lanes::Settings {
            live: self.live,
            progress_color: self.progress_color,
            answer: match (std::io::stdout().is_terminal(), stdout_is_a_file()) {
                (true, _) => AnswerAs::Rendered,
                (false, true) => AnswerAs::Whole,
                (false, false) => AnswerAs::Streamed,
            },
            answer_color: self.color,
        }
    }

    /// The terminal as it is now.
    pub(crate) fn screen(self) -> Screen {
        match terminal_size() {
            Some((width, height)) if self.live => Screen {
                width: width.0.into(),
                height: height.0.into(),
            },
            // Lines in a file or a pipe; those of the answer are not touched.
            _ => Screen {
                width: self.width.max(160),
                height: 24,
            },
        }
    }

    /// A sentence on standard error, in lines no wider than the terminal.
    pub(crate) fn note(self, text: &str) {
        let lines = Line::of(text, anstyle::Style::new()).wrapped(self.screen().width);
        tell(&paint_all(&lines, false));
    }

    /// A table for people. So many columns from the left are there to be copied and never cut.
    pub(crate) fn table(
        self,
        headers: &[&str],
        whole: usize,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) {
        let rows: Vec<_> = rows.into_iter().collect();
        painted(&table::render(headers, whole, &rows, self.page()));
    }

    /// How tables are shown: nothing is cut where nobody said how wide a line may be.
    pub(crate) fn page(self) -> Look {
        let known = std::io::stdout().is_terminal() || std::env::var_os("COLUMNS").is_some();
        Look {
            width: if known { self.width } else { usize::MAX },
            color: self.color,
        }
    }
}

/// Whether standard output goes to a file, which nobody reads while it grows.
fn stdout_is_a_file() -> bool {
    use std::os::fd::AsFd as _;
    let owned = std::io::stdout().as_fd().try_clone_to_owned();
    let kind = owned.and_then(|fd| std::fs::File::from(fd).metadata());
    kind.is_ok_and(|kind| kind.is_file())
}

/// Writes a value as JSON, for programs.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    outln!("{text}");
    Ok(())
}

/// A word as a shell takes it.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_comes_before_the_environment() {
        for (color, variable, is_terminal, expected) in [
            (Color::Auto, ("", ""), true, true),
            (Color::Auto, ("", ""), false, false),
            (Color::Auto, ("NO_COLOR", "1"), true, false),
            (Color::Auto, ("NO_COLOR", ""), true, true),
            (Color::Auto, ("TERM", "dumb"), true, false),
            (Color::Auto, ("CLICOLOR_FORCE", "1"), false, true),
            (Color::Auto, ("CLICOLOR_FORCE", "0"), false, false),
            (Color::Always, ("NO_COLOR", "1"), true, true),
            (Color::Never, ("", ""), true, false),
        ] {
            let (name, value) = variable;
            let said = |wanted: &str| (wanted == name).then(|| OsString::from(value));
            assert_eq!(
                color.resolve(said, is_terminal),
                expected,
                "{color:?} {variable:?} {is_terminal}"
            );
        }
    }
}
