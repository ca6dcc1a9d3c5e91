//! `make scale`: what fleets larger than this machine would do, simulated from what one step costs
//! on this one. `docs/scale.md` quotes the tables; `docs/performance.md` has the measurements.
//!
//! Everything that is assumed can be set: `make scale WITH="model=1.5 model-p95=6 round=0.005"`.

#[cfg(test)]
mod closed_form;
mod simulate;

use simulate::{Fleet, Load, Outcome, Time, simulate};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, String>;

/// What is assumed, with its meaning and its value unless given.
const ASSUMED: [(&str, f64, &str); 13] = [
    ("model", 2.0, "median of a model call, s"),
    ("model-p95", 8.0, "its 95th percentile, s"),
    ("round", 0.015, "median of a round with S3, s"),
    ("round-p95", 0.050, "its 95th percentile, s"),
    (
        "rounds",
        5.0,
        "rounds of a step with S3, one after the other",
    ),
    ("publish", 0.005, "median of a confirmed publish, s"),
    ("publish-p95", 0.015, "its 95th percentile, s"),
    ("publishes", 1.0, "publishes of a step, one after the other"),
    (
        "processor",
        0.003,
        "processor time of a step in its orchestrator, s",
    ),
    (
        "partition",
        0.000_2,
        "time a partition is busy with a step's request, s",
    ),
    (
        "concurrency",
        32.0,
        "steps that an orchestrator works at once",
    ),
    ("steps", 6.0, "steps of a run"),
    (
        "target",
        0.1,
        "longest wait for a slot accepted for 95 % of the steps, s",
    ),
];

/// The assumptions in force.
struct Assumed(BTreeMap<&'static str, f64>);

impl Assumed {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut values: BTreeMap<&'static str, f64> = ASSUMED
            .iter()
            .map(|(name, value, _)| (*name, *value))
            .collect();
        for argument in arguments {
            let value = argument.split_once('=').and_then(|(name, text)| {
                let value = text.parse().ok().filter(|value: &f64| *value > 0.0)?;
                Some((name, value))
            });
            let known = value.and_then(|(name, value)| Some((values.get_mut(name)?, value)));
            let Some((place, value)) = known else {
                let names: Vec<&str> = ASSUMED.iter().map(|(name, ..)| *name).collect();
                return Err(format!(
                    "`{argument}` is no assumption, expected NAME=NUMBER with a number above 0 and a name of {}",
                    names.join(", ")
                ));
            };
            *place = value;
        }
        Ok(Self(values))
    }

    fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn fleet(&self, orchestrators: usize, partitions: usize) -> Fleet {
        let latency = |name: &str| Time::LogNormal {
            median: self.get(name),
            p95: self.get(&format!("{name}-p95")),
        };
        Fleet {
            partitions,
            partition: Time::Exponential {
                mean: self.get("partition"),
            },
            orchestrators,
            concurrency: self.get("concurrency") as usize,
            processors: 1,
            processor: Time::Exponential {
                mean: self.get("processor"),
            },
            rounds: self.get("rounds") as usize,
            round: latency("round"),
            publishes: self.get("publishes") as usize,
            publish: latency("publish"),
            model: latency("model"),
        }
    }

    fn load(&self, steps_a_second: f64) -> Load {
        let steps = self.get("steps");
        // Long enough for many runs, one after the other.
        let run = steps * self.held();
        Load {
            runs_a_second: steps_a_second / steps,
            steps_a_run: steps as usize,
            seconds: (8.0 * run).max(40_000.0 / steps_a_second),
            seed: 1,
        }
    }

    /// How long a step holds a slot when nobody is in its way, in seconds.
    fn held(&self) -> f64 {
        let fleet = self.fleet(1, 1);
        fleet.model.mean() + fleet.rounds as f64 * fleet.round.mean() + fleet.processor.mean()
    }

    /// Fewer orchestrators cannot do it, whatever the chance.
    fn least(&self, steps_a_second: f64) -> usize {
        let slots = steps_a_second * self.held() / self.get("concurrency");
        let processors = steps_a_second * self.get("processor");
        slots.max(processors).ceil().max(1.0) as usize
    }

    /// Enough partitions that none is busy for more than half of its time.
    fn partitions(&self, steps_a_second: f64) -> usize {
        (steps_a_second * self.get("partition") / 0.5)
            .ceil()
            .max(1.0) as usize
    }
}

