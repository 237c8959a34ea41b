//! `kubectl nm roll NODE...`: plans the maintenance of all nodes of a roll, and runs it.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nm_shared::cluster::node;
use nm_shared::forecast::PodOutcome;
use nm_shared::{DrainSpec, NodeMaintenance};

use super::BeginArgs;
use super::run::{run as run_roll, this_runner};
use crate::client::cluster::Cluster;
use crate::client::nodes::check_exist;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::error::roll_error::RollError;
use crate::interaction::confirm::confirm_always;
use crate::interaction::progress;
use crate::maintenance::start::{self, Existing, Started};
use crate::maintenance::suspend::check_kept;
use crate::maintenance::uid;
use crate::plan::cluster_snapshot::ClusterSnapshot;
use crate::plan::eviction_dry_run::dry_run_evictions;
use crate::plan::report::{PlanReport, preview};
use crate::roll::job;
use crate::roll::record::{self, LABEL, NODE, NodeRecord, Roll, RollRecord, SETTINGS, Step, roll_name};
use crate::roll::settings::{NodeAction, RollSettings};
use crate::roll::store;
use crate::roll::waves::{PoolNode, waves};
use crate::roll::window::Windows;
use crate::terminal::output::Output;
use crate::terminal::table;
use crate::terminal::text::{Line, Style, counted};

const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) async fn run(
    args: BeginArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    if args.confirm && !args.dry_run && !out.can_ask() {
        return Err(RollError::NoTerminal.into());
    }
    let job = args.job.as_ref().map(|file| {
        let job =
            std::fs::read_to_string(file).map_err(Into::into).and_then(|text| job::parse(&text, namespace));
        job.map_err(|problem| RollError::Job { file: file.clone(), problem: Box::new(problem) })
    });
    let action = args.run.clone().map(NodeAction::Run).or(job.transpose()?.map(NodeAction::Job));
    let message = || format!("asking {} about nodes and pods", cluster.server());
    let read = async {
        let names = args.nodes.resolve(cluster).await?;
        if !args.nodes.are_known() {
            check_exist(cluster, &names).await?;
        }
        let snapshot = Box::pin(ClusterSnapshot::read(&names, cluster)).await?;
        Ok::<_, Error>((names, snapshot))
    };
    let (names, snapshot) = progress::during(out, message, read).await?;
    let name =
        args.name.clone().unwrap_or_else(|| Timestamp::now().strftime("roll-%Y%m%d-%H%M%S").to_string());
    let waves = waves(pool(&names, &snapshot, cluster).await?, args.waves.as_ref());
    let settings = settings(&args, action, &waves);
    let is_begun = is_begun(&name, &names, &settings, &snapshot)?;

    let drain = drain(&args, &settings);
    let report = report(&names, drain.as_ref(), snapshot, cluster, out).await?;
    print_waves(&waves, &report, out);
    for unknown in &report.unknown {
        out.talk(&Line::new(format!("warning: unknown: {unknown}")));
    }
    if args.dry_run {
        return Ok(Exit::Done);
    }
    let question = format!("Roll {}, {} at once", counted(names.len(), "node"), settings.max_unavailable);
    confirm_always(&question, args.yes, out)?;

    let wanted = objects(&name, &args, &settings, drain.as_ref(), &waves);
    if let Some(first) = wanted.first().filter(|_| !is_begun) {
        check_kept(&start::start(cluster, first, true).await?.object, true)?;
    }
    create(&wanted, &name, cluster, out).await?;
    let roll = store::load(cluster, &name).await?;
    let me = this_runner();
    let record = RollRecord { revision: 1, runner: Some(me.clone()), ..RollRecord::default() };
    if let Some(anchor) = roll.anchor(&record) {
        store::write_record(cluster, &anchor.object, &record).await?;
    }
    out.talk(&Line::new(format!("Roll {name} begins.")));
    run_roll(&roll, record, me, &args.output, cluster, out).await
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
    let pool = nodes.iter().filter(|node| names.iter().any(|name| name == node::name(node)));
    Ok(pool
        .map(|node| PoolNode {
            name: node::name(node).to_owned(),
            zone: node.labels().get(ZONE).cloned(),
            is_control_plane: node::is_control_plane(node),
            pods: pods(node, snapshot),
        })
        .collect())
}

fn pods(node: &Node, snapshot: &ClusterSnapshot) -> usize {
    let planned = snapshot.pods.as_ref().map(|pods| &pods.planned);
    planned.and_then(|planned| planned.get(node::name(node))).map_or(0, Vec::len)
}

fn settings(args: &BeginArgs, action: Option<NodeAction>, waves: &[Vec<PoolNode>]) -> RollSettings {
    let waves: Vec<usize> = waves.iter().map(Vec::len).collect();
    let nodes = waves.iter().sum();
    let whole_wave = || waves.iter().copied().max().filter(|_| args.waves.is_some());
    RollSettings {
        max_unavailable: args.max_unavailable.map(|limit| limit.of(nodes)).or_else(whole_wave).unwrap_or(1),
        waves,
        action,
        confirm: args.confirm,
        expect_reboot: args.expect_reboot,
        min_ready_seconds: args.min_ready.as_secs(),
        soak_seconds: args.soak.as_secs(),
        action_timeout_seconds: args.action_timeout.as_secs(),
        return_timeout_seconds: args.return_timeout.as_secs(),
        recovery_timeout_seconds: args.recovery_timeout.as_secs(),
        halt_on_blocked_seconds: args.halt_on_blocked.as_ref().map(Duration::as_secs),
        windows: Windows(args.window.clone()),
    }
}

