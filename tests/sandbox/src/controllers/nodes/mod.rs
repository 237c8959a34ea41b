//! Kubelets and their reboots, the scheduler, the node lifecycle and the pod garbage collector.

pub mod kubelet;
pub(crate) mod node_fit;
pub(crate) mod node_lifecycle;
pub(crate) mod node_loads;
pub(crate) mod node_score;
pub(crate) mod pod_gc;
pub(crate) mod pod_status;
pub(crate) mod reboot;
pub(crate) mod scheduler;
