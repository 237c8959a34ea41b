//! Runs lives without faults, with one and with two, and with a world that is seen late.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::SignedDuration;

use crate::history::Lateness;
use crate::lives::{self, Life};
use crate::paused::{on_all_processors, on_paused_time};
use crate::point::{Fault, Place, Point, RequestKind, learn};
use crate::sample::{FILTER, Random, filter, is_long, selected};
use crate::view::{Illusion, Watched};
use crate::world::World;

/// How many runs the short form of a test has at most.
const SHORT_RUNS: usize = 700;

/// How many pairs of faults are sampled.
const PAIRS: usize = 250;
const PAIRS_LONG: usize = 20_000;

/// Between the parts of a name.
const AND: &str = " + ";

/// What disturbs a life.
#[derive(Debug, Clone, Default)]
struct Disturbance {
    points: Vec<Point>,
    illusions: Vec<(String, Illusion)>,
}

impl Disturbance {
    fn name(&self) -> String {
        let points = self.points.iter().map(ToString::to_string);
        let illusions = self.illusions.iter().map(|(step, illusion)| format!("{step} / {illusion}"));
        let all: Vec<String> = points.chain(illusions).collect();
        if all.is_empty() { "without a fault".to_owned() } else { all.join(AND) }
    }

    fn begin(&self, world: &Arc<World>, step: &str) {
        self.points.iter().filter(|point| point.place.step == step).for_each(|point| {
            point.arm(world);
        });
        for (_, illusion) in self.illusions.iter().filter(|(of, _)| of == step) {
            tokio::spawn(illusion.clone().play(world.clone()));
        }
    }

    /// For how long a replica may act on what it saw before. One whose watch is silent notices that only after a while.
    fn lateness(&self) -> Lateness {
        let is_read = |point: &Point| matches!(point.place.kind.verb, "watch" | "list" | "get");
        let is_blind = !self.illusions.is_empty() || self.points.iter().any(is_read);
        Lateness(SignedDuration::from_secs(if is_blind { 60 } else { 2 }))
    }

    /// How long a step may take. A clock that is set back by an hour delays what waits for it by an hour.
    fn timeout(&self) -> Duration {
        let is_clock = |illusion: &(String, Illusion)| matches!(illusion.1, Illusion::Clock(_));
        Duration::from_secs(if self.illusions.iter().any(is_clock) { 3 * 3600 } else { 900 })
    }
}

/// A life with what disturbs it.
#[derive(Clone)]
struct Run {
    life: Life,
    disturbance: Disturbance,
}

impl Run {
    fn name(&self) -> String {
        format!("{}: {}", self.life.name, self.disturbance.name())
    }
}

/// What a run has shown.
#[derive(Default)]
struct Outcome {
    violations: Vec<String>,
    /// How many of its faults met a request.
    met: usize,
    requests: BTreeMap<(String, RequestKind), u64>,
    /// The fields of `spec.drain` that it set.
    options: BTreeSet<String>,
    history: String,
}

fn run(run: &Run) -> Outcome {
    let Run { life, disturbance } = run.clone();
    let (lateness, timeout) = (disturbance.lateness(), disturbance.timeout());
    let is_restored =
        disturbance.illusions.iter().any(|(_, illusion)| matches!(illusion, Illusion::Restored(_)));
    let scripted = async move {
        let hook = move |world: &Arc<World>, step: &str| disturbance.begin(world, step);
        let world = World::new((life.setup)(), timeout, Box::new(hook)).await;
        let mut done = (life.run)(world.clone()).await;
        if done.is_ok() && is_restored {
            world.pass(60).await;
            done = world.stop_all().await;
        }
        let mut violations: Vec<String> = done.err().into_iter().collect();
        if violations.is_empty() {
            // What comes late may still do harm, and what was restored has to end again.
            world.pass(90).await;
            let before = world.at_end();
            violations.extend(world.check_end(|node| Some(before.get(node).cloned().unwrap_or_default())));
        }
        violations.extend(world.check_history(lateness));
        let history = if violations.is_empty() { String::new() } else { world.log() };
        Outcome {
            violations,
            met: world.points_met(),
            requests: learn(&world),
            options: world.options(),
            history,
        }
    };
    on_paused_time(scripted).unwrap_or_else(|panic| Outcome { violations: vec![panic], ..Outcome::default() })
}

/// Runs each on a runtime of its own, as many at once as there are processors.
fn run_all(all: &[Run]) -> Vec<(String, Outcome)> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    on_all_processors(|_| {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(one);
            results.lock().unwrap().push((one.name(), outcome));
        }
    });
    results.into_inner().unwrap()
}

