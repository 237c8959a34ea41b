use super::*;

#[test]
fn the_command_line_is_consistent_and_has_defaults() {
    Flags::command().debug_assert();
    let flags = Flags::parse_from(["nm-reconciler"]);
    assert_eq!((flags.max_concurrent_evictions.get(), flags.log_format), (128, LogFormat::Json));
    assert_eq!(flags.log_level, LevelFilter::INFO);
    assert_eq!((flags.leader_elect, flags.lease_duration), (false, 15));
    assert!(!flags.node_conditions);
    assert!(Flags::parse_from(["nm-reconciler", "--node-conditions"]).node_conditions);
}

#[test]
fn leader_election_is_switched_on_and_off() {
    for (flag, expected) in
        [("--leader-elect", true), ("--leader-elect=true", true), ("--leader-elect=false", false)]
    {
        assert_eq!(Flags::parse_from(["nm-reconciler", flag]).leader_elect, expected, "{flag}");
    }
}

#[test]
fn contradictory_flags_are_refused_with_their_names_and_a_fix() {
    let read = |flags: &str| {
        Flags::read(flags.split(' ').map(OsString::from), [], Environment::Local).map_err(|e| e.to_string())
    };
    let error = read("nm-reconciler --leader-elect=false --lease-duration 15").unwrap_err();
    for part in ["--lease-duration", "--leader-elect is disabled", "remove --lease-duration"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(read("nm-reconciler --leader-elect --lease-duration 15").is_ok());
    let nowhere = "nm-reconciler --webhook-addr= --webhook-cert-dir /certs";
    assert!(read(nowhere).unwrap_err().contains("remove --webhook-cert-dir"));
    let nowhere = "nm-reconciler --webhook-addr= --webhook-cert-lifetime 60";
    assert!(read(nowhere).unwrap_err().contains("remove --webhook-cert-lifetime"));
    assert!(read("nm-reconciler --leader-elect=false").is_ok());
}

#[test]
fn every_flag_has_a_variable_and_a_misspelt_variable_is_refused() {
    let command = Flags::command();
    let flags: Vec<_> = command.get_arguments().filter(|flag| flag.get_long().is_some()).collect();
    assert!(flags.len() >= 13, "{flags:?}");
    for flag in &flags {
        let long = flag.get_long().unwrap();
        let variable = format!("NM_{}", long.replace('-', "_").to_uppercase());
        assert_eq!(flag.get_env(), Some(OsStr::new(&variable)), "{long}");
    }
    let read = |variable: &str| {
        let read =
            Flags::read([OsString::from("nm-reconciler")], [OsString::from(variable)], Environment::Local);
        read.map_err(|error| (error.kind(), error.to_string()))
    };
    for fine in ["NM_MAX_UNAVAILABLE", "NM_RECONCILER_WEBHOOK_PORT_443_TCP", "PATH", "XNM_NODES"] {
        assert!(read(fine).is_ok(), "{fine}");
    }
    for bad in ["NM_MAX_UNAVAILBLE", "NM_", "NM_MAX_UNAVAILABLE_", "NM_max_unavailable"] {
        let (kind, message) = read(bad).unwrap_err();
        assert_eq!(kind, ErrorKind::UnknownArgument);
        assert!(message.contains(&format!("unknown environment variable {bad}:")), "{message}");
    }
}

/// The settings whose defaults depend on where the program runs: leader election, the namespace, and the addresses of the
/// metrics and the webhook.
fn in_effect(args: &[&str], environment: Environment) -> (bool, String, Option<String>, Option<String>) {
    let args = ["nm-reconciler"].iter().chain(args).map(OsString::from);
    let flags = Flags::read(args, [], environment).unwrap();
    let text = |address: AddressFlag| address.0.map(|address| address.to_string());
    (flags.leader_elect, flags.namespace, text(flags.metrics_addr), text(flags.webhook_addr))
}

#[test]
fn leader_election_and_servers_are_enabled_by_default_in_a_pod_only() {
    let pod = || Environment::Pod { namespace: "apps".to_owned() };
    let everywhere = |port: &str| Some(format!("[::]:{port}"));
    assert_eq!(in_effect(&[], pod()), (true, "apps".to_owned(), everywhere("8080"), everywhere("9443")));
    assert_eq!(in_effect(&[], Environment::Local), (false, "node-maintenance".to_owned(), None, None));
}

#[test]
fn flags_override_the_defaults_of_every_environment() {
    let off = ["--leader-elect=false", "--namespace", "other", "--metrics-addr=", "--webhook-addr="];
    let on = ["--leader-elect", "--metrics-addr", "127.0.0.1:1", "--webhook-addr", "127.0.0.1:2"];
    let pod = || Environment::Pod { namespace: "apps".to_owned() };
    for environment in [pod, || Environment::Local] {
        assert_eq!(in_effect(&off, environment()), (false, "other".to_owned(), None, None));
        let (leader_elect, _, metrics, webhook) = in_effect(&on, environment());
        assert!(leader_elect);
        assert_eq!((metrics.as_deref(), webhook.as_deref()), (Some("127.0.0.1:1"), Some("127.0.0.1:2")));
    }
}

#[test]
fn without_a_choice_about_leader_election_the_program_refuses_to_run_beside_a_leader() {
    let refuses = |args: &[&str], environment| {
        let args = ["nm-reconciler"].iter().chain(args).map(OsString::from);
        Flags::read(args, [], environment).unwrap().refuse_beside_leader
    };
    let pod = || Environment::Pod { namespace: "apps".to_owned() };
    assert!(refuses(&[], Environment::Local));
    for given in ["--leader-elect", "--leader-elect=false"] {
        assert!(!refuses(&[given], Environment::Local), "{given}");
        assert!(!refuses(&[given], pod()), "{given}");
    }
    assert!(!refuses(&[], pod()));
}

#[test]
fn certificates_are_the_programs_own_or_from_a_directory() {
    let given = |flags: &[&str]| Flags::try_parse_from([&["nm-reconciler"], flags].concat());
    let own = given(&[]).unwrap();
    assert_eq!((own.webhook_cert_dir, own.webhook_cert_lifetime), (None, 90 * 24 * 3600));
    assert!(given(&["--webhook-cert-dir", "/certs"]).is_ok());
    assert!(given(&["--webhook-cert-dir", "/certs", "--webhook-cert-lifetime", "60"]).is_err());
}

#[test]
fn invalid_values_are_refused() {
    for bad in [
        ["--max-concurrent-evictions", "0"],
        ["--log-format", "xml"],
        ["--log-level", "loud"],
        ["--own-pod", "a/b/c"],
        ["--max-unavailable", "0"],
        ["--namespace", ""],
        ["--lease-duration", "2"],
        ["--metrics-addr", ":8080"],
        ["--webhook-addr", "9443"],
        ["--webhook-cert-lifetime", "9"],
    ] {
        assert!(Flags::try_parse_from(["nm-reconciler"].into_iter().chain(bad)).is_err(), "{bad:?}");
    }
}
