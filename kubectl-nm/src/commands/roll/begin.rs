//! `kubectl nm roll NODE...`: plans the maintenance of all nodes of a roll, and runs it.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nm_core::args::duration;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects::{self, Permission};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::interaction::progress;
use nm_core::leader::gap;
use nm_core::maintenance::roll::RollStanding;
use nm_core::maintenance::roll_window::Windows;
use nm_core::maintenance::start::{self, Started};
use nm_core::maintenance::uid;
use nm_core::plan::cluster_snapshot::ClusterSnapshot;
use nm_core::plan::cost::{self, DrainCost};
use nm_core::plan::harm::{self, Harm, harms};
use nm_core::plan::planning::Planning;
use nm_core::terminal::output::Output;
use nm_core::terminal::table;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::error::RollError;
use nm_roll::health;
use nm_roll::in_cluster::runner_job;
use nm_roll::job;
use nm_roll::record::{self, LABEL, NODE, NodeRecord, Roll, RollRecord, Runner, SETTINGS, roll_name};
use nm_roll::settings::{NodeAction, RollSettings};
use nm_roll::store;
use nm_roll::waves::{NodeRole, PoolNode, waves};
use nm_shared::cluster::{node, pod};
use nm_shared::forecast::PodOutcome;
use nm_shared::gate::etcd::EtcdRole;
use nm_shared::{DrainSpec, NodeMaintenance};

use super::args::{BeginArgs, GivenActions};
use super::definition::check_definition;
use super::free::check_free;
use super::in_cluster;
use super::needed;
use super::run::{report_windows, run as run_roll, this_runner};
use crate::commands::plan::answers;

const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) async fn run(
    args: BeginArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    check_flags(&args, out)?;
    let namespace = if args.in_cluster { Some(runner_job::NAMESPACE) } else { namespace };
    let given = GivenActions::read(&args.around, args.run.as_ref(), args.job.as_ref(), namespace)?;
    for action in given.all().filter(|_| args.in_cluster) {
        if let NodeAction::Job(job) = action {
            in_cluster::check_job(job)?;
        }
    }
    let drain = drain(&args, &given);
    let message = || format!("asking {} about nodes and pods", cluster.server());
    let read = async {
        let (names, others) = needed::names(&args.nodes, &args.needs, cluster).await?;
        let planning = Planning::read(names.clone(), Some(drain.clone()), cluster, Timestamp::now()).await?;
        Ok::<_, Error>((names, others, planning))
    };
    let (names, others, planning) = progress::during(out, message, read).await?;
    if needed::is_none(&names, others, out) {
        return Ok(Exit::Done);
    }
    let snapshot = &planning.snapshot;
    let by_time = || Timestamp::now().strftime("roll-%Y%m%d-%H%M%S").to_string();
    let name = args.name.clone().unwrap_or_else(by_time);
    let waves = waves(pool(&names, snapshot, cluster).await?, args.waves.as_ref());
    let settings = settings(&args, given, &waves);
    check_free(&name, &names, &snapshot.maintenances, Timestamp::now())?;
    let runner = in_cluster::planned(&args, &name, &settings, cluster).await?;
    let mut wanted = objects(&name, &args, &settings, &drain, &waves);
    check_jobs(&name, &settings, wanted.first(), cluster).await?;
    let forecasts = if args.no_plan {
        RollForecast::default()
    } else {
        forecasts(&planning, &waves, &settings, args.dry_run, cluster, out).await?
    };
    print_waves(&waves, &forecasts, args.dry_run, out)?;
    let harms = lines_about_harms(&forecasts, &args, cluster).await;
    let runs = settings.describe_actions();
    if args.dry_run {
        if let Some(runs) = &runs {
            out.data(&Line::new(format!("for each node: {runs}")))?;
        }
        harms.iter().try_for_each(|line| out.data_with_commands(line))?;
    }
    in_cluster::report_order(&settings, out);
    report_windows(&settings.windows, out);
    for unknown in &snapshot.unknown {
        out.message(&Line::new(format!("warning: unknown: {unknown}")));
    }
    warn_of_missing_permissions(cluster, out).await;
    if args.dry_run {
        return Ok(Exit::Done);
    }
    let place = if args.in_cluster { " in the cluster" } else { "" };
    let (nodes, at_once) = (counted(names.len(), "node"), settings.at_once());
    let what = format!("Roll {nodes}{place}, at most {at_once} at once");
    let question = Question {
        what: &what,
        cluster: cluster.context(),
        nodes: &names,
        reason: args.request.reason(),
        runs: runs.as_deref(),
        harms: &harms,
        slow: &[],
        unknown: forecasts.unknown.as_ref(),
        is_late: false,
    };
    question.ask(args.yes, out)?;

    // The answer may have taken its time.
    check_free(&name, &names, &cluster.maintenances().await?, Timestamp::now())?;
    check_definition(&mut wanted, &args, cluster, out).await?;
    let created = create(&wanted, &name, cluster, out).await?;
    // The pod of the Job claims the roll itself.
    let me = runner.is_none().then(this_runner);
    let claim = |roll: &Roll, record| Ok(claim(roll, record, &settings, me.as_ref())?);
    let claimed = store::update(cluster, &name, claim).await;
    let refusal = claimed.as_ref().err().and_then(Error::above);
    if let Some(RollError::Exists { .. } | RollError::OtherSettings(_)) = refusal {
        // Somebody else begins it: it must not have nodes of this one.
        delete(&created, cluster, out).await?;
    }
    let (roll, record) = claimed?;
    if let Some(job) = runner {
        if let Err(error) = in_cluster::ensure(cluster, &job, args.runner_image.as_deref(), None).await {
            delete(&created, cluster, out).await?;
            return Err(error);
        }
        out.data(&Line::new(format!("Roll {name} starts in the cluster: {}.", runner_job::title(&name))))?;
        out.hint(&format!("`kubectl nm roll watch {name}` shows its progress"));
        return Ok(Exit::Done);
    }
    out.message(&Line::new(format!("Roll {name} starts.")));
    run_roll(&roll, record, None, &args.output, cluster, out).await
}

