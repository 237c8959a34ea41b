//! Permissions that are granted apart, because the features that need them are off by default.

use std::fmt;
use std::str::FromStr;

/// A permission that is not installed by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// To patch `nodes/status`, for the reconciler's flag `--node-conditions`.
    NodeConditions,
    /// To delete pods, for `spec.drain.deleteAfterSeconds`.
    PodDeletion,
}

impl Grant {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::NodeConditions, Self::PodDeletion];

    /// The word for `kubectl nm install --grant`. The component of the manifests has it with an underscore.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeConditions => "node-conditions",
            Self::PodDeletion => "pod-deletion",
        }
    }

    /// What is permitted: the verb, and the resource of the core group.
    pub fn permission(self) -> (&'static str, &'static str) {
        match self {
            Self::NodeConditions => ("patch", "nodes/status"),
            Self::PodDeletion => ("delete", "pods"),
        }
    }

    /// What needs it.
    pub fn feature(self) -> &'static str {
        match self {
            Self::NodeConditions => "--node-conditions",
            Self::PodDeletion => "spec.drain.deleteAfterSeconds",
        }
    }

    /// The permission that [`Grant::explain`] has found missing, if it has.
    pub fn named_in(said: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grant| said.contains(&grant.command()))
    }

    /// What grants it.
    fn command(self) -> String {
        format!("kubectl nm install --grant {self}")
    }

    /// What the API server says when it refuses, with what grants the permission where that is what is missing.
    pub fn explain(self, said: &str) -> String {
        let (verb, resource) = self.permission();
        // The words of RBAC's refusals (`apiserver/pkg/endpoints/handlers/responsewriters/errors.go`).
        if !said.contains(&format!("cannot {verb} resource \"{resource}\"")) {
            return said.to_owned();
        }
        let component = self.as_str().replace('-', "_");
        format!(
            "{said}; {} needs that, and `{}` or manifests/components/{component} grants it",
            self.feature(),
            self.command()
        )
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|grant| grant.as_str() == text)
            .ok_or_else(|| format!("must be one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_told_with_what_grants_it_and_other_refusals_are_told_as_they_are() {
        let missing = "pods \"a\" is forbidden: User \"u\" cannot delete resource \"pods\" in API group \"\"";
        let told = Grant::PodDeletion.explain(missing);
        for part in
            [missing, "spec.drain.deleteAfterSeconds", "--grant pod-deletion", "components/pod_deletion"]
        {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert_eq!(Grant::NodeConditions.explain(missing), missing);
        assert_eq!((Grant::named_in(&told), Grant::named_in(missing)), (Some(Grant::PodDeletion), None));
        for grant in Grant::ALL {
            assert_eq!(grant.to_string().parse(), Ok(grant));
        }
        assert!("pods".parse::<Grant>().unwrap_err().contains("node-conditions, pod-deletion"));
    }
}
