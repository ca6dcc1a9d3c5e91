//! Values of the record fixtures, each with a minimal form: only what must be there.

use super::{Fixture, exact, reads};
use agentfleet_schema::config::{DefaultAnswer, JoinPolicy};
use agentfleet_schema::records::{
    Activity, Adopted, ApprovalAnswer, ApprovalPlace, Asked, Call, CallStatus, Child, ClosedRecord,
    Compared, CompletionStatus, Concluded, Critique, Decided, DecidedBy, Decision, Described,
    DocumentRef, EndedBy, EndedFromOutside, Executed, FailedCall, FailedTry, FanInRecord,
    FanInSummary, FanOutRecord, FannedOut, FleetLimits, ForkedFrom, Grounds, IntentRecord,
    Iterated, JoinCause, Member, ModelWait, OutcomeKind, ParentLink, ParkedRecord, PartConfidence,
    PauseRecord, Planned, Position, Publication, ResultRecord, Routed, Source, StepRecord,
    StepResult, StreamedPart, StreamedParts, Termination, Trouble, Usage, Worked,
};
use agentfleet_schema::{
    Carried, CollectionName, Digest, ErrorBody, Exchange, Known, Memory, Money, PlanStep,
    PolicyPosition, QuotaLeft, RunLimits, Spent,
};

const AT: i64 = 1_767_225_600_000;

fn tokens(tokens: u64) -> Spent {
    Spent {
        tokens,
        ..Spent::default()
    }
}

fn spent(tokens: u64) -> Spent {
    Spent {
        tokens,
        cost: Money::millionths(1_250_000),
        model_calls: 3,
        tool_calls: 2,
        unpriced_calls: 0,
    }
}

