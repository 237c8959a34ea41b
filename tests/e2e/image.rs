//! The image of the reconciler: what `reconciler/image.sh` makes, and that the Dockerfile says the same.
//!
//! Building it takes minutes and a target of its own, so that test runs by its name, as `.ci/run` does where the target is
//! installed: `cargo test -p nm-tests --test e2e image -- --ignored`.

use std::path::{Path, PathBuf};
use std::process::Command;

use nm_tests::cluster::Cluster;
use nm_tests::elf::{Needs, needs};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{drained, start, stop};

/// All of it, unpacked.
const LIMIT: u64 = 15 << 20;

/// The folder of the sources.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// An image, unpacked.
struct Image {
    files: TempDir,
    config: Value,
}

impl Image {
    fn unpack(archive: &Path) -> Self {
        let files = tempfile::tempdir().unwrap();
        let blobs = files.path().join("layout");
        untar(archive, &blobs);
        let read = |path: &str| -> Value {
            serde_json::from_slice(&std::fs::read(blobs.join(path)).unwrap()).unwrap()
        };
        assert_eq!(read("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let path = format!("blobs/sha256/{digest}");
            assert_eq!(sha256(&blobs.join(&path)), digest, "a blob is named by its digest");
            assert_eq!(json!(blobs.join(&path).metadata().unwrap().len()), descriptor["size"]);
            path
        };
        let manifest = read(&blob(&read("index.json")["manifests"][0]));
        let config_path = blob(&manifest["config"]);
        let config = read(&config_path);
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
        let layer = blob(&manifest["layers"][0]);
        // A layer that is not compressed is known to its config by the same digest.
        assert_eq!(config["rootfs"]["diff_ids"], json!([manifest["layers"][0]["digest"]]));
        let for_docker = read("manifest.json");
        assert_eq!(for_docker[0]["Config"], json!(config_path));
        assert_eq!(for_docker[0]["Layers"], json!([layer]));
        let version = &config["config"]["Labels"]["org.opencontainers.image.version"];
        assert_eq!(
            for_docker[0]["RepoTags"],
            json!([format!("localhost/nm-reconciler:{}", version.as_str().unwrap())])
        );
        untar(&blobs.join(layer), &files.path().join("root"));
        Self { files, config }
    }

    fn program(&self) -> PathBuf {
        self.files.path().join("root/nm-reconciler")
    }
}

/// Unpacks an archive into a new folder.
pub(crate) fn untar(archive: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to).status().unwrap();
    assert!(status.success(), "{}", archive.display());
}

/// The digest of a file.
pub(crate) fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds an optimized program, which takes minutes"]
async fn the_image_holds_a_static_program_that_drains_a_node() {
    let output = Command::new(root().join("reconciler/image.sh")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let archive = root().join(String::from_utf8(output.stdout).unwrap().trim());
    let image = Image::unpack(&archive);
    let size = archive.metadata().unwrap().len();
    assert!(size < LIMIT, "{size} bytes");
    let program = std::fs::read(image.program()).unwrap();
    assert_eq!(needs(&program), Some(Needs::default()), "neither a loader nor a library");
    assert_eq!(image.config["config"]["User"], "65532:65532");

    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "image").await;
    workload.deployment("web", 2).await;
    let node = node_of(&workload.until_running("web", 2).await[0]).to_owned();
    let _reconciler = Reconciler::of(&cluster, &image.program());
    start(&cluster, "e2e-image", &node).await;
    drained(&cluster, "e2e-image").await;
    stop(&cluster, "e2e-image").await;
}

#[test]
fn both_ways_to_build_the_image_say_the_same_of_it() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (dockerfile, script) = (read("Dockerfile"), read("reconciler/image.sh"));
    let both = |in_dockerfile: &str, in_script: &str| {
        assert!(dockerfile.contains(in_dockerfile), "the Dockerfile does not say {in_dockerfile}");
        assert!(script.contains(in_script), "image.sh does not say {in_script}");
    };
    both("USER 65532:65532", r#""User":"65532:65532""#);
    both(r#"ENTRYPOINT ["/nm-reconciler"]"#, r#""Entrypoint":["/nm-reconciler"]"#);
    both("EXPOSE 8080 9443", r#""ExposedPorts":{"8080/tcp":{},"9443/tcp":{}}"#);
    both(
        "build --locked --profile image -p nm-reconciler",
        "build --locked --profile image -p nm-reconciler",
    );
    for label in ["title", "description", "licenses", "version", "revision"] {
        let name = format!("org.opencontainers.image.{label}");
        let value_in = |text: &str, separator: char| {
            let line = text
                .lines()
                .find(|line| line.contains(&name))
                .unwrap_or_else(|| panic!("{label}"))
                .to_owned();
            line.split_once(separator).unwrap().1.split('"').nth(1).unwrap().to_owned()
        };
        let (here, there) = (value_in(&dockerfile, '='), value_in(&script, ':'));
        assert!(here == there || here.starts_with("${"), "{label}: {here} and {there}");
    }
    assert!(dockerfile.contains("\nFROM scratch\n"));
    assert!(dockerfile.contains(&format!("\nARG VERSION={}\n", env!("CARGO_PKG_VERSION"))));
}
