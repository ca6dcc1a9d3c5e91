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
    /// The `text-completion` tool.
    Complete,
    /// A `prompt` tool.
    Prompt,
}

impl Operation {
    pub const ALL: [Self; 8] = [
        Self::ClassifyTaskType,
        Self::SelectPattern,
        Self::React,
        Self::Decompose,
        Self::Review,
        Self::Synthesise,
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
            Self::Complete => "question",
            Self::Prompt => "prompt",
        }
    }
}