pub(crate) fn fixtures() -> Vec<Fixture> {
    let bare_step = |outcome| StepRecord {
        session: "s-1".into(),
        step: 1,
        root: "s-0".into(),
        outcome,
        ..StepRecord::default()
    };
    let bare_child = Child {
        session: "s-2".into(),
        goal: "look".into(),
        ..Child::default()
    };
    let bare_member = Member {
        session: "s-2".into(),
        goal: "look".into(),
        status: CompletionStatus::Answered,
        ..Member::default()
    };
    vec![
        exact("records/step-record/iterated", iterated()),
        exact("records/step-record/cited", cited()),
        exact(
            "records/step-record/spent",
            StepRecord {
                total: spent(100),
                wasted: spent(7),
                ..bare_step(OutcomeKind::Continue)
            },
        ),
        exact(
            "records/fan-in-record/spent",
            FanInRecord {
                members: vec![Member {
                    spent: spent(321),
                    ..member()
                }],
                policy: JoinPolicy::Quorum,
                missing_spent: spent(4_000),
                ..fan_in()
            },
        ),
        exact("records/step-record/fanned-out", fanned_out()),
        exact("records/step-record/concluded", concluded()),
        exact("records/step-record/planned", planned()),
        exact("records/step-record/executed", executed()),
        exact("records/step-record/debated", debated()),
        exact("records/step-record/paused", paused()),
        exact("records/step-record/decided", decided()),
        exact("records/pause-record/full", pause()),
        exact(
            "records/approval-place/full",
            ApprovalPlace {
                session: "s-1".into(),
                step: 2,
            },
        ),
        exact("records/step-record/worked", worked()),
        exact("records/step-record/waited", waited()),
        exact("records/step-record/bare", bare_step(OutcomeKind::Continue)),
        reads(
            "records/step-record/minimal",
            bare_step(OutcomeKind::FanOut),
        ),
        reads(
            "records/step-record/unknown",
            bare_step(OutcomeKind::Answer),
        ),
        reads(
            "records/step-record/minimal-inside",
            StepRecord {
                activity: Activity::Iterated(Iterated {
                    n: 1,
                    thought: "t".into(),
                    action: "search".into(),
                    observation: "o".into(),
                    ..Iterated::default()
                }),
                calls: vec![Call::Model {
                    operation: "agent-react".into(),
                    model: "m".into(),
                    prompt: String::new(),
                    reply: String::new(),
                    usage: Usage::default(),
                    ms: 1,
                    calls_tools: false,
                    cut: false,
                    ignored: Vec::new(),
                    tried: Vec::new(),
                }],
                publications: vec![Publication {
                    topic: "agent-request".into(),
                    body: "{}".into(),
                    ..Publication::default()
                }],
                ..bare_step(OutcomeKind::Continue)
            },
        ),
        reads(
            "records/step-record/minimal-concluded",
            StepRecord {
                activity: Activity::Concluded(Concluded {
                    thought: "t".into(),
                    fan_in: Some(FanInSummary {
                        correlation: "corr".into(),
                        members: vec![bare_member.clone()],
                        missing: vec![bare_child.clone()],
                        ..FanInSummary::default()
                    }),
                    ..Concluded::default()
                }),
                ..bare_step(OutcomeKind::Answer)
            },
        ),
        exact(
            "records/step-record/cut-off",
            StepRecord {
                activity: Activity::Concluded(Concluded {
                    cut_off: vec![Iterated {
                        n: 2,
                        action: "write".into(),
                        observation: "started; its end is unknown".into(),
                        is_error: true,
                        candidates: vec!["write".into()],
                        ..Iterated::default()
                    }],
                    ..Concluded::default()
                }),
                ..bare_step(OutcomeKind::Cancelled)
            },
        ),
        exact(
            "records/step-record/described",
            StepRecord {
                routed: Some(Routed {
                    question: "q".into(),
                    pattern: "react".into(),
                    described: vec![Described {
                        subject: "pattern".into(),
                        name: "react".into(),
                        description: "think, act, observe".into(),
                    }],
                    ..Routed::default()
                }),
                activity: Activity::Concluded(Concluded {
                    termination: Termination::MaxReplans,
                    fan_in: Some(FanInSummary {
                        correlation: "corr".into(),
                        members: vec![Member {
                            sources: vec![source()],
                            ..member()
                        }],
                        ..FanInSummary::default()
                    }),
                    ..Concluded::default()
                }),
                ..bare_step(OutcomeKind::Answer)
            },
        ),
        exact("records/fan-out-record/full", fan_out()),
        reads(
            "records/fan-out-record/minimal",
            FanOutRecord {
                session: "s-1".into(),
                step: 1,
                root: "s-1".into(),
                correlation: "corr".into(),
                children: vec![bare_child.clone()],
                join_deadline: AT,
                synthesis_step: 2,
                synthesis: Publication {
                    topic: "agent-request".into(),
                    body: "{}".into(),
                    ..Publication::default()
                },
                ..FanOutRecord::default()
            },
        ),
        reads(
            "records/fan-out-record/unknown",
            FanOutRecord {
                session: "s-1".into(),
                root: "s-1".into(),
                policy: JoinPolicy::AtLeast(1),
                ..FanOutRecord::default()
            },
        ),
        exact("records/fan-in-record/full", fan_in()),
        reads(
            "records/fan-in-record/minimal",
            FanInRecord {
                correlation: "corr".into(),
                members: vec![bare_member],
                missing: vec![bare_child],
                cause: JoinCause::Complete,
                ..FanInRecord::default()
            },
        ),
        reads(
            "records/fan-in-record/unknown",
            FanInRecord {
                correlation: "corr".into(),
                cause: JoinCause::Enough,
                ..FanInRecord::default()
            },
        ),
        exact(
            "records/closed-record/full",
            ClosedRecord {
                cause: "cancelled".into(),
                at: AT,
                by: "ada".into(),
            },
        ),
        reads(
            "records/closed-record/minimal",
            ClosedRecord {
                cause: "deadline".into(),
                at: AT,
                by: String::new(),
            },
        ),
        exact("records/parked-record/full", parked()),
        reads(
            "records/parked-record/minimal",
            ParkedRecord {
                binary: false,
                redriven_as: None,
                ..parked()
            },
        ),
        exact("records/intent-record/full", intent()),
        exact(
            "records/result-record/full",
            ResultRecord {
                status: CallStatus::Ok,
                content: "sent".into(),
                sources: vec![source()],
            },
        ),
        reads(
            "records/result-record/minimal",
            ResultRecord {
                status: CallStatus::Unknown,
                ..ResultRecord::default()
            },
        ),
    ]
}

