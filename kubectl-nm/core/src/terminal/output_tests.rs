use super::*;

#[test]
fn colour_needs_a_terminal_unless_it_is_forced() {
    for (colour, terminal, no_color, dumb, expected) in [
        (Colour::Auto, true, false, false, true),
        (Colour::Auto, false, false, false, false),
        (Colour::Auto, true, true, false, false),
        (Colour::Auto, true, false, true, false),
        (Colour::Always, false, true, true, true),
        (Colour::Never, true, false, false, false),
    ] {
        assert_eq!(
            use_colour(colour, terminal, no_color, dumb),
            expected,
            "{colour:?} {terminal} {no_color} {dumb}"
        );
    }
}

#[test]
fn lines_after_the_data_are_messages() {
    let (mut out, captured) = captured::output();
    out.document("{}").unwrap();
    out.end_data();
    out.data(&Line::new("node/n1 drained")).unwrap();
    assert_eq!((captured.data(), captured.messages()), ("{}".into(), "node/n1 drained\n".into()));
}

#[test]
fn commands_that_continue_print_their_data_as_messages() {
    for (by, is_error) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
        let (mut out, captured) = captured::closed(by);
        assert!(out.data(&Line::new("a")).is_err());
        out.continue_on_stdout_error();
        out.data(&Line::new("b")).unwrap();
        out.document("{}").unwrap();
        out.data(&Line::new("c")).unwrap();
        assert_eq!(captured.messages(), "b\nc\n");
        assert_eq!(out.finish().is_err(), is_error);
    }
}

#[test]
fn commands_that_continue_survive_text_that_cannot_be_written() {
    for (by, is_error) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
        let (mut out, _captured) = captured::closed(by);
        assert!(out.text("a").is_err());
        out.continue_on_stdout_error();
        out.text("deployment.apps/nm-reconciler\n").unwrap();
        assert_eq!(out.finish().is_err(), is_error);
    }
}

#[test]
fn commands_in_text_for_people_have_the_connection_flags() {
    let (mut out, captured) = captured::output();
    out.flags = String::from(" --context=c");
    let line = Line::new("then `kubectl -n shop get pods`, or `kubectl nm status`");
    let expected = "then `kubectl --context=c -n shop get pods`, or `kubectl nm status --context=c`\n";
    out.message_with_commands(&line);
    out.data_with_commands(&line).unwrap();
    out.broken_data(&line, Some(200)).unwrap();
    out.broken_data(&line, None).unwrap();
    assert_eq!(captured.messages(), expected);
    assert_eq!(captured.data(), expected.repeat(3));
    // What others have written is shown as it is.
    out.message(&line);
    assert!(captured.messages().ends_with("`kubectl -n shop get pods`, or `kubectl nm status`\n"));
}

#[test]
fn data_goes_to_stdout_and_messages_to_stderr() {
    let (mut out, captured) = captured::output();
    out.data(&Line::new("node/n1 drained  ")).unwrap();
    out.message(&Line::new("waiting"));
    assert_eq!((captured.data(), captured.messages()), ("node/n1 drained\n".into(), "waiting\n".into()));
}
