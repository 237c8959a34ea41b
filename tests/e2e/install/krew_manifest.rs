//! krew's rules for a plugin manifest.
//!
//! They are those of its `internal/index/validation` and of `cmd/validate-krew-manifest`, with which its index checks
//! submissions. The length of the short description comes from its developer guide.

use serde_json::{Value, json};

/// The platforms that krew supports.
const PLATFORMS: [(&str, &str); 11] = [
    ("windows", "386"),
    ("windows", "amd64"),
    ("windows", "arm64"),
    ("linux", "386"),
    ("linux", "amd64"),
    ("linux", "arm"),
    ("linux", "arm64"),
    ("linux", "ppc64le"),
    ("darwin", "386"),
    ("darwin", "amd64"),
    ("darwin", "arm64"),
];

/// The rules that the manifest `NAME.yaml` violates.
pub(crate) fn violations(name: &str, manifest: &Value) -> Vec<String> {
    let (spec, none) = (&manifest["spec"], Vec::new());
    let platforms = spec["platforms"].as_array().unwrap_or(&none);
    let short = spec["shortDescription"].as_str().unwrap_or_default();
    let rules = [
        ("apiVersion", manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"),
        ("kind", manifest["kind"] == "Plugin"),
        (
            "a safe name",
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)),
        ),
        ("the name of the file", manifest["metadata"]["name"] == name),
        (
            "shortDescription",
            !short.is_empty() && short.chars().count() <= 50 && !short.contains(['\r', '\n']),
        ),
        ("version", spec["version"].as_str().is_some_and(is_version)),
        ("platforms", !platforms.is_empty()),
    ];
    let mut broken: Vec<String> =
        rules.iter().filter(|(_, holds)| !holds).map(|(rule, _)| (*rule).to_owned()).collect();
    broken.extend(platforms.iter().enumerate().flat_map(|(at, platform)| {
        of_platform(platform).into_iter().map(move |rule| format!("platform {at}: {rule}"))
    }));
    for (os, arch) in PLATFORMS {
        if platforms.iter().filter(|platform| is_for(platform, os, arch)).count() > 1 {
            broken.push(format!("several platforms for {os}/{arch}"));
        }
    }
    broken
}

fn of_platform(platform: &Value) -> Vec<&'static str> {
    let text = |field: &str| platform[field].as_str().unwrap_or_default();
    let is_digest = |text: &str| text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let selector = platform["selector"].as_object();
    let labels = platform["selector"]["matchLabels"].as_object();
    let files = &platform["files"];
    let rules = [
        ("uri", !text("uri").is_empty()),
        ("sha256", is_digest(text("sha256"))),
        ("bin", !text("bin").is_empty() && !text("bin").contains("..")),
        ("files", files.is_null() || files.as_array().is_some_and(|files| !files.is_empty())),
        // krew also supports `matchExpressions`, which this manifest does not use.
        ("selector", selector.is_some_and(|selector| selector.keys().eq(["matchLabels"]))),
        (
            "selector's keys",
            labels.is_some_and(|labels| {
                !labels.is_empty() && labels.keys().all(|key| key == "os" || key == "arch")
            }),
        ),
        ("a platform that krew knows", PLATFORMS.iter().any(|(os, arch)| is_for(platform, os, arch))),
    ];
    rules.into_iter().filter(|(_, holds)| !holds).map(|(rule, _)| rule).collect()
}

/// Whether krew selects this platform on such a machine.
pub(crate) fn is_for(platform: &Value, os: &str, arch: &str) -> bool {
    let is = |key: &str, value: &str| {
        let wanted = &platform["selector"]["matchLabels"][key];
        wanted.is_null() || wanted == value
    };
    is("os", os) && is("arch", arch)
}

/// Whether the text is a semantic version with a leading `v`.
fn is_version(text: &str) -> bool {
    let Some(version) = text.strip_prefix('v') else { return false };
    let numbers: Vec<&str> = version.split(['-', '+']).next().unwrap_or_default().split('.').collect();
    let is_number = |text: &&str| text.parse::<u32>().is_ok_and(|number| number.to_string() == *text);
    numbers.len() == 3 && numbers.iter().all(is_number)
}

#[test]
fn violations_of_krews_rules_are_detected() {
    let platform = |os: &str| {
        json!({"uri": "https://x", "sha256": "0".repeat(64), "bin": "kubectl-nm",
            "selector": {"matchLabels": {"os": os, "arch": "amd64"}}})
    };
    let good = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": {"name": "nm"},
        "spec": {"version": "v1.2.3-rc.1", "shortDescription": "x", "platforms": [platform("linux"), platform("darwin")]},
    });
    assert_eq!(violations("nm", &good), Vec::<String>::new());
    assert_eq!(violations("n m", &good), ["a safe name", "the name of the file"]);
    for (path, value, rule) in [
        ("/apiVersion", json!("v1"), "apiVersion"),
        ("/kind", json!("plugin"), "kind"),
        ("/spec/shortDescription", json!("x".repeat(51)), "shortDescription"),
        ("/spec/shortDescription", json!("a\nb"), "shortDescription"),
        ("/spec/version", json!("1.2.3"), "version"),
        ("/spec/version", json!("v1.02.3"), "version"),
        ("/spec/platforms", json!([]), "platforms"),
        ("/spec/platforms/0/sha256", json!("A".repeat(64)), "platform 0: sha256"),
        ("/spec/platforms/0/uri", json!(""), "platform 0: uri"),
        ("/spec/platforms/0/bin", json!(null), "platform 0: bin"),
        ("/spec/platforms/0/files", json!([]), "platform 0: files"),
        ("/spec/platforms/1/selector/matchLabels/os", json!("linux"), "several platforms for linux/amd64"),
        (
            "/spec/platforms/1/selector/matchLabels/os",
            json!("plan9"),
            "platform 1: a platform that krew knows",
        ),
        (
            "/spec/platforms/1/selector/matchLabels",
            json!({"host": "x", "os": "darwin", "arch": "arm64"}),
            "platform 1: selector's keys",
        ),
    ] {
        let mut bad = good.clone();
        match bad.pointer_mut(path) {
            Some(field) => *field = value,
            None => bad["spec"]["platforms"][0]["files"] = value,
        }
        assert_eq!(violations("nm", &bad), [rule], "{path}");
    }
}
