//! Addresses of documentation pages, for messages: users of the program do not have the repository.

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Address of a documentation page; `page` is its path below `docs/`.
pub fn docs_url(page: &str) -> String {
    format!("{REPOSITORY}/blob/main/docs/{page}")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn the_address_is_the_homepage_in_the_krew_manifest() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let krew = std::fs::read_to_string(root.join("krew/nm.yaml")).unwrap();
        assert!(krew.contains(&format!("  homepage: {REPOSITORY}\n")), "{krew}");
        assert_eq!(
            docs_url("how-to/build-the-image.md"),
            format!("{REPOSITORY}/blob/main/docs/how-to/build-the-image.md")
        );
    }

    #[test]
    fn every_page_that_a_message_links_to_exists() {
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut named = 0;
        for (path, text) in sources(&plugin) {
            let pages = text.split("docs_url(\"").skip(1).filter_map(|rest| rest.split('"').next());
            for page in pages {
                named += 1;
                assert!(plugin.join("../docs").join(page).exists(), "{page} of {}", path.display());
            }
        }
        assert!(named > 3, "{named} are named");
    }

    #[test]
    fn no_message_names_a_path_in_the_repository() {
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (path, text) in sources(&plugin) {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let naming: Vec<&str> =
                code.filter(|line| line.contains("docs/") && line.contains(".md")).collect();
            let is_this = path.ends_with("docs_url.rs");
            assert!(is_this || naming.is_empty(), "{}: {naming:?}", path.display());
        }
    }

    /// The Rust files of a folder and its subfolders.
    fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
        let mut sources = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources.extend(self::sources(&path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                sources.push((path, text));
            }
        }
        sources
    }
}
