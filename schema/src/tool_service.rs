//! What a tool service is asked, and what it answers. Both carry the property `id`, by which the one is known to be
//! for the other.

use crate::ErrorBody;
use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A call of a tool that is a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolServiceRequest {
    /// What the tool's item gives the service: a JSON object, as text.
    #[serde(default, deserialize_with = "null_default")]
    pub config: String,
    /// The arguments of the call: a JSON object, as text.
    #[serde(default, deserialize_with = "null_default")]
    pub arguments: String,
}

/// An answer, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolServiceResponse {
    /// Set where the call failed; nothing follows it.
    #[serde(default)]
    pub error: Option<ErrorBody>,
    /// The text of the answer, or of this part of it.
    #[serde(default, deserialize_with = "null_default")]
    pub response: String,
    /// Whether this is all of it, or its last part.
    #[serde(default, deserialize_with = "null_default")]
    pub end_of_stream: bool,
}
