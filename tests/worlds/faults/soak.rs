//! A soak: hours of random lives on paused time, one after the other and side by side, with requests that fail. One replica leads
//! all the time, so whatever it forgets to end or to drop adds up.
//!
//! `NM_SOAK_HOURS` is how many hours pass; what the process holds is printed for each.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use kube_sandbox::faults::RuleId;
use kube_sandbox::store::Key;
use kube_sandbox::workload::{App, Kind};
use nm_tests::programs::memory;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::history::Lateness;
use crate::point::{Fault, Place, Point, RequestKind, learn};
use crate::sample::Random;
use crate::world::{Done, MAINTENANCES, Setup, World};

/// How many hours pass without the variable: the second one is compared with the first.
const SHORT_HOURS: u64 = 2;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

const NODES: usize = 4;

/// Faults after which the same replica goes on, and its request has an end.
const FAULTS: [Fault; 10] = [
    Fault::Conflict,
    Fault::Invalid,
    Fault::TooManyRequests,
    Fault::Throttled,
    Fault::Internal,
    Fault::Unavailable,
    Fault::Timeout,
    Fault::TimeoutAfterEffect,
    Fault::LostBefore,
    Fault::LostAfter,
];

/// By so many tasks the process may differ from one hour to the next: watches of the nodes that were used last.
const TASKS: usize = 12;

/// The budget of an app never allows an eviction, so each surges.
fn drains() -> [Value; 4] {
    [
        json!({"surge": "WhenBlocked"}),
        json!({"surge": "WhenBlocked", "gracePeriodSeconds": 1}),
        json!({"surge": "WhenBlocked", "order": "PriorityAscending"}),
        json!({"surge": "WhenBlocked", "timeoutSeconds": 600, "returningPods": "Wait"}),
    ]
}

/// What happens during a maintenance.
#[derive(Clone, Copy)]
enum Turn {
    Drained,
    StoppedMidway,
    LatePod,
    Uncordoned,
    SideBySide,
}

#[test]
fn what_a_leader_holds_does_not_grow_in_hours_of_random_lives() {
    let hours = std::env::var("NM_SOAK_HOURS").map_or(SHORT_HOURS, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(soak(hours));
}

async fn soak(hours: u64) {
    let setup = Setup { nodes: NODES, max_requests: usize::MAX, ..Setup::default() };
    let world = World::new(setup, std::time::Duration::from_secs(900), Box::new(|_, _| ())).await;
    for (name, replicas, budget) in [
        ("web", 6, json!({"maxUnavailable": 1})),
        ("api", 3, json!({"minAvailable": "50%"})),
        ("db", 1, json!({"minAvailable": 1})),
    ] {
        let app = App::new(Kind::Deployment, "default", name).replicas(replicas).budget(budget);
        app.create(world.sandbox.cluster()).unwrap();
    }
    App::new(Kind::DaemonSet, "kube-system", "agent").create(world.sandbox.cluster()).unwrap();
    world.pass(10).await;
    world.step("soak");
    let (mut random, mut lives, mut faults) = (Random::new(), 0, 0);
    let mut first = None;
    for hour in 1..=hours {
        let began = world.now();
        while world.now().duration_since(began) < HOUR {
            lives += 1;
            let rule = arm(&world, &mut random);
            if let Err(violation) = live(&world, &mut random, lives).await {
                panic!("hour {hour}, life {lives}: {violation}\n{}", world.log());
            }
            rule.inspect(|rule| world.sandbox.faults().remove(*rule));
            world.pass(30 + random.seconds(60)).await;
        }
        // Nothing is in flight any more.
        world.pass(120).await;
        faults = world.points_met();
        let before = world.before();
        let mut violations = world.check_end(|node| before.get(node).cloned());
        violations.extend(world.check_history(Lateness(SignedDuration::from_secs(60))));
        assert!(violations.is_empty(), "hour {hour}: {violations:#?}\n{}", world.log());
        world.forget();
        world.sandbox.faults().forget_history();
        let tasks = Handle::current().metrics().num_alive_tasks();
        let resident = memory(std::process::id(), "VmRSS").unwrap_or_default() / 1_048_576;
        eprintln!("hour {hour}: {lives} lives, {faults} faults met a request, {tasks} tasks, {resident} MiB");
        let first = *first.get_or_insert(tasks);
        assert!(tasks <= first + TASKS, "{tasks} tasks after {hour} hours, {first} after the first");
    }
    assert!(lives > 0 && faults > 0);
}

/// Lets a request of a kind that was sent before fail, now and then.
fn arm(world: &Arc<World>, random: &mut Random) -> Option<RuleId> {
    let kinds: BTreeSet<RequestKind> = learn(world).into_keys().map(|(_, kind)| kind).collect();
    // With about twelve kinds, half of the lives have no fault.
    let kind = kinds.into_iter().nth(random.below(24))?;
    let nth = 1 + random.seconds(2);
    let place = Place { step: "soak".to_owned(), kind, nth };
    Some(Point { place, fault: FAULTS[random.below(FAULTS.len())] }.arm(world))
}

/// A maintenance of a node, until nothing is left of it.
async fn live(world: &Arc<World>, random: &mut Random, number: u64) -> Done {
    let (name, at) = (format!("m-{number}"), random.below(NODES));
    let node = node_name(at);
    let turns = [Turn::Drained, Turn::StoppedMidway, Turn::LatePod, Turn::Uncordoned, Turn::SideBySide];
    let turn = turns[random.below(turns.len())];
    world.start(&name, &node, drains()[random.below(drains().len())].clone()).await;
    match turn {
        Turn::StoppedMidway => world.pass(random.seconds(20)).await,
        Turn::Drained => drained(world, &name).await?,
        Turn::LatePod => {
            drained(world, &name).await?;
            let late = App::new(Kind::Pod, "default", &format!("late-{number}")).node_name(&node);
            late.create(world.sandbox.cluster()).unwrap();
            world.pass(20).await;
        }
        Turn::Uncordoned => {
            world.pass(random.seconds(5)).await;
            let uncordoned = json!({"spec": {"unschedulable": null}});
            world.patch(&format!("/api/v1/nodes/{node}"), uncordoned).await;
            drained(world, &name).await?;
        }
        Turn::SideBySide => {
            let other = format!("{name}-beside");
            world.start(&other, &node_name((at + 1) % NODES), drains()[0].clone()).await;
            drained(world, &other).await?;
            world.stop(&other).await?;
        }
    }
    world.stop_all().await
}

fn node_name(at: usize) -> String {
    format!("node-{:02}", at + 1)
}

/// Waits until a maintenance is drained, or has ended by itself after that.
async fn drained(world: &World, name: &str) -> Done {
    world
        .until(&format!("{name} is drained"), |state| {
            state
                .get(&MAINTENANCES, &Key::cluster(name))
                .is_none_or(|found| found["status"]["phase"] == "Succeeded")
        })
        .await
}
