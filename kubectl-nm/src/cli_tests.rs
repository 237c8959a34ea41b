//! The command line: what it accepts and refuses, and its help.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::ErrorKind;
use nm_core::terminal::output::captured::output;

use super::*;
use crate::commands;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    let arguments = std::iter::once("/opt/bin/kubectl-nm").chain(line.split_whitespace());
    Cli::try_parse_from(with_joined_values(arguments.map(OsString::from).collect()))
}

#[test]
fn the_level_of_v_is_an_integer_and_nothing_else() {
    let check = |line: &str, verbose: bool, nodes: &[&str]| {
        let cli = parse(line).unwrap_or_else(|refused| panic!("{line}: {refused}"));
        assert_eq!(cli.connection.is_verbose(), verbose, "{line}");
        let Command::Watch(args) = cli.command else { panic!("{line}") };
        assert_eq!(args.nodes, nodes, "{line}");
    };
    for line in [
        "watch -v n1",
        "watch n1 -v",
        "-v watch n1",
        "watch -v 6 n1",
        "watch -v6 n1",
        "watch --v=2 n1",
        "watch --v n1",
    ] {
        check(line, true, &["n1"]);
    }
    for line in ["watch n1", "watch -v 0 n1", "watch -v=0 n1", "watch --v -1 n1"] {
        check(line, false, &["n1"]);
    }
    check("watch -- 6", false, &["6"]);
}

#[test]
fn a_negative_duration_is_refused_as_one() {
    for line in ["start n1 --delete-after -5s", "stop n1 --wait --timeout -1", "watch n1 --timeout=-1m"] {
        let refused = parse(line).unwrap_err().to_string();
        assert!(refused.contains("a duration cannot be negative"), "{line}: {refused}");
    }
    for line in ["start n1 --grace-period -1", "watch n1 -v -1"] {
        assert!(parse(line).is_ok(), "{line}");
    }
    assert!(parse("status -- -5").unwrap_err().to_string().contains("a node name"), "it is no value");
}

