//! What a documents store on any server keeps to when the server is killed.

use agentfleet_documents::{Created, Documents};
use agentfleet_servers::Server;

/// What was created is there afterwards, and a create meanwhile is done once the server is back.
pub(crate) async fn is_outlived<D: Documents + Clone>(mut server: Server, documents: D) {
    documents.create("a/1", b"first".to_vec()).await.unwrap();
    server.kill();
    let late = {
        let documents = documents.clone();
        tokio::spawn(async move { documents.create("a/2", b"second".to_vec()).await })
    };
    server.start();
    assert_eq!(late.await.unwrap().unwrap(), Created::New);
    assert_eq!(
        documents.create("a/1", b"other".to_vec()).await.unwrap(),
        Created::Exists
    );
    assert_eq!(documents.list("a/").await.unwrap(), ["a/1", "a/2"]);
}
