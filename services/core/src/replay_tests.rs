use super::*;
use serde_json::json;

#[test]
fn differences_are_told_by_their_place() {
    let table = [
        (json!({"a": 1}), json!({"a": 1}), None),
        (json!({"a": 1}), json!({"a": 2}), Some("x.a")),
        (json!({"a": 1}), json!({}), Some("x.a")),
        (json!({}), json!({"b": "c"}), Some("x.b")),
        (json!([1, 2]), json!([1, 3]), Some("x[1]")),
        (json!([1, 2]), json!([1]), Some("x[1]")),
        (
            json!({"a": {"b": [0, {"c": 1}]}}),
            json!({"a": {"b": [0, {"c": null}]}}),
            Some("x.a.b[1].c"),
        ),
        (json!(0.3), json!(0.1 + 0.2), None),
        (json!(0.1), json!(0.2), Some("x")),
    ];
    for (recorded, derived, place) in table {
        let mut found = Vec::new();
        compare::values("x", &recorded, &derived, &mut found);
        let at = found.first().map(|divergence| divergence.at.as_str());
        assert_eq!(at, place, "{recorded} {derived}");
    }
}

#[test]
fn a_native_reply_is_read_as_it_was_kept() {
    let kept =
        json!({"text": "t", "tool_calls": [{"name": "search", "arguments": {"q": "x", "n": 2}}]});
    let (text, calls) = tape::native_reply(&kept.to_string()).unwrap_or_default();
    assert_eq!(text, "t");
    let arguments = [
        ("n".to_owned(), "2".to_owned()),
        ("q".to_owned(), "x".to_owned()),
    ];
    assert_eq!(calls, [("search".to_owned(), arguments.into())]);
    for other in ["plain", "{}", r#"{"text": "t"}"#] {
        assert_eq!(tape::native_reply(other), None, "{other}");
    }
}

#[test]
fn what_was_streamed_is_found_again_at_the_beginning_of_what_was_said() {
    use crate::order::Said;
    use agentfleet_schema::MessageType;
    let said = [Said {
        message_type: MessageType::Answer,
        text: "it is four".to_owned(),
        streamed: true,
        document: None,
    }];
    for (text, found) in [("it is", "it is"), ("it was", "\u{0}")] {
        let streamed = Streamed {
            answer: text.to_owned(),
            answer_chunks: 2,
            ..Streamed::default()
        };
        let again = Streamed::from_noted(&streamed.noted(), &said);
        assert_eq!((again.answer.as_str(), again.answer_chunks), (found, 2));
    }
}
