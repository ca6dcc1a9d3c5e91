//! One history, made to fit: lines, then a summary, then less of the plan, then less of the newest.

use super::summary::{ARGUMENT, summarised};
use super::text::{LEFT_OUT, is_error, is_left_out, line, shorter, whole};
use super::{CONTEXT, Room, SHORT, SUMMARY, counted, session_of, tokens};
use crate::patterns;
use agentfleet_schema::records::{DecidedBy, Decision};
use agentfleet_schema::{AgentRequest, AgentStep, StepKind, uris};

/// Newest steps that stay whole.
const KEPT: usize = 2;
/// Bytes of a thought in a line.
const THOUGHT: usize = 160;
/// Bytes of a plan's result once it is cut.
const RESULT: usize = 400;
/// Bytes of a decision's rationale, beside texts that lie nowhere else.
const RATIONALE: usize = 8_000;

/// The request with a history that fits into `room`, and what was done to it.
pub(super) fn fitted(request: &AgentRequest, room: Room) -> Option<(AgentRequest, Decision)> {
    let before = size(&request.history);
    if before <= room.bytes {
        return None;
    }
    let mut fitting = Fitting::new(request);
    let goal = room.bytes / 2;
    fitting.lines(goal);
    let lines = fitting.size();
    // Less than a quarter free would soon be used up.
    let much = goal + goal / 2;
    // Where most of it are the newest steps, a summary of the others gains nothing.
    if lines > much && size(&fitting.steps[..fitting.old()]) > goal / 4 {
        fitting.fold(goal);
    }
    fitting.results(goal, much);
    fitting.newest(room);
    let after = fitting.size();
    if after >= before {
        return None;
    }
    let decision = fitting.decision(room, before, lines, after);
    let mut request = request.clone();
    request.history = fitting.steps;
    Some((request, decision))
}

pub(super) fn size(steps: &[AgentStep]) -> usize {
    steps.iter().map(size_of).sum()
}

/// Bytes of a step as it travels: what a prompt shows of it is less.
fn size_of(step: &AgentStep) -> usize {
    serde_json::to_string(step).map_or(0, |text| text.len())
}

struct Fitting<'a> {
    request: &'a AgentRequest,
    steps: Vec<AgentStep>,
    /// What was done, a line each.
    done: Vec<String>,
    /// Texts that lie nowhere else.
    texts: String,
    shortened: u32,
    folded: u32,
}

impl<'a> Fitting<'a> {
    fn new(request: &'a AgentRequest) -> Self {
        Self {
            request,
            steps: request.history.clone(),
            done: Vec::new(),
            texts: String::new(),
            shortened: 0,
            folded: 0,
        }
    }

    fn size(&self) -> usize {
        size(&self.steps)
    }

    /// How many steps are old enough to be shortened.
    fn old(&self) -> usize {
        self.steps.len().saturating_sub(KEPT)
    }

    /// Number of the last iteration that a step stands for.
    fn n(&self, at: usize) -> u32 {
        self.steps.iter().take(at + 1).map(counted).sum()
    }

    /// Makes the oldest steps one line each, until it is enough.
    fn lines(&mut self, goal: usize) {
        let mut size = self.size();
        for at in 0..self.old() {
            if size <= goal {
                break;
            }
            size = size.saturating_sub(self.shorten(at));
        }
    }

    /// Makes a step one line. Answers with the bytes that are gained.
    fn shorten(&mut self, at: usize) -> usize {
        let n = self.n(at);
        let Some(step) = self.steps.get(at).cloned() else {
            return 0;
        };
        if step.is(StepKind::Summary) {
            return 0;
        }
        let before = size_of(&step);
        let mut short = AgentStep {
            thought: line(&step.thought, THOUGHT),
            ..step.clone()
        };
        for value in short.arguments.values_mut() {
            *value = line(value, ARGUMENT);
        }
        let observation = step.observation.clone();
        if observation.len() > SHORT && !is_left_out(&observation) && !patterns::is_carried(&step) {
            // That a call failed is still seen.
            let error = is_error(&observation);
            short.observation = match self.place(&step, n).filter(|_| !error) {
                Some(place) => {
                    let bytes = whole(&observation).map_or(observation.len(), |(bytes, _)| bytes);
                    let step = match counted(&step) {
                        0 => String::new(),
                        _ => format!("step {n}, "),
                    };
                    format!("{LEFT_OUT}{bytes} bytes, {step}{place}]")
                }
                None => line(&observation, THOUGHT),
            };
        }
        let gained = before.saturating_sub(size_of(&short));
        if gained == 0 {
            return 0;
        }
        let told = Some(&short.observation).filter(|text| is_left_out(text));
        let told = format!(
            "step {n} ({}) to one line {}",
            short.action,
            told.map(String::as_str).unwrap_or_default()
        );
        self.done.push(told.trim_end().to_owned());
        self.shortened += 1;
        if let Some(step) = self.steps.get_mut(at) {
            *step = short;
        }
        gained
    }

