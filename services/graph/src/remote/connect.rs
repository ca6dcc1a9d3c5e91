//! Finding out, by trying, what kind of server it is, and whether it can be relied on.

use super::fault::RemoteFault;
use super::http::{Body, Http};
use super::options::{Credentials, RemoteOptions, parse, shown, take_credentials};
use super::records::node;
use super::{Dialect, Remote};
use crate::error::Error;
use crate::serve::PEER_HEADER;
use agentfleet_schema::Digest;
use oxigraph::model::{Literal, NamedNode};
use reqwest::{Response, Url};
use std::sync::Arc;

/// Writes on one connection that must be seen by the other.
const ROUNDS: usize = 6;
/// Posted as data.
const DATA_ROUND: usize = ROUNDS + 1;
/// More bytes than this are compressed away from the async threads.
const INLINE: usize = 128 * 1024;
const JENA_DEFAULT: &str = "urn:x-arq:DefaultGraph";
/// Of an answer to a question that is answered by yes or no.
const MAX_BOOLEAN: usize = 64 * 1024;

impl Remote {
    /// Finds the endpoints and the dialect, and refuses a store that answers stale.
    pub(super) async fn connect(options: RemoteOptions) -> Result<Self, Error> {
        let (mut remote, base, credentials) = Self::found(&options).await?;
        if remote.dialect == Dialect::Peer {
            return Ok(remote);
        }
        let other = Http::new(&options, credentials)?;
        let given = options.update_url.as_deref();
        let probe = Probe::new();
        remote.update_url = updates(&remote, &base, given, &probe).await?;
        let jena = ask(
            &remote.http,
            &remote.query_url,
            &probe.ask(0, Some(JENA_DEFAULT)),
        )
        .await?;
        remote.dialect = if jena {
            Dialect::Jena
        } else {
            Dialect::Standard
        };
        if jena {
            let url = match options.data_url.as_deref() {
                Some(url) => parse(url)?,
                None => below(&base, "data"),
            };
            remote.data_url = data(&remote, url, &probe).await?;
        }
        let checked = linearizable(&remote, &other, &probe).await;
        // What the check wrote goes, whatever it found.
        let forgotten = remote.update(probe.forget()).await;
        checked?;
        forgotten?;
        Ok(remote)
    }

    /// The same without a write: a store takes one writer at a time, so that each would wait behind those of a
    /// fleet at work. What has records of ours in its default graph, by the name that Jena has for that,
    /// is Jena; one that has none yet is asked as any other.
    pub(super) async fn connect_to_read(options: RemoteOptions) -> Result<Self, Error> {
        let (mut remote, base, _) = Self::found(&options).await?;
        if remote.dialect == Dialect::Peer {
            return Ok(remote);
        }
        remote.update_url = match options.update_url.as_deref() {
            Some(url) => parse(url)?,
            None => below(&base, "update"),
        };
        let records = format!(
            "ASK {{ GRAPH <{JENA_DEFAULT}> {{ ?batch {} ?record }} }}",
            node("record")
        );
        if ask(&remote.http, &remote.query_url, &records).await? {
            remote.dialect = Dialect::Jena;
        }
        Ok(remote)
    }

    /// Where queries are answered, and whether by one of ours; with the address and the credentials that
    /// it was given by.
    async fn found(options: &RemoteOptions) -> Result<(Self, Url, Option<Credentials>), Error> {
        let mut base = parse(&options.url)?;
        let given = take_credentials(&mut base);
        let credentials = options.credentials.clone().or(given);
        let http = Http::new(options, credentials.clone())?;
        let (query_url, peer) = queries(&http, &base, options.query_url.as_deref()).await?;
        let mut remote = Self {
            http,
            update_url: query_url.clone(),
            query_url,
            data_url: None,
            dialect: Dialect::Standard,
            max_answer_bytes: options.max_answer_bytes,
        };
        if let Some(path) = peer {
            // It reads what it has committed, by its own contract.
            remote.dialect = Dialect::Peer;
            if let Some(url) = options.update_url.as_deref() {
                remote.update_url = parse(url)?;
            } else if let Ok(url) = remote.query_url.join(&path) {
                remote.update_url = url;
            }
        }
        Ok((remote, base, credentials))
    }

