//! What the embedded store promises beyond the contract.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::contract::Fixture;
use crate::seed;
use tempfile::TempDir;

#[derive(Default)]
struct TwoHandles {
    directories: Mutex<Vec<TempDir>>,
}

#[async_trait]
impl Fixture for TwoHandles {
    async fn pair(&self) -> (Arc<dyn ConfigStore>, Arc<dyn ConfigStore>) {
        let directory = TempDir::new().unwrap();
        let open = || {
            let database = Database::open(directory.path()).unwrap();
            Arc::new(EmbeddedConfig::open(&database).unwrap())
        };
        let (one, two) = (open(), open());
        self.directories.lock().unwrap().push(directory);
        (one, two)
    }
}

crate::config_contract!(TwoHandles::default());

#[tokio::test]
async fn an_unchanged_set_is_shared_even_while_others_write() {
    let directory = TempDir::new().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let config = EmbeddedConfig::open(&database).unwrap();
    seed::seed(&config, seed::embedded().unwrap())
        .await
        .unwrap();
    let first = config.snapshot().await.unwrap();
    assert!(Arc::ptr_eq(&first, &config.snapshot().await.unwrap()));
    // A commit that has nothing to do with the config.
    database
        .migrate("other", &["CREATE TABLE other(x INTEGER)"])
        .unwrap();
    let action = |unit: &mut Unit<'_>| Ok(unit.tx().execute("INSERT INTO other VALUES (1)", [])?);
    database.write(Durability::Process, action).await.unwrap();
    assert!(Arc::ptr_eq(&first, &config.snapshot().await.unwrap()));
}

#[tokio::test]
async fn an_item_that_cannot_be_read_is_left_out_and_can_be_mended() {
    let directory = TempDir::new().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let config = EmbeddedConfig::open(&database).unwrap();
    let action = |unit: &mut Unit<'_>| {
        unit.tx().execute_batch(
            "INSERT INTO config_versions VALUES (1, 0, 'older program');
             INSERT INTO config_items VALUES ('tool', 'odd', 1, '{\"kind\": 7}', 0);
             INSERT INTO config_items VALUES ('agent-pattern', 'react', 1, '{\"name\": \"react\"}', 0);",
        )?;
        Ok(())
    };
    database.write(Durability::Durable, action).await.unwrap();
    let set = config.snapshot().await.unwrap();
    assert_eq!((set.tools.len(), set.patterns.len()), (0, 1));
    assert!(config.get("tool", "odd").await.unwrap().is_some());
    let mended = serde_json::json!({"name": "odd", "type": "document-search"});
    let item = Item {
        item_type: "tool".to_owned(),
        key: "odd".to_owned(),
        value: mended,
    };
    config.put(vec![item], "someone").await.unwrap();
    assert_eq!(config.snapshot().await.unwrap().tools.len(), 1);
}
