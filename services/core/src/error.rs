//! Why a run ends in an error: every code a caller can meet in a response, and why a message cannot
//! become a turn.

use crate::{bounds, words};
use agentfleet_schema::{ErrorBody, redacted};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal;)+) => {
        /// The stable code of an error in a response; `docs/protocol.md` lists them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

codes! {
    /// The message is not JSON.
    InvalidJson = "invalid-json";
    /// A field or a property has a wrong type or value; the message names it.
    InvalidRequest = "invalid-request";
    /// The message is larger than a message may be.
    MessageTooLarge = "message-too-large";
    /// The property `reply-to` names a topic that callers may not name.
    ReplyToNotAllowed = "reply-to-not-allowed";
    /// The request has no question.
    EmptyQuestion = "empty-question";
    /// The question is longer than a question may be.
    QuestionTooLong = "question-too-long";
    /// The request names a pattern that is not known.
    UnknownPattern = "unknown-pattern";
    /// The pattern is configured, and no worker that could run it came in time.
    PatternNotImplemented = "pattern-not-implemented";
    /// The model twice made a plan that cannot be carried out.
    InvalidPlan = "invalid-plan";
    /// The session that the request names has another request.
    SessionTaken = "session-taken";
    /// The run is bounded in money, and its model has no prices.
    NoPrices = "no-prices";
    /// The tenant used up what it may use in a month.
    QuotaUsedUp = "quota-used-up";
    /// The request came by the queue, and nothing that counts shows who sent it.
    NotAuthorized = "not-authorized";
    /// A request names an approval that the step before it is not.
    NotApproved = "not-approved";
    /// A synthesis request names a verdict that does not exist.
    VerdictMissing = "verdict-missing";
    /// The model could not be used, or its replies could not.
    ModelFailed = "model-failed";
    /// A step was tried too often without coming to its end.
    GaveUp = "gave-up";
    /// What a step would publish is larger than a message may be.
    StepTooLarge = "step-too-large";
    /// No worker could work the message; the reason is in the text.
    DeadLetter = "dead-letter";
    /// The run was cancelled.
    Cancelled = "cancelled";
    /// The time of the run is used up.
    Timeout = "timeout";
}

impl Code {
    /// The text by which a message is refused: what [`Code::of_refusal`] reads. It travels as a
    /// property, so what it quotes of the message is kept short.
    pub fn refusal(self, why: &str) -> String {
        format!("{}: {}", self.as_str(), bounds::reason(why))
    }

    /// Whether it tells of trouble in the fleet, of which who asked can change nothing.
    fn is_trouble(self) -> bool {
        match self {
            Self::ModelFailed
            | Self::GaveUp
            | Self::StepTooLarge
            | Self::DeadLetter
            | Self::PatternNotImplemented
            | Self::InvalidPlan
            | Self::VerdictMissing
            | Self::NoPrices => true,
            Self::InvalidJson
            | Self::InvalidRequest
            | Self::MessageTooLarge
            | Self::ReplyToNotAllowed
            | Self::EmptyQuestion
            | Self::QuestionTooLong
            | Self::UnknownPattern
            | Self::SessionTaken
            | Self::QuotaUsedUp
            | Self::NotAuthorized
            | Self::NotApproved
            | Self::Cancelled
            | Self::Timeout => false,
        }
    }

    /// The code that a refusal begins with, and the rest of it. What begins with none of ours was not
    /// refused by a worker: it is a dead letter of the broker's.
    pub fn of_refusal(reason: &str) -> (Self, &str) {
        let refusal = reason.split_once(": ").and_then(|(code, why)| {
            let code = Self::ALL.iter().find(|known| known.as_str() == code)?;
            Some((*code, why))
        });
        refusal.unwrap_or((Self::DeadLetter, reason))
    }
}

/// A request that this worker cannot work as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Nobody can work it: the caller is told.
    #[error("{}", .0.message)]
    Invalid(ErrorBody),
    /// A newer worker may know it: it is put back for a while.
    #[error("pattern `{0}` is configured but this worker does not implement it")]
    NotImplementedHere(String),
}

impl Rejection {
    pub fn invalid(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid(body(code, message, hint))
    }
}

/// An error for who asked and does not run the fleet: what they did wrong as it is, and of the fleet's own
/// troubles that there are some. The record has all of it.
pub fn for_people(error: &ErrorBody, locale: &str) -> ErrorBody {
    let code = Code::ALL.iter().find(|code| code.as_str() == error.code);
    if code.is_some_and(|code| !code.is_trouble()) {
        return error.clone();
    }
    ErrorBody {
        code: error.code.clone(),
        message: words::say(locale, "difficulties", &[]),
        hint: None,
    }
}

/// Builds an error as callers see it.
pub fn body(code: Code, message: impl Into<String>, hint: impl Into<String>) -> ErrorBody {
    let hint = hint.into();
    ErrorBody {
        code: code.as_str().to_owned(),
        // It is recorded, told to the caller and to the graph.
        message: redacted(&message.into()).into_owned(),
        hint: (!hint.is_empty()).then_some(hint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_code_is_its_own_and_says_what_it_means() {
        let codes: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.meaning().ends_with('.'), "{}", code.as_str());
        }
    }

    #[test]
    fn people_read_of_their_own_errors_and_not_of_the_fleets() {
        let raw = "Error: 401 of https://internal.example, key `abc`";
        for code in Code::ALL {
            let told = for_people(&body(*code, raw, "ask the operator"), "en");
            assert_eq!(told.code, code.as_str());
            assert_eq!(told.message == raw, !code.is_trouble(), "{}", told.message);
            assert_eq!(told.hint.is_some(), !code.is_trouble());
        }
        let unknown = ErrorBody {
            code: "of-a-later-version".to_owned(),
            message: raw.to_owned(),
            hint: None,
        };
        assert!(
            for_people(&unknown, "")
                .message
                .starts_with("I'm experiencing")
        );
        assert!(
            for_people(&unknown, "sk")
                .message
                .starts_with("Mám technické")
        );
    }

    #[test]
    fn a_refusal_keeps_its_code_and_the_brokers_reasons_have_none() {
        let refused = Code::InvalidJson.refusal("line 1: not so");
        assert_eq!(
            Code::of_refusal(&refused),
            (Code::InvalidJson, "line 1: not so")
        );
        for reason in ["delivered 8 times", "colour: blue", ""] {
            assert_eq!(Code::of_refusal(reason), (Code::DeadLetter, reason));
        }
    }
}
