//! A connection to a server: opened once, used by many calls at a time.

use super::LONGEST;
use super::program::Program;
use super::way::Way;
use crate::kinds::Failed;
use crate::kinds::http::is_loopback;
use agentfleet_models::root_cause;
use agentfleet_schema::records::Trouble;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ErrorCode,
    Implementation, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResult, Resource, ResourceTemplate, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::collections::HashMap;
use tokio::sync::OnceCell;

/// Pages of a list that are read.
const MOST_PAGES: usize = 100;
/// Entries of a list that are read.
const MOST_LISTED: usize = 2_000;

type Service = RunningService<RoleClient, ClientConfig>;

/// What a server offers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) tools: Vec<Tool>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
}

pub(crate) struct Connection {
    /// The key of the server's item.
    name: String,
    // Ends before the program does, whose input it holds.
    service: Service,
    program: Option<Program>,
    listed: OnceCell<Listed>,
}

/// What may be sent over HTTP: as the environment says, and to this machine without a proxy.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) client: Client,
    pub(super) direct: Client,
}

impl Connection {
    pub(super) async fn connect(name: String, way: Way, clients: Clients) -> Result<Self, Failed> {
        // Every version that is in use knows the first; from 2026-07-28 on a server may refuse it.
        let mut tried = attempt(&way, &clients, ClientLifecycleMode::Initialize).await;
        if matches!(&tried, Err((Refusal::Protocol(error), _)) if matches!(**error, ClientInitializeError::JsonRpcError(_)))
        {
            let preferred_versions = vec![ProtocolVersion::LATEST];
            let mode = ClientLifecycleMode::Discover { preferred_versions };
            tried = attempt(&way, &clients, mode).await;
        }
        match tried {
            Ok((service, program)) => Ok(Self {
                name,
                service,
                program,
                listed: OnceCell::new(),
            }),
            Err((Refusal::Before(says), _)) => {
                Err(Failed::from(format!("MCP server `{name}`: {says}")))
            }
            Err((Refusal::Protocol(error), program)) => {
                let says = match &*error {
                    ClientInitializeError::ConnectionClosed(_) => "it ended".to_owned(),
                    error if error.is_authorization_required() => AUTHORIZATION.to_owned(),
                    ClientInitializeError::TransportError { error, .. } => root_cause(error),
                    error => root_cause(error),
                };
                let reason = reason(program.as_ref()).await;
                let says = format!("MCP server `{name}` does not answer: {says}{reason}");
                Err(Failed::away(says))
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }

    /// Who answers, in its own words.
    pub(crate) fn who(&self) -> String {
        let info = self.service.peer_info();
        let itself = info.as_ref().and_then(|info| info.server_info.as_ref());
        itself.map_or_else(String::new, |one| {
            let text = format!("{} {}", one.name, one.version);
            text.trim_end().chars().take(100).collect()
        })
    }

    /// Dropping the call tells the server that nobody waits for it any more.
    pub(crate) async fn call(
        &self,
        params: CallToolRequestParams,
    ) -> Result<CallToolResult, Failed> {
        match Box::pin(self.service.call_tool(params)).await {
            Ok(result) => Ok(result),
            Err(error) => Err(self.failed(error).await),
        }
    }

    pub(crate) async fn read(
        &self,
        params: ReadResourceRequestParams,
    ) -> Result<ReadResourceResult, Failed> {
        match Box::pin(self.service.read_resource(params)).await {
            Ok(result) => Ok(result),
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// What the server offers, asked for once.
    pub(crate) async fn listed(&self) -> Result<&Listed, Failed> {
        let listing = || Box::pin(self.list());
        match self.listed.get_or_try_init(listing).await {
            Ok(listed) => Ok(listed),
            Err(Unlisted::Endless) => Err(Failed::from(format!(
                "MCP server `{}` lists more than {MOST_LISTED} entries or {MOST_PAGES} pages",
                self.name
            ))),
            Err(Unlisted::Failed(error)) => Err(self.failed(error).await),
        }
    }

    async fn list(&self) -> Result<Listed, Unlisted> {
        let info = self.service.peer_info();
        let capabilities = info.as_ref().map(|info| &info.capabilities);
        let mut listed = Listed::default();
        if capabilities.is_none_or(|can| can.tools.is_some()) {
            let mut pages = Pages::default();
            while let Some(page) = pages.next() {
                let page = self.service.list_tools(Some(page)).await?;
                pages.turn(page.next_cursor, page.tools.len());
                listed.tools.extend(page.tools);
            }
            pages.end()?;
        }
        if capabilities.is_some_and(|can| can.resources.is_some()) {
            let mut pages = Pages::default();
            while let Some(page) = pages.next() {
                let page = self.service.list_resources(Some(page)).await?;
                pages.turn(page.next_cursor, page.resources.len());
                listed.resources.extend(page.resources);
            }
            pages.end()?;
            let mut pages = Pages::default();
            while let Some(page) = pages.next() {
                let page = match self.service.list_resource_templates(Some(page)).await {
                    // Many servers have none, and no list of none.
                    Err(ServiceError::McpError(error))
                        if error.code == ErrorCode::METHOD_NOT_FOUND =>
                    {
                        break;
                    }
                    page => page?,
                };
                pages.turn(page.next_cursor, page.resource_templates.len());
                listed.templates.extend(page.resource_templates);
            }
            pages.end()?;
        }
        Ok(listed)
    }

    async fn failed(&self, error: ServiceError) -> Failed {
        let name = &self.name;
        match error {
            ServiceError::McpError(error) => {
                let asked_wrongly = [ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_PARAMS];
                let hint = if asked_wrongly.contains(&error.code) {
                    format!(
                        "; if it has changed, `agentfleet tools import mcp {name} --dry-run` shows how"
                    )
                } else {
                    String::new()
                };
                let says: String = error.message.chars().take(1_000).collect();
                let code = error.code.0;
                Failed::from(format!(
                    "MCP server `{name}` refused ({code}): {says}{hint}"
                ))
            }
            ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
                let reason = reason(self.program.as_ref()).await;
                Failed::away(format!(
                    "the connection to MCP server `{name}` was lost{reason}"
                ))
            }
            error if error.is_authorization_required() => {
                Failed::away(format!("MCP server `{name}`: {AUTHORIZATION}"))
            }
            ServiceError::TransportSend(error) => {
                let says = root_cause(&error);
                Failed::away(format!("no answer from MCP server `{name}`: {says}"))
            }
            ServiceError::Timeout { .. } => Failed {
                trouble: Some(Trouble::Timeout),
                says: format!("MCP server `{name}` did not answer in time"),
            },
            error => Failed::from(format!(
                "MCP server `{name}` answered what cannot be used: {error}"
            )),
        }
    }
}

const AUTHORIZATION: &str =
    "it asks for authorization: check the secret in the `headers`, or the `oauth`, of its item";

async fn reason(program: Option<&Program>) -> String {
    match program {
        Some(program) => program.reason(LONGEST).await,
        None => String::new(),
    }
}

/// Why there is no list.
enum Unlisted {
    Endless,
    Failed(ServiceError),
}

impl From<ServiceError> for Unlisted {
    fn from(error: ServiceError) -> Self {
        Self::Failed(error)
    }
}

/// The pages of a list, which a server may go on with for ever.
#[derive(Default)]
struct Pages {
    cursor: Option<String>,
    is_done: bool,
    read: usize,
    listed: usize,
}

impl Pages {
    fn has_too_many(&self) -> bool {
        self.read >= MOST_PAGES || self.listed > MOST_LISTED
    }

    fn next(&mut self) -> Option<PaginatedRequestParams> {
        if self.is_done || self.has_too_many() {
            return None;
        }
        self.read += 1;
        Some(PaginatedRequestParams::default().with_cursor(self.cursor.take()))
    }

    fn turn(&mut self, cursor: Option<String>, listed: usize) {
        self.is_done = cursor.is_none();
        self.cursor = cursor;
        self.listed += listed;
    }

    fn end(&self) -> Result<(), Unlisted> {
        let is_endless = !self.is_done && self.read >= MOST_PAGES;
        if is_endless || self.listed > MOST_LISTED {
            return Err(Unlisted::Endless);
        }
        Ok(())
    }
}

/// Why a server is not connected to.
enum Refusal {
    /// It was not asked.
    Before(String),
    Protocol(Box<ClientInitializeError>),
}

type Attempt = Result<(Service, Option<Program>), (Refusal, Option<Program>)>;

async fn attempt(way: &Way, clients: &Clients, mode: ClientLifecycleMode) -> Attempt {
    let itself = Implementation::new("agentfleet", env!("CARGO_PKG_VERSION"));
    // Without capabilities: a server may ask neither a model nor a person through this client.
    let handler = ClientConfig::new(ClientCapabilities::default(), itself)
        .with_protocol_version(ProtocolVersion::V_2025_11_25);
    match way {
        Way::Http { url, headers } => {
            let headers = headers
                .iter()
                .map(|(name, value)| {
                    let mut value = HeaderValue::from_str(value).ok()?;
                    value.set_sensitive(true);
                    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
                })
                .collect::<Option<HashMap<_, _>>>();
            let Some(headers) = headers else {
                let says = "one of its `headers` is none".to_owned();
                return Err((Refusal::Before(says), None));
            };
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers)
                .max_sse_event_size(LONGEST)
                .max_json_response_size(LONGEST);
            let client = if is_loopback(url) {
                &clients.direct
            } else {
                &clients.client
            };
            let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
            match Box::pin(handler.serve_with_lifecycle(transport, mode)).await {
                Ok(service) => Ok((service, None)),
                Err(error) => Err((Refusal::Protocol(Box::new(error)), None)),
            }
        }
        Way::Program { command, args, env } => {
            let started = Program::start(command, args, env, LONGEST);
            let (program, output, input) = started.map_err(|says| (Refusal::Before(says), None))?;
            let transport = AsyncRwTransport::new_client(output, input);
            match Box::pin(handler.serve_with_lifecycle(transport, mode)).await {
                Ok(service) => Ok((service, Some(program))),
                Err(error) => Err((Refusal::Protocol(Box::new(error)), Some(program))),
            }
        }
    }
}
