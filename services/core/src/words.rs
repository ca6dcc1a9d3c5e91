//! Sentences that the fleet itself says to people, by language: Fluent files in `locales/`. What is not there
//! in a language is said in English.

use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::Snapshot;
use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource};
use std::collections::BTreeMap;
use std::sync::LazyLock;

type Bundles = BTreeMap<&'static str, FluentBundle<FluentResource>>;

/// The language that has every sentence.
const ENGLISH: &str = "en";
const FILES: [(&str, &str); 2] = [
    (ENGLISH, include_str!("../locales/en.ftl")),
    ("sk", include_str!("../locales/sk.ftl")),
];

static BUNDLES: LazyLock<Bundles> = LazyLock::new(|| {
    let bundle = |(locale, source): (&'static str, &str)| {
        // What a file has wrong is a fault of the build, which the tests find; the rest of it counts.
        let resource = match FluentResource::try_new(source.to_owned()) {
            Ok(resource) | Err((resource, _)) => resource,
        };
        let mut bundle = FluentBundle::new_concurrent(vec![locale.parse().ok()?]);
        // Marks around each argument would be seen in terminals.
        bundle.set_use_isolating(false);
        bundle.add_resource_overriding(resource);
        Some((locale, bundle))
    };
    FILES.into_iter().filter_map(bundle).collect()
});

/// The language of a run: as the request says, else as its task type does.
pub fn locale<'a>(request: &'a AgentRequest, snapshot: &'a Snapshot) -> &'a str {
    let task_type = snapshot.task_types.get(&request.task_type);
    let of_type = task_type.map_or("", |item| item.locale.as_str());
    if request.locale.is_empty() {
        of_type
    } else {
        &request.locale
    }
}

/// A sentence in a language, or in English where that has none. A region, as in `sk-SK`, says nothing.
pub fn say(locale: &str, id: &str, arguments: &[(&str, &str)]) -> String {
    let language = locale.split(['-', '_']).next().unwrap_or_default();
    let language = language.to_ascii_lowercase();
    let mut given = FluentArgs::new();
    for (name, value) in arguments {
        given.set(*name, *value);
    }
    let said = |locale: &str| {
        let bundle = BUNDLES.get(locale)?;
        let pattern = bundle.get_message(id)?.value()?;
        let text = bundle.format_pattern(pattern, Some(&given), &mut Vec::new());
        Some(text.into_owned())
    };
    said(&language)
        .or_else(|| said(ENGLISH))
        .unwrap_or_else(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    /// Messages of a file with the arguments that each takes.
    fn messages(source: &str) -> BTreeMap<String, BTreeSet<String>> {
        let lines = source.lines().filter_map(|line| line.split_once(" = "));
        let arguments = |text: &str| {
            let parts = text.split("{ $").skip(1);
            let names = parts.filter_map(|part| part.split_once(" }"));
            names.map(|(name, _)| name.to_owned()).collect()
        };
        lines
            .map(|(id, text)| (id.to_owned(), arguments(text)))
            .collect()
    }

    #[test]
    fn every_language_has_every_sentence_with_the_same_arguments() {
        let english = messages(FILES[0].1);
        assert!(english.len() > 10);
        for (locale, source) in FILES {
            FluentResource::try_new(source.to_owned()).unwrap();
            assert_eq!(messages(source), english, "{locale}");
        }
    }

    #[test]
    fn a_sentence_is_said_in_the_language_or_in_english() {
        let what = [("what", "názov")];
        let slovak = "Aby som mohol pokračovať, potrebujem: **názov**. Môžete mi to upresniť?";
        for locale in ["sk", "sk-SK", "SK_sk"] {
            assert_eq!(say(locale, "ask-back", &what), slovak);
        }
        for locale in ["", "en", "en-GB", "xx"] {
            let said = say(locale, "ask-back", &what);
            assert_eq!(said, "To go on I need: **názov**. Can you tell me?");
        }
        assert_eq!(say("sk", "no-such-sentence", &[]), "no-such-sentence");
    }

    #[test]
    fn what_the_request_says_comes_before_the_task_type() {
        let mut snapshot = Snapshot::default();
        let item = agentfleet_schema::config::AgentTaskType {
            locale: "sk".into(),
            ..Default::default()
        };
        snapshot.task_types.insert("crm".into(), item);
        let mut request = AgentRequest::default();
        assert_eq!(locale(&request, &snapshot), "");
        request.task_type = "crm".into();
        assert_eq!(locale(&request, &snapshot), "sk");
        request.locale = "en".into();
        assert_eq!(locale(&request, &snapshot), "en");
    }
}