    /// Whether queries are answered and updates taken: one that adds nothing is refused where
    /// others would be.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        ask(&self.http, &self.query_url, "ASK {}").await?;
        let nothing = Body::update("INSERT DATA {}".to_owned());
        Ok(self.http.post(&self.update_url, nothing).await.map(drop)?)
    }

    /// Where and how statements are sent that are to be stored.
    fn insertion(&self, data: &str) -> (&Url, Body) {
        match &self.data_url {
            // What stands in `INSERT DATA` is TriG.
            Some(url) => (url, Body::trig(data)),
            None => {
                let update = Body::update(format!("INSERT DATA {{\n{data}}}"));
                (&self.update_url, update)
            }
        }
    }

    pub(super) async fn insert_data(self: &Arc<Self>, data: String) -> Result<(), Error> {
        if data.len() <= INLINE {
            let (url, body) = self.insertion(&data);
            return Ok(self.http.post(url, body).await.map(drop)?);
        }
        let remote = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || {
            let (url, body) = remote.insertion(&data);
            (url.clone(), body)
        });
        let (url, body) = written.await.map_err(|_| Error::Stopped)?;
        Ok(self.http.post(&url, body).await.map(drop)?)
    }

    pub(super) async fn update(&self, text: String) -> Result<(), Error> {
        let sent = self.http.post(&self.update_url, Body::update(text));
        Ok(sent.await.map(drop)?)
    }
}

/// Where queries are answered; and if by one of ours, the path of its updates.
async fn queries(
    http: &Http,
    base: &Url,
    given: Option<&str>,
) -> Result<(Url, Option<String>), Error> {
    let candidates = match given {
        Some(url) => vec![parse(url)?],
        None => vec![below(base, "query"), below(base, "sparql"), base.clone()],
    };
    let mut failures = Vec::new();
    for url in candidates {
        match http.query(&url, "ASK {}", None).await {
            Ok(response) => {
                let peer = response.headers().get(PEER_HEADER);
                let peer = peer.and_then(|path| path.to_str().ok()).map(str::to_owned);
                if boolean(response).await == Some(true) {
                    return Ok((url, peer));
                }
                failures.push(format!("`{}` gave something else", url.path()));
            }
            // Only these say that it is another place.
            Err(Error::Remote(RemoteFault::NoQueries { reason, .. })) => {
                failures.push(format!("`{}`: {reason}", url.path()));
            }
            Err(Error::Evaluation(reason)) => failures.push(format!("`{}`: {reason}", url.path())),
            Err(error) => return Err(error),
        }
    }
    Err(RemoteFault::NoQueries {
        url: shown(base),
        reason: failures.join("; "),
    }
    .into())
}

