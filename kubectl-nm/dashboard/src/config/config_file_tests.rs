use nm_core::terminal::output::captured::output;

use super::*;

fn parsed(text: &str) -> Config {
    let (config, problems) = Config::parse(text);
    assert_eq!(problems, []);
    config
}

/// What a file with this text sets, and the lines and words of its mistakes.
fn read(text: &str) -> (Config, Vec<(usize, String)>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    fs::write(&path, text).unwrap();
    let (config, mistakes) = Config::read(&path);
    let of = |mistake| match mistake {
        ConfigError::Invalid { line, problem, path: named } => {
            assert_eq!(named, path);
            (line, problem)
        }
        unreadable @ ConfigError::Unreadable { .. } => panic!("{unreadable}"),
    };
    (config, mistakes.into_iter().map(of).collect())
}

#[test]
fn theme_columns_and_keys_are_read() {
    let text = "theme = \"light\"\nascii = true\n[columns]\nmaintenances = [\"node\", \"reason\"]\n\
                [keys]\nlogs = \"F2\"\nquit = [\"q\", \"Ctrl-Q\"]\n";
    let config = parsed(text);
    assert_eq!((config.theme, config.ascii), (Some(ThemeName::Light), Some(true)));
    assert_eq!(config.columns.of(ListName::Maintenances), ["node", "reason"]);
    assert_eq!(config.columns.of(ListName::Pods), Columns::default().of(ListName::Pods));
    assert_eq!(config.keys.keys(Action::Logs), ["F2"]);
    assert_eq!(config.keys.keys(Action::Quit), ["q", "Ctrl-Q", "Ctrl-C"]);
    assert_eq!(parsed(""), Config::default());
}

#[test]
fn a_mistake_is_reported_with_its_line_and_what_to_use_instead() {
    for (text, line, said) in [
        ("theme = \"blue\"", 1, "unknown theme \"blue\": remove it, or use one of dark, light"),
        ("\n\ncolour = 1", 3, "unknown key \"colour\""),
        ("[columns]\nrows = []", 2, "unknown list \"rows\""),
        ("[columns]\n# c\nnodes = [\"node\",\n \"size\"]", 4, "unknown column \"size\""),
        ("[columns]\nnodes = []", 2, "has no column"),
        ("[columns]\nnodes = 3", 2, "a list of words in quotes"),
        ("[keys]\nfly = \"f\"", 2, "unknown action \"fly\""),
        ("[keys]\nlogs = \"Hyper-X\"", 2, "\"Hyper-X\" is not a key"),
        ("[keys]\nlogs = \"Ctrl-I\"", 2, "a terminal sends Tab for Ctrl-I: use another key"),
        ("[keys]\nlogs = \"Ctrl-Alt-M\"", 2, "a terminal sends Alt-Enter for Ctrl-Alt-M"),
        ("[keys]\nlogs = \"Ctrl-[\"", 2, "a terminal sends Esc for Ctrl-["),
        ("[keys]\nlogs = \"z\"\nyaml = \"z\"", 3, "assigned to logs already"),
        ("[keys]\nlogs = \"Ctrl-C\"", 2, "Ctrl-C always means quit"),
        ("ascii = true\n[keys]\nlogs = \"Esc\"", 2, "back has no key any more: give it one in [keys]"),
        ("columns = 1", 1, "has to be a section"),
        ("ascii = 1", 1, "true or false"),
        ("ascii = true\ntheme = ", 2, "correct the line, the whole file is ignored"),
    ] {
        let (_, mistakes) = read(text);
        let [(at, problem)] = mistakes.as_slice() else { panic!("{text}: {mistakes:?}") };
        assert_eq!(*at, line, "{text}: {problem}");
        assert!(problem.contains(said), "{text}: {problem}");
    }
}

#[test]
fn settings_without_a_mistake_are_used_beside_those_with_one() {
    let text = "theme = \"blue\"\nascii = true\n[columns]\nnodes = [\"size\"]\npods = [\"pod\"]\n\
                [keys]\nlogs = \"F2\"\nyaml = \"F2\"\nfly = \"f\"\n";
    let (config, mistakes) = read(text);
    assert_eq!(mistakes.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 4, 8, 9]);
    assert_eq!((config.theme, config.ascii), (None, Some(true)));
    assert_eq!(config.columns.of(ListName::Nodes), Columns::default().of(ListName::Nodes));
    assert_eq!(config.columns.of(ListName::Pods), ["pod"]);
    assert_eq!(
        (config.keys.keys(Action::Logs), config.keys.keys(Action::Yaml)),
        (&[String::from("F2")][..], &[String::from("y")][..])
    );
    // Without a way back, the other keys would be a trap.
    let (config, _) = read("[keys]\nlogs = [\"Esc\", \"F2\"]\n");
    assert_eq!(config.keys, KeyMap::default());
}

#[test]
fn mistakes_are_printed_with_what_to_do_and_summarised_for_the_dashboard() {
    let mistake = |line, problem: &str| {
        Problem(Some(line..line), problem.to_owned()).in_file(Path::new("/h/config.toml"), "\n\n\n")
    };
    let (mut out, captured) = output();
    assert_eq!(report(&[], &mut out), None);
    assert_eq!(captured.messages(), "");
    let summary = report(&[mistake(0, "no theme"), mistake(2, "no column")], &mut out).unwrap();
    assert_eq!(summary, "/h/config.toml:1: no theme (and 1 more); defaults are used instead");
    let printed = captured.messages();
    assert!(
        printed
            .starts_with("warning: /h/config.toml:1: no theme\nwarning: /h/config.toml:3: no column\nhint: ")
    );
    assert!(printed.contains(&docs_url("reference/config.md")), "{printed}");
}

#[test]
fn the_path_is_that_of_the_xdg_specification() {
    let of = |xdg: &str, home: &str| {
        let value = |name: &str| {
            let value = if name == "HOME" { home } else { xdg };
            (!value.is_empty()).then(|| PathBuf::from(value))
        };
        path(value).map(|path| path.display().to_string())
    };
    let in_home = "/h/.config/kubectl-nm/config.toml";
    assert_eq!(of("/x", "/h").as_deref(), Some("/x/kubectl-nm/config.toml"));
    assert_eq!(of("", "/h").as_deref(), Some(in_home));
    assert_eq!(of("relative", "/h").as_deref(), Some(in_home));
    assert_eq!(of("", ""), None);
}
