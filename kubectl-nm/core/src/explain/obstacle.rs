//! What keeps a pod from being Ready, as the pod and its events show it.
//!
//! The reasons of containers and of events are fields that the kubelet fills from a closed set. Messages are quoted, never
//! parsed.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodCondition};

use crate::client::pod_problem::{IMAGE_REASONS, container_statuses, is_failing};
use crate::explain::pending_claim::PendingClaim;
use crate::explain::probe_delay;

/// What keeps a pod from being Ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The scheduler finds no node; this is its message.
    Unschedulable(String),
    /// A claim of it has no volume, so that it is not scheduled.
    Claim(PendingClaim),
    /// Scheduling gates keep it from being scheduled.
    SchedulingGates(Vec<String>),
    /// A container waits for its image.
    Image {
        /// Name of the image.
        image: String,
        /// Such as `ImagePullBackOff`.
        reason: String,
        /// Message of the kubelet; may be empty.
        message: String,
    },
    /// A container exits again and again.
    CrashLoop {
        /// Name of the container.
        container: String,
        /// The last exit code, if it is known.
        exit_code: Option<i32>,
        /// Such as `OOMKilled`; empty if the exit code says as much.
        reason: String,
    },
    /// A container cannot be created, such as for a missing Secret.
    ContainerCreation {
        /// Name of the container.
        container: String,
        /// Such as `CreateContainerConfigError`.
        reason: String,
        /// Message of the kubelet.
        message: String,
    },
    /// A volume cannot be attached or mounted; this is the message of the event.
    Volume(String),
    /// The pod has no network or sandbox; this is the message of the event.
    Sandbox(String),
    /// The readiness probe of a container fails.
    ReadinessProbe {
        /// Name of the container.
        container: String,
        /// Message of the last failed probe; empty if it is not known.
        message: String,
    },
    /// The startup probe of a container has not succeeded yet.
    StartupProbe {
        /// Name of the container.
        container: String,
    },
    /// The readiness probe of a container that has just started has not succeeded yet, and has not had the time to.
    FirstProbe {
        /// Name of the container.
        container: String,
        /// Its `initialDelaySeconds`.
        delay: i32,
        /// Its `periodSeconds`.
        period: i32,
    },
    /// Readiness gates that are not met; the containers are ready.
    ReadinessGates(Vec<String>),
    /// Its node does not report: its containers are ready, and the pod is not, or the pod does not start.
    SilentNode(String),
    /// It is being deleted.
    Terminating,
    /// The same, and its node does not report that it has ended.
    NeverEnds(String),
    /// It has ended for good and will not be Ready again.
    Ended(String),
    /// An init container runs.
    InitContainer(String),
    /// Its containers are being created.
    Starting,
    /// It was just created, and the scheduler has not tried it yet.
    Unscheduled,
}

/// The events that a volume causes (`pkg/kubelet/events/event.go` in kubernetes).
const VOLUME_EVENTS: [&str; 4] =
    ["FailedAttachVolume", "FailedMount", "FailedMapVolume", "FailedMountOnFilesystemMismatch"];

/// A warning about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodWarning {
    /// Reason of the event.
    pub reason: String,
    /// Message of the event.
    pub message: String,
    /// When it was first reported, if that is known.
    pub first: Option<Timestamp>,
    /// The claim that is the reason, instead of an event of the pod.
    pub claim: Option<PendingClaim>,
}

/// What the scheduler says of a node from which a volume of the pod cannot be used, today and in older releases.
const OTHER_VOLUME: [&str; 2] = ["PersistentVolume's node affinity", "volume node affinity conflict"];

impl Obstacle {
    /// Whether other pods of its workload keep the pod from nodes.
    pub fn is_of_anti_affinity(&self) -> bool {
        let keeps_apart = ["pod anti-affinity rules", "free ports"];
        matches!(self, Self::Unschedulable(message) if keeps_apart.iter().any(|said| message.contains(said)))
    }

    /// Whether a volume of the pod keeps it from all nodes in service: none of those that can use it only lacks resources.
    pub fn is_of_volume(&self) -> bool {
        let Self::Unschedulable(message) = self else { return false };
        let lacks_resources = message.contains("Insufficient") || message.contains("Too many pods");
        !lacks_resources && OTHER_VOLUME.iter().any(|said| message.contains(said))
    }

