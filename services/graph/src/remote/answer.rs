//! Reading an answer as it comes, row by row, within its limits.

use super::Remote;
use super::fault::RemoteFault;
use super::options::shown;
use super::rewrite::{Form, Plan};
use super::skolem;
use crate::error::Error;
use crate::{Answer, QueryOptions, Solutions, terms};
use futures::TryStreamExt as _;
use oxigraph::model::{BlankNode, NamedOrBlankNode, Term, Triple};
use sparesults::{
    QueryResultsFormat, QueryResultsParseError, QueryResultsParser, QuerySolution,
    TokioAsyncReaderQueryResultsParserOutput as Output,
};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};
use std::collections::HashSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::time::Instant;
use tokio_util::io::StreamReader;

/// How much sooner than us a server may stop, and still have stopped for its timeout.
const SOONER: Duration = Duration::from_millis(50);

impl Remote {
    /// Sends a query and reads its answer, all within the timeout.
    pub(super) async fn answer(&self, plan: Plan, options: &QueryOptions) -> Result<Answer, Error> {
        let started = Instant::now();
        let timed_out = || Error::Timeout(options.timeout);
        let answer = self.read(plan, options);
        match tokio::time::timeout(options.timeout, answer).await {
            Err(_) => Err(timed_out()),
            // A server that ends the query by itself says so in its own way, or cuts the answer.
            Ok(Err(Error::Remote(_) | Error::Evaluation(_)))
                if started.elapsed() + SOONER >= options.timeout =>
            {
                Err(timed_out())
            }
            Ok(answer) => answer,
        }
    }

    async fn read(&self, plan: Plan, options: &QueryOptions) -> Result<Answer, Error> {
        let response = self
            .http
            .query(&self.query_url, &plan.text, Some(options.timeout))
            .await?;
        let most = self.max_answer_bytes;
        let body = StreamReader::new(response.bytes_stream().map_err(std::io::Error::other));
        let mut body = BufReader::new(body.take(most));
        let broken = |error: QueryResultsParseError| match error {
            QueryResultsParseError::Io(error) => RemoteFault::Unreachable {
                url: shown(&self.query_url),
                reason: error.to_string(),
            },
            QueryResultsParseError::Syntax(error) => RemoteFault::Failed {
                url: shown(&self.query_url),
                status: 200,
                reason: format!("its answer is no SPARQL results, or was cut: {error}"),
            },
        };
        let parser = QueryResultsParser::from_format(QueryResultsFormat::Json);
        let output = parser.for_tokio_async_reader(&mut body).await;
        let mut solutions = match (output.map_err(broken)?, &plan.form) {
            (Output::Boolean(value), Form::Boolean) => return Ok(Answer::Boolean(value)),
            (Output::Solutions(solutions), Form::Rows(_) | Form::Triples(_)) => solutions,
            (Output::Boolean(_), _) | (_, Form::Boolean) => {
                return Err(RemoteFault::Failed {
                    url: shown(&self.query_url),
                    status: 200,
                    reason: "it answered another query than it was asked".to_owned(),
                }
                .into());
            }
        };
        let mut collected = Collected::new(plan.form, options.max_rows);
        while let Some(solution) = solutions.next().await {
            match solution {
                Ok(solution) => collected.add(&solution)?,
                Err(error) => {
                    drop(solutions);
                    if body.get_ref().limit() == 0 {
                        return Err(Error::TooMuchMemory(most >> 20));
                    }
                    return Err(broken(error).into());
                }
            }
        }
        Ok(collected.answer)
    }
}

/// What has come so far.
struct Collected {
    answer: Answer,
    form: Form,
    max_rows: usize,
    /// Rows read, which number the blank nodes of a template.
    row: usize,
    known: HashSet<Triple>,
}

impl Collected {
    fn new(form: Form, max_rows: usize) -> Self {
        let answer = match &form {
            Form::Boolean => Answer::Boolean(false),
            Form::Rows(columns) => Answer::Solutions(Solutions {
                variables: columns.iter().map(|it| it.as_str().to_owned()).collect(),
                rows: Vec::new(),
            }),
            Form::Triples(_) => Answer::Triples(Vec::new()),
        };
        Self {
            answer,
            form,
            max_rows,
            row: 0,
            known: HashSet::new(),
        }
    }

    fn add(&mut self, solution: &QuerySolution) -> Result<(), Error> {
        self.row += 1;
        match (&mut self.answer, &self.form) {
            (Answer::Solutions(found), Form::Rows(columns)) => {
                if found.rows.len() == self.max_rows {
                    return Err(Error::TooManyRows(self.max_rows));
                }
                let value = |term: &Term| terms::wire(skolem::restored(term.clone()));
                let row = columns.iter().map(|name| solution.get(name).map(value));
                found.rows.push(row.collect());
            }
            (Answer::Triples(found), Form::Triples(template)) => {
                for pattern in template {
                    let Some(triple) = triple(pattern, solution, self.row) else {
                        continue;
                    };
                    if !self.known.insert(triple.clone()) {
                        continue;
                    }
                    if found.len() == self.max_rows {
                        return Err(Error::TooManyRows(self.max_rows));
                    }
                    found.push(terms::wire_triple(triple));
                }
            }
            _ => (),
        }
        Ok(())
    }
}

/// A template filled in; nothing if a value is missing or cannot stand where it would.
fn triple(pattern: &TriplePattern, solution: &QuerySolution, row: usize) -> Option<Triple> {
    let subject = match term(&pattern.subject, solution, row)? {
        Term::NamedNode(node) => NamedOrBlankNode::from(node),
        Term::BlankNode(node) => node.into(),
        Term::Literal(_) | Term::Triple(_) => return None,
    };
    let predicate = match &pattern.predicate {
        NamedNodePattern::NamedNode(node) => node.clone(),
        NamedNodePattern::Variable(variable) => match solution.get(variable)? {
            Term::NamedNode(node) => node.clone(),
            Term::BlankNode(_) | Term::Literal(_) | Term::Triple(_) => return None,
        },
    };
    let object = term(&pattern.object, solution, row)?;
    Some(Triple::new(subject, predicate, object))
}

fn term(pattern: &TermPattern, solution: &QuerySolution, row: usize) -> Option<Term> {
    Some(match pattern {
        TermPattern::NamedNode(node) => node.clone().into(),
        TermPattern::Literal(literal) => literal.clone().into(),
        TermPattern::BlankNode(node) => {
            BlankNode::new_unchecked(format!("{}r{row}", node.as_str())).into()
        }
        TermPattern::Variable(variable) => skolem::restored(solution.get(variable)?.clone()),
        TermPattern::Triple(inner) => Term::Triple(Box::new(triple(inner, solution, row)?)),
    })
}
