//! From triples to a trace.
//!
//! A graph may be partial (the run is still going, or the writer lags), repeated, written by a peer,
//! or wrong. Whatever it says, building ends, each session appears once, and what a session holds
//! follows from the statements alone, not from their order.

mod forest;
mod kinds;
mod spent;
mod values;

use super::Trace;
use super::facts::{Facts, distinct};
use super::model::{
    Completion, Conclusion, Confidence, Decision, FanOut, Goal, Instant, Iteration, Note, NoteKind,
    Observation, Routing, Session, Source, State, Step, Synthesis, Work, arguments_in_brief,
};
use super::order::in_order;
use agentfleet_schema::vocabulary::{RDFS_LABEL, prov, tg};
use agentfleet_schema::{CorrelationId, SessionId, Triple, uris};
use forest::{as_trees, link_goals};
use kinds::{Kind, nodes_by_session, session_uris};
use spent::{spent, tell_usage_once};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use values::{read_arguments, read_confidence};

impl Trace {
    /// Reads everything the triples tell about sessions.
    pub fn from_triples(triples: &[Triple]) -> Self {
        let triples = distinct(triples);
        let sessions = {
            let facts = Facts::new(&triples);
            let builder = Builder {
                nodes: nodes_by_session(&facts),
                facts: &facts,
            };
            let mut sessions: Vec<Session> = session_uris(&builder)
                .into_iter()
                .map(|uri| builder.session(uri))
                .collect();
            link_goals(&mut sessions);
            as_trees(sessions)
        };
        Self { sessions, triples }
    }
}

fn session_id(uri: &str) -> SessionId {
    uris::session_of(uri).unwrap_or_else(|| SessionId::new(uri))
}

struct Builder<'a> {
    facts: &'a Facts<'a>,
    nodes: BTreeMap<String, Vec<(&'a str, Kind)>>,
}

