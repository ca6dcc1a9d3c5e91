//! Counting the records of a store. Reads all of them.

use super::Remote;
use super::records::node;
use crate::error::Error;
use crate::{Solutions, Statistics};

impl Remote {
    pub(super) async fn statistics(&self) -> Result<Statistics, Error> {
        let (owner, record) = (node("owner"), node("record"));
        let first = self.own(&format!("?batch {record} ?any ."));
        let named = self.own(&format!(
            "?batch {owner} ?owner . OPTIONAL {{ ?owner {} ?collection }}",
            node("collection")
        ));
        let integer = "<http://www.w3.org/2001/XMLSchema#integer>";
        let sparql = format!(
            "SELECT ?collection (COUNT(?batch) AS ?batches) (SUM(?n) AS ?quads)
                    (SUM(STRLEN(?record)) AS ?bytes) (MIN(?at) AS ?oldest) (MAX(?at) AS ?newest)
             WHERE {{
                {{ SELECT ?batch (MIN(?any) AS ?record) WHERE {{ {first} }} GROUP BY ?batch }}
                {named}
                BIND({integer}(STRBEFORE(?record, \" \")) AS ?at)
                BIND({integer}(STRBEFORE(STRAFTER(?record, \" \"), \" \")) AS ?n)
             }} GROUP BY ?collection ORDER BY ?collection"
        );
        let columns = [
            "collection",
            "batches",
            "quads",
            "bytes",
            "oldest",
            "newest",
        ];
        let found = self.rows(sparql, &columns).await?;
        let mut statistics = Statistics::default();
        for row in 0..found.rows.len() {
            let batches: u64 = number(&found, row, "batches").unwrap_or_default();
            if batches == 0 {
                // An empty store makes one group of nothing.
                continue;
            }
            let quads = number(&found, row, "quads").unwrap_or_default();
            statistics.batches += batches;
            statistics.quads += quads;
            statistics.bytes += number::<u64>(&found, row, "bytes").unwrap_or_default();
            let (oldest, newest) = (number(&found, row, "oldest"), number(&found, row, "newest"));
            statistics.oldest = statistics.oldest.into_iter().chain(oldest).min();
            statistics.newest = statistics.newest.into_iter().chain(newest).max();
            let collection = found.text(row, "collection").unwrap_or_default().to_owned();
            statistics.collections.push((collection, quads));
        }
        let roots = self.own(&format!("?owner {} ?root .", node("root")));
        let sparql = format!("SELECT (COUNT(DISTINCT ?root) AS ?roots) WHERE {{ {roots} }}");
        let found = self.rows(sparql, &["roots"]).await?;
        statistics.roots = number(&found, 0, "roots").unwrap_or_default();
        Ok(statistics)
    }
}

fn number<T: std::str::FromStr>(found: &Solutions, row: usize, name: &str) -> Option<T> {
    found.text(row, name)?.parse().ok()
}