fn intent() -> IntentRecord {
    IntentRecord {
        tool: "send".into(),
        arguments: [("to".to_owned(), "bob".to_owned())].into(),
        nonce: "n-1".into(),
        lease_until: AT,
        fence: false,
        record: None,
        config_version: Some(58),
    }
}

fn source() -> Source {
    Source {
        uri: "file:///dossier/finance.md".into(),
        title: "Finance".into(),
    }
}

fn common() -> StepRecord {
    StepRecord {
        session: "s-1".into(),
        step: 1,
        root: "s-0".into(),
        parent: Some(ParentLink {
            session: "s-0".into(),
            step: 1,
            correlation: "corr-abc123".into(),
            index: 2,
            goal: "Review legal exposure".into(),
        }),
        conversation: "talk-1".into(),
        collection: CollectionName::from("dossiers"),
        request: Digest::of(b"request"),
        previous: Some(Digest::of(b"previous")),
        nonce: "n-1".into(),
        attempt: 2,
        config_version: 7,
        started_at: AT,
        committed_at: AT + 1_500,
        outcome: OutcomeKind::Continue,
        derives_from: "urn:trustgraph:agent:s-1/routing".into(),
        calls: vec![
            Call::Model {
                operation: "agent-react".into(),
                model: "a-model".into(),
                prompt: "system: ...".into(),
                reply: "Thought: ...".into(),
                usage: Usage {
                    input_tokens: 70,
                    output_tokens: 30,
                    cost: 0.125,
                    unpriced_calls: 0,
                },
                ms: 900,
                calls_tools: false,
                cut: false,
                ignored: Vec::new(),
                tried: Vec::new(),
            },
            Call::Tool {
                name: "search".into(),
                arguments: [("query".to_owned(), "Company X".to_owned())].into(),
                result: "three filings".into(),
                is_error: false,
                ms: 40,
                sources: Vec::new(),
                tried: Vec::new(),
                adopted: None,
            },
            Call::Document {
                uri: "urn:d".into(),
                digest: Digest::of(b"d"),
                missing: false,
            },
        ],
        usage: Usage {
            input_tokens: 70,
            output_tokens: 30,
            cost: 0.125,
            unpriced_calls: 0,
        },
        total: tokens(100),
        publications: vec![Publication {
            topic: "agent-request".into(),
            properties: [("id".to_owned(), "caller-1".to_owned())].into(),
            deliver_at: Some(AT + 60_000),
            body: "{\"question\":\"q\"}".into(),
        }],
        documents: vec![DocumentRef {
            uri: "urn:d".into(),
            digest: Digest::of(b"d"),
            bytes: 1,
        }],
        ..StepRecord::default()
    }
}

fn decision(subject: &str, chosen: &str, decided_by: DecidedBy) -> Decision {
    Decision {
        subject: subject.into(),
        options: vec!["supervisor".into(), "react".into()],
        narrowed_by: "the valid patterns of task type `risk-assessment`".into(),
        signal: "four dimensions".into(),
        chosen: chosen.into(),
        decided_by,
        rationale: "They can be worked side by side.".into(),
    }
}

fn iterated() -> StepRecord {
    StepRecord {
        routed: Some(Routed {
            question: "Review legal exposure".into(),
            task_type: "risk-assessment".into(),
            pattern: "react".into(),
            decisions: vec![decision("pattern", "react", DecidedBy::Caller)],
            described: Vec::new(),
        }),
        activity: Activity::Iterated(Iterated {
            n: 1,
            thought: "look it up".into(),
            action: "search".into(),
            arguments: [("query".to_owned(), "Company X".to_owned())].into(),
            observation: "three filings".into(),
            is_error: true,
            candidates: vec!["fetch".into(), "search".into()],
            sources: vec![source()],
            model_ms: 900,
            tool_ms: 40,
            critique: None,
            after: Some(FanInSummary {
                correlation: "s-1:0".into(),
                ..FanInSummary::default()
            }),
        }),
        ..common()
    }
}

