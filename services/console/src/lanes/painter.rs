//! The thin part that writes: lanes redrawn in place on a terminal, lines elsewhere.
//!
//! Two writers. Progress (lanes or lines, and what stands below the answer) goes to the first, meant
//! for standard error; the answer goes to the second, meant for standard output, so that
//! `ask ... > answer.md` holds the answer and nothing else.
//!
//! On a terminal the answer is rendered while it comes, block by block, below the lanes as they stood
//! when it began; what is not complete yet is drawn with the live part. Into a pipe it goes as the
//! Markdown it is while it comes; if the worker that said it dies, what follows a rule is the whole answer.
//! A file gets it once, when it is committed, so that it holds the answer and nothing else.
//!
//! The live part never fills the screen, so going up as many rows as were drawn always finds its top.

use super::board::{LaneBoard, News};
use super::closing::Closing;
use super::view::heading;
use crate::markdown::MarkdownStream;
use crate::style::{BAD, BOLD, DIM, Line, Look, WARN, paint_all};
use crate::text;
use agentfleet_runtime::client::Event;
use agentfleet_schema::Millis;
use std::io::{self, Write};

/// Least time between two drawings that only show more of a text.
const CALM: Millis = 60;
/// Lanes that are left standing when the answer begins.
const LEFT_STANDING: usize = 60;

/// How the two writers are to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Progress goes to a terminal that can be drawn on.
    pub live: bool,
    pub progress_color: bool,
    pub answer: AnswerAs,
    pub answer_color: bool,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerAs {
    /// Rendered while it comes, for a terminal.
    Rendered,
    /// As Markdown while it comes, for a pipe.
    Streamed,
    /// As Markdown once it is committed, for a file.
    Whole,
}

/// The size of the terminal, asked for by the caller before each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    pub width: usize,
    pub height: usize,
}

/// Shows a run.
#[derive(Debug)]
pub struct Painter<P: Write, A: Write> {
    board: LaneBoard,
    settings: Settings,
    progress: P,
    answer: A,
    /// Rows of the live part, as it was drawn.
    drawn: usize,
    drawn_at: Millis,
    stream: Option<MarkdownStream>,
    /// What was written of an answer that goes into a pipe.
    piped: String,
    /// Another worker says it anew, so nothing more is written before it is committed.
    held: bool,
    /// The lanes were left standing; nothing of them is drawn any more.
    lanes_left: bool,
    /// Lines of progress that came while the answer was written: both may go to one place, and none of
    /// them stands inside the answer.
    waiting: String,
}

impl<P: Write, A: Write> Painter<P, A> {
    pub fn new(board: LaneBoard, settings: Settings, progress: P, answer: A) -> Self {
        Self {
            board,
            settings,
            progress,
            answer,
            drawn: 0,
            drawn_at: Millis::MIN,
            stream: None,
            piped: String::new(),
            held: false,
            lanes_left: false,
            waiting: String::new(),
        }
    }

    pub fn board(&self) -> &LaneBoard {
        &self.board
    }

    /// Shows what an event brings.
    pub fn event(&mut self, event: &Event, now: Millis, screen: Screen) -> io::Result<()> {
        let news = self.board.apply(event, now);
        let calm = news.is_empty() || matches!(event, Event::Chunk { .. });
        for news in news {
            self.tell(news, now, screen)?;
        }
        if calm && now.saturating_sub(self.drawn_at) < CALM {
            return Ok(());
        }
        self.draw(now, screen)
    }

    /// Redraws, for the time that passes: call it about ten times a second.
    pub fn tick(&mut self, now: Millis, screen: Screen) -> io::Result<()> {
        self.draw(now, screen)
    }

    /// Takes the live part off the screen, so that something else can be written.
    pub fn clear(&mut self, screen: Screen) -> io::Result<()> {
        let rows = self.rows(screen);
        self.drawn = 0;
        if rows > 0 {
            // Row by row: told to clear the whole screen, some terminals keep a copy for scrolling.
            let text = format!("{}{}{}", up(rows), "\u{1b}[K\r\n".repeat(rows), up(rows));
            self.progress.write_all(text.as_bytes())?;
        }
        self.progress.flush()
    }

