//! `docs/http-api.md` and the OpenAPI document say what is so.

use crate::examples::{self, Language};
use crate::fleet::{Fleet, options};
use agentfleet_gateway::{Code, Options};
use agentfleet_schema::Digest;
use std::path::Path;
use std::time::Duration;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn every_example_of_the_document_works() {
    let examples = examples::extract(&document()).unwrap();
    assert!(
        examples
            .iter()
            .filter(|example| !example.output.is_empty())
            .count()
            > 10
    );
    for language in [Language::Shell, Language::Python] {
        assert!(
            examples
                .iter()
                .filter(|example| example.language == language)
                .count()
                > 5
        );
        let held = Options {
            token: Some(Digest::of(examples::TOKEN.as_bytes())),
            ..options()
        };
        let fleet = Fleet::with(held).await;
        let url = format!("http://{}", fleet.client.address);
        let run = examples::run(&examples, language, &url, Duration::from_secs(120)).await;
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[tokio::test]
async fn every_endpoint_is_served_and_documented() {
    let options = Options {
        graph_token: Some(Digest::of(b"token")),
        ..options()
    };
    let fleet = Fleet::with(options).await;
    let text = document();
    let index = fleet.client.json("/").await;
    let endpoints = index["endpoints"].as_array().unwrap();
    let described = fleet.client.json("/openapi.json").await;
    assert_eq!(described, agentfleet_gateway::openapi());
    for endpoint in endpoints {
        let (method, path) = (
            endpoint["method"].as_str().unwrap(),
            endpoint["path"].as_str().unwrap(),
        );
        assert!(
            text.contains(&format!("`{method} {path}`")),
            "{method} {path} is not documented"
        );
        assert!(
            described["paths"][path][method.to_lowercase()].is_object(),
            "{method} {path}"
        );
        let reply = fleet
            .client
            .send(method, &path.replace("{id}", "x"), &[], b"")
            .await;
        let served =
            reply.status != 405 && (reply.status == 200 || reply.code() != "no-such-endpoint");
        assert!(served, "{method} {path}: {}", reply.status);
    }
    let operations: usize = described["paths"]
        .as_object()
        .unwrap()
        .values()
        .map(|methods| methods.as_object().unwrap().len())
        .sum();
    assert_eq!(operations, endpoints.len());
    let browser = fleet
        .client
        .send("GET", "/", &[("accept", "text/html,*/*;q=0.8")], b"")
        .await;
    assert!(browser.header("content-type").starts_with("text/plain"));
    assert!(browser.text().contains("POST   /requests"));
}

#[test]
fn every_error_code_is_documented_with_its_status_and_meaning() {
    let text = document();
    for code in Code::ALL {
        let row = format!(
            "| `{}` | {} | {} |",
            code.as_str(),
            code.status(),
            code.meaning()
        );
        assert!(text.contains(&row), "the table of errors lacks: {row}");
    }
}