/// With what replay reads beside.
fn worked() -> StepRecord {
    let streamed = StreamedPart {
        chunks: 2,
        bytes: 7,
        digest: Digest::of(b"look it"),
    };
    StepRecord {
        calls: vec![
            Call::Model {
                operation: "agent-react".into(),
                model: "a-model".into(),
                prompt: "system: ...".into(),
                reply: "{\"text\":\"\",\"tool_calls\":[]}".into(),
                usage: Usage::default(),
                ms: 900,
                calls_tools: true,
                cut: false,
                ignored: Vec::new(),
                tried: vec![FailedTry {
                    of: "openai:m".into(),
                    why: Trouble::PassedOver,
                    error: "it failed 3 times".into(),
                }],
            },
            Call::Tool {
                name: "search".into(),
                arguments: [("query".to_owned(), "Company X".to_owned())].into(),
                result: "three filings".into(),
                is_error: false,
                ms: 40,
                sources: vec![source()],
                tried: vec![FailedTry {
                    of: "openai:m".into(),
                    why: Trouble::Timeout,
                    error: "10 s were up".into(),
                }],
                adopted: Some(Adopted::Instead),
            },
            Call::Document {
                uri: "urn:d".into(),
                digest: Digest::of(b""),
                missing: true,
            },
        ],
        tenant: "acme".into(),
        principal: "ada".into(),
        forked_from: Some(ForkedFrom {
            session: "s-9".into(),
            step: 3,
            node: "urn:trustgraph:agent:s-9/analysis/2".into(),
        }),
        worked: Box::new(Worked {
            request: Some("{\"question\":\"q\"}".into()),
            conversation: vec![Exchange {
                session: "s-8".into(),
                question: "what?".into(),
                answer: "that".into(),
            }],
            memories: vec![Memory {
                name: "tone".into(),
                value: "friendly".into(),
            }],
            carried: Carried {
                known: vec![Known {
                    name: "contact_id".into(),
                    value: "c-1".into(),
                    tool: "contact.find".into(),
                }],
                tool_policy: "research".into(),
                position: Some(Box::new(PolicyPosition {
                    policy: "research".into(),
                    step: "think".into(),
                    at: 1,
                    used: vec!["search".into()],
                })),
                without: vec!["mail.send".into()],
            },
            quota: Some(QuotaLeft {
                month: "2026-11".into(),
                runs: Some(7),
                tokens: Some(40_000),
                cost: None,
            }),
            came_at: Some(AT),
            native_tools: true,
            fleet: Some(FleetLimits::default()),
            responses: "replies-a".into(),
            failures: vec![FailedCall {
                after: 1,
                message: "the model cannot be reached".into(),
                hint: "ask again".into(),
                replied: false,
                tried: vec![FailedTry {
                    of: "anthropic:another".into(),
                    why: Trouble::Timeout,
                    error: "no answer".into(),
                }],
            }],
            unaffordable: Some(FailedCall {
                after: 2,
                message: "120 tokens are left of the budget".into(),
                ..FailedCall::default()
            }),
            waited: None,
            streamed: StreamedParts {
                thought: Some(streamed),
                has_gap: true,
                ..StreamedParts::default()
            },
            ended: Some(EndedFromOutside {
                by: EndedBy::GaveUp,
                reason: "five tries".into(),
                termination: Termination::Error,
                error: Some(ErrorBody {
                    code: "gave-up".into(),
                    message: "gave up".into(),
                    ..ErrorBody::default()
                }),
            }),
        }),
        ..iterated()
    }
}

