//! What a model is asked to do: prompt id, profile key and metric label at once.

/// What the model is asked to do. Each has a prompt item of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    ClassifyTaskType,
    SelectPattern,
    React,
    Decompose,
    /// Whether a synthesis answers or investigates further.
    Review,
    Synthesise,
    /// The steps of a plan.
    PlanCreate,
    /// What is to be done instead of the steps that remain.
    PlanRevise,
    /// What to call for a step of a plan, or its result.
    PlanStep,
    /// What a call came to for its step.
    PlanAssess,
    PlanSynthesise,
    /// What was wrong with an action, and what to try next.
    Critique,
    /// Whether the answers of a debate agree.
    Compare,
    /// The answer of a debate.
    Judge,
    /// What a message is about, and who is to work on it.
    ClassifyIntent,
    /// The `text-completion` tool.
    Complete,
    /// A `prompt` tool.
    Prompt,
}

impl Operation {
    pub const ALL: [Self; 17] = [
        Self::ClassifyTaskType,
        Self::SelectPattern,
        Self::React,
        Self::Decompose,
        Self::Review,
        Self::Synthesise,
        Self::PlanCreate,
        Self::PlanRevise,
        Self::PlanStep,
        Self::PlanAssess,
        Self::PlanSynthesise,
        Self::Critique,
        Self::Compare,
        Self::Judge,
        Self::ClassifyIntent,
        Self::Complete,
        Self::Prompt,
    ];

    /// The operation's name: prompt id, profile key and metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClassifyTaskType => "task-type-classify",
            Self::SelectPattern => "pattern-select",
            Self::React => "agent-react",
            Self::Decompose => "supervisor-decompose",
            Self::Review => "supervisor-review",
            Self::Synthesise => "supervisor-synthesise",
            Self::PlanCreate => "plan-create",
            Self::PlanRevise => "plan-revise",
            Self::PlanStep => "plan-step-execute",
            Self::PlanAssess => "plan-step-assess",
            Self::PlanSynthesise => "plan-synthesise",
            Self::Critique => "reflexion-critique",
            Self::Compare => "debate-compare",
            Self::Judge => "debate-judge",
            Self::ClassifyIntent => "intent-classify",
            Self::Complete => "question",
            Self::Prompt => "prompt",
        }
    }
}
