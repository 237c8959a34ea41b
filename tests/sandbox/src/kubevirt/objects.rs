//! KubeVirt's objects: CRDs, the webhook, and the instances and pods of VMs.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::registry::{self, Effect};
use crate::cluster::store::{Collection, Object};
use crate::model::pod;
use crate::model::status_error::StatusError;

/// Virtual machine instances.
pub const VMIS: Collection = Collection::fixed("kubevirt.io", "virtualmachineinstances");
/// The installation of KubeVirt, whose specification has the limits of migrations.
pub const KUBEVIRTS: Collection = Collection::fixed("kubevirt.io", "kubevirts");
/// Migrations.
pub const MIGRATIONS: Collection = Collection::fixed("kubevirt.io", "virtualmachineinstancemigrations");
/// The aggregated API group of KubeVirt's subresources.
pub const SUBRESOURCES: &str = "subresources.kubevirt.io";
/// The subresource that cancels an evacuation, as in discovery.
pub const CANCEL: &str = "virtualmachineinstances/evacuate/cancel";
/// The label of an instance with its node.
pub(crate) const NODE: &str = "kubevirt.io/nodeName";
/// KubeVirt's namespace.
pub const NAMESPACE: &str = "kubevirt";
/// The service of its webhooks.
pub const SERVICE: &str = "virt-api";
/// The value of the label `kubevirt.io` on a pod with a hot-plugged disk.
pub const HOTPLUG: &str = "hotplug-disk";
/// An annotation on an instance that cannot be migrated.
pub const NOT_MIGRATABLE: &str = "kube-sandbox.dev/not-live-migratable";
/// An annotation on an instance: why its migrations fail after their memory was copied.
pub const MIGRATION_FAILS: &str = "kube-sandbox.dev/migration-fails";

pub(crate) const WEBHOOKS: Collection =
    Collection::fixed("admissionregistration.k8s.io", "validatingwebhookconfigurations");

const LAUNCHER: &str = "virt-launcher";

/// The CRDs of KubeVirt, instances and migrations, with open schemas. Only migrations have a status subresource of theirs.
pub(crate) fn definitions() -> [Value; 3] {
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let status = json!({"status": {}});
    [
        definition(&KUBEVIRTS, ("KubeVirt", &["kv", "kvs"]), &[column("Phase", ".status.phase")], &status),
        definition(
            &VMIS,
            ("VirtualMachineInstance", &["vmi", "vmis"]),
            &[column("Phase", ".status.phase"), column("NodeName", ".status.nodeName")],
            &json!({}),
        ),
        definition(
            &MIGRATIONS,
            ("VirtualMachineInstanceMigration", &["vmim", "vmims"]),
            &[column("Phase", ".status.phase"), column("VMI", ".spec.vmiName")],
            &status,
        ),
    ]
}

fn definition(
    collection: &Collection,
    (kind, short): (&str, &[&str]),
    columns: &[Value],
    subresources: &Value,
) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", collection.plural, collection.group)},
        "spec": {
            "group": collection.group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": collection.plural, "singular": kind.to_lowercase(),
                "shortNames": short},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                "additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": open, "status": open}}}}],
        },
    })
}

/// The webhooks that review evictions: of the pods of VMs, and of those with hot-plugged disks.
pub(crate) fn webhooks() -> Value {
    let webhook = |name: &str, condition: &str, prefix: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "sideEffects": "NoneOnDryRun", "timeoutSeconds": 10,
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": SERVICE, "path": "/pod-eviction-validate"}},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods/eviction"]}],
            "matchConditions": [{"name": condition,
                "expression": format!("object.metadata.name.startsWith(\"{prefix}\")")}],
        })
    };
    let launchers = webhook("virt-launcher-eviction-interceptor.kubevirt.io", "only-vms", "virt-launcher");
    let disks = webhook("hotplug-pod-eviction-interceptor.kubevirt.io", "only-hotplug-pods", "hp-volume-");
    json!({"metadata": {"name": "virt-api-validator"}, "webhooks": [launchers, disks]})
}