/// The model could not answer at first, and then its reply was cut in the second of two calls.
fn waited() -> StepRecord {
    let mut record = worked();
    record.worked.waited = Some(ModelWait {
        times: 3,
        ms: 7_250,
        reason: "OpenAI cannot answer now (503)".into(),
    });
    if let Some(Call::Model { cut, ignored, .. }) = record.calls.first_mut() {
        *cut = true;
        ignored.push("fetch".into());
    }
    record
}

fn child(index: u32) -> Child {
    Child {
        index,
        session: "s-2".into(),
        goal: "Review legal exposure".into(),
        pattern: "react".into(),
        group: Some(vec!["default".into()]),
    }
}

fn member() -> Member {
    Member {
        index: 0,
        session: "s-2".into(),
        goal: "Analyse finances".into(),
        status: CompletionStatus::DeadLettered,
        document: "urn:trustgraph:agent:s-2/answer/document".into(),
        sources: Vec::new(),
        spent: tokens(321),
        partial: false,
    }
}

fn fanned_out() -> StepRecord {
    StepRecord {
        outcome: OutcomeKind::FanOut,
        decisions: vec![decision("next-round", "react", DecidedBy::Model)],
        activity: Activity::FannedOut(FannedOut {
            correlation: "corr-abc123".into(),
            thought: "two sides".into(),
            children: vec![child(0)],
            policy: JoinPolicy::AtLeast(2),
            join_deadline: AT + 300_000,
            round: 2,
            after: Some(FanInSummary {
                correlation: "corr-before".into(),
                members: vec![member()],
                ..FanInSummary::default()
            }),
            compared: None,
            model_ms: 800,
        }),
        ..common()
    }
}

/// What an answer rests on, and those of the subagents it was made of.
fn cited() -> StepRecord {
    let source = |uri: &str, title: &str| Source {
        uri: uri.into(),
        title: title.into(),
    };
    StepRecord {
        outcome: OutcomeKind::Answer,
        activity: Activity::Concluded(Concluded {
            fan_in: Some(FanInSummary {
                members: vec![Member {
                    sources: vec![source("urn:a", ""), source("urn:b", "Annual report")],
                    ..member()
                }],
                ..FanInSummary::default()
            }),
            grounds: Some(Grounds {
                cited: vec![source("urn:b", "Annual report")],
                consulted: vec![source("urn:a", "")],
            }),
            ..Concluded::default()
        }),
        ..common()
    }
}

fn concluded() -> StepRecord {
    StepRecord {
        outcome: OutcomeKind::Answer,
        activity: Activity::Concluded(Concluded {
            termination: Termination::SubagentsComplete,
            thought: "done".into(),
            n: 2,
            partial: true,
            fan_in: Some(FanInSummary {
                correlation: "corr-abc123".into(),
                cause: JoinCause::Deadline,
                members: vec![member()],
                missing: vec![child(1)],
                spent: tokens(321),
            }),
            confidence: vec![PartConfidence {
                part: "Legal".into(),
                confidence: 0.75,
            }],
            error: Some(ErrorBody {
                code: "timeout".into(),
                message: "late".into(),
                hint: None,
            }),
            model_ms: 700,
            cut_off: Vec::new(),
            ..Concluded::default()
        }),
        ..common()
    }
}

fn planned() -> StepRecord {
    StepRecord {
        activity: Activity::Planned(Planned {
            revision: 1,
            thought: "another way".into(),
            reason: "step 0 failed".into(),
            steps: vec![
                PlanStep {
                    goal: "find the filings".into(),
                    status: "failed".into(),
                    ..PlanStep::default()
                },
                PlanStep {
                    goal: "ask the register".into(),
                    specialist: "law".into(),
                    ..PlanStep::default()
                },
            ],
            first: 1,
            model_ms: 600,
        }),
        ..common()
    }
}