    /// Where the whole observation of a step lies. What lies nowhere goes into the rationale of the
    /// decision, which is a document.
    fn place(&mut self, step: &AgentStep, n: u32) -> Option<String> {
        if let Some((_, uri)) = whole(&step.observation) {
            return Some(uri.to_owned());
        }
        if counted(step) == 0 || step.is(StepKind::Execute) {
            return None;
        }
        if let Some(session) = session_of(self.request, n) {
            return Some(uris::document_of(&uris::observation(session, n)));
        }
        let (session, at) = (&self.request.session_id, self.request.step);
        let told = format!("\n\n## Step {n}: {}\n\n{}", step.action, step.observation);
        self.texts.push_str(&told);
        Some(uris::document_of(&uris::decision(session, at, CONTEXT)))
    }

    /// Puts the oldest steps together into one, until it is enough.
    fn fold(&mut self, goal: usize) {
        let mut size = self.size();
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        let old = self.old();
        for (at, step) in std::mem::take(&mut self.steps).into_iter().enumerate() {
            let enough = size <= goal && !step.is(StepKind::Summary);
            // Only what comes first, so that numbers stay what they were.
            let stays = !kept.is_empty() || step.plan.is_some() || patterns::is_carried(&step);
            if at >= old || enough || stays {
                kept.push(step);
            } else {
                size = size.saturating_sub(size_of(&step));
                gone.push(step);
            }
        }
        let others = gone
            .iter()
            .filter(|step| !step.is(StepKind::Summary))
            .count();
        if others == 0 {
            // Nothing is gained by a summary of a summary.
            gone.append(&mut kept);
            self.steps = gone;
            return;
        }
        self.folded = others as u32;
        // A sixteenth of the room: some two hundred lines of a large window, some ten of a small one.
        let summary = summarised(&gone, &self.request.user, goal / 8);
        self.done.push(format!(
            "{others} of the lines into a summary, which now stands for {} iterations",
            counted(&summary)
        ));
        self.steps = vec![summary];
        self.steps.append(&mut kept);
    }

    /// Cuts results of the plan, those first that nothing open builds on.
    fn results(&mut self, goal: usize, much: usize) {
        let mut size = self.size();
        if size <= much {
            return;
        }
        let Some(step) = self.steps.iter_mut().rev().find(|step| step.plan.is_some()) else {
            return;
        };
        let session = &self.request.session_id;
        let plan = step.plan.as_deref_mut().unwrap_or_default();
        let needed: Vec<usize> = plan
            .iter()
            .filter(|step| step.status == "pending")
            .flat_map(|step| step.depends_on.iter().map(|at| *at as usize))
            .collect();
        for (wanted, enough) in [(false, goal), (true, much)] {
            for (at, step) in plan.iter_mut().enumerate() {
                if size <= enough
                    || needed.contains(&at) != wanted
                    || step.result.len() <= 2 * RESULT
                {
                    continue;
                }
                let document = uris::document_of(&uris::step_result(session, at as u32));
                let before = step.result.len();
                step.result = shorter(&step.result, RESULT, &document);
                size = size.saturating_sub(before.saturating_sub(step.result.len()));
                self.shortened += 1;
                self.done.push(format!("the result of plan step {at} cut"));
            }
        }
    }

    /// Where even the newest steps have no room: the older of them first.
    fn newest(&mut self, room: Room) {
        for at in self.old()..self.steps.len() {
            if self.size() <= room.bytes {
                return;
            }
            self.shorten(at);
        }
    }

    fn decision(&self, room: Room, before: usize, lines: usize, after: usize) -> Decision {
        let most = tokens(room.bytes);
        let mut narrowed = format!(
            "`whole`: {} tokens, and a window of {} leaves {most} for the history",
            tokens(before),
            room.window,
        );
        let chosen = if self.folded > 0 { SUMMARY } else { "lines" };
        if self.folded > 0 {
            narrowed.push_str(&format!(
                "; `lines`: {} tokens, and {} are aimed at",
                tokens(lines),
                most / 2
            ));
        }
        let mut rationale = String::from("To fit the context, of the history became:\n");
        for (at, done) in self.done.iter().enumerate() {
            if rationale.len() > RATIONALE {
                rationale.push_str(&format!("- and {} more\n", self.done.len() - at));
                break;
            }
            rationale.push_str(&format!("- {done}\n"));
        }
        if !self.texts.is_empty() {
            rationale.push_str(
                "\nThe caller brought these steps along; what they observed lies nowhere else:",
            );
            rationale.push_str(&self.texts);
        }
        Decision {
            subject: CONTEXT.into(),
            options: vec![chosen.into()],
            narrowed_by: narrowed,
            signal: format!(
                "{} tokens before, {} after, estimated at 3.5 bytes each; {} steps shortened, {} \
                 summarised",
                tokens(before),
                tokens(after),
                self.shortened,
                self.folded
            ),
            chosen: chosen.into(),
            decided_by: DecidedBy::OnlyOption,
            rationale: rationale.trim_end().to_owned(),
        }
    }
}