    /// What keeps a pod from being Ready; none if it is. `warnings` are the events of the pod, the newest last.
    pub fn of(pod: &Pod, warnings: &[PodWarning], now: Timestamp) -> Option<Self> {
        let seen = Self::seen(pod, now)?;
        let last = |reasons: &[&str]| {
            warnings.iter().rev().find(|warning| reasons.contains(&warning.reason.as_str()))
        };
        // The same reason is that of the other probes, of which only the kubelet's words tell. A startup probe fails until it
        // succeeds once.
        let is_of_readiness = |warning: &&PodWarning| {
            warning.reason == "Unhealthy" && !warning.message.starts_with("Startup probe ")
        };
        let failed_probe = warnings.iter().rev().find(is_of_readiness);
        // A command that fails without a word leaves the colon before its output.
        let message = |warning: &PodWarning| warning.message.trim_end_matches([':', ' ', '\n']).to_owned();
        Some(match seen {
            Self::Starting => match (last(&VOLUME_EVENTS), last(&["FailedCreatePodSandBox"])) {
                (Some(volume), _) => Self::Volume(message(volume)),
                (None, Some(sandbox)) => Self::Sandbox(message(sandbox)),
                (None, None) => Self::Starting,
            },
            Self::ReadinessProbe { container, .. } => {
                let message = failed_probe.map(message).unwrap_or_default();
                Self::ReadinessProbe { container, message }
            }
            Self::FirstProbe { container, .. } if failed_probe.is_some() => {
                let message = failed_probe.map(message).unwrap_or_default();
                Self::ReadinessProbe { container, message }
            }
            Self::Unschedulable(_) | Self::Unscheduled => {
                let mut claims = warnings.iter().filter_map(|warning| warning.claim.as_ref());
                let pending = claims.find(|claim| !claim.is_recent(now));
                pending.map_or(seen, |claim| Self::Claim(claim.clone()))
            }
            other => other,
        })
    }

    fn seen(pod: &Pod, now: Timestamp) -> Option<Self> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Some(Self::Terminating);
        }
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        if let Some(phase @ ("Succeeded" | "Failed")) = status.phase.as_deref() {
            return Some(Self::Ended(status.reason.unwrap_or_else(|| phase.to_owned())));
        }
        if condition("Ready").is_some_and(|ready| ready.status == "True") {
            return None;
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        if node.is_empty() {
            return Some(unscheduled(pod, condition("PodScheduled")));
        }
        let inits = status.init_container_statuses.unwrap_or_default();
        let mains = status.container_statuses.unwrap_or_default();
        let found = inits.iter().chain(&mains).find_map(|container| failing(container, now));
        let found =
            found.or_else(|| running_init_container(pod).map(|name| Self::InitContainer(name.to_owned())));
        let found = found.or_else(|| unready(pod, &mains, now));
        Some(found.unwrap_or_else(|| {
            let unmet = |gate: &&String| condition(gate).is_none_or(|condition| condition.status != "True");
            let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
            let unmet: Vec<String> = gates.map(|gate| &gate.condition_type).filter(unmet).cloned().collect();
            if unmet.is_empty() { Self::SilentNode(node.to_owned()) } else { Self::ReadinessGates(unmet) }
        }))
    }

    /// Whether pods have it for a moment when they are started again, such as after a reboot of their node.
    pub fn may_be_of_start(&self) -> bool {
        match self {
            Self::Volume(_)
            | Self::Sandbox(_)
            | Self::ReadinessProbe { .. }
            | Self::StartupProbe { .. }
            | Self::FirstProbe { .. }
            | Self::ReadinessGates(_)
            | Self::SilentNode(_)
            | Self::InitContainer(_)
            | Self::Starting => true,
            Self::Unschedulable(_)
            | Self::Claim(_)
            | Self::SchedulingGates(_)
            | Self::Image { .. }
            | Self::CrashLoop { .. }
            | Self::ContainerCreation { .. }
            | Self::Terminating
            | Self::NeverEnds(_)
            | Self::Ended(_)
            | Self::Unscheduled => false,
        }
    }

    /// Whether the pod is on its way to become Ready, as far as it shows.
    pub fn is_start(&self) -> bool {
        match self {
            Self::Starting
            | Self::InitContainer(_)
            | Self::StartupProbe { .. }
            | Self::FirstProbe { .. }
            | Self::Unscheduled => true,
            Self::Unschedulable(_)
            | Self::Claim(_)
            | Self::SchedulingGates(_)
            | Self::Image { .. }
            | Self::CrashLoop { .. }
            | Self::ContainerCreation { .. }
            | Self::Volume(_)
            | Self::Sandbox(_)
            | Self::ReadinessProbe { .. }
            | Self::ReadinessGates(_)
            | Self::SilentNode(_)
            | Self::Terminating
            | Self::NeverEnds(_)
            | Self::Ended(_) => false,
        }
    }

    /// Whether it ends by itself as a rule.
    pub fn passes(&self) -> bool {
        self.is_start() || matches!(self, Self::Terminating)
    }
}

