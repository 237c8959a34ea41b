use super::*;

#[test]
fn the_command_line_is_consistent_and_has_defaults() {
    Flags::command().debug_assert();
    let flags = Flags::parse_from(["nm-reconciler"]);
    assert_eq!((flags.max_concurrent_evictions.get(), flags.log_format), (32, LogFormat::Json));
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
fn what_contradicts_itself_is_refused_by_naming_both_and_a_remedy() {
    let read = |flags: &str| {
        Flags::read(flags.split(' ').map(OsString::from), [], Surroundings::Outside)
            .map_err(|e| e.to_string())
    };
    let error = read("nm-reconciler --leader-elect=false --lease-duration 15").unwrap_err();
    for part in ["--lease-duration", "--leader-elect is off", "leave --lease-duration out"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(read("nm-reconciler --leader-elect --lease-duration 15").is_ok());
    let same = "nm-reconciler --metrics-addr 127.0.0.1:8080 --webhook-addr 0.0.0.0:8080";
    assert!(read(same).unwrap_err().contains("--metrics-addr and --webhook-addr are the same"));
    let nowhere = "nm-reconciler --webhook-addr= --webhook-cert-dir /certs";
    assert!(read(nowhere).unwrap_err().contains("leave --webhook-cert-dir out"));
    let nowhere = "nm-reconciler --webhook-addr= --webhook-cert-lifetime 60";
    assert!(read(nowhere).unwrap_err().contains("leave --webhook-cert-lifetime out"));
    assert!(read("nm-reconciler --leader-elect=false").is_ok());
}

#[test]
fn every_flag_has_a_variable_and_one_that_is_misspelt_is_refused() {
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
            Flags::read([OsString::from("nm-reconciler")], [OsString::from(variable)], Surroundings::Outside);
        read.map_err(|error| (error.kind(), error.to_string()))
    };
    for fine in ["NM_MAX_UNAVAILABLE", "NM_RECONCILER_WEBHOOK_PORT_443_TCP", "PATH", "XNM_NODES"] {
        assert!(read(fine).is_ok(), "{fine}");
    }
    for bad in ["NM_MAX_UNAVAILBLE", "NM_", "NM_MAX_UNAVAILABLE_", "NM_max_unavailable"] {
        let (kind, message) = read(bad).unwrap_err();
        assert_eq!(kind, ErrorKind::UnknownArgument);
        assert!(message.contains(&format!("the environment has {bad}, but")), "{message}");
    }
}

/// What the program does by default that depends on where it runs: leading in turn, the namespace, and where the metrics
/// and the webhook are served.
fn in_effect(args: &[&str], surroundings: Surroundings) -> (bool, String, Option<String>, Option<String>) {
    let args = ["nm-reconciler"].iter().chain(args).map(OsString::from);
    let flags = Flags::read(args, [], surroundings).unwrap();
    let text = |address: Address| address.0.map(|address| address.to_string());
    (flags.leader_elect, flags.namespace, text(flags.metrics_addr), text(flags.webhook_addr))
}

#[test]
fn in_a_pod_it_is_one_of_several_and_serves_what_is_served_nowhere_outside() {
    let pod = || Surroundings::Pod { namespace: "apps".to_owned() };
    let everywhere = |port: &str| Some(format!("[::]:{port}"));
    assert_eq!(in_effect(&[], pod()), (true, "apps".to_owned(), everywhere("8080"), everywhere("9443")));
    assert_eq!(in_effect(&[], Surroundings::Outside), (false, "node-maintenance".to_owned(), None, None));
}

#[test]
fn what_is_given_holds_wherever_it_runs() {
    let off = ["--leader-elect=false", "--namespace", "other", "--metrics-addr=", "--webhook-addr="];
    let on = ["--leader-elect", "--metrics-addr", "127.0.0.1:1", "--webhook-addr", "127.0.0.1:2"];
    let pod = || Surroundings::Pod { namespace: "apps".to_owned() };
    for surroundings in [pod, || Surroundings::Outside] {
        assert_eq!(in_effect(&off, surroundings()), (false, "other".to_owned(), None, None));
        let (leader_elect, _, metrics, webhook) = in_effect(&on, surroundings());
        assert!(leader_elect);
        assert_eq!((metrics.as_deref(), webhook.as_deref()), (Some("127.0.0.1:1"), Some("127.0.0.1:2")));
    }
}

#[test]
fn a_leader_is_heeded_where_nobody_has_said_whether_there_is_an_election() {
    let heeds = |args: &[&str], surroundings| {
        let args = ["nm-reconciler"].iter().chain(args).map(OsString::from);
        Flags::read(args, [], surroundings).unwrap().heeds_leader
    };
    let pod = || Surroundings::Pod { namespace: "apps".to_owned() };
    assert!(heeds(&[], Surroundings::Outside));
    for given in ["--leader-elect", "--leader-elect=false"] {
        assert!(!heeds(&[given], Surroundings::Outside), "{given}");
        assert!(!heeds(&[given], pod()), "{given}");
    }
    assert!(!heeds(&[], pod()));
}

#[test]
fn certificates_are_the_programs_own_or_somebody_elses() {
    let given = |flags: &[&str]| Flags::try_parse_from([&["nm-reconciler"], flags].concat());
    let own = given(&[]).unwrap();
    assert_eq!((own.webhook_cert_dir, own.webhook_cert_lifetime), (None, 90 * 24 * 3600));
    assert!(given(&["--webhook-cert-dir", "/certs"]).is_ok());
    let path = given(&["--webhook-cert-dir", "/certs", "--webhook-path", "/v/0"]).unwrap().webhook_path;
    assert_eq!((own.webhook_path.as_str(), path.as_str()), ("/validate", "/v/0"));
    assert!(given(&["--webhook-path", "/v/0"]).is_err(), "it is kept beside the program's own certificate");
    assert!(given(&["--webhook-cert-dir", "/certs", "--webhook-cert-lifetime", "60"]).is_err());
}

#[test]
fn nonsense_is_refused() {
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
        ["--webhook-path", "validate"],
        ["--webhook-path", "/v?a=b"],
    ] {
        assert!(Flags::try_parse_from(["nm-reconciler"].into_iter().chain(bad)).is_err(), "{bad:?}");
    }
}
