#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use agentfleet_schema::config::{AgentPattern, AgentTaskType, Specialist};

fn exchange(n: usize, bytes: usize) -> Exchange {
    Exchange {
        session: format!("s{n}").into(),
        question: format!("q{n}"),
        answer: "a".repeat(bytes),
    }
}

/// With what came before, numbered from the newest.
fn given(count: usize, bytes: usize, window: u32) -> AgentRequest {
    let mut request = AgentRequest {
        question: "and then?".into(),
        session_id: "s".into(),
        conversation_id: "c".into(),
        ..AgentRequest::default()
    };
    let fleet = FleetLimits {
        context_window: window,
        ..FleetLimits::default()
    };
    let newest = (0..count).map(|n| exchange(n, bytes));
    remember(&mut request, newest, &Snapshot::default(), &fleet);
    request
}

#[test]
fn the_newest_are_kept_the_oldest_first_as_far_as_there_is_room() {
    let names = |request: &AgentRequest| -> Vec<String> {
        let all = request.control.conversation.iter();
        all.map(|exchange| exchange.question.clone()).collect()
    };
    assert_eq!(names(&given(3, 10, 100_000)), ["q2", "q1", "q0"]);
    let most = given(100, 10, 100_000);
    assert_eq!(most.control.conversation.len(), MOST);
    assert_eq!(most.control.conversation[0].question, "q19");
    // An answer is cut, and says so.
    let cut = given(1, 10_000, 100_000);
    let answer = &cut.control.conversation[0].answer;
    assert!(answer.len() < ANSWER + 50, "{}", answer.len());
    assert!(answer.ends_with("[cut, 10000 bytes in all]"), "{answer}");
    // A small window has room for few, and a tiny one for none.
    assert_eq!(names(&given(9, 1_000, 8_000)), ["q2", "q1", "q0"]);
    assert_eq!(names(&given(9, 1_000, 500)), Vec::<String>::new());
}

#[test]
fn what_was_given_is_told_once_and_makes_topics_for_the_router() {
    let fleet = FleetLimits::default();
    let snapshot = Snapshot::default();
    let mut request = given(7, 10, 100_000);
    let decision = settle(&mut request, &snapshot, &fleet).unwrap();
    assert_eq!(
        (decision.subject.as_str(), &*decision.chosen),
        ("conversation", "7")
    );
    assert!(decision.signal.contains("s6, s5"), "{}", decision.signal);
    let shown = format!("prompts of this step show the newest {ROUTING}");
    assert!(decision.signal.ends_with(&shown), "{}", decision.signal);
    assert_eq!(
        request.routing.recent_topics,
        ["q0", "q1", "q2", "q3", "q4"]
    );
    request.step = 1;
    request.routing.recent_topics = vec!["given".into()];
    assert_eq!(settle(&mut request, &snapshot, &fleet), None);
    assert_eq!(request.routing.recent_topics, ["given"]);
    assert_eq!(settle(&mut given(0, 0, 0), &snapshot, &fleet), None);
}

#[test]
fn the_specialist_the_pattern_and_the_task_type_say_how_much_is_shown() {
    let mut snapshot = Snapshot::default();
    let count = |request: &AgentRequest, snapshot: &Snapshot| {
        shown(request, snapshot).as_array().unwrap().len()
    };
    let mut request = given(20, 10, 100_000);
    assert_eq!(count(&request, &snapshot), ROUTING);
    request.pattern = "router".into();
    assert_eq!(count(&request, &snapshot), 20);
    request.task_type = "t".into();
    let task_type = AgentTaskType {
        exchanges: Some(5),
        ..AgentTaskType::default()
    };
    snapshot.task_types.insert("t".into(), task_type);
    assert_eq!(count(&request, &snapshot), 5);
    let pattern = AgentPattern {
        exchanges: Some(2),
        ..AgentPattern::default()
    };
    snapshot.patterns.insert("router".into(), pattern);
    let two = shown(&request, &snapshot);
    assert_eq!(two[1]["question"], "q0");
    assert_eq!(two.as_array().unwrap().len(), 2);
    request.control.specialist = "blog".into();
    let specialist = Specialist {
        exchanges: Some(7),
        ..Specialist::default()
    };
    snapshot.specialists.insert("blog".into(), specialist);
    assert_eq!(count(&request, &snapshot), 7);
}

#[test]
fn an_exchange_is_noted_on_the_first_step_of_a_run_in_a_conversation() {
    let mut record = StepRecord {
        session: "s".into(),
        conversation: "a talk/of two".into(),
        started_at: 1_000,
        ..StepRecord::default()
    };
    let newer = keys::exchange("", &record.conversation, 1_001, &"t".into());
    let own = key(&record).unwrap();
    assert!(newer < own, "{newer} {own}");
    assert_eq!(keys::exchange_of(&own), Some((1_000, "s".into())));
    record.worked.came_at = Some(900);
    assert_eq!(
        keys::exchange_of(&key(&record).unwrap()),
        Some((900, "s".into()))
    );
    let names = |record: &StepRecord| {
        let objects = objects(record, &AgentRequest::default()).into_iter();
        objects.map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(names(&record).len(), 1);
    record.step = 1;
    assert_eq!(key(&record), None);
    record.outcome = OutcomeKind::Fail;
    assert_eq!(names(&record), Vec::<String>::new());
    record.outcome = OutcomeKind::Answer;
    assert_eq!(names(&record), [keys::answered(&record.session)]);
    record.step = 0;
    record.conversation = "".into();
    assert_eq!(key(&record), None);
}

#[test]
fn what_was_said_cannot_end_its_frame() {
    for (text, expected) in [
        ("a </exchange> b", "a </ exchange> b"),
        ("</EXCHANGE></exchange", "</ EXCHANGE></ exchange"),
        ("</b> </", "</b> </"),
        ("\u{1F600}</\u{1F600}", "\u{1F600}</\u{1F600}"),
    ] {
        assert_eq!(framed(text), expected);
    }
}
