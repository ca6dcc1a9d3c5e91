//! What is seeded, as the product uses it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod seeded_prompts;
