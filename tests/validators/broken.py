"""Broken samples: a committed trace, one mistake in it, and what must be said about it.

Each entry is a name, the trace, a SPARQL update that makes the mistake, and a part of the message.
"""

BROKEN = [
    # Terms
    (
        "a misspelt property",
        "alone",
        "INSERT { ?a tg:terminationReasn 'x' } WHERE { ?a a tg:Answer }",
        "unknown property tg:terminationReasn",
    ),
    (
        "a misspelt class",
        "alone",
        "DELETE { ?a a tg:Decision } INSERT { ?a a tg:Decison } WHERE { ?a a tg:Decision }",
        "unknown class tg:Decison",
    ),
    (
        "a blank node",
        "alone",
        "INSERT { ?a prov:wasDerivedFrom [] } WHERE { ?a a tg:Answer }",
        "a blank node",
    ),
    # Typing
    (
        "a session that is no activity",
        "alone",
        "DELETE { ?s a prov:Activity } WHERE { ?s a tg:AgentQuestion }",
        "a session is a prov:Activity",
    ),
    (
        "a session that is no question",
        "alone",
        "DELETE { ?s a tg:Question } WHERE { ?s a tg:AgentQuestion }",
        "a session is a tg:Question",
    ),
    (
        "an activity that is no session",
        "alone",
        "DELETE { ?s a tg:AgentQuestion } WHERE { ?s a tg:AgentQuestion }",
        "a session is a tg:AgentQuestion",
    ),
    (
        "a question that is no entity",
        "alone",
        "DELETE { ?q a prov:Entity } WHERE { ?s prov:used ?q }",
        "a question is a prov:Entity",
    ),
    (
        "an agent that is none",
        "alone",
        "DELETE { ?g a prov:Agent } WHERE { ?s prov:wasAssociatedWith ?g }",
        "an agent is a prov:Agent",
    ),
    (
        "an agent that is no software",
        "alone",
        "DELETE { ?g a prov:SoftwareAgent } WHERE { ?s prov:wasAssociatedWith ?g }",
        "an agent is a prov:SoftwareAgent, or a prov:Person",
    ),
    (
        "a source that is no entity",
        "react",
        "DELETE { ?x a prov:Entity } WHERE { ?o tg:source ?x }",
        "a source is a prov:Entity",
    ),
    (
        "a document that is no entity",
        "described",
        "DELETE { ?d a prov:Entity } WHERE { ?d a tg:Document }",
        "a document is a prov:Entity",
    ),
    (
        "an item of the config that is no entity",
        "described",
        "DELETE { ?p a prov:Entity } WHERE { ?p a tg:Pattern }",
        "an item of the config is a prov:Entity",
    ),
    (
        "a node that is no entity",
        "alone",
        "DELETE { ?a a prov:Entity } WHERE { ?a a tg:Answer }",
        "a node of a step is a prov:Entity",
    ),
    (
        "an entity that is an activity",
        "alone",
        "INSERT { ?a a prov:Activity } WHERE { ?a a tg:Answer }",
        "an entity or agent is no activity",
    ),
    (
        "an entity that is an agent",
        "alone",
        "INSERT { ?a a prov:Agent } WHERE { ?a a tg:Answer }",
        "an entity of a trace is no agent",
    ),
    (
        "a node without a class of the trace",
        "alone",
        "DELETE { ?d a tg:Decision } WHERE { ?d a tg:Decision }",
        "a node of a step has exactly one of the classes of the trace",
    ),
    (
        "a node of two classes",
        "alone",
        "INSERT { ?d a tg:Analysis } WHERE { ?d a tg:Decision }",
        "a node of a step has exactly one of the classes of the trace",
    ),
    (
        "properties on a node that is nothing",
        "alone",
        "INSERT DATA { <urn:trustgraph:agent:alone-1/stray> tg:cost 1.0 }",
        "a node with properties of the trace has none of its classes",
    ),
    *(
        (f"a {name} that is not called one", trace, f"DELETE {{ ?n a tg:{name} }} WHERE {{ ?n a tg:{name} }}", message)
        for name, trace, message in (
            ("RoutingDecision", "alone", "this is a tg:RoutingDecision"),
            ("Decision", "alone", "this is a tg:Decision"),
            ("Analysis", "react", "an iteration is a tg:Analysis"),
            ("ToolUse", "react", "an iteration is a tg:ToolUse"),
            ("Observation", "react", "this is a tg:Observation"),
            ("Thought", "react", "this is a tg:Thought"),
            ("Reflection", "react", "a thought is a tg:Reflection"),
            ("FanOut", "deadline", "this is a tg:FanOut"),
            ("SubagentCompletion", "deadline", "this is a tg:SubagentCompletion"),
            ("Synthesis", "deadline", "this is a tg:Synthesis"),
            ("Conclusion", "alone", "this is a tg:Conclusion"),
            ("Plan", "plan", "this is a tg:Plan"),
            ("StepResult", "plan", "this is a tg:StepResult"),
            ("Critique", "reflexion", "this is a tg:Critique"),
            ("Critique", "reflexion", "a reflection is a tg:Thought or a tg:Critique"),
            ("Reflection", "reflexion", "a critique is a tg:Reflection"),
            ("Comparison", "debate", "this is a tg:Comparison"),
            ("ApprovalRequest", "approvals", "this is a tg:ApprovalRequest"),
        )
    ),
    (
        "a thought that is no entity",
        "react",
        "DELETE { ?t a prov:Entity } WHERE { ?t a tg:Thought }",
        "a thought is a prov:Entity",
    ),
    (
        "a goal that is no entity",
        "deadline",
        "DELETE { ?g a prov:Entity } WHERE { ?f tg:subagentGoals ?g }",
        "a goal is a prov:Entity",
    ),
    # Properties of the trace where they do not belong
    *(
        (f"a stray property: {message}", trace, f"INSERT {{ {stray} }} WHERE {{ {where} }}", message)
        for trace, where, stray, message in (
            ("alone", "?n a tg:AgentQuestion", "?n tg:cost 1.0", "a session carries no"),
            ("alone", "?s prov:used ?n", "?n tg:cost 1.0", "a question carries no"),
            ("alone", "?n a prov:SoftwareAgent", "?n tg:cost 1.0", "an agent carries no"),
            ("alone", "?n a tg:RoutingDecision", "?n tg:status 'x'", "a routing decision carries no"),
            ("alone", "?n a tg:Decision", "?n tg:status 'x'", "a decision carries no"),
            ("react", "?n a tg:Analysis", "?n tg:status 'x'", "an iteration carries no"),
            ("react", "?n a tg:Observation", "?n tg:status 'x'", "an observation carries no"),
            ("react", "?n a tg:Thought", "?n tg:status 'x'", "a thought carries no"),
            ("deadline", "?n a tg:FanOut", "?n tg:status 'x'", "a fan-out carries no"),
            ("deadline", "?f tg:subagentGoals ?n", "?n tg:status 'x'", "a goal carries no"),
            ("deadline", "?n a tg:SubagentCompletion", "?n tg:cost 1.0", "a completion carries no"),
            ("deadline", "?n a tg:Synthesis", "?n tg:cost 1.0", "a synthesis carries no"),
            ("alone", "?n a tg:Answer", "?n tg:status 'x'", "a conclusion carries no"),
            ("plan", "?n a tg:Plan", "?n tg:status 'x'", "a plan carries no"),
            ("plan", "?n a tg:StepResult", "?n tg:status 'x'", "a step result carries no"),
            ("reflexion", "?n a tg:Critique", "?n tg:status 'x'", "a critique carries no"),
            ("debate", "?n a tg:Comparison", "?n tg:status 'x'", "a comparison carries no"),
            ("approvals", "?n a tg:ApprovalRequest", "?n tg:status 'x'", "an approval request carries no"),
        )
    ),
    # Waits for people
    (
        "a person's decision of nobody",
        "approvals",
        "DELETE { ?d prov:wasAttributedTo ?p } WHERE { ?d prov:wasAttributedTo ?p . ?p a prov:Person }",
        "a decision by a person is attributed to that person, and no other is",
    ),
    (
        "a person behind what nobody decided",
        "approvals",
        "INSERT { ?d prov:wasAttributedTo ?p } WHERE { ?d tg:decidedBy 'fallback' . ?p a prov:Person }",
        "a decision by a person is attributed to that person, and no other is",
    ),
    (
        "a decision about no call",
        "approvals",
        "DELETE { ?d tg:approvalId ?i } INSERT { ?d tg:approvalId 'another' } "
        "WHERE { ?d tg:decisionSubject 'approval' ; tg:approvalId ?i }",
        "a decision about a call that waited derives from that call, and is of its approval",
    ),
    (
        "a call that was open to nobody",
        "approvals",
        "DELETE { ?a tg:toolCandidate 'pay' } WHERE { ?a a tg:ApprovalRequest }",
        "waits for a person, and is none of the candidates",
    ),
    (
        "an agent that is neither",
        "approvals",
        "DELETE { ?p a prov:Person } WHERE { ?p a prov:Person }",
        "an agent is a prov:SoftwareAgent, or a prov:Person",
    ),
    # Plans and debates
    (
        "a step result of no plan",
        "plan",
        "DELETE { ?r prov:wasDerivedFrom ?p } WHERE { ?r a tg:StepResult ; prov:wasDerivedFrom ?p . ?p a tg:Plan }",
        "a step result derives from its plan",
    ),
    (
        "two results of one step",
        "plan",
        "DELETE { ?r tg:planIndex 1 } INSERT { ?r tg:planIndex 0 } WHERE { ?r tg:planIndex 1 }",
        "two results are of one step",
    ),
    (
        "a result of a step that was never planned",
        "plan",
        "DELETE { ?r tg:planIndex 1 } INSERT { ?r tg:planIndex 77 } WHERE { ?r tg:planIndex 1 }",
        "is in no plan of its session",
    ),
    (
        "a first plan with a reason to revise",
        "plan",
        "INSERT { ?p tg:reason 'x' } WHERE { ?p tg:revision 0 }",
        "a revision names what it revises and why, and a first plan neither",
    ),
    (
        "a comparison of nothing",
        "debate",
        "DELETE { ?c prov:wasDerivedFrom ?s } WHERE { ?c a tg:Comparison ; prov:wasDerivedFrom ?s }",
        "a comparison derives from the synthesis that read the answers",
    ),
    # Derivation
    (
        "PV-1: an answer out of nowhere",
        "alone",
        "DELETE { ?a prov:wasDerivedFrom ?x } WHERE { ?a a tg:Answer ; prov:wasDerivedFrom ?x }",
        "PV-1: no derivation leads from this node to the question of its session",
    ),
    (
        "PV-1: a chain that is cut in the middle",
        "deadline",
        "DELETE { ?f prov:wasDerivedFrom ?x } WHERE { ?f a tg:FanOut ; prov:wasDerivedFrom ?x }",
        "PV-1: no derivation leads from this conclusion to the question of the root session",
    ),
    (
        "a derivation from something that is not there",
        "alone",
        "INSERT { ?a prov:wasDerivedFrom <urn:trustgraph:agent:nobody/answer> } WHERE { ?a a tg:Answer }",
        "something derives from this node, and no prov:Entity of that name is told of",
    ),
    (
        "a derivation in a circle",
        "alone",
        "INSERT { ?r prov:wasDerivedFrom ?a } WHERE { ?a a tg:Answer . ?r a tg:RoutingDecision }",
        "a node derives from itself",
    ),
    (
        "a node from before its session",
        "alone",
        """DELETE { ?s prov:startedAtTime ?t } INSERT { ?s prov:startedAtTime "2026-01-01T00:00:00.300Z"^^xsd:dateTime }
        WHERE { ?s prov:startedAtTime ?t }""",
        "a node was generated before its session began, or after it ended",
    ),
    (
        "a session that ends before it begins",
        "alone",
        """DELETE { ?s prov:endedAtTime ?t } INSERT { ?s prov:endedAtTime "2025-01-01T00:00:00.000Z"^^xsd:dateTime }
        WHERE { ?s prov:endedAtTime ?t }""",
        "a session ended before it began",
    ),
    (
        "a node of another session",
        "alone",
        """DELETE { ?d prov:wasGeneratedBy ?s } INSERT { ?d prov:wasGeneratedBy <urn:trustgraph:agent:alone> }
        WHERE { ?d a tg:Decision ; prov:wasGeneratedBy ?s }""",
        "the IRI of a node lies below that of its session",
    ),
    (
        "an observation that does not go on from its iteration",
        "react",
        """DELETE { ?o prov:wasDerivedFrom ?i } INSERT { ?o prov:wasDerivedFrom ?r }
        WHERE { ?i tg:observation ?o . ?o prov:wasDerivedFrom ?i . ?r a tg:RoutingDecision }""",
        "an observation derives from its iteration",
    ),
    (
        "an observation of nothing",
        "react",
        "DELETE { ?i tg:observation ?o } WHERE { ?i tg:observation ?o }",
        "an observation is that of one iteration",
    ),
    (
        "an observation that does not derive from its source",
        "react",
        "DELETE { ?o prov:wasDerivedFrom ?x } WHERE { ?o tg:source ?x }",
        "an observation derives from its sources",
    ),
    (
        "a source that PROV tools do not see",
        "react",
        "DELETE { ?o prov:hadPrimarySource ?x } WHERE { ?o tg:source ?x }",
        "tg:source: ",
    ),
    (
        "a thought of nobody",
        "react",
        "DELETE { ?i tg:thought ?t } WHERE { ?i tg:thought ?t }",
        "a thought is that of one iteration or conclusion",
    ),
    (
        "a thought that derives from something else",
        "react",
        """DELETE { ?t prov:wasDerivedFrom ?i } INSERT { ?t prov:wasDerivedFrom ?r }
        WHERE { ?i tg:thought ?t . ?r a tg:RoutingDecision }""",
        "a thought derives from what it is the thought of",
    ),
    (
        "a goal of another fan-out",
        "nested",
        """DELETE { ?g prov:wasDerivedFrom ?f } INSERT { ?g prov:wasDerivedFrom ?other }
        WHERE { ?f tg:subagentGoals ?g . ?other a tg:FanOut FILTER (?other != ?f) }""",
        "a goal derives from the fan-out that has it",
    ),
    # Decisions
    (
        "PV-2: a choice that was no option",
        "alone",
        "DELETE { ?d tg:selected ?x } INSERT { ?d tg:selected 'astrology' } WHERE { ?d tg:selected ?x }",
        'PV-2: "astrology" was selected, and is none of the options',
    ),
    (
        "PV-2: a pattern that was no candidate",
        "alone",
        """DELETE { ?r tg:selectedPattern ?x } INSERT { ?r tg:selectedPattern <urn:trustgraph:agent-pattern:astrology> }
        WHERE { ?r tg:selectedPattern ?x }""",
        "PV-2: urn:trustgraph:agent-pattern:astrology was selected, and is none of the candidates",
    ),
    (
        "PV-2: a task type that was no candidate",
        "react",
        """DELETE { ?r tg:taskType ?x } INSERT { ?r tg:taskType <urn:trustgraph:agent-task-type:astrology> }
        WHERE { ?r tg:taskType ?x }""",
        "PV-2: urn:trustgraph:agent-task-type:astrology was selected",
    ),
    (
        "PV-2: a tool that was no candidate",
        "react",
        "DELETE { ?i tg:toolCandidate ?x } WHERE { ?i tg:toolCandidate ?x }",
        'PV-2: the tool "search" was called, is none of the candidates, and is told as no error',
    ),
    (
        "a model's decision without the model",
        "supervisor",
        "DELETE { ?d prov:wasAttributedTo ?m } WHERE { ?d a tg:Decision ; prov:wasAttributedTo ?m }",
        "a decision by the model is attributed to that model",
    ),
    (
        "an only option beside another",
        "react",
        "INSERT { ?d tg:option 'other' } WHERE { ?d tg:decidedBy 'only-option' }",
        "a decision for want of other options has one option, not 2",
    ),
    (
        "a routing out of no decision",
        "alone",
        """DELETE { ?r prov:wasDerivedFrom ?d } WHERE { ?r a tg:RoutingDecision ; prov:wasDerivedFrom ?d . ?d a tg:Decision }""",
        "a routing decision derives from the decision on the pattern",
    ),
    (
        "a step number of another iteration",
        "react",
        """DELETE { ?i tg:stepNumber ?n } INSERT { ?i tg:stepNumber 9 } WHERE { ?i tg:stepNumber ?n FILTER (?n = 1) }""",
        "the step number is that of the IRI",
    ),
    (
        "an error without a word",
        "react",
        "DELETE { ?o tg:toolError ?e } WHERE { ?o tg:toolError ?e }",
        "an observation has a tg:toolError if, and only if, it is a tg:Error",
    ),
    # Subagents
    (
        "a subagent without its parent",
        "deadline",
        "DELETE { ?s tg:parentSessionId ?p } WHERE { ?s a tg:AgentQuestion ; tg:parentSessionId ?p }",
        "a subagent names its parent session, its correlation and its sibling index, and was informed by the parent",
    ),
    (
        "a subagent of no goal",
        "deadline",
        "DELETE { ?q prov:wasDerivedFrom ?g } WHERE { ?f tg:subagentGoals ?g . ?q prov:wasDerivedFrom ?g }",
        "a subagent's question derives from a goal of its parent's fan-out under the same correlation id",
    ),
    (
        "a subagent that acts for nobody",
        "deadline",
        "DELETE { ?g prov:actedOnBehalfOf ?x } WHERE { ?g prov:actedOnBehalfOf ?x }",
        "a subagent's agent acts on behalf of its parent's agent",
    ),
    (
        "a subagent of another tree",
        "deadline",
        """DELETE { ?s tg:rootSessionId ?r } INSERT { ?s tg:rootSessionId 'other' }
        WHERE { ?s prov:wasInformedBy ?p ; tg:rootSessionId ?r }""",
        "a subagent has the root and the conversation of its parent",
    ),
    (
        "a conversation id that got lost",
        "supervisor",
        "DELETE { ?g tg:conversationId ?c } WHERE { ?f tg:subagentGoals ?g . ?g tg:conversationId ?c }",
        "the conversation id of the session is missing here",
    ),
    (
        "an end without a conclusion",
        "alone",
        "DELETE { ?a ?p ?o } WHERE { ?a a tg:Answer ; ?p ?o }",
        "a session that ended has a conclusion",
    ),
    (
        "an end without a completion",
        "deadline",
        "DELETE { ?c ?p ?o } WHERE { ?c a tg:SubagentCompletion ; ?p ?o ; tg:siblingIndex 0 }",
        "a subagent that ended has a completion",
    ),
    (
        "a conclusion without an end",
        "alone",
        "DELETE { ?s prov:endedAtTime ?t } WHERE { ?s prov:endedAtTime ?t }",
        "a session that has a conclusion has ended",
    ),
    # Fan-out and fan-in
    (
        "a goal too few",
        "deadline",
        "DELETE { ?f tg:subagentGoals ?g } WHERE { ?f tg:subagentGoals ?g FILTER (STRENDS(STR(?g), '/0')) }",
        "a fan-out expects 3 siblings, and has 2 goals",
    ),
    (
        "two fan-outs under one correlation id",
        "nested",
        """DELETE { ?f tg:correlationId ?c } INSERT { ?f tg:correlationId 'same' }
        WHERE { ?f a tg:FanOut ; tg:correlationId ?c }""",
        "two fan-outs have one correlation id",
    ),
    (
        "a deadline that has passed",
        "deadline",
        """DELETE { ?f tg:joinDeadline ?t } INSERT { ?f tg:joinDeadline "2000-01-01T00:00:00.000Z"^^xsd:dateTime }
        WHERE { ?f tg:joinDeadline ?t }""",
        "the deadline of a fan-out is not before its session began",
    ),
    (
        "FI-1: a fan-out that was forgotten",
        "supervisor",
        """DELETE { ?x ?p ?o } WHERE { ?x a tg:Synthesis ; tg:correlationId ?c ; ?p ?o .
        ?f a tg:FanOut ; tg:correlationId ?c ; tg:round 1 }""",
        "FI-1: the session was answered, and this fan-out of it has no synthesis",
    ),
    (
        "a fork that does not say what it went on from",
        "alone",
        "INSERT { ?s prov:wasInformedBy <urn:trustgraph:agent:other> } WHERE { ?s a tg:AgentQuestion }",
        "the question of a session that went on from another derives from what it went on from",
    ),
    (
        "FI-1: two syntheses",
        "deadline",
        """INSERT { <urn:trustgraph:agent:deadline-1/synthesis/again> ?p ?o } WHERE { ?x a tg:Synthesis ; ?p ?o }""",
        "FI-1: two syntheses of one tree have one correlation id",
    ),
    (
        "FI-3: a sibling that is lost",
        "deadline",
        "DELETE { ?x tg:missing ?s } WHERE { ?x tg:missing ?s }",
        "FI-3: 3 siblings were started, and 2 are accounted for",
    ),
    (
        "FI-2: complete, and something is missing",
        "deadline",
        "DELETE { ?x tg:joinCause ?c } INSERT { ?x tg:joinCause 'complete' } WHERE { ?x tg:joinCause ?c }",
        "FI-2: nothing is missing if, and only if, the wait ended because every sibling was complete",
    ),
    (
        "a synthesis of no fan-out",
        "deadline",
        """DELETE { ?x tg:correlationId ?c } INSERT { ?x tg:correlationId 'other' }
        WHERE { ?x a tg:Synthesis ; tg:correlationId ?c }""",
        "no fan-out of the same session, nor of one it was forked from, has the correlation id of this synthesis",
    ),
    (
        "a completion of another fan-out than its session",
        "deadline",
        """DELETE { ?x tg:siblingIndex ?i } INSERT { ?x tg:siblingIndex 2 }
        WHERE { ?x a tg:SubagentCompletion ; tg:siblingIndex ?i FILTER (?i = 0) }""",
        "a completion has the correlation, parent and index of its session",
    ),
    (
        "FI-3: one sibling counted twice",
        "deadline",
        """DELETE { ?x tg:siblingIndex ?i } INSERT { ?x tg:siblingIndex 1 }
        WHERE { ?x a tg:SubagentCompletion ; tg:siblingIndex ?i FILTER (?i = 0) }""",
        "FI-3: two completions are of one sibling",
    ),
    (
        "a completion beyond the last sibling",
        "deadline",
        """DELETE { ?x tg:siblingIndex ?i } INSERT { ?x tg:siblingIndex 7 }
        WHERE { ?x a tg:SubagentCompletion ; tg:siblingIndex ?i FILTER (?i = 0) }""",
        "no fan-out has the correlation id of this completion, or not so many siblings",
    ),
    (
        "a completion that claims an answer",
        "supervisor",
        "DELETE { ?x tg:status ?y } INSERT { ?x tg:status 'answered' } WHERE { ?x tg:status ?y }",
        'the status "answered" is not that of the session\'s conclusion',
    ),
    (
        "a dead letter called a timeout",
        "dead-letter",
        "DELETE { ?x tg:status ?y } INSERT { ?x tg:status 'timeout' } WHERE { ?x tg:status ?y }",
        'the status "timeout" is not that of the session\'s conclusion',
    ),
    (
        "a step told of in part",
        "alone",
        "DELETE { ?n tg:digest ?d } WHERE { ?n a tg:Conclusion ; tg:digest ?d }",
        "a step tells its record, its digest and its calls of one node, together",
    ),
    (
        "a step told of twice",
        "alone",
        "INSERT { ?n tg:stepRecord ?key ; tg:digest ?d ; tg:modelCalls 0 ; tg:toolCalls 0 } "
        "WHERE { ?m a tg:Conclusion ; tg:stepRecord ?key ; tg:digest ?d . ?n a tg:RoutingDecision }",
        "a step tells its record, its digest and its calls of one node, together",
    ),
    (
        "a step that is gone from the chain",
        "react",
        "DELETE { ?n ?p ?o } WHERE { ?n a tg:Analysis ; tg:stepNumber 1 ; ?p ?o "
        "FILTER (?p IN (tg:stepRecord, tg:digest, tg:modelCalls, tg:toolCalls)) }",
        "the chain of the session has no first step, or a gap: no node tells of the record before",
    ),
    (
        "tokens told twice",
        "deadline",
        "INSERT { ?r tg:inToken 120 } WHERE { ?r a tg:RoutingDecision }",
        "a completion says 275 tokens were spent, and the session's nodes say 395",
    ),
    (
        "a late mark that got lost",
        "deadline",
        "DELETE { ?x tg:late ?y } WHERE { ?x tg:late ?y }",
        "a completion is late if, and only if, the synthesis names its session as missing",
    ),
    (
        "a late mark on what was in time",
        "dead-letter",
        "INSERT { ?x tg:late true } WHERE { ?x a tg:SubagentCompletion }",
        "a completion is late if, and only if, the synthesis names its session as missing",
    ),
    (
        "a completion of no conclusion",
        "deadline",
        """DELETE { ?x prov:wasDerivedFrom ?a } INSERT { ?x prov:wasDerivedFrom ?r }
        WHERE { ?x a tg:SubagentCompletion ; prov:wasDerivedFrom ?a ; prov:wasGeneratedBy ?s . ?r a tg:RoutingDecision ; prov:wasGeneratedBy ?s }""",
        "a completion derives from the conclusion of its session",
    ),
    # Ends
    (
        "an answer that is an error",
        "alone",
        "INSERT { ?a a tg:Error } WHERE { ?a a tg:Answer }",
        "alone-1/answer: ",
    ),
    (
        "an error that was a final answer",
        "refused",
        """DELETE { ?a tg:terminationReason ?x } INSERT { ?a tg:terminationReason 'final-answer' }
        WHERE { ?a tg:terminationReason ?x }""",
        'the termination reason "final-answer" does not fit',
    ),
    (
        "an answer of subagents without a synthesis",
        "alone",
        """DELETE { ?a tg:terminationReason ?x } INSERT { ?a tg:terminationReason 'subagents-complete' }
        WHERE { ?a tg:terminationReason ?x }""",
        "what is answered from subagents derives from a synthesis",
    ),
    (
        "a confidence that is no number",
        "supervisor",
        "INSERT { ?a tg:confidence 'Legal: high' } WHERE { ?a a tg:Answer }",
        "tg:confidence: ",
    ),
    (
        "a source that was only read, and cited",
        "cited",
        "INSERT { ?a tg:consulted ?x } WHERE { ?a tg:cites ?x }",
        "an answer derives from what it cites, and has not only consulted it",
    ),
    (
        "an answer that rests on nothing, and cites",
        "cited",
        "INSERT { ?a tg:unsourced true } WHERE { ?a tg:cites ?x }",
        "an answer that rests on nothing that was read names and consulted no source",
    ),
    (
        "what was wasted beside the main node of a step",
        "wasted",
        "INSERT { ?c tg:wastedTokens 7 } WHERE { ?c a tg:SubagentCompletion }",
        "what was wasted at a step stands on its main node, and only there",
    ),
]
