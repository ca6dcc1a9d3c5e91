//! What a server has refused once, and is not sent again.

use std::sync::atomic::{AtomicU8, Ordering};

/// A part of a call that some servers do not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// The wish for one tool call at a time.
    OneCall,
    Temperature,
    /// The limit of tokens under the name that it was sent by.
    Limit,
    /// The wish that a stream ends with its usage.
    Usage,
    Schema,
    /// Whoever calls must ask in another way without them.
    Tools,
}

impl Field {
    /// The more particular come first: what refuses one of them may mention tools as well.
    const ALL: [Self; 6] = [
        Self::OneCall,
        Self::Temperature,
        Self::Limit,
        Self::Usage,
        Self::Schema,
        Self::Tools,
    ];

    /// Words of an error, in lower case, that name it.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::OneCall => &["parallel_tool_calls", "disable_parallel_tool_use"],
            Self::Temperature => &["temperature"],
            Self::Limit => &["max_completion_tokens"],
            Self::Usage => &["stream_options", "include_usage"],
            Self::Schema => &[
                "response_format",
                "json_schema",
                "output_config",
                "output_format",
                "responsejsonschema",
                "structured output",
                "guided_json",
            ],
            Self::Tools => &[
                "does not support tools",
                "tool choice",
                "tool_choice",
                "tool-call-parser",
                "tools param requires",
                "function calling",
                "tools are not supported",
            ],
        }
    }

    /// Whether an error that says this refuses the field, and not only the value that it had.
    pub(super) fn is_refused_by(self, says: &str) -> bool {
        const UNKNOWN: &[&str] = &[
            "support", // also "unsupported"
            "unrecognized",
            "unknown",
            "unexpected",
            "extra",
            "not permitted",
            "not allowed",
            "deprecated",
            "only the default",
            "instead",
        ];
        let any = |words: &[&str]| words.iter().any(|word| says.contains(word));
        match self {
            Self::Schema | Self::Tools => any(self.names()),
            // "supports at most 16384" is about the value.
            Self::Limit => any(self.names()) && any(UNKNOWN) && !any(&["at most", "too large"]),
            Self::OneCall | Self::Temperature | Self::Usage => any(self.names()) && any(UNKNOWN),
        }
    }
}

/// What becomes of a call that a server refuses and may take in another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is made again without this, and so is every later one.
    Field(Field),
    /// It is made again without its schema; other schemas are still sent.
    ThisSchema,
}

/// Whether an error that says this is about the schema that a call carried: the server takes schemas, and
/// cannot hold a model to this one.
pub(super) fn is_about_this_schema(says: &str) -> bool {
    const SAYS: &[&str] = &[
        "invalid schema",
        "schema error",
        "schema conversion",
        "parse grammar",
        "grammar error",
        "too many states",
        "nesting depth",
        "schema is too complex",
    ];
    SAYS.iter().any(|words| says.contains(words))
}

/// What one server has refused, for as long as the process runs.
#[derive(Debug, Default)]
pub(super) struct Refused(AtomicU8);

impl Refused {
    pub(super) fn has(&self, field: Field) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << field as u8) != 0
    }

    pub(super) fn learn(&self, field: Field) {
        self.0.fetch_or(1 << field as u8, Ordering::Relaxed);
    }

    /// Which of all parts a call may carry.
    pub(super) fn others(&self) -> Vec<Field> {
        Field::ALL
            .into_iter()
            .filter(|field| !self.has(*field))
            .collect()
    }
}
