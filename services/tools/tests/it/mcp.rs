//! `mcp` against a server on the official Python SDK, over both transports, and against hostile programs.

use crate::diary::{Http, python, script};
use crate::place::{Place, tool};
use agentfleet_schema::config::{McpServer, Snapshot, ToolItem};
use agentfleet_schema::records::Trouble;
use agentfleet_tools::mcp::Wanted;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

fn program() -> McpServer {
    McpServer {
        name: "diary".into(),
        command: Some(python()),
        args: vec![script()],
        env: [("TOKEN".to_owned(), "${KEY}".to_owned())].into(),
        ..McpServer::default()
    }
}

/// A program in the words of a shell.
fn shell(script: &str) -> McpServer {
    McpServer {
        name: "diary".into(),
        command: Some("sh".into()),
        args: vec!["-c".into(), script.into()],
        ..McpServer::default()
    }
}

fn with_address(http: &Http) -> McpServer {
    McpServer {
        name: "diary".into(),
        url: Some(http.url.clone()),
        headers: [("x-key".to_owned(), "${KEY}".to_owned())].into(),
        ..McpServer::default()
    }
}

async fn place(server: &McpServer) -> (Place, Vec<ToolItem>) {
    let mut place = Place::new().await;
    let wanted = Wanted {
        prefix: "",
        only: "*",
    };
    let offered = place.servers.offered(server, wanted).await.unwrap();
    assert_eq!(offered.left_out, Vec::<String>::new());
    place.config = with(server);
    (place, offered.tools)
}

fn with(server: &McpServer) -> Snapshot {
    Snapshot {
        mcp_servers: [(server.name.clone(), server.clone())].into(),
        ..Snapshot::default()
    }
}

fn named<'a>(tools: &'a [ToolItem], name: &str) -> &'a ToolItem {
    tools.iter().find(|tool| tool.name == name).unwrap()
}

async fn is_used_as_it_is(server: McpServer) {
    let (place, tools) = place(&server).await;
    let call = async |name: &str, arguments: &[(&str, &str)]| {
        place.call(named(&tools, name), "c", arguments).await
    };
    let sum = call("add", &[("a", "1"), ("b", "2")]).await;
    assert!(!sum.is_error, "{sum:?}");
    let value: serde_json::Value = serde_json::from_str(&sum.content).unwrap();
    assert_eq!(value, serde_json::json!({"sum": 3}));
    assert_eq!(sum.sources[0].uri, "mcp:diary/add");
    let pointed = ToolItem {
        result: Some("/sum".into()),
        ..named(&tools, "add").clone()
    };
    let part = place.call(&pointed, "c", &[("a", "1"), ("b", "2")]).await;
    assert_eq!(part.content, "3");
    let burnt = call("burn", &[("day", "Monday")]).await;
    assert!(burnt.is_error && burnt.trouble.is_none(), "{burnt:?}");
    assert!(burnt.content.contains("Monday does not burn"), "{burnt:?}");
    let notes = call("read_resource", &[("uri", "notes://mon")]).await;
    assert_eq!(notes.content, "notes of mon", "{notes:?}");
    let late = ToolItem {
        timeout_ms: Some(300),
        ..named(&tools, "hang").clone()
    };
    let late = place.call(&late, "c", &[]).await;
    assert_eq!(late.trouble, Some(Trouble::Timeout), "{late:?}");
    // It answers once the server was told.
    assert_eq!(call("cut_off", &[]).await.content, "yes");
    let much = call("much", &[("bytes", "1500000")]).await;
    assert!(
        much.content
            .ends_with("[the answer was cut after 1048576 bytes]")
    );
    let looked = place.toolbox.look(&tools, &place.config).await;
    assert!(looked.iter().all(|(_, found)| found.is_ok()), "{looked:?}");
    let mut changed = named(&tools, "add").clone();
    changed.parameters = Some(serde_json::json!({"type": "object", "properties": {}}));
    let gone = ToolItem {
        tool: Some("subtract".into()),
        ..changed.clone()
    };
    let looked = place.toolbox.look([&changed, &gone], &place.config).await;
    let says = |at: usize| looked[at].1.clone().unwrap_err();
    assert!(says(0).contains("are not those of the item"), "{looked:?}");
    assert!(says(1).contains("has no tool `subtract`"), "{looked:?}");
}

#[tokio::test]
async fn a_program_is_used_as_it_is() {
    is_used_as_it_is(program()).await;
}

#[tokio::test]
async fn a_server_with_an_address_is_used_as_it_is() {
    let http = Http::start();
    is_used_as_it_is(with_address(&http)).await;
}

#[tokio::test]
async fn a_server_that_dies_in_mid_call_is_started_again() {
    let (place, tools) = place(&program()).await;
    let died = place.call(named(&tools, "die"), "c", &[]).await;
    assert_eq!(died.trouble, Some(Trouble::Unavailable), "{died:?}");
    let sum = [("a", "1"), ("b", "2")];
    let sum = place.call(named(&tools, "add"), "c", &sum).await;
    assert!(!sum.is_error, "{sum:?}");
}

#[tokio::test]
async fn a_server_has_its_secret_and_nobody_reads_it_back() {
    let http = Http::start();
    for (server, name, expected) in [
        (program(), "TOKEN", "[secret KEY]"),
        (program(), "CARGO_MANIFEST_DIR", "nothing"),
        (with_address(&http), "x-key", "[secret KEY]"),
    ] {
        let (place, tools) = place(&server).await;
        let asked = [("name", name)];
        let told = place.call(named(&tools, "told"), "c", &asked).await;
        assert!(told.content.contains(expected), "{name}: {told:?}");
        assert!(!told.content.contains("s3cret-value"), "{told:?}");
    }
}

#[tokio::test]
async fn what_a_program_has_started_ends_with_it() {
    let (place, tools) = place(&program()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let begot = [("port", port.as_str())];
    let begot = place.call(named(&tools, "beget"), "c", &begot).await;
    assert!(!begot.is_error, "{begot:?}");
    let (mut held, _) = listener.accept().await.unwrap();
    drop(place);
    // The connection ends when the process does.
    let ended = tokio::time::timeout(Duration::from_secs(60), held.read(&mut [0])).await;
    assert!(matches!(ended.unwrap(), Ok(0) | Err(_)));
}

#[tokio::test]
async fn what_is_no_server_is_told_and_nothing_is_started_unasked() {
    let place = Place::new().await;
    let item = ToolItem {
        server: Some("diary".into()),
        tool: Some("t".into()),
        ..tool("mcp")
    };
    let unknown = McpServer {
        command: Some("cat".into()),
        ..shell("")
    };
    let metadata = McpServer {
        name: "diary".into(),
        url: Some("http://169.254.169.254/mcp".into()),
        ..McpServer::default()
    };
    let endless = "head -c 9000000 /dev/zero | tr '\\0' x; cat";
    for (server, expected) in [
        (shell("echo no such key >&2"), "it said last: no such key"),
        (shell(endless), "a message of more than 4194304 bytes"),
        (unknown, "the setting `mcp_commands` has to name it"),
        (metadata, "a link-local or metadata address"),
    ] {
        let looked = place.toolbox.look([&item], &with(&server)).await;
        let says = looked[0].1.clone().unwrap_err();
        assert!(says.contains(expected), "{says}");
    }
}
