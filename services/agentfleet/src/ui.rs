//! What every command shares in talking to people and programs.

use crate::cli::Color;
use crate::error::{Exit, Failure};
use agentfleet_console::Look;
use agentfleet_console::table::{Table, TableFormat};
use std::io::IsTerminal as _;

/// Writes to standard output; a reader that has left (`| head`) ends the program quietly.
macro_rules! out {
    ($($part:tt)*) => { $crate::ui::write(&format!($($part)*)) };
}

/// Writes a line to standard output.
macro_rules! outln {
    () => { $crate::ui::write("\n") };
    ($($part:tt)*) => { $crate::ui::write(&format!("{}\n", format!($($part)*))) };
}

/// What the macros call.
pub(crate) fn write(text: &str) {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    if stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .is_err()
    {
        // Nobody reads any more; the run itself is durable.
        std::process::exit(0);
    }
}

/// How output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ui {
    pub color: bool,
    pub width: usize,
}

impl Ui {
    pub(crate) fn new(color: Color) -> Self {
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
            }
        };
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok());
        let terminal = || usize::from(console_width().unwrap_or(100));
        let width = columns.unwrap_or_else(terminal).clamp(40, 240);
        Self { color, width }
    }

    pub(crate) fn look(self) -> Look {
        Look {
            width: self.width,
            color: self.color,
        }
    }

    /// A table for people.
    pub(crate) fn table(self, headers: &[&str], rows: Vec<Vec<String>>) {
        out!(
            "{}",
            table(headers, rows).render(TableFormat::Table, self.look())
        );
    }
}

/// Columns of the terminal, if there is one.
fn console_width() -> Option<u16> {
    terminal_size::terminal_size().map(|(width, _)| width.0)
}

/// Rows of text under headers.
pub(crate) fn table(headers: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new(headers.iter().copied());
    for row in rows {
        table.push(row);
    }
    table
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
