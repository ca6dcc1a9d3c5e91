//! RDF terms by name: W3C PROV-O and the `tg:` vocabulary of the orchestration spec, then the
//! peer's, then the few of ours. `schema/ontology/agentfleet.ttl` declares the same set.

macro_rules! terms {
    ($list:ident in $base:literal: $($(#[$doc:meta])* $name:ident = $local:literal),+ $(,)?) => {
        $($(#[$doc])* pub const $name: &str = concat!($base, $local);)+

        /// The terms declared together here.
        pub const $list: &[&str] = &[$(concat!($base, $local)),+];
    };
}

pub const RDF_TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
pub const RDFS_LABEL: &str = "http://www.w3.org/2000/01/rdf-schema#label";

pub mod xsd {
    terms! { ALL in "http://www.w3.org/2001/XMLSchema#":
        DATE_TIME = "dateTime", INTEGER = "integer", DECIMAL = "decimal", BOOLEAN = "boolean",
    }
}

/// <https://www.w3.org/TR/prov-o/>
pub mod prov {
    pub const NS: &str = "http://www.w3.org/ns/prov#";
    terms! { ALL in "http://www.w3.org/ns/prov#":
        ENTITY = "Entity", ACTIVITY = "Activity", AGENT = "Agent", SOFTWARE_AGENT = "SoftwareAgent",
        PERSON = "Person",
        USED = "used", WAS_GENERATED_BY = "wasGeneratedBy", WAS_DERIVED_FROM = "wasDerivedFrom",
        WAS_ASSOCIATED_WITH = "wasAssociatedWith", WAS_ATTRIBUTED_TO = "wasAttributedTo",
        ACTED_ON_BEHALF_OF = "actedOnBehalfOf", WAS_INFORMED_BY = "wasInformedBy",
        STARTED_AT_TIME = "startedAtTime", ENDED_AT_TIME = "endedAtTime",
        GENERATED_AT_TIME = "generatedAtTime", WAS_REVISION_OF = "wasRevisionOf", VALUE = "value", HAD_PRIMARY_SOURCE = "hadPrimarySource",
    }
}

/// <https://trustgraph.ai/ns/>
pub mod tg {
    pub const NS: &str = "https://trustgraph.ai/ns/";
    // The orchestration spec's.
    terms! { SPEC in "https://trustgraph.ai/ns/":
        QUESTION = "Question", AGENT_QUESTION = "AgentQuestion",
        ROUTING_DECISION = "RoutingDecision", FAN_OUT = "FanOut",
        SUBAGENT_COMPLETION = "SubagentCompletion", SYNTHESIS = "Synthesis",
        TASK_TYPE = "taskType", SELECTED_PATTERN = "selectedPattern",
        CANDIDATE_PATTERNS = "candidatePatterns", ROUTING_RATIONALE = "routingRationale",
        CORRELATION_ID = "correlationId", SUBAGENT_GOALS = "subagentGoals",
        EXPECTED_SIBLINGS = "expectedSiblings", SUBAGENT_SESSION_ID = "subagentSessionId",
        PARENT_SESSION_ID = "parentSessionId", SUBAGENT_GOAL = "subagentGoal",
        PARENT_CORRELATION_ID = "parentCorrelationId", RESULT = "result", STATUS = "status",
    }
    // The peer's, for what the spec leaves open.
    terms! { PEER in "https://trustgraph.ai/ns/":
        ANALYSIS = "Analysis", TOOL_USE = "ToolUse", CONCLUSION = "Conclusion", ANSWER = "Answer",
        REFLECTION = "Reflection", THOUGHT_CLASS = "Thought", OBSERVATION_CLASS = "Observation",
        PLAN = "Plan", STEP_RESULT = "StepResult", ERROR = "Error", QUERY = "query", DOCUMENT = "document", THOUGHT = "thought",
        ACTION = "action", ARGUMENTS = "arguments", OBSERVATION = "observation",
        TOOL_CANDIDATE = "toolCandidate", TERMINATION_REASON = "terminationReason",
        STEP_NUMBER = "stepNumber", PATTERN = "pattern", LLM_DURATION_MS = "llmDurationMs",
        TOOL_DURATION_MS = "toolDurationMs", TOOL_ERROR = "toolError", IN_TOKEN = "inToken",
        OUT_TOKEN = "outToken", LLM_MODEL = "llmModel", PLAN_STEP = "planStep",
        REVISED_STEP = "revisedStep",
    }
    // Ours: what neither has a word for.
    terms! { OURS in "https://trustgraph.ai/ns/":
        /// A choice from a configured set; what every recorded decision is.
        DECISION = "Decision",
        /// What the decision was about, such as `task-type` or `pattern`.
        DECISION_SUBJECT = "decisionSubject",
        /// An option that was there.
        OPTION = "option",
        /// What narrowed the options.
        NARROWED_BY = "narrowedBy",
        /// The signal that made the choice.
        SIGNAL = "signal",
        /// `model`, `only-option`, `fallback`, `caller` or `person`.
        DECIDED_BY = "decidedBy",
        SELECTED = "selected",
        CANDIDATE_TASK_TYPES = "candidateTaskTypes",
        RATIONALE = "rationale",
        CONFIG_VERSION = "configVersion",
        CONVERSATION_ID = "conversationId",
        COLLECTION = "collection",
        ROOT_SESSION_ID = "rootSessionId",
        SIBLING_INDEX = "siblingIndex",
        /// On a session, each earlier one of its conversation that it was shown.
        REMEMBERS = "remembers",
        JOIN_DEADLINE = "joinDeadline",
        JOIN_POLICY = "joinPolicy",
        /// What ended the wait of a fan-in.
        JOIN_CAUSE = "joinCause",
        /// A sibling that had no result when the synthesis began.
        MISSING = "missing",
        PARTIAL = "partial",
        /// A result that came after the verdict: kept, without effect.
        LATE = "late",
        SOURCE = "source",
        /// A source that an answer names.
        CITES = "cites",
        /// A source that was read for an answer, which does not name it.
        CONSULTED = "consulted",
        /// On an answer for which nothing was read.
        UNSOURCED = "unsourced",
        CONFIDENCE = "confidence",
        ATTEMPT = "attempt",
        /// Key of the record of a step, on the step's main node.
        STEP_RECORD = "stepRecord",
        COST = "cost",
        /// Model calls of a step that no profile has a price for; on its main node.
        UNPRICED_CALLS = "unpricedCalls",
        /// Calls of models and tools that a step made, and how long they took; on its main node.
        MODEL_CALLS = "modelCalls",
        TOOL_CALLS = "toolCalls",
        MODEL_TIME_MS = "modelTimeMs",
        TOOL_TIME_MS = "toolTimeMs",
        /// A model that a step called.
        MODEL_USED = "modelUsed",
        /// Replies to a step that were cut, and calls in its replies that were not made; on its main node.
        CUT_REPLIES = "cutReplies",
        IGNORED_CALL = "ignoredCall",
        /// How often and how long a step waited for a model that could not answer, and why.
        MODEL_WAITS = "modelWaits",
        MODEL_WAIT_MS = "modelWaitMs",
        MODEL_WAIT_REASON = "modelWaitReason",
        ERROR_CODE = "errorCode",
        /// What went wrong in words, on a subagent's completion.
        ERROR_MESSAGE = "errorMessage",
        /// A text in the librarian, of a run that is part of a conversation.
        DOCUMENT_CLASS = "Document",
        /// A pattern of the config.
        PATTERN_CLASS = "Pattern",
        /// A task type of the config.
        TASK_TYPE_CLASS = "TaskType",
        /// What the config says of a pattern or task type.
        DESCRIPTION = "description",
        /// Tokens a session and all below it spent.
        TOKENS = "tokens",
        /// Money and calls of a session and all below it.
        COST_TOTAL = "costTotal",
        MODEL_CALLS_TOTAL = "modelCallsTotal",
        TOOL_CALLS_TOTAL = "toolCallsTotal",
        UNPRICED_CALLS_TOTAL = "unpricedCallsTotal",
        /// What attempts at a step spent that did not come to its record; on its main node.
        WASTED_TOKENS = "wastedTokens",
        WASTED_COST = "wastedCost",
        WASTED_MODEL_CALLS = "wastedModelCalls",
        WASTED_TOOL_CALLS = "wastedToolCalls",
        /// Identity of the record of a step, on the step's main node.
        DIGEST = "digest", ROUND = "round",
        /// Number of a revision of a plan; 0 is the first plan.
        REVISION = "revision",
        /// Why a plan was revised.
        REASON = "reason",
        /// Place of a step in its plan, from 0.
        PLAN_INDEX = "planIndex",
        /// What became of a step of a plan: `complete` or `failed`.
        PLAN_STATUS = "planStatus",
        /// What an agent said of what it did; a tg:Reflection.
        CRITIQUE = "Critique",
        /// Whether a critique sent the agent back.
        SENT_BACK = "sentBack",
        /// How the answers of a debate stand to each other.
        COMPARISON = "Comparison",
        /// Where a reasoner of a debate stands.
        POSITION = "position",
        /// On what the reasoners of a debate do not agree.
        DISAGREEMENT = "disagreement",
        /// A call that waits for a person before it is made.
        APPROVAL_REQUEST = "ApprovalRequest",
        /// Id of an approval, on the call that waits and on the decision about it.
        APPROVAL_ID = "approvalId",
        /// When a call stops waiting for a person.
        EXPIRES = "expires",
        /// The answer that counts if no person gives one: `deny` or `approve`.
        DEFAULT_ANSWER = "defaultAnswer",
    }
}
