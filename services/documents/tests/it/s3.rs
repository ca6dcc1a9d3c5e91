//! Documents in a real S3 server: the contract, crashes, and servers that will not do.

use crate::crash;
use agentfleet_documents::{Created, Documents, Error, S3Documents, S3Options};
use agentfleet_servers::{S3_CREDENTIALS, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock};

/// Ends with this process.
static SERVER: LazyLock<Server> = LazyLock::new(Server::s3);

fn options(endpoint: &str, prefix: &str) -> S3Options {
    S3Options {
        address: format!("s3://fleet/{prefix}"),
        endpoint: Some(endpoint.to_owned()),
        credentials: Some((S3_CREDENTIALS.0.to_owned(), S3_CREDENTIALS.1.to_owned())),
        ..S3Options::default()
    }
}

async fn connect(options: &S3Options) -> Result<S3Documents, Error> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    S3Documents::connect(options).await
}

mod contract {
    use super::{Arc, Documents, SERVER, connect, options};

    async fn documents() -> (Arc<dyn Documents>, ()) {
        let options = options(SERVER.address(), "some/where/");
        (Arc::new(connect(&options).await.unwrap()), ())
    }

    documents_contract!(documents());
}

#[tokio::test]
async fn stores_of_other_prefixes_do_not_see_each_other() {
    let one = connect(&options(SERVER.address(), "one")).await.unwrap();
    let other = connect(&options(SERVER.address(), "one-more"))
        .await
        .unwrap();
    one.create("k", b"1".to_vec()).await.unwrap();
    assert_eq!(other.get("k").await.unwrap(), None);
    assert_eq!(other.list("").await.unwrap(), Vec::<String>::new());
    assert_eq!(
        other.create("k", b"2".to_vec()).await.unwrap(),
        Created::New
    );
    assert_eq!(one.list("").await.unwrap(), ["k"]);
}

#[tokio::test]
async fn what_was_created_outlives_a_crash_and_a_gap_is_ridden_out() {
    let server = Server::s3();
    let documents = connect(&options(server.address(), "")).await.unwrap();
    crash::is_outlived(server, documents).await;
}

/// This server keeps objects as files, and cannot have a folder of the same name.
#[tokio::test]
async fn a_create_that_can_never_be_done_ends_with_an_error() {
    let documents = connect(&options(SERVER.address(), "nested")).await.unwrap();
    documents.create("a", Vec::new()).await.unwrap();
    let refused = documents.create("a/b", Vec::new()).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Unavailable { reason, .. } if reason.contains("`a/b`")),
        "{refused}"
    );
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let refused = connect(&S3Options {
        credentials: Some(("fleet".to_owned(), "wrong".to_owned())),
        ..options(SERVER.address(), "")
    })
    .await
    .unwrap_err();
    assert!(
        matches!(&refused, Error::Denied { address, .. } if address == "s3://fleet/"),
        "{refused}"
    );
    let no_bucket = connect(&S3Options {
        address: "s3://no-such-bucket".to_owned(),
        ..options(SERVER.address(), "")
    })
    .await
    .unwrap_err();
    assert!(
        no_bucket.to_string().contains("no bucket `no-such-bucket`"),
        "{no_bucket}"
    );
}

#[tokio::test]
async fn a_store_that_ignores_the_condition_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || overwrites(&stream));
        }
    });
    let error = connect(&options(&endpoint, "")).await.unwrap_err();
    assert!(matches!(error, Error::Unconditional { .. }), "{error}");
    assert_eq!(error.retry(), None);
}

/// Serves one connection as a store would that takes every `PUT`, and has stored the last.
fn overwrites(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut stored = Vec::new();
    loop {
        let (mut line, mut method, mut length) = (String::new(), None, 0);
        while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line != "\r\n" {
            method.get_or_insert_with(|| line.split(' ').next().unwrap_or_default().to_owned());
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let Some(method) = method else {
            return;
        };
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        if method == "PUT" {
            stored = body;
        }
        let content: &[u8] = if method == "GET" { &stored } else { b"" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        let mut stream = stream;
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(content).unwrap();
    }
}
