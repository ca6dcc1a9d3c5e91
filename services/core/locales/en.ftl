# Sentences that the fleet itself says to people. Each message is in every file of this folder.

# Asks for what a call lacks. $what: names of it, one or more.
ask-back = To go on I need: **{ $what }**. Can you tell me?

# Why an answer is partial, and what is known so far follows. $why: the reason.
partial-answer = **Partial answer:** { $why }.
# $why: the reason.
before-answer = { $why }, before a final answer
most-iterations = the iteration limit was reached
same-calls = it made the call `{ $call }` again, after it was told that it had made it
same-tool = it called `{ $tool }` again and again, and found no other way
nothing-found = No tool had returned anything useful.
# $thought: in the agent's words.
last-thought = The last thought was: { $thought }

# The fleet itself is in trouble.
difficulties = I'm experiencing technical difficulties. Please try again in a few minutes.

# What an agent is to pass on about a call that was not made, or not with success.
not-permitted = You don't have permission for that. Ask your workspace admin.
rate-limited = You've hit your limit for this. Please try again later.
not-fetched = I couldn't fetch this data right now.
not-done = I couldn't do this right now, and it should be looked at before it is tried again.