fn unscheduled(pod: &Pod, scheduled: Option<&PodCondition>) -> Obstacle {
    match scheduled.map(|scheduled| scheduled.reason.as_deref().unwrap_or_default()) {
        Some("SchedulingGated") => {
            let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
            Obstacle::SchedulingGates(gates.map(|gate| gate.name.clone()).collect())
        }
        Some("Unschedulable") => {
            let message = scheduled.and_then(|scheduled| scheduled.message.clone());
            Obstacle::Unschedulable(message.unwrap_or_default())
        }
        _ => Obstacle::Unscheduled,
    }
}

/// Why a container does not start, or does not keep running.
fn failing(container: &ContainerStatus, now: Timestamp) -> Option<Obstacle> {
    if !is_failing(container, now) {
        return None;
    }
    let Some(waiting) = container.state.clone().and_then(|state| state.waiting) else {
        return Some(crash_loop(container));
    };
    let (reason, message) = (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default());
    Some(match reason.as_str() {
        "CrashLoopBackOff" => crash_loop(container),
        known if IMAGE_REASONS.contains(&known) => {
            Obstacle::Image { image: container.image.clone(), reason, message }
        }
        _ => Obstacle::ContainerCreation { container: container.name.clone(), reason, message },
    })
}

/// That a container exits again and again.
pub fn crash_loop(container: &ContainerStatus) -> Obstacle {
    let terminated =
        |state: &Option<ContainerState>| state.as_ref().and_then(|state| state.terminated.clone());
    let ended = terminated(&container.state).or_else(|| terminated(&container.last_state));
    let exit_code = ended.as_ref().map(|ended| ended.exit_code);
    let reason =
        ended.and_then(|ended| ended.reason).filter(|reason| reason != "Error" && reason != "Completed");
    Obstacle::CrashLoop { container: container.name.clone(), exit_code, reason: reason.unwrap_or_default() }
}

/// Since when a pod has been starting: since its container was started last, or else the pod itself.
pub(super) fn starting_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref();
    let started = container_statuses(pod).filter(|container| !container.ready);
    let started =
        started.filter_map(|container| container.state.as_ref()?.running.as_ref()?.started_at.as_ref());
    let of_pod = || status.and_then(|status| status.start_time.as_ref());
    let created = || pod.metadata.creation_timestamp.as_ref();
    started.max_by_key(|at| at.0).or_else(of_pod).or_else(created).map(|at| at.0)
}

/// Whether a container has ended and does not wait yet to begin again.
pub(super) fn has_ended_container(pod: &Pod) -> bool {
    container_statuses(pod).any(has_ended)
}

/// Whether it has failed, and does not wait yet to begin again.
pub fn has_ended(container: &ContainerStatus) -> bool {
    let ended = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code != 0)
}

/// The name of the init container that runs, and is to end before the containers start.
pub fn running_init_container(pod: &Pod) -> Option<&str> {
    let specs = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars = specs.filter(|spec| spec.restart_policy.as_deref() == Some("Always"));
    let sidecars: Vec<&str> = sidecars.map(|spec| spec.name.as_str()).collect();
    let mut inits = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let runs = |init: &&ContainerStatus| init.state.as_ref().is_some_and(|state| state.running.is_some());
    let found = inits.find(|init| runs(init) && !sidecars.contains(&init.name.as_str()));
    found.map(|init| init.name.as_str())
}

fn unready(pod: &Pod, containers: &[ContainerStatus], now: Timestamp) -> Option<Obstacle> {
    let runs =
        |container: &ContainerStatus| container.state.as_ref().is_some_and(|state| state.running.is_some());
    let Some(container) = containers.iter().find(|container| !container.ready) else {
        return containers.is_empty().then_some(Obstacle::Starting);
    };
    let name = || container.name.clone();
    Some(match (runs(container), container.started) {
        (false, _) => Obstacle::Starting,
        (true, Some(false)) => Obstacle::StartupProbe { container: name() },
        (true, _) => match probe_delay::first_probe(pod, container, now) {
            Some(probe) => Obstacle::FirstProbe {
                container: name(),
                delay: probe.initial_delay_seconds.unwrap_or(0),
                period: probe.period_seconds.unwrap_or(probe_delay::PERIOD),
            },
            None => Obstacle::ReadinessProbe { container: name(), message: String::new() },
        },
    })
}
