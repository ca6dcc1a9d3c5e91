//! What every command shares in talking to people and programs.

use crate::cli::Color;
use crate::error::{Exit, Failure};
use std::io::IsTerminal as _;

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
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = columns.unwrap_or(100usize).clamp(40, 240);
        Self { color, width }
    }

    /// A table for people.
    pub(crate) fn table(self, headers: &[&str], rows: Vec<Vec<String>>) {
        let mut widths: Vec<usize> = headers.iter().map(|h| h.chars().count()).collect();
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: Vec<&str>| {
            let padded: Vec<String> = cells
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            println!("{}", padded.join("  ").trim_end());
        };
        line(headers.to_vec());
        for row in &rows {
            line(row.iter().map(String::as_str).collect());
        }
    }
}

/// Writes a value as JSON, for programs.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    println!("{text}");
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