/// Where updates are taken.
async fn updates(
    remote: &Remote,
    base: &Url,
    given: Option<&str>,
    probe: &Probe,
) -> Result<Url, Error> {
    let mut candidates = match given {
        Some(url) => vec![parse(url)?],
        None => vec![below(base, "update"), below(base, "statements")],
    };
    if given.is_none() {
        candidates.push(remote.query_url.clone());
    }
    let mut first = None;
    for url in candidates {
        match remote.http.post(&url, Body::update(probe.write(0))).await {
            Ok(_) => return Ok(url),
            // Whoever is not allowed here need not look elsewhere.
            Err(fault @ RemoteFault::UpdateRefused { status, .. }) if status != 403 => {
                first.get_or_insert(fault);
            }
            // A place for something else may say anything about a body that it does not know.
            Err(fault @ RemoteFault::Rejected { .. }) if first.is_some() => {
                first.get_or_insert(fault);
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    let nowhere = || RemoteFault::Address {
        url: shown(base),
        reason: "there is no place for updates".to_owned(),
    };
    Err(first.unwrap_or_else(nowhere).into())
}

/// Whether data can be posted to a place, all in one transaction as Jena does it.
async fn data(remote: &Remote, url: Url, probe: &Probe) -> Result<Option<Url>, Error> {
    let body = Body::trig(&probe.statement(DATA_ROUND));
    match remote.http.post(&url, body).await {
        Ok(_) => {
            let question = probe.ask(DATA_ROUND, Some(JENA_DEFAULT));
            let seen = ask(&remote.http, &remote.query_url, &question).await?;
            Ok(seen.then_some(url))
        }
        Err(RemoteFault::UpdateRefused { .. } | RemoteFault::Rejected { .. }) => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

/// Writes on each of two connections, and reads on the other.
async fn linearizable(remote: &Remote, other: &Http, probe: &Probe) -> Result<(), Error> {
    let graph = (remote.dialect == Dialect::Jena).then_some(JENA_DEFAULT);
    for round in 1..=ROUNDS {
        let (writer, reader) = if round % 2 == 0 {
            (&remote.http, other)
        } else {
            (other, &remote.http)
        };
        let (url, body) = remote.insertion(&probe.statement(round));
        writer.post(url, body).await?;
        if !ask(reader, &remote.query_url, &probe.ask(round, graph)).await? {
            return Err(RemoteFault::NotLinearizable {
                url: shown(&remote.query_url),
                round,
            }
            .into());
        }
    }
    Ok(())
}

/// Statements that are written to be read again, beside the records of batches.
struct Probe(NamedNode);

impl Probe {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        use std::time::{SystemTime, UNIX_EPOCH};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |it| it.as_nanos());
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let unique = Digest::of(format!("{now} {} {next}", std::process::id()).as_bytes());
        Self(node(&format!("probe:{:.32}", unique.as_str())))
    }

    fn statement(&self, round: usize) -> String {
        let round = Literal::new_simple_literal(round.to_string());
        format!("{} {} {round} .", self.0, node("round"))
    }

    fn write(&self, round: usize) -> String {
        format!("INSERT DATA {{ {} }}", self.statement(round))
    }

    fn ask(&self, round: usize, graph: Option<&str>) -> String {
        let statement = self.statement(round);
        match graph {
            Some(graph) => format!(
                "ASK {{ GRAPH {} {{ {statement} }} }}",
                NamedNode::new_unchecked(graph)
            ),
            None => format!("ASK {{ {statement} }}"),
        }
    }

    fn forget(&self) -> String {
        let all: Vec<String> = (0..=DATA_ROUND)
            .map(|round| self.statement(round))
            .collect();
        format!("DELETE DATA {{ {} }}", all.join(" "))
    }
}

async fn ask(http: &Http, url: &Url, sparql: &str) -> Result<bool, Error> {
    let response = http.query(url, sparql, None).await?;
    Ok(boolean(response).await.ok_or_else(|| RemoteFault::Failed {
        url: shown(url),
        status: 200,
        reason: "its answer to an ASK is no SPARQL result".to_owned(),
    })?)
}

async fn boolean(mut response: Response) -> Option<bool> {
    use sparesults::{QueryResultsFormat, QueryResultsParser, ReaderQueryResultsParserOutput};
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BOOLEAN {
            return None;
        }
    }
    let parser = QueryResultsParser::from_format(QueryResultsFormat::Json);
    match parser.for_reader(body.as_slice()).ok()? {
        ReaderQueryResultsParserOutput::Boolean(value) => Some(value),
        ReaderQueryResultsParserOutput::Solutions(_) => None,
    }
}

/// An address one step below another.
fn below(base: &Url, step: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(step);
    }
    url
}
