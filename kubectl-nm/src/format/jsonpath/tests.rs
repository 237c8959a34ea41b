//! What templates make of an object. The real kubectl says the same of such templates: an end-to-end test asks it.

use serde_json::json;

use super::*;

fn object() -> Value {
    json!({
        "kind": "List",
        "items": [
            {"metadata": {"name": "n1", "labels": {"a.b/c": "x"}}, "spec": {"n": 1, "ok": true}},
            {"metadata": {"name": "n2"}, "spec": {"n": 2, "list": [10, 20, 30, 40], "none": null}},
        ],
        "text": "<a & \"b\">",
        "half": 0.5,
    })
}

#[track_caller]
fn check(template: &str, expected: &str) {
    let said = Template::parse(template).and_then(|template| template.render(&object()));
    assert_eq!(said.as_deref(), Ok(expected), "{template}");
}

#[track_caller]
fn refused(template: &str, expected: &str) {
    let said = Template::parse(template).and_then(|template| template.render(&object()));
    assert_eq!(said.unwrap_err(), expected, "{template}");
}

#[test]
fn text_stands_as_it_is_and_actions_find_values() {
    check("", "");
    check(".kind", ".kind");
    check("{.kind}", "List");
    check("it is a {.kind}!", "it is a List!");
    check("{.items[0].metadata.name}{\"\\t\"}{.items[1].metadata['name']}{'\\n'}", "n1\tn2\n");
    check("{$.kind}{@.kind}{ .kind }", "ListListList");
    check("{.items[0].metadata.labels.a\\.b/c}", "x");
    check("{.text}", "<a & \"b\">");
    check("{'it\\'s \\u00e9'}", "it's é");
    check("{1}{-2}{1.50}{true}", "1-21.5true");
}

#[test]
fn what_is_missing_is_empty() {
    check("{.nope}{.nope.deeper}{.nope[0]}{.nope[*].x}", "");
    check("[{range .nope[*]}{.x}, {end}]", "[]");
}

#[test]
fn several_values_are_parted_by_spaces_and_parts_are_json() {
    check("{.items[*].metadata.name}", "n1 n2");
    check("{.items[*].spec.n}", "1 2");
    check("{..name}", "n1 n2");
    check("{.items[0]['metadata.name','spec.n']}", "n1 1");
    check("{.items[0].metadata}", r#"{"labels":{"a.b/c":"x"},"name":"n1"}"#);
    check("{.items[1].spec.list}", "[10,20,30,40]");
    check("{.items[1].spec.none}", "null");
    check("{.items[0].spec.*}", "1 true");
    check("{['text']}{.half}", "<a & \"b\">0.5");
}

#[test]
fn slices_count_from_either_end() {
    for (slice, expected) in [
        ("[0]", "10"),
        ("[-1]", "40"),
        ("[1:3]", "20 30"),
        ("[-2:]", "30 40"),
        ("[:-3]", "10"),
        ("[::2]", "10 30"),
        ("[0,2]", "10 30"),
        ("[*]", "10 20 30 40"),
        ("[2:2]", ""),
    ] {
        check(&format!("{{.items[1].spec.list{slice}}}"), expected);
    }
    refused("{.items[5]}", "array index out of bounds: index 5, length 2");
    refused("{.items[0:3]}", "array index out of bounds: index 2, length 2");
    refused("{.items[-3]}", "array index out of bounds: index -1, length 2");
    refused("{.items[1:0]}", "starting index 1 is greater than ending index 0");
    refused("{.items[0:1:0]}", "step must be > 0");
    refused("{.text[0]}", "string is not array or slice");
}

#[test]
fn filters_choose_elements() {
    for (filter, expected) in [
        ("@.spec.n==2", "n2"),
        ("@.spec.n!=2", "n1"),
        ("@.spec.n>=1", "n1 n2"),
        ("@.metadata.name==\"n1\"", "n1"),
        ("@.metadata.name > 'n1'", "n2"),
        ("@.spec.list", "n2"),
        ("@.spec.nope", ""),
        ("@.spec.ok==true", "n1"),
        ("@.metadata.name==\")\"", ""),
    ] {
        check(&format!("{{.items[?({filter})].metadata.name}}"), expected);
    }
    refused("{.items[?(@.spec.n==\"2\")]}", "incompatible types for comparison");
    refused("{.items[?(@.spec.n=2)]}", "unrecognized filter operator =");
    refused("{.kind[?(@.x)]}", "List is not array or slice and cannot be filtered");
}

#[test]
fn ranges_repeat_until_their_end() {
    check("{range .items[*]}{.metadata.name}={.spec.n}{\"\\n\"}{end}{.kind}", "n1=1\nn2=2\nList");
    check("{range .items[*]}{.metadata.name}:{range .spec.list[*]}{@},{end};{end}", "n1:;n2:10,20,30,40,;");
    check("{range .items[*]}{.metadata.name} ", "n1 n2  ");
    refused("{end}", "not in range, nothing to end");
}

#[test]
fn broken_templates_are_refused_in_kubectls_words() {
    for (template, complaint) in [
        ("{.items", "unclosed action"),
        ("{.items[}", "unterminated array"),
        ("{.items[x]}", "invalid array index x"),
        ("{.items[1:2:3:4]}", "invalid array index 1:2:3:4"),
        ("{\"a}", "unterminated quoted string"),
        ("{.a[?(@.b]}", "unterminated filter"),
        ("{.a[?(@.b)}", "unclosed array expect ]"),
        ("{!}", "unrecognized character in action: U+0021 '!'"),
        ("{....a}", "invalid multiple recursive descent"),
        ("{'\\q'}", "unquote string '\\q' error invalid syntax"),
        ("{1.2.3}", "cannot parse number 1.2.3"),
        ("{what}", "unrecognized identifier what"),
    ] {
        refused(template, complaint);
    }
}

#[test]
fn a_column_may_leave_braces_and_the_first_dot_out() {
    for path in ["kind", ".kind", "{kind}", "{.kind}"] {
        assert_eq!(Template::parse_path(path).unwrap().values(&object()).unwrap(), ["List"], "{path}");
    }
    assert!(Template::parse_path("{.a}{.b}").is_err());
    let spec = Template::parse_path("items[1].spec").unwrap().values(&object()).unwrap();
    assert_eq!(spec, ["map[list:[10 20 30 40] n:2 none:<nil>]"]);
}
