use super::*;
use crate::config::config_file::Config;

fn chosen(text: &str, choice: &Choice) -> String {
    with_choice(text, choice).unwrap()
}

fn read(path: &Path) -> Config {
    let (config, mistakes) = Config::read(path);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    config
}

#[test]
fn a_choice_leaves_comments_and_everything_else_as_it_is() {
    let text = "# mine\ntheme = \"dark\" # at night\n\n[columns]\n# short\nnodes = [\"node\"]\n\n[keys]\nlogs = \"F2\"\n";
    let light = chosen(text, &Choice::Theme(ThemeName::Light));
    assert_eq!(light, text.replace("\"dark\"", "\"light\""));
    let columns = Choice::Columns(ListName::Maintenances, vec!["node", "why"]);
    let with_columns = chosen(text, &columns);
    let expected = "nodes = [\"node\"]\nmaintenances = [\"node\", \"why\"]\n";
    assert_eq!(with_columns, text.replace("nodes = [\"node\"]\n", expected));
    let new = chosen("", &columns);
    assert_eq!(new, "[columns]\nmaintenances = [\"node\", \"why\"]\n");
}

#[test]
fn the_file_is_created_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("config.toml");
    assert_eq!(read(&path), Config::default());
    for theme in [ThemeName::Light, ThemeName::Mono] {
        remember(&path, &Choice::Theme(theme)).unwrap();
        assert_eq!(read(&path).theme, Some(theme));
    }
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("config.toml");
    assert_eq!(read(&below), Config::default(), "there is no such folder");
    assert!(remember(&below, &Choice::Theme(ThemeName::Light)).is_err());
}

#[test]
fn comments_inside_of_a_list_move_above_it() {
    let columns = Choice::Columns(ListName::Nodes, vec!["age", "node"]);
    let text = "[columns] # mine\n# short\nnodes = [ # left to right\n  \"node\",\n  # not now\n  \"age\", # old\n] # done\n";
    let expected =
        "[columns] # mine\n# short\n# left to right\n# not now\n# old\nnodes = [\"age\", \"node\"] # done\n";
    assert_eq!(chosen(text, &columns), expected);
}

#[test]
fn every_way_to_write_a_section_is_understood() {
    let columns = Choice::Columns(ListName::Nodes, vec!["age"]);
    for (text, expected) in [
        ("columns.nodes = [\"node\"]\n", "columns.nodes = [\"age\"]\n"),
        ("columns = { nodes = [\"node\"] } # c\n", "columns = { nodes = [\"age\"] } # c\n"),
        ("columns = { nodes = [ # c\n\"node\"] }\n", "columns = { # c\nnodes = [\"age\"] }\n"),
        ("columns.nodes = [ # c\n\"node\"]\n", "# c\ncolumns.nodes = [\"age\"]\n"),
        ("[keys]\nlogs = \"F2\"\n", "[keys]\nlogs = \"F2\"\n\n[columns]\nnodes = [\"age\"]\n"),
        ("[columns]\r\npods = [\"pod\"]\r\n", "[columns]\r\npods = [\"pod\"]\r\nnodes = [\"age\"]\r\n"),
    ] {
        assert_eq!(chosen(text, &columns), expected);
    }
}

#[test]
fn a_file_that_cannot_be_changed_without_harm_is_left_alone() {
    let columns = Choice::Columns(ListName::Nodes, vec!["age"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let cases = [("ascii = true\ntheme = ", 2), ("columns = 3\n", 1), ("[columns.nodes]\nage = 1\n", 1)];
    for (text, line) in cases {
        fs::write(&path, text).unwrap();
        match remember(&path, &columns) {
            Err(ConfigError::Invalid { line: found, .. }) => assert_eq!(found, line, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_its_file_keeps_its_mode() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("dotfiles.toml"), folder.path().join("config.toml"));
    fs::write(&file, "# mine\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&file, &link).unwrap();
    remember(&link, &Choice::Theme(ThemeName::Mono)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&file).theme, Some(ThemeName::Mono));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[cfg(unix)]
#[test]
fn what_a_link_leads_to_is_created() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let (link, file) = (folder.path().join("config.toml"), folder.path().join("dotfiles").join("nm.toml"));
    symlink("between.toml", &link).unwrap();
    symlink("dotfiles/nm.toml", folder.path().join("between.toml")).unwrap();
    remember(&link, &Choice::Theme(ThemeName::Mono)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&file).theme, Some(ThemeName::Mono));
    // Links that lead to each other have no end.
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    symlink(&other, &one).unwrap();
    symlink(&one, &other).unwrap();
    assert!(remember(&one, &Choice::Theme(ThemeName::Mono)).is_err());
    assert!(fs::symlink_metadata(&one).unwrap().is_symlink());
}
