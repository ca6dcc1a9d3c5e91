//! The interface as programs of other people see it. Needs Python with `SPARQLWrapper` and
//! `openapi-spec-validator`; the interpreter is named by `AGENTFLEET_PYTHON`, else `python3`.

use crate::fleet::Fleet;
use serde_json::json;
use std::process::Stdio;

const CHECK: &str = r#"
import json, os, urllib.request
from SPARQLWrapper import (SPARQLWrapper, JSON, XML, CSV, TSV, TURTLE, JSONLD, RDFXML, GET, POST,
                           POSTDIRECTLY, URLENCODED, SPARQLExceptions)
from openapi_spec_validator import validate

url = os.environ["AGENTFLEET_URL"]
with urllib.request.urlopen(url + "/openapi.json") as response:
    validate(json.load(response))

SELECT = "SELECT ?question WHERE { ?s a tg:AgentQuestion ; tg:query ?question } ORDER BY ?question"
answers = []
for method, how in ((GET, URLENCODED), (POST, URLENCODED), (POST, POSTDIRECTLY)):
    client = SPARQLWrapper(url + "/sparql")
    client.setMethod(method)
    client.setRequestMethod(how)
    client.setQuery(SELECT)
    client.setReturnFormat(JSON)
    rows = client.query().convert()["results"]["bindings"]
    answers.append([row["question"]["value"] for row in rows])
    client.setReturnFormat(XML)
    document = client.query().convert()
    answers.append([node.firstChild.data for node in document.getElementsByTagName("literal")])
    client.setReturnFormat(CSV)
    assert client.query().convert().decode().splitlines()[0] == "question"
    client.setReturnFormat(TSV)
    assert client.query().convert().decode().splitlines()[0] == "?question"
    client.setQuery("ASK { ?s a tg:AgentQuestion }")
    client.setReturnFormat(JSON)
    assert client.query().convert()["boolean"] is True
    client.setQuery("CONSTRUCT { ?s ?p ?o } WHERE { ?s a tg:AgentQuestion ; ?p ?o }")
    sizes = set()
    for form in (XML, RDFXML, JSONLD):
        client.setReturnFormat(form)
        sizes.add(len(client.query().convert()))
    assert len(sizes) == 1 and sizes.pop() > 5, sizes
    client.setReturnFormat(TURTLE)
    assert b"tg:AgentQuestion" in client.query().convert()
assert all(answer == ["one?", "two?"] for answer in answers), answers

client = SPARQLWrapper(url + "/sparql")
client.setQuery("SELECT nonsense")
try:
    client.query()
    raise SystemExit("nonsense was answered")
except SPARQLExceptions.QueryBadFormed as error:
    assert "query-syntax" in str(error), error
client.setMethod(POST)
client.setQuery("INSERT DATA { <urn:a> <urn:b> 1 }")
try:
    client.query()
    raise SystemExit("an update was taken")
except Exception as error:
    assert "403" in str(error), error
print("ok")
"#;

#[tokio::test]
#[ignore = "needs Python with SPARQLWrapper and openapi-spec-validator"]
async fn an_independent_client_and_an_independent_validator_agree() {
    let fleet = Fleet::start().await;
    for question in ["one?", "two?"] {
        let session = fleet.client.start(&json!({ "question": question })).await;
        fleet.client.ended(&session).await;
    }
    let python = std::env::var("AGENTFLEET_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let done = tokio::process::Command::new(python)
        .args(["-W", "error::RuntimeWarning", "-c", CHECK])
        .env("AGENTFLEET_URL", format!("http://{}", fleet.client.address))
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let (out, error) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(
        done.status.success() && out.ends_with("ok\n"),
        "{out}{error}"
    );
}
