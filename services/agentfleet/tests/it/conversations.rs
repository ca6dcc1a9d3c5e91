//! Runs of a conversation: each is shown what was said before, in `ask` and in `chat`, and only that.

use crate::place::{Place, Ran};

/// Who is shown an earlier answer repeats it; who is not, says so.
const SCRIPT: &str = r#"{"rules": [
    {"operation": "agent-react", "contains": "break down", "fail": "the provider is broken"},
    {"operation": "agent-react", "contains": ["Question: My dog is called Rex", "What is its name?"],
     "text": "Thought: it was told.\nFinal Answer: Rex."},
    {"operation": "agent-react", "contains": "My dog is called Rex",
     "text": "Thought: noted.\nFinal Answer: I shall remember it."},
    {"operation": "agent-react", "contains": "slowly", "words": true, "pause-ms": 200,
     "text": "Thought: one two three four five six seven eight nine ten eleven twelve thirteen.\nFinal Answer: late."},
    {"operation": "agent-react", "text": "Thought: t\nFinal Answer: Nobody told me."}
]}"#;

fn place() -> (Place, String) {
    let place = Place::new();
    let script = place.write("script.json", SCRIPT);
    (place, format!("scripted:{script}"))
}

fn ask(place: &Place, model: &str, question: &str, conversation: &str) -> String {
    let args = [
        "ask",
        question,
        "--pattern",
        "react",
        "--conversation",
        conversation,
        "--model",
        model,
    ];
    place.run(&args).well().out
}

fn chat(place: &Place, model: &str, args: &[&str], lines: &str) -> Ran {
    let all = [&["chat", "--pattern", "react", "--model", model], args].concat();
    place.fed(&all, lines)
}

#[test]
fn a_run_is_shown_what_was_said_before_in_its_conversation_and_nowhere_else() {
    let (place, model) = place();
    ask(&place, &model, "My dog is called Rex", "dogs");
    let told = ask(&place, &model, "What is its name?", "dogs");
    assert!(told.contains("Rex."), "{told}");
    let elsewhere = ask(&place, &model, "What is its name?", "cats");
    assert!(elsewhere.contains("Nobody told me."), "{elsewhere}");
    let outside = place.run(&[
        "ask",
        "What is its name?",
        "--pattern",
        "react",
        "--model",
        &model,
    ]);
    assert!(outside.out.contains("Nobody told me."), "{outside:?}");
    // What it was shown is a decision, follows from its records, and leads to the runs before it.
    let [second, first] = &place.sessions(&["--conversation", "dogs"])[..] else {
        panic!("two runs");
    };
    let explained = place.run(&["explain", second]).well().out;
    assert!(explained.contains("conversation"), "{explained}");
    for command in ["replay", "verify"] {
        place.run(&[command, second]).well();
    }
    let asked = format!(
        "ASK {{ GRAPH <urn:graph:retrieval> {{ ?b tg:remembers ?a . ?b tg:rootSessionId \"{second}\" . ?a tg:rootSessionId \"{first}\" }} }}"
    );
    assert!(place.run(&["query", &asked]).well().out.contains("true"));
    // Nothing was forked.
    let trace = place.run(&["trace", second]).well().out;
    assert!(!trace.contains("Forked"), "{trace}");
    // A fork knows what the other run was shown, from its first step on.
    let fork = place
        .run(&["fork", second, "--at", "0", "--model", &model])
        .well();
    assert!(fork.out.contains("Rex."), "{fork:?}");
    let forked = &place.sessions(&["--conversation", "dogs"])[0];
    let remembers = format!(
        "ASK {{ GRAPH <urn:graph:retrieval> {{ ?b tg:remembers ?a . ?b tg:rootSessionId \"{forked}\" }} }}"
    );
    assert!(
        place
            .run(&["query", &remembers])
            .well()
            .out
            .contains("true")
    );
    place.run(&["replay", forked]).well();
    // Purged, it is known to nobody.
    place
        .run(&["purge", "--conversation", "dogs", "--yes"])
        .well();
    let after = ask(&place, &model, "What is its name?", "dogs");
    assert!(after.contains("Nobody told me."), "{after}");
}

#[test]
fn a_chat_is_a_conversation_that_can_be_left_and_gone_on_with() {
    let (place, model) = place();
    let ran = chat(
        &place,
        &model,
        &["--conversation", "dogs"],
        "My dog is called Rex\n\n/history\n/cost\n/trace\n/nothing\n",
    )
    .well();
    assert!(ran.out.contains("I shall remember it."), "{ran:?}");
    assert!(ran.err.contains("> My dog is called Rex"), "{ran:?}");
    assert!(ran.err.contains("there is no `/nothing`"), "{ran:?}");
    assert!(ran.err.contains("chat --conversation dogs"), "{ran:?}");
    // The trace, and what was spent.
    assert!(ran.out.contains("react"), "{ran:?}");
    let ran = chat(
        &place,
        &model,
        &["--conversation", "dogs"],
        "What is its name?\n/new\nWhat is its name?\n/quit\nnever asked\n",
    )
    .well();
    let at = |text: &str| {
        ran.out
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {ran:?}"))
    };
    assert!(at("Rex.") < at("Nobody told me."), "{ran:?}");
    assert!(!ran.out.contains("never"), "{ran:?}");
    let listed = place.sessions(&["--conversation", "dogs"]);
    assert_eq!(listed.len(), 2);
    for (args, says) in [
        (
            &["--conversation", "a\u{7}b"][..],
            "`--conversation`: must have",
        ),
        (&["--pattern", "none"], "pattern `none` is not known"),
    ] {
        let ran = place.fed(&[&["chat", "--model", &model], args].concat(), "a\n");
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
}

#[test]
fn what_was_not_answered_is_told_to_people_and_not_shown_to_models() {
    let (place, model) = place();
    let lines = "My dog is called Rex\nbreak down\nWhat is its name?\n/history\n";
    let ran = chat(&place, &model, &["--conversation", "dogs"], lines);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("Rex."), "{ran:?}");
    assert!(
        ran.err.contains("(not answered: the provider is broken"),
        "{ran:?}"
    );
    assert!(ran.err.contains("not answered: 1 line"), "{ran:?}");
    let last = &place.sessions(&["--conversation", "dogs"])[0];
    let shown = place.run(&["trace", last, "--step", "0", "--raw"]).well();
    assert!(shown.out.contains("My dog is called Rex"), "{shown:?}");
    assert!(!shown.out.contains("broken"), "{shown:?}");
}
