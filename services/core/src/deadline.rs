//! How far a deadline message is delayed at once.
//!
//! A broker is at its best with short delays: it may keep delayed messages in memory, replay them
//! after a restart, or delete what waits longer than it keeps messages. So a long wait is made in
//! hops, and each hop's handler puts the message off again until the instant in the record.

use agentfleet_schema::Millis;

/// The longest delay of one message.
pub const HOP: Millis = 5 * 60 * 1_000;

/// When a message that is due at `due` is to be delivered next.
pub fn next_hop(now: Millis, due: Millis) -> Millis {
    due.min(now.saturating_add(HOP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_made_in_hops_that_end_at_the_instant() {
        for (now, due, expected) in [
            (0, 1, 1),
            (0, HOP, HOP),
            (0, HOP + 1, HOP),
            (HOP, HOP + 1, HOP + 1),
            (10, 5, 5),
            (Millis::MAX - 1, Millis::MAX, Millis::MAX),
        ] {
            assert_eq!(next_hop(now, due), expected, "{now} {due}");
        }
    }
}
