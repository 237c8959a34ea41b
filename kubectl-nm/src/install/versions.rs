//! Which versions meet, and whether they go together.

use serde::Serialize;

/// The version of this program.
pub(crate) const OWN: &str = env!("CARGO_PKG_VERSION");

/// The versions of all that takes part.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Versions {
    /// This program's.
    pub(crate) plugin: String,
    /// nm-reconciler's, where it is installed and tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reconciler: Option<String>,
    /// The image that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reconciler_image: Option<String>,
    /// The API server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
}

/// What is wrong between plugin and reconciler: before 1.0 each minor version may change what they agree on, after that each
/// major one.
pub(crate) fn skew(plugin: &str, reconciler: &str) -> Option<String> {
    (series(plugin) != series(reconciler)).then(|| {
        format!("plugin {plugin} and reconciler {reconciler} are of different series and may not understand each other")
    })
}

/// The part of a version within which nothing that others rely on changes.
fn series(version: &str) -> (&str, &str) {
    let mut parts = version.split('.');
    let major = parts.next().unwrap_or_default();
    let minor = parts.next().unwrap_or_default();
    if major == "0" { (major, minor) } else { (major, "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_series_go_together() {
        for (a, b, fits) in [
            ("0.1.0", "0.1.9", true),
            ("0.1.0", "0.2.0", false),
            ("1.2.0", "1.9.3", true),
            ("1.2.0", "2.0.0", false),
            ("0.1.0", "0.1.0-rc1", true),
        ] {
            assert_eq!(skew(a, b).is_none(), fits, "{a} {b}");
        }
    }
}