impl Builder<'_> {
    fn session(&self, uri: String) -> Session {
        let facts = self.facts;
        let nodes = self.nodes.get(&uri).map(Vec::as_slice).unwrap_or_default();
        let of = |wanted: Kind| {
            nodes
                .iter()
                .filter(move |(_, kind)| *kind == wanted)
                .map(|(uri, _)| *uri)
        };
        let mut session = Session {
            id: session_id(&uri),
            parent: facts.text(&uri, tg::PARENT_SESSION_ID).map(SessionId::from),
            correlation: facts
                .text(&uri, tg::PARENT_CORRELATION_ID)
                .map(CorrelationId::from),
            index: facts
                .number(&uri, tg::SIBLING_INDEX)
                .and_then(|n| n.try_into().ok()),
            question: self.question(&uri),
            goal: facts.text(&uri, tg::SUBAGENT_GOAL),
            collection: facts.text(&uri, tg::COLLECTION),
            conversation: facts.text(&uri, tg::CONVERSATION_ID),
            started_at: self.instant(&uri, prov::STARTED_AT_TIME),
            ended_at: self.instant(&uri, prov::ENDED_AT_TIME),
            ..Session::default()
        };
        if session.parent.is_none()
            && let Some(other) = facts.link(&uri, prov::WAS_INFORMED_BY)
        {
            session.forked_from = Some(session_id(&other));
            let question = facts.link(&uri, prov::USED);
            session.forked_at = question.and_then(|q| facts.link(&q, prov::WAS_DERIVED_FROM));
        }
        session.config_version = nodes
            .iter()
            .find_map(|(node, _)| facts.number(node, tg::CONFIG_VERSION));
        let routing_decisions: BTreeSet<&str> = of(Kind::Routing)
            .flat_map(|routing| facts.links(routing, prov::WAS_DERIVED_FROM))
            .filter(|from| facts.is_a(from, tg::DECISION))
            .collect();
        session.routing = of(Kind::Routing)
            .next()
            .map(|uri| self.routing(uri, &routing_decisions));
        session.steps = self.steps(nodes, &routing_decisions);
        session.conclusion = of(Kind::Conclusion).next().map(|uri| self.conclusion(uri));
        session.completion = of(Kind::Completion).next().map(|uri| self.completion(uri));
        session.state = if session.conclusion.is_some() || session.ended_at.is_some() {
            State::Ended
        } else if waits(&session) {
            State::Waiting
        } else if session.started_at.is_some() || !nodes.is_empty() {
            State::Running
        } else {
            State::NotStarted
        };
        session.duration_ms = match (session.started_at, session.ended_at) {
            (Some(from), Some(to)) => u64::try_from(to.0.saturating_sub(from.0)).ok(),
            _ => None,
        };
        tell_usage_once(&mut session);
        session.spent = spent(&session);
        session.uri = uri;
        session
    }

    fn question(&self, session: &str) -> String {
        let facts = self.facts;
        let used = || {
            facts
                .links(session, prov::USED)
                .find_map(|question| facts.text(question, prov::VALUE))
        };
        facts
            .text(session, tg::QUERY)
            .or_else(used)
            .unwrap_or_default()
    }

    fn instant(&self, uri: &str, predicate: &str) -> Option<Instant> {
        self.facts.instant(uri, predicate).map(Instant)
    }

    fn work(&self, uri: &str) -> Work {
        let facts = self.facts;
        Work {
            at: self.instant(uri, prov::GENERATED_AT_TIME),
            model: facts.text(uri, tg::LLM_MODEL),
            input_tokens: facts.number(uri, tg::IN_TOKEN),
            output_tokens: facts.number(uri, tg::OUT_TOKEN),
            cost: facts.decimal(uri, tg::COST),
            unpriced_calls: facts.number(uri, tg::UNPRICED_CALLS),
            model_ms: facts.number(uri, tg::LLM_DURATION_MS),
            attempt: facts.number(uri, tg::ATTEMPT),
            cut_replies: facts.number(uri, tg::CUT_REPLIES),
            ignored_calls: facts.texts(uri, tg::IGNORED_CALL),
            model_wait_ms: facts.number(uri, tg::MODEL_WAIT_MS),
            model_wait_reason: facts.text(uri, tg::MODEL_WAIT_REASON),
            wasted_tokens: facts.number(uri, tg::WASTED_TOKENS),
            wasted_cost: facts.decimal(uri, tg::WASTED_COST),
            tool_calls: facts.number(uri, tg::TOOL_CALLS),
            record: facts.text(uri, tg::STEP_RECORD),
        }
    }

    fn routing(&self, uri: &str, decisions: &BTreeSet<&str>) -> Routing {
        let facts = self.facts;
        let decisions: Vec<Decision> = in_order(facts, decisions.iter().copied(), &[])
            .into_iter()
            .map(|decision| self.decision(decision))
            .collect();
        let selected = |subject: &str| {
            decisions
                .iter()
                .find(|d| d.subject == subject)
                .map(|d| d.selected.clone())
        };
        Routing {
            uri: uri.to_owned(),
            task_type: facts
                .link(uri, tg::TASK_TYPE)
                .map(|uri| uris::config_name_of(&uri).unwrap_or(uri))
                .or_else(|| selected("task-type")),
            pattern: facts
                .link(uri, tg::SELECTED_PATTERN)
                .map(|uri| uris::config_name_of(&uri).unwrap_or(uri))
                .or_else(|| selected("pattern")),
            decisions,
            work: self.work(uri),
        }
    }

    fn decision(&self, uri: &str) -> Decision {
        let facts = self.facts;
        Decision {
            uri: uri.to_owned(),
            subject: facts.text(uri, tg::DECISION_SUBJECT).unwrap_or_default(),
            options: facts.texts(uri, tg::OPTION),
            narrowed_by: facts.text(uri, tg::NARROWED_BY),
            signal: facts.text(uri, tg::SIGNAL),
            selected: facts.text(uri, tg::SELECTED).unwrap_or_default(),
            decided_by: facts.text(uri, tg::DECIDED_BY),
            person: facts
                .links(uri, prov::WAS_ATTRIBUTED_TO)
                .find(|agent| facts.is_a(agent, prov::PERSON))
                .and_then(|person| facts.text(person, RDFS_LABEL)),
            rationale: facts.link(uri, tg::RATIONALE),
            arguments: read_arguments(&facts.text(uri, tg::ARGUMENTS).unwrap_or_default()),
            work: self.work(uri),
        }
    }

    fn steps(&self, nodes: &[(&str, Kind)], routing: &BTreeSet<&str>) -> Vec<Step> {
        let facts = self.facts;
        let kinds: HashMap<&str, Kind> = nodes
            .iter()
            .copied()
            .filter(|(uri, kind)| match kind {
                Kind::Decision => !routing.contains(uri),
                Kind::Iteration | Kind::FanOut | Kind::Synthesis | Kind::Note(_) => true,
                Kind::Routing | Kind::Conclusion | Kind::Completion => false,
            })
            .collect();
        // An iteration derives from the observation before it, so from the iteration before that.
        let through: Vec<(&str, &str)> = kinds
            .keys()
            .flat_map(|uri| {
                facts
                    .links(uri, tg::OBSERVATION)
                    .map(move |seen| (seen, *uri))
            })
            .collect();
        let mut steps: Vec<Step> = in_order(facts, kinds.keys().copied(), &through)
            .into_iter()
            .filter_map(|uri| match kinds.get(uri)? {
                Kind::Decision => Some(Step::Decision(self.decision(uri))),
                Kind::Iteration => Some(Step::Iteration(self.iteration(uri))),
                Kind::FanOut => Some(Step::FanOut(self.fan_out(uri))),
                Kind::Synthesis => Some(Step::Synthesis(self.synthesis(uri))),
                Kind::Note(kind) => Some(Step::Note(self.note(uri, *kind))),
                Kind::Routing | Kind::Conclusion | Kind::Completion => None,
            })
            .collect();
        tell_why_sent_back(&mut steps);
        steps
    }

    fn iteration(&self, uri: &str) -> Iteration {
        let facts = self.facts;
        let arguments = facts.text(uri, tg::ARGUMENTS).unwrap_or_default();
        Iteration {
            uri: uri.to_owned(),
            number: facts.number(uri, tg::STEP_NUMBER),
            action: facts.text(uri, tg::ACTION).unwrap_or_default(),
            arguments: read_arguments(&arguments),
            candidates: facts.texts(uri, tg::TOOL_CANDIDATE),
            thought: self.thought(uri),
            observation: facts
                .link(uri, tg::OBSERVATION)
                .map(|seen| self.observation(&seen)),
            // Filled in once the steps are in order: what was wrong stands in the step after it.
            sent_back: self.is_sent_back(uri).then(String::new),
            work: self.work(uri),
        }
    }

    /// Whether an iteration was an answer that a critique sent back. A tool may be called `answer`
    /// too; then a call of it is counted.
    fn is_sent_back(&self, uri: &str) -> bool {
        let facts = self.facts;
        let answers = facts.text(uri, tg::ACTION).as_deref() == Some("answer");
        let calls = facts
            .number(uri, tg::TOOL_CALLS)
            .is_some_and(|calls| calls > 0);
        answers && !calls && facts.flag(&format!("{uri}/critique"), tg::SENT_BACK)
    }

    fn thought(&self, of: &str) -> Option<String> {
        let thought = self.facts.link(of, tg::THOUGHT)?;
        self.facts.link(&thought, tg::DOCUMENT)
    }

    fn observation(&self, uri: &str) -> Observation {
        let facts = self.facts;
        let error = facts
            .text(uri, tg::TOOL_ERROR)
            .or_else(|| facts.is_a(uri, tg::ERROR).then(String::new));
        Observation {
            uri: uri.to_owned(),
            document: facts.link(uri, tg::DOCUMENT),
            error,
            tool_ms: facts.number(uri, tg::TOOL_DURATION_MS),
            sources: facts
                .links(uri, tg::SOURCE)
                .map(|source| Source {
                    uri: source.to_owned(),
                    title: facts.text(source, RDFS_LABEL),
                })
                .collect(),
        }
    }

    fn fan_out(&self, uri: &str) -> FanOut {
        let facts = self.facts;
        let mut goals: Vec<Goal> = facts
            .links(uri, tg::SUBAGENT_GOALS)
            .zip(0..)
            .map(|(goal, position)| Goal {
                uri: goal.to_owned(),
                index: goal
                    .rsplit('/')
                    .next()
                    .and_then(|index| index.parse().ok())
                    .unwrap_or(position),
                text: facts.text(goal, RDFS_LABEL).unwrap_or_default(),
                session: None,
            })
            .collect();
        goals.sort_by(|a, b| (a.index, &a.uri).cmp(&(b.index, &b.uri)));
        FanOut {
            uri: uri.to_owned(),
            correlation: self.correlation(uri),
            round: facts.number(uri, tg::ROUND),
            expected: facts.number(uri, tg::EXPECTED_SIBLINGS),
            policy: facts.text(uri, tg::JOIN_POLICY),
            join_deadline: self.instant(uri, tg::JOIN_DEADLINE),
            document: facts.link(uri, tg::DOCUMENT),
            goals,
            work: self.work(uri),
        }
    }

    fn correlation(&self, uri: &str) -> CorrelationId {
        self.facts
            .text(uri, tg::CORRELATION_ID)
            .unwrap_or_default()
            .into()
    }

    fn synthesis(&self, uri: &str) -> Synthesis {
        let facts = self.facts;
        let subagents = facts.links(uri, prov::WAS_DERIVED_FROM).filter(|from| {
            matches!(
                Kind::of(facts, from),
                Some(Kind::Conclusion | Kind::Completion)
            ) || (!facts.has(from, prov::WAS_GENERATED_BY)
                && (from.ends_with("/answer") || from.ends_with("/completion")))
        });
        Synthesis {
            uri: uri.to_owned(),
            correlation: self.correlation(uri),
            cause: facts.text(uri, tg::JOIN_CAUSE),
            derived_from: subagents.map(str::to_owned).collect(),
            missing: facts.links(uri, tg::MISSING).map(session_id).collect(),
            work: self.work(uri),
        }
    }

    fn note(&self, uri: &str, note: NoteKind) -> Note {
        let facts = self.facts;
        let texts = |predicates: &[&str]| -> Vec<String> {
            let all = predicates.iter().flat_map(|p| facts.texts(uri, p));
            all.collect()
        };
        let mut lines = match note {
            NoteKind::Plan => texts(&[tg::REASON, tg::PLAN_STEP]),
            NoteKind::StepResult | NoteKind::Critique => Vec::new(),
            NoteKind::Comparison => {
                let disputed = texts(&[tg::DISAGREEMENT]).into_iter();
                let mut lines = texts(&[tg::POSITION]);
                lines.extend(disputed.map(|point| format!("in dispute: {point}")));
                lines
            }
            NoteKind::Approval => self.asked(uri),
        };
        if note == NoteKind::Plan {
            let revised = texts(&[tg::REVISED_STEP]).into_iter();
            lines.extend(revised.map(|step| format!("{step} (revised: no longer to be done)")));
            // By their number, not as words.
            let number = |line: &String| line.split(':').next()?.parse::<u64>().ok();
            lines.sort_by_key(number);
        }
        Note {
            uri: uri.to_owned(),
            note,
            label: facts.text(uri, RDFS_LABEL).unwrap_or_default(),
            lines,
            failed: facts.text(uri, tg::PLAN_STATUS).as_deref() == Some("failed")
                || facts.flag(uri, tg::SENT_BACK),
            index: facts.number(uri, tg::PLAN_INDEX),
            document: match note {
                NoteKind::Approval => self.thought(uri),
                NoteKind::Plan
                | NoteKind::StepResult
                | NoteKind::Critique
                | NoteKind::Comparison => facts.link(uri, tg::DOCUMENT),
            },
            work: self.work(uri),
        }
    }

    /// What a person was asked.
    fn asked(&self, uri: &str) -> Vec<String> {
        let facts = self.facts;
        let arguments = read_arguments(&facts.text(uri, tg::ARGUMENTS).unwrap_or_default());
        let tool = facts.text(uri, tg::ACTION).unwrap_or_default();
        // Who is to decide must see what on.
        let call = arguments_in_brief(&arguments, 400);
        let mut lines = vec![format!("{tool}({call})")];
        lines.extend(facts.text(uri, tg::REASON));
        if let (Some(until), Some(answer)) = (
            self.instant(uri, tg::EXPIRES),
            facts.text(uri, tg::DEFAULT_ANSWER),
        ) {
            lines.push(format!("until {until}, then `{answer}`"));
        }
        lines
    }

    fn conclusion(&self, uri: &str) -> Conclusion {
        let facts = self.facts;
        let mut confidence: Vec<Confidence> = facts
            .texts(uri, tg::CONFIDENCE)
            .iter()
            .map(|text| read_confidence(text))
            .collect();
        confidence.sort_by(|a, b| a.part.cmp(&b.part));
        Conclusion {
            uri: uri.to_owned(),
            answered: !facts.is_a(uri, tg::ERROR),
            termination: facts.text(uri, tg::TERMINATION_REASON),
            partial: facts.flag(uri, tg::PARTIAL),
            error_code: facts.text(uri, tg::ERROR_CODE),
            document: facts.link(uri, tg::DOCUMENT),
            thought: self.thought(uri),
            confidence,
            unsourced: facts.flag(uri, tg::UNSOURCED),
            work: self.work(uri),
        }
    }

    fn completion(&self, uri: &str) -> Completion {
        let facts = self.facts;
        Completion {
            uri: uri.to_owned(),
            status: facts.text(uri, tg::STATUS).unwrap_or_default(),
            late: facts.flag(uri, tg::LATE),
            result: facts.link(uri, tg::RESULT),
            tokens: facts.number(uri, tg::TOKENS),
            at: self.instant(uri, prov::GENERATED_AT_TIME),
        }
    }
}

/// Whether a person was asked, and nothing came after it.
fn waits(session: &Session) -> bool {
    matches!(session.steps.last(), Some(Step::Note(note)) if note.note == NoteKind::Approval)
}

/// Tells each answer that was sent back why: the decision after it names what was wrong.
fn tell_why_sent_back(steps: &mut [Step]) {
    let mut why = None;
    for step in steps.iter_mut().rev() {
        match step {
            Step::Decision(decision) if decision.subject == "critique" => {
                why.clone_from(&decision.signal);
            }
            Step::Iteration(iteration) => {
                let why = why.take();
                if let Some(sent_back) = &mut iteration.sent_back {
                    *sent_back = why.unwrap_or_default();
                }
            }
            Step::Decision(_) | Step::FanOut(_) | Step::Synthesis(_) | Step::Note(_) => {}
        }
    }
}
