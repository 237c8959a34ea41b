//! What is generated is what is in the repository.

use std::path::Path;

/// `NM_UPDATE=1 cargo test -p nm-tests manifests` rewrites the generated files.
fn check(path: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("NM_UPDATE").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == generated,
        "{} is out of date: run NM_UPDATE=1 cargo test -p nm-tests manifests",
        path.display()
    );
}

#[test]
fn the_crd_is_the_one_that_the_types_say() {
    let yaml = serde_saphyr::to_string(&nm_shared::crd::crd()).unwrap();
    check("manifests/crd.yaml", &format!("# Generated from the types in shared/; a test holds it.\n{yaml}"));
}
