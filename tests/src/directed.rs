//! For tests that force one schedule: pick a message, stop a task at a point, crash, go on.