#[test]
fn the_definition_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn a_plan_takes_every_flag_of_start() {
    let cli = Cli::command();
    let flags = |name: &str| -> Vec<String> {
        let command = cli.find_subcommand(name).unwrap();
        command.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
    };
    let plan = flags("plan");
    let missing: Vec<String> = flags("start").into_iter().filter(|flag| !plan.contains(flag)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(parse("plan n1 --hook flush").unwrap_err().to_string().contains("no owner"), "as with start");
}

#[test]
fn flags_are_accepted_before_and_after_the_command() {
    for line in [
        "start n1 n2 --reason kernel --wait --timeout 1h30m",
        "start node/n1 -r kernel",
        "--context c start n1",
        "start n1 --context c -n shop -s https://x:6443 --v=6 -v 6 --as jane --as-group a --as-group b",
        "status -o=json --insecure-skip-tls-verify --request-timeout=5s",
        "status -ojson --insecure-skip-tls-verify=false --request-timeout 5 --cache-dir /tmp",
        "status --kubeconfig f --cluster c --user u --token t --tls-server-name x --certificate-authority f",
        "status --client-certificate f --client-key f --match-server-version --disable-compression=true",
        "status -l a=b -o wide",
        "status --username jane --password p --color=never",
        "start -l a=b,!c -y --grace-period -1 --timeout 1m --pod-selector x=y --force --delete-emptydir-data=false",
        "start n1 -f nodes --delete-after 5m --order priorityascending --dry-run server -o name",
        "start -f - --watch --wait",
        "stop --all --yes",
        "watch --until drained --timeout 0",
        "watch n1 --until stopped",
        "stop n1 --wait --timeout 1m",
    ] {
        if let Err(refused) = parse(line) {
            panic!("{line}: {refused}");
        }
    }
}

#[test]
fn the_last_flag_takes_effect_and_lists_accumulate() {
    let cli = parse("status --context a --as-group a n1 --context b --as-group b n2").unwrap();
    assert_eq!(cli.connection.context.as_deref(), Some("b"));
    assert_eq!(cli.connection.as_group, ["a", "b"]);
    assert!(format!("{:?}", cli.command).contains(r#"["n1", "n2"]"#), "{:?}", cli.command);
}

#[test]
fn invalid_command_lines_are_refused() {
    for line in [
        "start",
        "start N1",
        "start -l a=b n1",
        "start -l a=b -f nodes",
        "start --selector= -y",
        "start -l , -y",
        "stop --selector= -y",
        "stop -l , -y",
        "plan --selector=",
        "plan -l ,",
        "start n1 --watch -o json",
        "start n1 --grace-period=-2",
        "start n1 --pod-selector a>1",
        "start n1 --pod-selector ,",
        "start n1 --force=no",
        "start n1 --dry-run maybe",
        "stop --all n1",
        "stop n1 --timeout 1m",
        "status -o jsonpath={.items}",
        "status -o custom-columns=A:.metadata.name",
        "start n1 --wait --timeout 1",
        "start n1 --wait-for-completion=true",
        "start n1 --wait-for-completion=false",
        "start n1 --wait --timeout=-1s",
        "stop",
        "status -o html",
        "watch --until tomorrow",
        "frobnicate",
        "install -n Foo_x",
        "gather -o -",
        "gather -o json",
        "gather -o jsonpath={.a}",
        "status --color sometimes",
        "status --insecure-skip-tls-verify=maybe",
        "status --token t --username u",
    ] {
        let refused = parse(line).unwrap_err();
        assert!(refused.use_stderr(), "{line}: {refused}");
    }
}

#[test]
fn help_names_kubectl_nm_and_has_examples() {
    for (line, expected) in [
        ("--help", "Usage: kubectl nm "),
        ("start --help", "Usage: kubectl nm start "),
        ("help stop", "Usage: kubectl nm stop "),
        ("watch -h", "kubectl nm watch node-1 --until drained"),
        ("status -h", "kubectl nm status node-1 -o wide"),
    ] {
        let help = parse(line).unwrap_err();
        assert_eq!(help.kind(), ErrorKind::DisplayHelp);
        assert!(help.to_string().contains(expected), "{help}");
        assert!(!help.to_string().contains("Usage: kubectl-nm"), "{help}");
    }
    for line in ["--help", "-h"] {
        let help = parse(line).unwrap_err().to_string();
        assert!(
            help.lines().count() < 24 && help.lines().all(|line| line.len() <= 80),
            "fits a screen with a prompt: {help}"
        );
        assert!(help.contains("Examples:") && help.contains("kubectl nm start node-1"), "{help}");
    }
    let missing = parse("").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
}

#[test]
fn the_help_of_every_command_has_examples_and_exit_codes() {
    for command in Cli::command().get_subcommands() {
        let help = parse(&format!("{} --help", command.get_name())).unwrap_err().to_string();
        let parts = ["\n\nExamples:\n", "\n\nUsage: ", "Exit codes: ", "\n\nUse `kubectl nm options` for "];
        let places = parts.map(|part| {
            help.find(part).unwrap_or_else(|| panic!("{} lacks {part}: {help}", command.get_name()))
        });
        assert!(places.is_sorted(), "{help}");
    }
}

#[test]
fn the_short_help_of_roll_has_what_a_first_roll_needs_and_the_long_one_has_everything_under_headings() {
    let [short, long] = ["-h", "--help"].map(|flag| parse(&format!("roll {flag}")).unwrap_err().to_string());
    assert!(short.lines().count() <= 80, "{} lines: {short}", short.lines().count());
    for flag in ["--run", "--job", "--confirm", "--expect-reboot", "--max-unavailable", "--waves", "--window"]
    {
        assert!(short.contains(&format!("{flag} ")), "{flag}: {short}");
    }
    for heading in ["Action", "Order and pace", "Limits", "Drain", "Dashboard"] {
        assert!(long.contains(&format!("\n{heading}:\n")), "{heading}: {long}");
    }
    let (options, _) = long.split_once("\nAction:\n").unwrap();
    for flag in ["--selector", "--name", "--dry-run", "--yes", "--reason"] {
        assert!(options.contains(flag), "{flag}: {options}");
    }
    for part in ["Steps of a node:", "Exit codes: "] {
        assert!(long.contains(part) && !short.contains(part), "{part}");
    }
}

#[test]
fn the_flags_of_every_command_are_printed_by_options_and_not_in_the_help_of_a_command() {
    let (mut out, captured) = output();
    commands::options::run(&Cli::command(), &mut out).unwrap();
    let options = captured.data();
    let global: Vec<String> =
        Cli::command().get_arguments().filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect();
    assert!(global.len() > 20, "{global:?}");
    for flag in global {
        let is_shown = |text: &str| text.split_whitespace().any(|word| word.split('[').next() == Some(&flag));
        assert!(is_shown(&options), "{flag}: {options}");
        for line in ["start --help", "status -h", "roll status --help"] {
            let help = parse(line).unwrap_err().to_string();
            assert!(!is_shown(&help), "{line}: {flag}: {help}");
        }
    }
}

#[test]
fn only_flags_of_the_drain_are_under_its_heading() {
    let help = parse("start -h").unwrap_err().to_string();
    let (options, drain) = help.split_once("\nDrain:").unwrap();
    assert!(options.contains("--yes") && options.contains("--reason"), "{help}");
    let drain = drain.split("\n\n").next().unwrap();
    let flags = drain.lines().filter(|line| line.starts_with("      --")).count();
    assert_eq!((flags, drain.contains("--grace-period")), (15, true), "{drain}");
}

#[test]
fn the_colour_of_parser_errors_follows_the_flag() {
    let words = |line: &str| line.split(' ').map(Into::into).collect::<Vec<OsString>>();
    assert_eq!(colour_flag(&words("nm --color always bogus")), Colour::Always);
    assert_eq!(colour_flag(&words("nm bogus --color=never")), Colour::Never);
    assert_eq!(colour_flag(&words("nm bogus --color")), Colour::Auto);
}

#[test]
fn a_wrong_number_is_told_what_is_expected() {
    for (line, expected) in [
        (
            "start n1 --grace-period x",
            "'x' for '--grace-period <SECONDS>': expected a whole number, at least -1",
        ),
        (
            "start n1 --grace-period=-2",
            "'-2' for '--grace-period <SECONDS>': expected a whole number, at least -1",
        ),
        ("install --replicas 0", "'0' for '--replicas <N>': expected a whole number, at least 1"),
        ("status --v=x", "'x' for '--v[=<LEVEL>]': expected a whole number"),
    ] {
        let message = parse(line).unwrap_err().to_string();
        assert!(message.contains(expected), "{line}: {message}");
    }
}

#[test]
fn a_dry_run_without_a_value_is_one_of_the_client_wherever_it_stands() {
    let nodes = |line: &str| {
        let words = line.split(' ').map(OsString::from);
        let cli = Cli::try_parse_from(with_dry_run_values(words)).unwrap();
        let Command::Start(args) = cli.command else { panic!("start") };
        format!("{args:?}")
    };
    for line in [
        "nm start --dry-run n1",
        "nm start n1 --dry-run",
        "nm start n1 --dry-run client",
        "nm start n1 --dry-run=client",
        "nm start --dry-run -y n1",
    ] {
        let parsed = nodes(line);
        assert!(
            parsed.contains("dry_run: Client") && parsed.contains(r#"nodes: ["n1"]"#),
            "{line}: {parsed}"
        );
    }
    let roll = "nm roll --dry-run --confirm n1".split(' ').map(OsString::from);
    assert!(Cli::try_parse_from(with_dry_run_values(roll)).is_ok(), "there the flag has no value");
    assert!(nodes("nm start --dry-run server n1").contains("dry_run: Server"));
    assert!(nodes("nm start n1").contains("dry_run: None"));
}