/// A virtual machine.
#[derive(Debug, Clone)]
pub struct Vmi {
    object: Value,
}

impl Vmi {
    /// A VM that is migrated when its pod is evicted.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            object: json!({
                "metadata": {"namespace": namespace, "name": name, "annotations": {}},
                "spec": {"evictionStrategy": "LiveMigrate"},
            }),
        }
    }

    /// `None`, `LiveMigrate`, `LiveMigrateIfPossible` or `External`.
    #[must_use]
    pub fn strategy(mut self, strategy: &str) -> Self {
        self.object["spec"]["evictionStrategy"] = json!(strategy);
        self
    }

    /// A VM that cannot be migrated.
    #[must_use]
    pub fn not_migratable(mut self) -> Self {
        self.object["metadata"]["annotations"][NOT_MIGRATABLE] = json!("true");
        self
    }

    /// A VM whose migrations fail for this reason.
    #[must_use]
    pub fn migration_fails(mut self, reason: &str) -> Self {
        self.object["metadata"]["annotations"][MIGRATION_FAILS] = json!(reason);
        self
    }

    /// Labels of its node selector, such as `kubernetes.io/hostname`.
    #[must_use]
    pub fn node_selector(mut self, selector: &Value) -> Self {
        self.object["spec"]["nodeSelector"] = selector.clone();
        self
    }

    /// Creates it in a cluster with KubeVirt.
    ///
    /// # Errors
    /// The error of the API server: the namespace is missing, or the instance exists.
    pub fn create(&self, cluster: &Cluster) -> Result<Object, StatusError> {
        let missing = || StatusError::not_found(&VMIS.group, &VMIS.plural, "");
        let resource = cluster.catalog.of(&VMIS).ok_or_else(missing)?;
        let (object, now) = (self.object.clone(), cluster.clock.now());
        cluster.store.write(|state| registry::create(state, &resource, object, now, Effect::Real))
    }
}

/// The pod of an instance, not yet scheduled.
pub(crate) fn launcher(vmi: &Value) -> Value {
    let name = pod::name(vmi);
    let mut spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "compute", "image": "registry.example/virt-launcher:1"}],
        "volumes": [{"name": "private", "emptyDir": {}}],
    });
    if vmi["spec"]["nodeSelector"].is_object() {
        spec["nodeSelector"] = vmi["spec"]["nodeSelector"].clone();
    }
    json!({
        "metadata": {
            "namespace": pod::namespace(vmi), "generateName": format!("virt-launcher-{name}-"),
            "labels": {"kubevirt.io": LAUNCHER, "kubevirt.io/created-by": pod::uid(vmi),
                "vm.kubevirt.io/name": name},
            "annotations": {"kubevirt.io/domain": name},
            "ownerReferences": [owner(vmi)],
        },
        "spec": spec,
    })
}

/// The pod of a disk that is hot-plugged into a VM. It exists as long as the VM's pod.
pub fn hotplug_pod(launcher: &Value) -> Value {
    let mut owner = owner(launcher);
    owner["apiVersion"] = json!("v1");
    owner["kind"] = json!("Pod");
    json!({
        "metadata": {"namespace": pod::namespace(launcher), "generateName": "hp-volume-",
            "labels": {"kubevirt.io": HOTPLUG}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "hotplug-disk", "image": "registry.example/virt-launcher:1"}]},
    })
}

/// Whether it is the pod of an instance.
pub(crate) fn is_launcher(pod: &Value) -> bool {
    pod["metadata"]["labels"]["kubevirt.io"] == LAUNCHER
}

/// The name of the pod's instance.
pub(crate) fn domain(pod: &Value) -> Option<&str> {
    pod::annotation(pod, "kubevirt.io/domain")
}

fn owner(of: &Value) -> Value {
    json!({"apiVersion": of["apiVersion"], "kind": of["kind"], "name": pod::name(of), "uid": pod::uid(of),
        "controller": true, "blockOwnerDeletion": true})
}