/// Whether the flags fit together.
fn check_flags(args: &BeginArgs, out: &Output) -> Result<(), RollError> {
    if args.confirm && !args.dry_run && !out.can_ask() {
        return Err(RollError::NoTerminal);
    }
    let on_this_computer = [
        ("--run", args.run.is_some()),
        ("--before", args.around.before.is_some()),
        ("--after", args.around.after.is_some()),
        ("--confirm", args.confirm),
    ];
    if let Some((flag, _)) = on_this_computer.into_iter().find(|(_, is_given)| args.in_cluster && *is_given) {
        return Err(RollError::NeedsComputer(flag));
    }
    if args.recovery_timeout <= args.min_ready {
        let [recovery, min_ready] = [args.recovery_timeout, args.min_ready].map(duration::show);
        return Err(RollError::ShortRecovery { recovery, min_ready });
    }
    Ok(())
}

/// Lets the API server check the Jobs of the first node, so that no node is drained for a Job that is refused.
async fn check_jobs(
    name: &str,
    settings: &RollSettings,
    first: Option<&NodeMaintenance>,
    cluster: &Cluster,
) -> Result<(), Error> {
    for (step, action) in settings.actions() {
        if let (NodeAction::Job(template), Some(first)) = (action, first) {
            let record = NodeRecord { step, ..NodeRecord::planned(0, 0, Timestamp::now()) };
            job::check_creation(cluster, &job::of_node(template, name, &first.spec.node_name, &record))
                .await?;
        }
    }
    Ok(())
}

/// What the gates of the roll cannot check, as far as is known.
async fn warn_of_missing_permissions(cluster: &Cluster, out: &mut Output) {
    let missing = missing_permissions(cluster).await;
    if !missing.is_empty() {
        out.message(&Line::new(format!(
            "warning: the roll cannot check that nodes and workloads are healthy again: you may not {}",
            missing.join(", ")
        )));
    }
}