fn main() -> Result<()> {
    let assumed = Assumed::read(std::env::args().skip(1))?;
    println!("Assumed");
    for (name, _, about) in ASSUMED {
        println!("  {name:<12} {:>8}  {about}", assumed.get(name));
    }
    println!(
        "  A step holds a slot for {:.2} s if nobody is in its way.",
        assumed.held()
    );
    replicas(&assumed);
    load(&assumed);
    models(&assumed)?;
    partitions(&assumed);
    Ok(())
}

/// The fewest orchestrators that keep the wait below the target, and what they do then.
fn fewest(assumed: &Assumed, steps_a_second: f64) -> (usize, Outcome) {
    let mut orchestrators = assumed.least(steps_a_second);
    let load = assumed.load(steps_a_second);
    loop {
        let fleet = assumed.fleet(orchestrators, assumed.partitions(steps_a_second));
        let outcome = simulate(&fleet, &load);
        if outcome.wait_p95 <= assumed.get("target") {
            return (orchestrators, outcome);
        }
        orchestrators += (orchestrators / 50).max(1);
    }
}

fn millis(seconds: f64) -> f64 {
    seconds * 1_000.0
}

fn replicas(assumed: &Assumed) {
    println!("\nOrchestrators needed, by load");
    println!(
        "{:>8} {:>6} {:>13} {:>10} {:>8} {:>8} {:>10} {:>10} {:>10}",
        "steps/s",
        "least",
        "orchestrators",
        "partitions",
        "held",
        "busy",
        "wait mean",
        "wait p95",
        "run p95"
    );
    for steps in [1.0, 10.0, 100.0, 500.0, 1_000.0, 5_000.0] {
        let (orchestrators, outcome) = fewest(assumed, steps);
        println!(
            "{steps:>8} {:>6} {orchestrators:>13} {:>10} {:>6.0} % {:>6.0} % {:>7.1} ms {:>7.1} ms {:>8.1} s",
            assumed.least(steps),
            assumed.partitions(steps),
            outcome.held * 100.0,
            outcome.processors * 100.0,
            millis(outcome.wait_mean),
            millis(outcome.wait_p95),
            outcome.run_p95,
        );
    }
}

fn load(assumed: &Assumed) {
    let sized = 100.0;
    let orchestrators = assumed.least(sized);
    println!("\nOne fleet of {orchestrators} orchestrators, by load");
    println!(
        "{:>8} {:>10} {:>8} {:>8} {:>11} {:>11} {:>10}",
        "steps/s", "done/s", "held", "waited", "wait mean", "wait p95", "run p95"
    );
    let slots = orchestrators as f64 * assumed.get("concurrency");
    for share in [0.5, 0.7, 0.8, 0.9, 0.95, 1.05] {
        let steps =
            (slots / assumed.held()).min(orchestrators as f64 / assumed.get("processor")) * share;
        let fleet = assumed.fleet(orchestrators, assumed.partitions(steps));
        let mut load = assumed.load(steps);
        // The nearer the limit, the longer a queue takes to be as long as it gets.
        load.seconds *= 5.0;
        let outcome = simulate(&fleet, &load);
        println!(
            "{steps:>8.1} {:>10.1} {:>6.0} % {:>6.0} % {:>8.0} ms {:>8.0} ms {:>8.1} s",
            outcome.steps_a_second,
            outcome.held * 100.0,
            outcome.waited * 100.0,
            millis(outcome.wait_mean),
            millis(outcome.wait_p95),
            outcome.run_p95,
        );
    }
    println!("  (The last is more than they can do: the wait grows for as long as it lasts.)");
}

