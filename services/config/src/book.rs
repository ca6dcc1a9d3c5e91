//! The newest version of every item, and what a change makes of it. Pure: a store reads its book,
//! asks it for the change, and writes the change down if nobody else was faster.

use crate::error::Problem;
use crate::seed::{self, SeedReport, Seeder};
use crate::{Item, ItemVersion, sets, validate};
use agentfleet_schema::Millis;
use agentfleet_schema::config::Snapshot;
use serde::{Deserialize, Serialize};

/// Everything that was ever put, as it is at one version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Book {
    /// 0 while nothing was ever put.
    pub(crate) version: u64,
    /// The newest version of each item, removed ones included, by type and key.
    pub(crate) items: Vec<ItemVersion>,
}

/// Items that come into force, or cease, as one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    pub(crate) put: Vec<Item>,
    pub(crate) removed: Vec<Item>,
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }
}

impl Book {
    pub(crate) fn newest(&self, item_type: &str, key: &str) -> Option<&ItemVersion> {
        let at = self.position(item_type, key).ok()?;
        self.items.get(at)
    }

    fn position(&self, item_type: &str, key: &str) -> Result<usize, usize> {
        self.items.binary_search_by(|known| {
            (known.item.item_type.as_str(), known.item.key.as_str()).cmp(&(item_type, key))
        })
    }

    /// Items in force, of one type or of all.
    pub(crate) fn list(&self, item_type: Option<&str>) -> Vec<ItemVersion> {
        let wanted = |known: &&ItemVersion| {
            !known.deleted && item_type.is_none_or(|wanted| known.item.item_type == wanted)
        };
        self.items.iter().filter(wanted).cloned().collect()
    }

    /// The typed set in force.
    pub(crate) fn set(&self) -> Snapshot {
        let mut set = Snapshot {
            version: self.version,
            ..Snapshot::default()
        };
        for known in self.items.iter().filter(|known| !known.deleted) {
            sets::put(&mut set, &known.item);
        }
        set
    }

    /// What is left to store of some items: not what is there already.
    pub(crate) fn put(&self, items: Vec<Item>, author: &str) -> Result<Change, Vec<Problem>> {
        let mut put = items;
        put.retain(|item| {
            // Seeding takes an item back from whoever put the same.
            let same = |known: &ItemVersion| {
                let taken_back = seed::is_product(author) && !seed::is_product(&known.author);
                !known.deleted && known.item.value == item.value && !taken_back
            };
            !self.newest(&item.item_type, &item.key).is_some_and(same)
        });
        self.allowed(Change {
            put,
            removed: Vec::new(),
        })
    }

    /// Nothing if there is no such item.
    pub(crate) fn remove(&self, item_type: &str, key: &str) -> Result<Change, Vec<Problem>> {
        let there = self.newest(item_type, key);
        let removed = there.filter(|known| !known.deleted);
        self.allowed(Change {
            put: Vec::new(),
            removed: removed
                .map(|known| known.item.clone())
                .into_iter()
                .collect(),
        })
    }

    /// What seeding is to store. The report has the version before.
    pub(crate) fn seed(&self, items: Vec<Item>, by: &Seeder) -> (SeedReport, Change) {
        let mut report = SeedReport {
            version: self.version,
            ..SeedReport::default()
        };
        let mut wanted = Vec::new();
        for item in items {
            let newest = self.newest(&item.item_type, &item.key);
            wanted.extend(report.sort(newest, item, by));
        }
        let before = self.set();
        let known = validate::together(&before);
        // What refers to something a person took away is left out, and so is what needs it.
        loop {
            let mut after = before.clone();
            for wanted in &wanted {
                sets::put(&mut after, &wanted.item);
            }
            let mut problems = validate::together(&after);
            problems.retain(|problem| !known.contains(problem));
            let count = wanted.len();
            wanted.retain(|wanted| !report.leave_out(&problems, wanted));
            if wanted.len() == count {
                break;
            }
        }
        let change = Change {
            put: wanted.into_iter().map(|wanted| wanted.item).collect(),
            removed: Vec::new(),
        };
        (report, change)
    }

    /// Refuses a change after which a reference would miss its end.
    fn allowed(&self, change: Change) -> Result<Change, Vec<Problem>> {
        // What was wrong before is not made worse, and must not stand in the way of mending it.
        let known = validate::together(&self.set());
        let mut problems = validate::together(&self.after(&change, "", 0).set());
        problems.retain(|problem| !known.contains(problem));
        if problems.is_empty() {
            Ok(change)
        } else {
            Err(problems)
        }
    }

    /// The book after a change, one version on.
    pub(crate) fn after(&self, change: &Change, author: &str, at: Millis) -> Self {
        let mut next = self.clone();
        next.version += 1;
        let put = change.put.iter().map(|item| (item, false));
        let removed = change.removed.iter().map(|item| (item, true));
        for (item, deleted) in put.chain(removed) {
            let entry = ItemVersion {
                item: item.clone(),
                version: next.version,
                at,
                author: author.to_owned(),
                deleted,
            };
            next.replace(entry);
        }
        next
    }

    /// Puts a version of an item in the place of the one before.
    pub(crate) fn replace(&mut self, entry: ItemVersion) {
        match self.position(&entry.item.item_type, &entry.item.key) {
            Ok(there) => self.items[there] = entry,
            Err(place) => self.items.insert(place, entry),
        }
    }
}