/// The record of a roll that begins: this program runs it, unless somebody else has begun a roll of the same name. Only
/// these settings are run, because others may write those in the objects.
fn claim(
    roll: &Roll,
    record: RollRecord,
    settings: &RollSettings,
    me: Option<&Runner>,
) -> Result<RollRecord, RollError> {
    if let Some(other) = &roll.record {
        let standing = other.runner.as_ref().map(|runner| RollStanding::Running(runner.who.clone()));
        return Err(RollError::Exists { name: roll.name.clone(), standing });
    }
    if !roll.has_only(settings) {
        return Err(RollError::OtherSettings(roll.name.clone()));
    }
    Ok(RollRecord {
        runner: me.cloned(),
        began: Some(Timestamp::now()),
        nodes: record::node_names(roll),
        ..record
    })
}

async fn pool(
    names: &[String],
    snapshot: &ClusterSnapshot,
    cluster: &Cluster,
) -> Result<Vec<PoolNode>, Error> {
    let Some(nodes) = &snapshot.nodes else {
        // The gates read them; this returns the refusal.
        cluster.node_names(None).await?;
        return Ok(Vec::new());
    };
    let etcd = EtcdRole::among(nodes);
    let pool = nodes.iter().filter(|node| names.iter().any(|name| name == node::name(node)));
    Ok(pool
        .map(|node| PoolNode {
            name: node::name(node).to_owned(),
            zone: node.labels().get(ZONE).cloned(),
            role: NodeRole::of(node, etcd),
            pods: pods(node, snapshot),
        })
        .collect())
}

fn pods(node: &Node, snapshot: &ClusterSnapshot) -> usize {
    let planned = snapshot.pods.as_ref().map(|pods| &pods.planned);
    planned.and_then(|planned| planned.get(node::name(node))).map_or(0, Vec::len)
}

fn settings(args: &BeginArgs, given: GivenActions, waves: &[Vec<PoolNode>]) -> RollSettings {
    let waves: Vec<usize> = waves.iter().map(Vec::len).collect();
    let nodes = waves.iter().sum();
    let whole_wave = || waves.iter().copied().max().filter(|_| args.waves.is_some());
    RollSettings {
        max_unavailable: args.max_unavailable.map(|limit| limit.of(nodes)).or_else(whole_wave).unwrap_or(1),
        waves,
        before: given.before,
        action: given.action,
        after: given.after,
        confirm: args.confirm,
        expect_reboot: args.expect_reboot,
        min_ready_seconds: args.min_ready.as_secs(),
        soak_seconds: args.soak.as_secs(),
        action_timeout_seconds: args.action_timeout.as_secs(),
        return_timeout_seconds: args.return_timeout.as_secs(),
        recovery_timeout_seconds: args.recovery_timeout.as_secs(),
        halt_on_blocked_seconds: args.halt_on_blocked.as_ref().map(Duration::as_secs),
        windows: Windows(args.window.clone()),
        in_cluster: args.in_cluster,
        started_by: if args.in_cluster { this_runner().who } else { String::new() },
    }
}

/// How each node is drained. A roll needs its nodes back, so autoscalers keep them.
fn drain(args: &BeginArgs, given: &GivenActions) -> DrainSpec {
    let drain = args.request.drain.protected_spec();
    let has_job = given.all().any(|action| matches!(action, NodeAction::Job(_)));
    if has_job { job::sparing_jobs(drain) } else { drain }
}

/// What the health gates read, and the user may not. Without an answer of the API server, nothing.
async fn missing_permissions(cluster: &Cluster) -> Vec<String> {
    let checks = health::PERMISSIONS.map(async |(verb, group, resource)| {
        let permission = Permission { verb, group: group.to_owned(), resource: resource.to_owned() };
        let is_allowed = objects::is_allowed(cluster, None, &permission).await.unwrap_or(true);
        (!is_allowed).then(|| format!("{verb} {}", permission.qualified_resource()))
    });
    join_all(checks).await.into_iter().flatten().collect()
}