/// A life and how often it makes each kind of request in each step.
struct Learned {
    life: Life,
    requests: BTreeMap<(String, RequestKind), u64>,
}

impl Learned {
    /// Runs the lives that the filter may select without faults.
    fn all() -> Vec<Self> {
        let is_meant = |life: &Life| {
            filter().is_none_or(|wanted| {
                !wanted.contains(": ") || wanted.starts_with(&format!("{}: ", life.name))
            })
        };
        let lives: Vec<Life> = lives::all().into_iter().filter(is_meant).collect();
        let runs: Vec<Run> =
            lives.iter().map(|life| Run { life: *life, disturbance: Disturbance::default() }).collect();
        let mut outcomes: BTreeMap<String, Outcome> = run_all(&runs).into_iter().collect();
        let learned = runs.iter().map(|run| {
            let requests = outcomes.get_mut(&run.name()).map(|outcome| std::mem::take(&mut outcome.requests));
            Self { life: run.life, requests: requests.unwrap_or_default() }
        });
        let learned = learned.collect();
        check(outcomes.into_iter().collect());
        learned
    }

    /// The steps, without what happens before the first one.
    fn steps(&self) -> BTreeSet<&String> {
        self.requests.keys().map(|(step, _)| step).filter(|step| !step.is_empty()).collect()
    }

    fn watches(&self) -> BTreeSet<Watched> {
        let kinds = self.requests.keys().map(|(_, kind)| kind).filter(|kind| kind.verb == "watch");
        kinds.map(|kind| Watched { group: kind.group.clone(), resource: kind.resource.clone() }).collect()
    }

    /// Each kind of request in each step: its first occurrence, or all.
    fn places(&self, all: bool) -> Vec<Place> {
        let in_steps = self.requests.iter().filter(|((step, _), _)| !step.is_empty());
        let places = in_steps.flat_map(|((step, kind), count)| {
            (1..=if all { *count } else { 1 }).map(|nth| Place {
                step: step.clone(),
                kind: kind.clone(),
                nth,
            })
        });
        places.collect()
    }

    fn run(&self, disturbance: Disturbance) -> Run {
        Run { life: self.life, disturbance }
    }
}

/// Fails if a run violates an invariant, with what replays it.
fn check(outcomes: Vec<(String, Outcome)>) {
    let broken: Vec<(String, Outcome)> =
        outcomes.into_iter().filter(|(_, outcome)| !outcome.violations.is_empty()).collect();
    for (at, (name, outcome)) in broken.iter().enumerate() {
        eprintln!("\n{name}\n  {}", outcome.violations.join("\n  "));
        eprintln!("  replay: {FILTER}='{name}' cargo test -p nm-worlds --test faults");
        if at < 2 {
            eprintln!("{}", outcome.history);
        }
    }
    assert!(broken.is_empty(), "{} runs violate an invariant", broken.len());
}

fn run_and_check(what: &str, of: usize, runs: &[Run]) {
    let began = Instant::now();
    let outcomes = run_all(runs);
    let met = outcomes.iter().filter(|(_, outcome)| outcome.met > 0).count();
    eprintln!("{what}: {} of {of} runs, {met} disturbed, in {:.1?}", runs.len(), began.elapsed());
    check(outcomes);
}

/// Each fault at each place, with what has to be in a sample.
fn single_faults(learned: &[Learned], all: bool) -> Vec<((RequestKind, Fault), Run)> {
    let points = learned.iter().flat_map(|learned| {
        learned.places(all).into_iter().flat_map(move |place| {
            Fault::ALL.map(|fault| {
                let point = Point { place: place.clone(), fault };
                let facet = (place.kind.clone(), fault);
                (facet, learned.run(Disturbance { points: vec![point], ..Disturbance::default() }))
            })
        })
    });
    points.collect()
}

/// Each illusion in each step, with what has to be in a sample.
fn illusions(learned: &[Learned]) -> Vec<(Illusion, Run)> {
    let illusions = learned.iter().flat_map(|learned| {
        let watches = learned.watches();
        learned.steps().into_iter().flat_map(move |step| {
            Illusion::all(&watches).into_iter().map(move |illusion| {
                let illusions = vec![(step.clone(), illusion.clone())];
                (illusion, learned.run(Disturbance { illusions, ..Disturbance::default() }))
            })
        })
    });
    illusions.collect()
}

