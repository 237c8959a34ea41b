//! The image of the reconciler: what `reconciler/image.sh` builds, and that the Dockerfile agrees with it.
//!
//! Building it takes minutes and needs an extra target, so that test is ignored by default. `.ci/run` runs it by name where
//! the target is installed: `cargo test --workspace --test e2e image -- --ignored`.

use std::path::{Path, PathBuf};
use std::process::Command;

use nm_tests::cluster::Cluster;
use nm_tests::elf::{DynamicDependencies, dynamic_dependencies};
use nm_tests::files::{repository, sha256, untar};
use nm_tests::maintenance::{start, stop, until_drained};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The size limit of the image's archive.
const LIMIT: u64 = 40 << 20;

/// An unpacked image.
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
        // For an uncompressed layer the config has the same digest as the manifest.
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

    fn program(&self, name: &str) -> PathBuf {
        self.files.path().join("root").join(name)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds an optimized program, which takes minutes"]
async fn the_image_holds_static_programs_of_which_one_drains_a_node() {
    let mut script = Command::new(repository().join("reconciler/image.sh"));
    // Cargo describes this package to its tests. Build scripts that ask for the same would run again, and all that depends on them.
    let described = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let described =
        described.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
    for name in described {
        script.env_remove(name);
    }
    let output = script.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let archive = repository().join(String::from_utf8(output.stdout).unwrap().trim());
    let image = Image::unpack(&archive);
    let size = archive.metadata().unwrap().len();
    assert!(size < LIMIT, "{size} bytes");
    for name in ["nm-reconciler", "kubectl-nm"] {
        let program = std::fs::read(image.program(name)).unwrap();
        assert_eq!(dynamic_dependencies(&program), Some(DynamicDependencies::default()), "{name}: static");
    }
    let version = Command::new(image.program("kubectl-nm")).args(["version", "--client"]).output().unwrap();
    assert!(version.status.success(), "{version:?}");
    assert_eq!(image.config["config"]["User"], "65532:65532");

    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "image").await;
    workload.deployment("web", 2).await;
    let node = node_of(&workload.until_running("web", 2).await[0]).to_owned();
    let _reconciler =
        Reconciler::start_build(&cluster.reconciler_kubeconfig(), &image.program("nm-reconciler"), &[]);
    start(&cluster, "e2e-image", &node).await;
    until_drained(&cluster, "e2e-image").await;
    stop(&cluster, "e2e-image").await;
}

#[test]
fn the_dockerfile_and_the_script_build_the_same_image() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let (dockerfile, script) = (read("Dockerfile"), read("reconciler/image.sh"));
    let both = |in_dockerfile: &str, in_script: &str| {
        assert!(dockerfile.contains(in_dockerfile), "the Dockerfile has no {in_dockerfile}");
        assert!(script.contains(in_script), "image.sh has no {in_script}");
    };
    both("USER 65532:65532", r#""User":"65532:65532""#);
    both(r#"ENTRYPOINT ["/nm-reconciler"]"#, r#""Entrypoint":["/nm-reconciler"]"#);
    both("EXPOSE 8080 9443", r#""ExposedPorts":{"8080/tcp":{},"9443/tcp":{}}"#);
    let build = "build --locked --release -p nm-reconciler -p kubectl-nm";
    both(build, build);
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