/// What the drain of a node would do.
struct NodeForecast {
    moved: usize,
    /// The pods that would be blocked, each with the reason.
    blocked: Vec<String>,
}

/// What a roll would do.
#[derive(Default)]
struct RollForecast {
    /// Each node, drained together with those that are drained at the same time; none without permission to read pods.
    nodes: HashMap<String, NodeForecast>,
    /// The harms of the nodes that are drained at the same time, with the name of the node if it is one.
    harms: Vec<(Option<String>, Vec<Harm>)>,
    /// What is not known about them.
    unknown: Option<Line>,
}

/// The forecast of each node, and what the drains harm. Only a dry run takes as long as it needs.
async fn forecasts(
    planning: &Planning,
    waves: &[Vec<PoolNode>],
    settings: &RollSettings,
    is_dry_run: bool,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<RollForecast, Error> {
    let (answers, missing) = if is_dry_run {
        (answers(planning, cluster, out).await?, None)
    } else {
        cost::answers_within(planning, cluster, cost::TIME_LIMIT).await
    };
    let unknown = DrainCost { unknown: missing.into_iter().collect(), ..DrainCost::default() }.unknown_line();
    let mut forecasts = RollForecast { unknown, ..RollForecast::default() };
    for together in waves.iter().flat_map(|wave| wave.chunks(settings.max_unavailable.max(1))) {
        let names: Vec<String> = together.iter().map(|node| node.name.clone()).collect();
        let report = planning.report_of(&names, &answers)?;
        let Some(forecast) = &report.forecast else { continue };
        for name in &names {
            let pods = || forecast.pods.iter().filter(|pod| pod.node == *name);
            let blocked = pods().filter_map(|pod| match &pod.fate {
                PodOutcome::Blocked(blocker) => {
                    Some(format!("pod {}: {}", pod::reference(&pod.pod), blocker.message))
                }
                _ => None,
            });
            let moved = pods().filter(|pod| pod.leaves).count();
            forecasts.nodes.insert(name.clone(), NodeForecast { moved, blocked: blocked.collect() });
        }
        let alone = if let [node] = &names[..] { Some(node.clone()) } else { None };
        forecasts.harms.push((alone, harms(&report, None)));
    }
    Ok(forecasts)
}

/// What is harmed: by each node for a dry run, by all of them for the question. What blocks a drain is listed with its node.
async fn lines_about_harms(forecasts: &RollForecast, args: &BeginArgs, cluster: &Cluster) -> Vec<Line> {
    if args.no_plan {
        return Vec::new();
    }
    let is_listed = |harm: &Harm| matches!(harm, Harm::NeverLeave { .. });
    let of =
        |harms: &[Harm]| -> Vec<Harm> { harms.iter().filter(|harm| !is_listed(harm)).cloned().collect() };
    let mut lines: Vec<Line> = Vec::new();
    // Where this is not known, it is not said: the gates of the roll wait for a reconciler.
    if let Ok(Some(gap)) = gap::read(cluster, Timestamp::now()).await {
        lines.push(Harm::NobodyLeads(gap).line());
    }
    if args.dry_run {
        for (node, harms) in &forecasts.harms {
            let name = node.as_ref().map_or_else(Line::default, |node| Line::new(format!("node/{node}: ")));
            lines.extend(harm::lines(&of(harms)).into_iter().map(|line| name.clone().join(line)));
        }
    } else {
        let all = forecasts.harms.iter().flat_map(|(_, harms)| of(harms));
        lines.extend(harm::lines(&harm::merged(all)));
    }
    lines
}

fn print_waves(
    waves: &[Vec<PoolNode>],
    forecasts: &RollForecast,
    is_dry_run: bool,
    out: &mut Output,
) -> Result<(), Error> {
    let (mut rows, mut details) = (Vec::new(), Vec::new());
    for (wave, nodes) in waves.iter().enumerate() {
        for node in nodes {
            let forecast = forecasts.nodes.get(&node.name);
            let number =
                |count: Option<usize>| count.map_or_else(|| String::from("?"), |count| count.to_string());
            let stuck = forecast.map(|forecast| forecast.blocked.len());
            rows.push(vec![
                (Style::Plain, (wave + 1).to_string()),
                (Style::Plain, node.name.clone()),
                (Style::Plain, node.zone.clone().unwrap_or_default()),
                (Style::Plain, number(forecast.map(|forecast| forecast.moved))),
                (if stuck > Some(0) { Style::Bad } else { Style::Plain }, number(stuck)),
            ]);
            let Some(forecast) = forecast else { continue };
            let blocked = forecast.blocked.iter().map(Line::new);
            details.extend(blocked.map(|line| Line::new(format!("node/{}: ", node.name)).join(line)));
        }
    }
    // Of a dry run, the waves are the data; otherwise what happens to them is.
    let mut print = |line: &Line| -> Result<(), Error> {
        if is_dry_run {
            out.data(line)?;
        } else {
            out.message(line);
        }
        Ok(())
    };
    for line in table::lines(&["WAVE", "NODE", "ZONE", "PODS", "BLOCKED"], &rows) {
        print(&line)?;
    }
    details.iter().try_for_each(print)
}

fn objects(
    name: &str,
    args: &BeginArgs,
    settings: &RollSettings,
    drain: &DrainSpec,
    waves: &[Vec<PoolNode>],
) -> Vec<NodeMaintenance> {
    let now = Timestamp::now();
    let all = waves.iter().enumerate().flat_map(|(wave, nodes)| nodes.iter().map(move |node| (wave, node)));
    let object = |(position, (wave, node)): (usize, (usize, &PoolNode))| {
        let mut object = NodeMaintenance::new(&node.name, args.request.spec(&node.name));
        object.spec.suspend = true;
        object.spec.drain = Some(drain.clone());
        let record = NodeRecord::planned(wave, position, now);
        object.labels_mut().insert(LABEL.to_owned(), name.to_owned());
        object.annotations_mut().extend([
            (SETTINGS.to_owned(), record::annotation(settings)),
            (NODE.to_owned(), record::annotation(&record)),
        ]);
        if settings.before.is_some() {
            object.annotations_mut().insert(record::hook(), record::hook_owner(name));
        }
        object
    };
    all.enumerate().map(object).collect()
}

/// Creates the maintenances, and returns those that did not exist. If one cannot be created, those that were are deleted
/// again.
async fn create(
    wanted: &[NodeMaintenance],
    name: &str,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Vec<NodeMaintenance>, Error> {
    let create = async |wanted: &NodeMaintenance| start::start(cluster, wanted, false).await;
    let answers = progress::for_each(out, wanted.iter(), "maintenances", create).await;
    let (mut created, mut failures) = (Vec::new(), Vec::new());
    for (wanted, answer) in wanted.iter().zip(answers) {
        match answer {
            Ok(Started { object, created: true }) => created.push(object),
            Ok(Started { object, .. }) if roll_name(&object) == Some(name) => {}
            Ok(_) => {
                let node = wanted.spec.node_name.clone();
                failures.push((node.clone(), RollError::InMaintenance(vec![node]).into()));
            }
            Err(error) => failures.push((wanted.spec.node_name.clone(), error)),
        }
    }
    let Some((_, first)) = failures.pop() else { return Ok(created) };
    let deleted = delete(&created, cluster, out).await;
    Error::print_all(&failures, out);
    deleted.map_or_else(Err, |()| Err(first))
}

async fn delete(created: &[NodeMaintenance], cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let delete = async |object: &NodeMaintenance| cluster.delete(&object.name_any(), &uid(object)).await;
    let deleted = progress::for_each(out, created.iter(), "maintenances", delete).await;
    deleted.into_iter().find_map(Result::err).map_or(Ok(()), Err)
}

#[cfg(test)]
#[path = "begin_tests.rs"]
mod tests;
