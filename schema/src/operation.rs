//! What a model is asked to do: prompt id, profile key and metric label at once.

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident = $id:literal;)+) => {
        /// What the model is asked to do. Each has a prompt item of the same name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Operation {
            $($(#[doc = $doc])* $name,)+
        }

        impl Operation {
            pub const ALL: [Self; [$($id),+].len()] = [$(Self::$name),+];

            /// The operation's name: prompt id, profile key and metric label.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)+
                }
            }
        }
    };
}

operations! {
    ClassifyTaskType = "task-type-classify";
    SelectPattern = "pattern-select";
    React = "agent-react";
    Decompose = "supervisor-decompose";
    /// Whether a synthesis answers or investigates further.
    Review = "supervisor-review";
    Synthesise = "supervisor-synthesise";
    /// The steps of a plan.
    PlanCreate = "plan-create";
    /// What is to be done instead of the steps that remain.
    PlanRevise = "plan-revise";
    /// What to call for a step of a plan, or its result.
    PlanStep = "plan-step-execute";
    /// What a call came to for its step.
    PlanAssess = "plan-step-assess";
    PlanSynthesise = "plan-synthesise";
    /// What was wrong with an action, and what to try next.
    Critique = "reflexion-critique";
    /// Whether the answers of a debate agree.
    Compare = "debate-compare";
    /// The answer of a debate.
    Judge = "debate-judge";
    /// What a message is about, and who is to work on it.
    ClassifyIntent = "intent-classify";
    /// Whether a message is a task, and what it comes to.
    Gate = "intent-gate";
    /// The `text-completion` tool.
    Complete = "question";
    /// A `prompt` tool.
    Prompt = "prompt";
}
