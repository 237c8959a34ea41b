//! A Kubernetes cluster in one process, for the tests of operators, controllers and kubectl plugins.
//!
//! It speaks Kubernetes 1.36 (it says v1.36.2) as far as draining nodes goes, over TLS on loopback, so that `kubectl` and any client take
//! it for a cluster. What it answers is held to recordings of a real API server. To start one in a test:
//!
//! ```
//! # async fn example() -> std::io::Result<()> {
//! use kube_sandbox::sandbox::{Options, Sandbox};
//!
//! let sandbox = Sandbox::start(Options { nodes: 3, pods: 10, ..Options::default() }).await?;
//! let kubeconfig = sandbox.kubeconfig();
//! # let _ = kubeconfig;
//! sandbox.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The parts, in the order to read them
//!
//! - [`store`]: the objects, their revisions and their history, under one lock. [`resource`] says what kinds there are,
//!   and [`cluster`] is what everything else shares.
//! - [`registry`]: what makes a write legal and what it does to `metadata`; `defaults`, `priority` and `validation`
//!   before it, `patch` for merges and applies, `selector` for what lists and watches choose. [`eviction`] and
//!   [`binding`] are the two writes that are more than that, and [`admission`] asks webhooks about all of them.
//! - [`controllers`]: what acts on the objects: kubelets, the scheduler, the controllers of workloads, disruption
//!   budgets, garbage collection.
//! - [`http`]: the API server without sockets: paths, forms, patches, lists, watches. `access` says who may do what,
//!   `crd` what custom resources are, `table` what `kubectl get` prints. [`server`] puts it on a port.
//! - [`kubevirt`]: virtual machines that migrate when their pods are evicted. [`aggregation`]: groups of another server,
//!   as `subresources.kubevirt.io`, of which KubeVirt's is the only one played.
//! - [`faults`]: what goes wrong on demand. [`request_log`]: what was asked.
//! - [`workload`]: what a cluster is filled with. [`sandbox`]: all of it together.
//!
//! # What it does not do
//!
//! It runs nothing: containers, networks, volumes and images exist in objects alone, so there is no `exec` and there
//! are no probes, and a pod has logged what its annotation says. The scheduler knows cordons, taints, node selectors,
//! node affinity and the number of pods a node takes, but neither cpu and memory, nor pod affinity, topology spread,
//! priorities or preemption. Rolling updates go in one step. Quotas, limit ranges, replication controllers, ingresses,
//! network policies and their like are kept, and nothing comes of them. There are no API priorities, no aggregated API
//! servers but KubeVirt's, no autoscalers, no certificate requests, no `CronJobs`, and no schemas of built-in kinds for
//! `kubectl explain`. Mutating webhooks are not called. A list whose token has expired gets no other one to go on with.
//! Namespaces get no `kube-root-ca.crt`, and pods no volume for their account's token. A key that stands twice in JSON
//! and an owner that is named twice pass without a warning.
//!
//! There are events of what goes well with pods and their owners (`Scheduled`, `Started`, `Killing`,
//! `SuccessfulCreate`, …), the newest 5,000 of them, but none of what fails, and none from before a larger cluster
//! stood. Protobuf is read but never written, save for an `OpenAPI` document that describes nothing. `NoExecute` taints
//! evict nobody. A `DaemonSet` tolerates what a real one's pods do; that it tolerates everything is to be asked for
//! (`App::tolerates_everything` in [`workload`]). A priority class sets a number that nobody acts on. A Job counts the
//! pods that it loses as failures, but they carry no finalizer for that, and `podFailurePolicy` and
//! `podReplacementPolicy` are ignored. A controller that was refused a pod tries again with the next change to what it
//! looks after, not after a while. Whoever may write roles may grant what they do not have. Tokens are not bound to
//! pods. A definition is served at once; the `Retry-After` of one that is not yet is a fault to ask for. Nothing is
//! kept on disk: with the process the cluster is gone.
//!
//! # Size
//!
//! 5,000 nodes and 150,000 pods stand in less than a minute and 2.5 GiB, in a release build on two cores: of what nobody
//! has written lately only the text is kept ([`store`]), and what is asked often has an index: the pods of a node, their
//! changes, the objects of a namespace, the pods of a controller. `cargo bench -p kube-sandbox --bench size` measures that.

mod access;
pub mod admission;
pub mod aggregation;
pub mod binding;

pub mod clock;
pub mod cluster;
mod condition;
pub mod controllers;
mod crd;
mod custom_resource;
mod defaults;
mod discovery;
pub mod duration;
mod event_shapes;
pub mod eviction;
pub mod faults;
pub mod http;
mod json_syntax;
mod known_fields;
mod kubeconfig;
pub mod kubevirt;
mod label_selector;
mod name_forms;
mod openapi;
mod patch;
mod percent;
mod pod;
mod priority;
mod rbac_objects;
pub mod refusal;
pub mod registry;
pub mod request_log;
pub mod resource;
pub mod sandbox;
mod selector;
pub mod server;
pub mod store;
mod table;
mod tls;
mod validation;
pub mod workload;
