//! What becomes of pods that leave a node, other than that they move: facts for the summary of a drain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of the pods that had to leave the node when the maintenance began, and of those that have left since, how many did not simply
/// move to another node.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct DepartedPods {
    /// Pods to be moved that no controller replaces: they are deleted for good.
    pub unmanaged: i32,
    /// Pods to be moved that had finished: they are deleted, and not replaced.
    pub finished: i32,
    /// Pods to be moved that a Job controls: it counts them as failed, and creates others if its back-off limit allows.
    pub of_jobs: i32,
    /// Pods to be moved that lose the data of their emptyDir volumes.
    pub losing_empty_dir_data: i32,
    /// Virtual machines whose migration was seen, and that have left.
    pub migrated: i32,
    /// Pods that have terminated on their own, as `waitForCompletion` allows.
    pub completed: i32,
    /// Pods that were deleted because their eviction was refused for longer than `deleteAfterSeconds`, whatever else became of
    /// them.
    pub deleted_after_refusal: i32,
}