fn models(assumed: &Assumed) -> Result<()> {
    let steps = 1_000.0;
    println!(
        "\nOrchestrators for {steps} steps/s, by the model and by the steps each works at once"
    );
    println!(
        "{:>10} {:>10} {:>12} {:>14} {:>8} {:>8}",
        "model", "its p95", "concurrency", "orchestrators", "held", "busy"
    );
    for median in [0.2, 2.0, 10.0] {
        for concurrency in [16, 64, 256] {
            let given = [
                format!("model={median}"),
                format!("model-p95={}", median * 4.0),
                format!("concurrency={concurrency}"),
            ];
            let kept = ASSUMED
                .iter()
                .map(|(name, ..)| format!("{name}={}", assumed.get(name)));
            let other = Assumed::read(kept.chain(given))?;
            let (orchestrators, outcome) = fewest(&other, steps);
            println!(
                "{:>8.1} s {:>8.1} s {concurrency:>12} {orchestrators:>14} {:>6.0} % {:>6.0} %",
                median,
                median * 4.0,
                outcome.held * 100.0,
                outcome.processors * 100.0,
            );
        }
    }
    Ok(())
}

fn partitions(assumed: &Assumed) {
    println!("\nPartitions: how long a step's messages wait for theirs");
    print!("{:>8}", "steps/s");
    let counts = [1, 4, 16, 64];
    for count in counts {
        print!(" {:>14}", format!("{count} partitions"));
    }
    println!();
    for steps in [100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 20_000.0] {
        print!("{steps:>8}");
        for count in counts {
            let busy = steps * assumed.get("partition") / count as f64;
            if busy >= 1.0 {
                print!(" {:>14}", "too few");
                continue;
            }
            // Partitions alone: everything else has room.
            let fleet = Fleet {
                rounds: 0,
                publishes: 0,
                model: Time::Fixed(0.0),
                processor: Time::Fixed(0.0),
                concurrency: 1_000,
                ..assumed.fleet(1, count)
            };
            let load = Load {
                runs_a_second: steps,
                steps_a_run: 1,
                seconds: 200_000.0 / steps,
                seed: 1,
            };
            let wait = simulate(&fleet, &load).partition_wait;
            print!(" {:>11.2} ms", millis(wait));
        }
        println!();
    }
}

/// One thing at a time is drawn from one generator: the same seed gives the same tables.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_assumptions_give_the_same_outcome() -> Result<()> {
        let assumed = Assumed::read(std::iter::empty())?;
        let once = simulate(&assumed.fleet(4, 2), &assumed.load(30.0));
        let again = simulate(&assumed.fleet(4, 2), &assumed.load(30.0));
        assert_eq!(format!("{once:?}"), format!("{again:?}"));
        Ok(())
    }

    #[test]
    fn what_is_no_assumption_is_refused_by_its_name() {
        for wrong in ["modell=1", "model=fast", "model", "round=0"] {
            let refused = Assumed::read([wrong.to_owned()].into_iter());
            assert!(refused.is_err_and(|error| error.contains(wrong)));
        }
    }

    #[test]
    fn more_orchestrators_are_found_where_fewer_make_steps_wait() -> Result<()> {
        let assumed = Assumed::read(std::iter::empty())?;
        let (orchestrators, outcome) = fewest(&assumed, 100.0);
        assert!(outcome.wait_p95 <= assumed.get("target"));
        let fewer = assumed.fleet(assumed.least(100.0) - 1, 1);
        assert!(simulate(&fewer, &assumed.load(100.0)).wait_p95 > assumed.get("target"));
        assert!(orchestrators >= assumed.least(100.0));
        Ok(())
    }
}