    /// The same, and ends what was begun of the answer and of progress: nobody goes on with it.
    pub fn leave(&mut self, screen: Screen) -> io::Result<()> {
        self.clear(screen)?;
        if !self.piped.is_empty() && !self.piped.ends_with('\n') {
            self.piped.push('\n');
            self.answer.write_all(b"\n")?;
            self.answer.flush()?;
        }
        self.say_waiting()
    }

    /// Writes lines of progress, or keeps them until the answer is over.
    fn say(&mut self, text: &str) -> io::Result<()> {
        if !self.piped.is_empty() || self.stream.is_some() {
            self.waiting.push_str(text);
            return Ok(());
        }
        self.progress.write_all(text.as_bytes())?;
        self.progress.flush()
    }

    fn say_waiting(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.waiting);
        self.progress.write_all(text.as_bytes())?;
        self.progress.flush()
    }

    /// Writes what stands below the answer. Nothing is drawn after it.
    pub fn finish(&mut self, closing: &Closing, screen: Screen) -> io::Result<()> {
        self.clear(screen)?;
        let look = Look {
            width: screen.width,
            color: self.settings.progress_color,
        };
        let lines = closing.lines(look);
        if !lines.is_empty() {
            let text = format!("\n{}", paint_all(&lines, look.color));
            self.progress.write_all(text.as_bytes())?;
        }
        self.progress.flush()
    }

    fn tell(&mut self, news: News, now: Millis, screen: Screen) -> io::Result<()> {
        match news {
            News::Happened(line) if !self.settings.live => self.report(&line, now, screen),
            // The lanes show it.
            News::Happened(_) => Ok(()),
            News::AnswerBegins { again } => self.answer_begins(again, now, screen),
            News::AnswerText(text) => {
                if self.settings.answer == AnswerAs::Streamed && !self.held {
                    let text = text::visible(&text);
                    self.piped.push_str(&text);
                    return self.answer_out(&text, screen);
                }
                let Some(stream) = &mut self.stream else {
                    return Ok(());
                };
                stream.set_width(screen.width);
                let blocks = stream.push(&text);
                self.answer_out(&blocks, screen)
            }
            News::Ended { text, error } => {
                if let Some(stream) = &mut self.stream {
                    let rest = stream.finish();
                    self.stream = None;
                    self.answer_out(&rest, screen)?;
                }
                self.leave_lanes(now, screen)?;
                if self.settings.answer != AnswerAs::Rendered && !text.is_empty() {
                    self.answer_ends(&text::visible(&text))?;
                }
                self.say_waiting()?;
                if let Some(error) = error {
                    let mut lines = Line::of("✖ ", BAD)
                        .with(&error.message, BAD)
                        .wrapped(screen.width);
                    if let Some(hint) = &error.hint {
                        lines.extend(Line::of(&format!("  {hint}"), BOLD).wrapped(screen.width));
                    }
                    let text = paint_all(&lines, self.settings.progress_color);
                    self.progress.write_all(text.as_bytes())?;
                    return self.progress.flush();
                }
                self.answer.flush()
            }
        }
    }

    /// One line, with the time since the beginning.
    fn report(&mut self, line: &Line, now: Millis, screen: Screen) -> io::Result<()> {
        let elapsed = self.board.elapsed(now);
        let stamp = format!("{:>4}.{} s  ", elapsed / 1_000, elapsed / 100 % 10);
        let line = Line::of(&stamp, DIM)
            .with_line(line)
            .shortened(screen.width.max(40));
        let line = line.paint(self.settings.progress_color);
        self.say(&format!("{line}\n"))
    }

    /// Writes what is not written yet of an answer that is committed.
    fn answer_ends(&mut self, text: &str) -> io::Result<()> {
        let written = std::mem::take(&mut self.piped);
        // What was written may lack the white space around it, or have it already.
        let rest = text.strip_prefix(&*written);
        let rest = match rest.or_else(|| text.trim().strip_prefix(written.trim())) {
            _ if written.is_empty() => text.to_owned(),
            Some(rest) => rest.to_owned(),
            None => format!("\n\n---\n\n{text}"),
        };
        self.answer.write_all(rest.as_bytes())?;
        let last = if rest.is_empty() { &written } else { &rest };
        if !last.ends_with('\n') {
            self.answer.write_all(b"\n")?;
        }
        self.answer.flush()
    }

    fn answer_begins(&mut self, again: bool, now: Millis, screen: Screen) -> io::Result<()> {
        match self.settings.answer {
            AnswerAs::Rendered => {}
            AnswerAs::Whole => return Ok(()),
            AnswerAs::Streamed if again => {
                self.held = true;
                let note = "The worker that wrote the answer so far is gone. It is written anew, whole, \
                            below a rule, unless it comes out the same.";
                let lines = Line::of(note, WARN).wrapped(screen.width);
                let text = paint_all(&lines, self.settings.progress_color);
                return self.say(&text);
            }
            AnswerAs::Streamed => return self.leave_lanes(now, screen),
        }
        let look = Look {
            width: screen.width,
            color: self.settings.answer_color,
        };
        if again {
            // What stands there cannot be taken back, only declared void.
            let note = "The worker that wrote the text above is gone. The answer begins again.";
            self.clear(screen)?;
            let lines = Line::of(note, WARN).wrapped(screen.width);
            let text = format!("\n{}\n", paint_all(&lines, look.color));
            self.answer.write_all(text.as_bytes())?;
        } else if self.settings.live {
            self.leave_lanes(now, screen)?;
            let text = format!(
                "\n{}\n\n",
                heading("answer", look).paint(self.settings.progress_color)
            );
            self.progress.write_all(text.as_bytes())?;
            self.progress.flush()?;
        }
        self.stream = Some(MarkdownStream::new(look));
        Ok(())
    }

    /// The lanes as they are now, for good.
    fn leave_lanes(&mut self, now: Millis, screen: Screen) -> io::Result<()> {
        self.clear(screen)?;
        if !self.settings.live || std::mem::replace(&mut self.lanes_left, true) {
            return Ok(());
        }
        let lanes = self
            .board
            .render_still(screen.width.saturating_sub(1), LEFT_STANDING, now);
        let text = paint_all(&lanes, self.settings.progress_color);
        self.progress.write_all(text.as_bytes())?;
        self.progress.flush()
    }

    fn answer_out(&mut self, blocks: &str, screen: Screen) -> io::Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        self.clear(screen)?;
        self.answer.write_all(blocks.as_bytes())?;
        self.answer.flush()
    }

    fn draw(&mut self, now: Millis, screen: Screen) -> io::Result<()> {
        // Below an answer that goes into a pipe nothing is drawn: its reader may write to the terminal.
        let is_piped = self.lanes_left && self.settings.answer == AnswerAs::Streamed;
        if !self.settings.live || is_piped || self.board.is_over() {
            return Ok(());
        }
        self.drawn_at = now;
        // One column stays free: some terminals wrap as soon as the last one is written.
        let width = screen.width.saturating_sub(1);
        let height = screen.height.saturating_sub(1);
        let lines = match &self.stream {
            Some(stream) => {
                let mut lines = stream.unfinished();
                let keep = height.saturating_sub(3);
                lines.drain(..lines.len().saturating_sub(keep));
                if stream.has_begun() && !lines.is_empty() {
                    lines.insert(0, Line::new());
                }
                lines.push(Line::new());
                let elapsed = text::duration(self.board.elapsed(now));
                lines.push(Line::of(&format!("answering · {elapsed}"), DIM));
                lines
            }
            None => self.board.render(width, height, now),
        };
        let lines: Vec<Line> = lines.iter().map(|line| line.shortened(width)).collect();
        // Written over what stands there, so that nothing flickers; what stood lower is cleared.
        let mut out = format!("\u{1b}[?2026h{}", up(self.rows(screen)));
        for line in &lines {
            out.push_str(&line.paint(self.settings.progress_color));
            out.push_str("\u{1b}[K\r\n");
        }
        out.push_str("\u{1b}[J\u{1b}[?2026l");
        self.drawn = lines.len();
        self.progress.write_all(out.as_bytes())?;
        self.progress.flush()
    }

    /// Rows to go up to the top of the live part. A terminal that got narrower may have wrapped lines
    /// that were drawn before, or cut them; which one cannot be known. So the rows are counted as they
    /// were drawn: at worst a piece of an old drawing stays, but nothing that stands above is lost.
    fn rows(&self, screen: Screen) -> usize {
        self.drawn.min(screen.height.saturating_sub(1))
    }
}

/// Up so many rows, to the first column.
fn up(rows: usize) -> String {
    if rows == 0 {
        String::new()
    } else {
        format!("\u{1b}[{rows}A\r")
    }
}
