//! Siblings that are counted in a dataset of their own.

use super::{JOIN, past_the_records};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::tg;
use agentfleet_tests::directed::Stage;
use agentfleet_tests::effect::Verb::{Chat, Erase, Insert};
use agentfleet_tests::effect::When::{After, Before};
use agentfleet_tests::queues::Role::{Deadlines, FanIn, Orchestrator};
use agentfleet_tests::scenario::Scenario;
use agentfleet_tests::sim::Engine;

/// A supervisor that has fanned out to three subagents, which are counted apart.
fn fanned_out() -> Stage {
    let scenario = Scenario {
        coordination: true,
        ..Scenario::new().supervisor("r0", 3)
    };
    let mut stage = Stage::asked(scenario, Engine::DISTRIBUTED);
    stage.work(Orchestrator, "r0 0");
    stage
}

// 38
#[test]
fn a_sibling_that_is_forgotten_before_its_message_is_looked_at_is_marked_late() {
    let mut stage = fanned_out();
    stage.work(Orchestrator, "r0.0 0");
    stage.work(FanIn, "r0.0 0 completion");
    let child = stage.give(Orchestrator, 0, "r0.1 0");
    stage.run_to(child, Before, Chat, "");
    stage.pass(JOIN);
    let deadline = stage.give(Deadlines, 0, "r0 0 join");
    past_the_records(&mut stage, deadline);
    stage.finish(child);
    // It has looked for late ones, and found none.
    stage.run_to(deadline, Before, Erase, "");
    let slips_in = stage.give(FanIn, 1, "r0.1 0 completion");
    stage.run_to(slips_in, After, Insert, "counted");
    stage.finish(deadline);
    let completion = uris::completion(&stage.session("r0.1"));
    assert!(stage.objects(&completion, tg::LATE).is_empty());
    stage.finish(slips_in);
    assert_eq!(stage.objects(&completion, tg::LATE), ["true"]);
    stage.end();
}

// 38
#[test]
fn a_fan_out_is_forgotten_by_whoever_comes_after_a_crash() {
    let mut stage = fanned_out();
    for child in ["r0.0", "r0.1", "r0.2"] {
        stage.work(Orchestrator, &format!("{child} 0"));
    }
    stage.work(FanIn, "r0.0 0 completion");
    stage.work(FanIn, "r0.1 0 completion");
    let last = stage.give(FanIn, 0, "r0.2 0 completion");
    stage.run_to(last, Before, Erase, "");
    stage.crash(last);
    assert!(stage.verdict("r0", 0).is_some());
    assert!(stage.sim.with(|world| !world.counted.is_empty()));
    stage.run_all();
    assert!(stage.sim.with(|world| world.counted.is_empty()));
    stage.end();
    assert_eq!(stage.count("syntheses"), 1);
}