fn executed() -> StepRecord {
    StepRecord {
        activity: Activity::Executed(Executed {
            revision: 1,
            steps: vec![StepResult {
                index: 1,
                goal: "ask the register".into(),
                status: "complete".into(),
                depends_on: vec![0],
                session: "s-2".into(),
            }],
            call: Some(Iterated {
                n: 2,
                action: "search".into(),
                critique: Some(critique()),
                ..Iterated::default()
            }),
            after: Some(FanInSummary {
                correlation: "corr-before".into(),
                members: vec![member()],
                ..FanInSummary::default()
            }),
            model_ms: 500,
        }),
        ..common()
    }
}

fn asked() -> Asked {
    Asked {
        id: "a-1".into(),
        n: 2,
        tool: "pay".into(),
        arguments: [("amount".to_owned(), "5".to_owned())].into(),
        thought: "it is due".into(),
        candidates: vec!["pay".into(), "search".into()],
        reason: "it costs".into(),
        after_unknown: true,
        asked_at: AT,
        expires_at: AT + 60_000,
        default: DefaultAnswer::Approve,
        model_ms: 400,
    }
}

fn paused() -> StepRecord {
    StepRecord {
        outcome: OutcomeKind::Pause,
        activity: Activity::Asked(asked()),
        ..common()
    }
}

fn decided() -> StepRecord {
    StepRecord {
        outcome: OutcomeKind::Continue,
        activity: Activity::Decided(Decided {
            id: "a-1".into(),
            n: 2,
            tool: "pay".into(),
            arguments: [("amount".to_owned(), "4".to_owned())].into(),
            answer: ApprovalAnswer::Edit,
            by: "ada".into(),
            reason: "less will do".into(),
            at: AT,
        }),
        ..common()
    }
}

fn pause() -> PauseRecord {
    PauseRecord {
        session: "s-1".into(),
        step: 2,
        root: "s-0".into(),
        asked: asked(),
        resume: Publication {
            topic: "agent-request".into(),
            properties: [("session".to_owned(), "s-1".to_owned())].into(),
            deliver_at: None,
            body: "{\"question\":\"q\",\"step\":3}".into(),
        },
    }
}

fn critique() -> Critique {
    Critique {
        wrong: "no source".into(),
        next: "name it".into(),
        sent_back: true,
    }
}

fn debated() -> StepRecord {
    StepRecord {
        outcome: OutcomeKind::Answer,
        activity: Activity::Concluded(Concluded {
            termination: Termination::PlanComplete,
            critique: Some(critique()),
            compared: Some(Compared {
                round: 2,
                agreed: true,
                positions: vec![Position {
                    reasoner: "sceptic".into(),
                    session: "s-2".into(),
                    position: "wait".into(),
                }],
                disagreements: vec!["the lease".into()],
            }),
            ..Concluded::default()
        }),
        ..common()
    }
}

fn fan_out() -> FanOutRecord {
    FanOutRecord {
        session: "s-1".into(),
        step: 1,
        root: "s-0".into(),
        correlation: "corr-abc123".into(),
        children: vec![child(0), child(1)],
        policy: JoinPolicy::AtLeast(1),
        join_deadline: AT + 300_000,
        synthesis_step: 2,
        allotment: RunLimits {
            max_depth: Some(1),
            max_tokens: Some(4_000),
            ..RunLimits::default()
        },
        synthesis: Publication {
            topic: "agent-request".into(),
            properties: [("session".to_owned(), "s-1".to_owned())].into(),
            deliver_at: None,
            body: "{\"question\":\"q\",\"step\":2}".into(),
        },
    }
}

fn fan_in() -> FanInRecord {
    FanInRecord {
        correlation: "corr-abc123".into(),
        members: vec![member()],
        missing: vec![child(1)],
        cause: JoinCause::Deadline,
        policy: JoinPolicy::All,
        missing_spent: tokens(4_000),
        nonce: "n-9".into(),
    }
}

fn parked() -> ParkedRecord {
    ParkedRecord {
        id: "m-1".into(),
        topic: "agent-request".into(),
        reason: "the message is not an `AgentRequest`".into(),
        parked_at: AT,
        properties: [("id".to_owned(), "caller-1".to_owned())].into(),
        body: "7b22".into(),
        binary: true,
        redriven_as: Some("m-2".into()),
    }
}