#[test]
fn every_life_survives_each_fault_at_each_of_its_requests() {
    let learned = Learned::all();
    let all = single_faults(&learned, is_long() || filter().is_some());
    let kinds: BTreeSet<&RequestKind> = all.iter().map(|((kind, _), _)| kind).collect();
    eprintln!("{} lives make {} kinds of requests", learned.len(), kinds.len());
    let of = all.len();
    run_and_check("one fault", of, &selected(all, SHORT_RUNS, Run::name));
}

#[test]
fn every_life_survives_pairs_of_faults() {
    let learned = Learned::all();
    let mut runs = Vec::new();
    if let Some((life, points)) = filter().as_deref().and_then(|wanted| wanted.split_once(": ")) {
        let learned = learned.iter().filter(|learned| learned.life.name == life);
        runs.extend(learned.filter_map(|learned| replayed_pair(learned, points)));
    } else if filter().is_none() {
        let mut random = Random::new();
        let places: Vec<Vec<Place>> = learned.iter().map(|learned| learned.places(true)).collect();
        for _ in 0..if is_long() { PAIRS_LONG } else { PAIRS } {
            let at = random.below(learned.len());
            let mut point = || Point {
                place: places[at][random.below(places[at].len())].clone(),
                fault: Fault::ALL[random.below(Fault::ALL.len())],
            };
            let points = vec![point(), point()];
            runs.push(learned[at].run(Disturbance { points, ..Disturbance::default() }));
        }
    }
    run_and_check("pairs of faults", runs.len(), &runs);
}

/// The pair of this name.
fn replayed_pair(learned: &Learned, name: &str) -> Option<Run> {
    let parts: Vec<&str> = name.split(AND).collect();
    let points = learned
        .places(true)
        .into_iter()
        .flat_map(|place| Fault::ALL.map(|fault| Point { place: place.clone(), fault }));
    let mut found: Vec<Point> = points.filter(|point| parts.contains(&&*point.to_string())).collect();
    found.truncate(parts.len());
    let disturbance = Disturbance { points: found, ..Disturbance::default() };
    (parts.len() == 2 && !disturbance.points.is_empty()).then(|| learned.run(disturbance))
}

#[test]
fn every_life_survives_seeing_the_world_late_and_wrong_clocks() {
    let all = illusions(&Learned::all());
    let of = all.len();
    run_and_check("late views", of, &selected(all, SHORT_RUNS, Run::name));
}

/// The runs that violated an invariant once.
const FAILED_ONCE: [&str; 7] = [
    // The lease was created again after another replica had released the node, and nobody deleted it.
    "cordoned_before: start / create leases.coordination.k8s.io #1 / LeadershipLostAndLate",
    // The leader ignored a maintenance that it had released, and that was there again.
    "drained: stop / restore 60 at 3000",
    // The list showed a maintenance that was gone, and its node was cordoned again.
    "drained: stop / nodemaintenances.nodemaintenance.medik8s.io / StaleTakeover",
    // The late status of a former leader replaced the record of a restart, which was requested again.
    "surge_undone: start / patch nodemaintenances/status.nodemaintenance.medik8s.io #1 / LeadershipLostAndLate",
    // The node in the cache was from before a restore, and the maintenance was not.
    "keeps_returning: stop / restore 20 at 1000",
    // A restore undid the restart of a Deployment, and the pod was Surging forever.
    "surged: start / restore 150 at 700",
    // A restore brought the cordon back while the end of the evacuations was awaited, and the finalizer was removed.
    "stopped_while_scheduling: stop / restore 20 at 1000",
];

#[test]
fn what_failed_once_does_not_fail_again() {
    if filter().is_some() {
        return;
    }
    let learned = Learned::all();
    let single = single_faults(&learned, true).into_iter().map(|(_, run)| run);
    let mut runs: Vec<Run> = single.chain(illusions(&learned).into_iter().map(|(_, run)| run)).collect();
    runs.retain(|run| FAILED_ONCE.contains(&&*run.name()));
    assert_eq!(runs.len(), FAILED_ONCE.len(), "each is still a run");
    run_and_check("failed once", runs.len(), &runs);
}

#[test]
fn every_option_of_a_drain_is_in_a_life() {
    let crd = nm_tests::manifests::read("crd.yaml");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let options: BTreeSet<&String> =
        schema["properties"]["drain"]["properties"].as_object().unwrap().keys().collect();
    let runs: Vec<Run> =
        lives::all().into_iter().map(|life| Run { life, disturbance: Disturbance::default() }).collect();
    let outcomes = run_all(&runs);
    let used: BTreeSet<&String> = outcomes.iter().flat_map(|(_, outcome)| &outcome.options).collect();
    assert_eq!(used, options);
}