fn drain(args: &BeginArgs, settings: &RollSettings) -> Option<DrainSpec> {
    let drain = args.request.drain.spec();
    match settings.action {
        Some(NodeAction::Job(_)) => Some(job::sparing_jobs(drain)),
        Some(NodeAction::Run(_)) | None => drain,
    }
}

/// Whether an earlier call has created some maintenances of this roll. No other node may be in maintenance.
fn is_begun(
    name: &str,
    names: &[String],
    settings: &RollSettings,
    snapshot: &ClusterSnapshot,
) -> Result<bool, Error> {
    let all = &snapshot.maintenances;
    let of_roll: Vec<&NodeMaintenance> =
        all.iter().filter(|object| roll_name(object) == Some(name)).collect();
    if !of_roll.is_empty() {
        let objects: Vec<_> = of_roll.iter().map(|object| std::sync::Arc::new((*object).clone())).collect();
        let roll = Roll::find(name, &objects)?;
        // Only what was interrupted while it was created can be completed.
        if roll.is_some_and(|roll| roll.record.is_some() || roll.settings != *settings) {
            return Err(RollError::Exists(name.to_owned()).into());
        }
    }
    let mut busy = Vec::new();
    for node in names {
        match Existing::find(node, all) {
            Existing::Nothing => {}
            Existing::Maintenance(object) if roll_name(&object) == Some(name) => {}
            Existing::Maintenance(_) => busy.push(node.clone()),
            other => {
                return Err(other
                    .refusal(node)
                    .unwrap_or_else(|| RollError::InMaintenance(vec![node.clone()]).into()));
            }
        }
    }
    if busy.is_empty() { Ok(!of_roll.is_empty()) } else { Err(RollError::InMaintenance(busy).into()) }
}

async fn report(
    names: &[String],
    drain: Option<&DrainSpec>,
    snapshot: ClusterSnapshot,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<PlanReport, Error> {
    let now = Timestamp::now();
    let preview =
        preview(names, drain, &snapshot, now).map_err(|error| Error::Unplannable(error.to_string()))?;
    let answers = match &preview {
        None => HashMap::new(),
        Some(preview) => {
            let (all, done) = (preview.to_evict().count(), Cell::new(0));
            let message = || format!("{} of {all} evictions dry-run", done.get());
            let grace = drain.map(|drain| drain.grace_period_seconds).filter(|seconds| *seconds >= 0);
            progress::during(out, message, dry_run_evictions(cluster, preview.to_evict(), grace, &done))
                .await?
        }
    };
    Ok(PlanReport::new(names, drain, preview.as_ref(), snapshot, &answers, now))
}

fn print_waves(waves: &[Vec<PoolNode>], report: &PlanReport, out: &mut Output) {
    let mut rows = Vec::new();
    for (wave, nodes) in waves.iter().enumerate() {
        for node in nodes {
            let pods = || {
                report.forecast.iter().flat_map(|forecast| &forecast.pods).filter(|pod| pod.node == node.name)
            };
            let blocked = pods().filter(|pod| matches!(pod.fate, PodOutcome::Blocked(_))).count();
            let moved = pods().filter(|pod| pod.leaves).count();
            rows.push(vec![
                (Style::Plain, (wave + 1).to_string()),
                (Style::Plain, node.name.clone()),
                (Style::Plain, node.zone.clone().unwrap_or_default()),
                (Style::Plain, moved.to_string()),
                (if blocked > 0 { Style::Bad } else { Style::Plain }, blocked.to_string()),
            ]);
        }
    }
    for line in table::lines(&["WAVE", "NODE", "ZONE", "PODS", "BLOCKED"], &rows) {
        out.talk(&line);
    }
}

fn objects(
    name: &str,
    args: &BeginArgs,
    settings: &RollSettings,
    drain: Option<&DrainSpec>,
    waves: &[Vec<PoolNode>],
) -> Vec<NodeMaintenance> {
    let now = Timestamp::now();
    let all = waves.iter().enumerate().flat_map(|(wave, nodes)| nodes.iter().map(move |node| (wave, node)));
    let object = |(position, (wave, node)): (usize, (usize, &PoolNode))| {
        let mut object = NodeMaintenance::new(&node.name, args.request.spec(&node.name));
        object.spec.suspend = true;
        object.spec.drain = drain.cloned();
        let record = NodeRecord {
            wave,
            position,
            step: Step::Planned,
            since: now,
            began: None,
            baseline: record::Baseline::default(),
        };
        object.labels_mut().insert(LABEL.to_owned(), name.to_owned());
        object.annotations_mut().extend([
            (SETTINGS.to_owned(), record::annotation(settings)),
            (NODE.to_owned(), record::annotation(&record)),
        ]);
        object
    };
    all.enumerate().map(object).collect()
}

/// Creates the maintenances. If one cannot be created, those that were are deleted again.
async fn create(
    wanted: &[NodeMaintenance],
    name: &str,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(), Error> {
    let create = async |object: &NodeMaintenance| start::start(cluster, object, false).await;
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
    let Some((_, first)) = failures.pop() else { return Ok(()) };
    let delete = async |object: &NodeMaintenance| cluster.delete(&object.name_any(), &uid(object)).await;
    let deleted = progress::for_each(out, created.iter(), "maintenances", delete).await;
    Error::print_all(&failures, out);
    deleted.into_iter().find_map(Result::err).map_or(Err(first), Err)
}
