//! Validation of names: of objects, labels, label values and finalizers.
//!
//! Each function returns all errors, in the API server's words.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SERVICE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// A DNS subdomain such as `example.com`: the name of most objects.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    validation_errors(text, 253, text.split('.').all(is_label), SUBDOMAIN)
}

/// A DNS label such as `example`: the name of a namespace.
pub(crate) fn label(text: &str) -> Vec<String> {
    validation_errors(text, 63, is_label(text), LABEL)
}

/// A DNS label that starts with a letter: the name of a service.
pub(crate) fn service(text: &str) -> Vec<String> {
    let fits = is_label(text) && text.starts_with(|letter: char| letter.is_ascii_lowercase());
    validation_errors(text, 63, fits, SERVICE)
}

/// A path segment: the name of a role.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    let odd = ["/", "%"].into_iter().filter(|part| text.contains(part));
    odd.map(|part| format!("may not contain '{part}'")).collect()
}

/// A qualified name, `example.com/Name` or `Name`: a label or annotation key, or a finalizer.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut found = Vec::new();
    match prefix {
        Some("") => found.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            found.extend(subdomain(prefix).iter().map(|because| format!("prefix part {because}")));
        }
        None => {}
    }
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        found.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(name) {
        found.push(format!("name part {NAME_PART}"));
    }
    found
}

/// A label value.
pub(crate) fn value(text: &str) -> Vec<String> {
    validation_errors(text, 63, text.is_empty() || is_word(text), VALUE)
}

fn validation_errors(text: &str, most: usize, fits: bool, because: &str) -> Vec<String> {
    let long = (text.len() > most).then(|| format!("must be no more than {most} bytes"));
    long.into_iter().chain((!fits).then(|| because.to_owned())).collect()
}

fn is_label(text: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    text.starts_with(plain)
        && text.ends_with(plain)
        && text.chars().all(|letter| plain(letter) || letter == '-')
}

fn is_word(text: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric();
    let inner = |letter: char| plain(letter) || matches!(letter, '-' | '_' | '.');
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_reported_with_their_errors() {
        let long = "x".repeat(64);
        for (form, good, bad, begins) in [
            (
                subdomain as fn(&str) -> Vec<String>,
                "node-1.example.com",
                "Bad_Name",
                "a lowercase RFC 1123 subdomain",
            ),
            (label, "a-b", "a.b", "a lowercase RFC 1123 label"),
            (label, "a", long.as_str(), "must be no more than 63 bytes"),
            (service, "a1", "1a", "a DNS-1035 label"),
            (path_segment, "system:node", "a/b", "may not contain '/'"),
            (path_segment, "...", "..", "may not be '..'"),
            (qualified, "example.com/My_name", "a b", "name part must consist of"),
            (qualified, "a", "a/b/c", "a valid label key must consist of"),
            (qualified, "a", "/a", "prefix part must be non-empty"),
            (qualified, "a", "A/a", "prefix part a lowercase RFC 1123 subdomain"),
            (qualified, "a", "a/", "name part must be non-empty"),
            (qualified, "a", long.as_str(), "name part must be no more than 63 bytes"),
            (value, "", "-a", "a valid label must be an empty string"),
            (value, "A.b_c-9", long.as_str(), "must be no more than 63 bytes"),
        ] {
            assert!(form(good).is_empty(), "{good}");
            let reported = form(bad);
            assert!(reported[0].starts_with(begins), "{bad}: {reported:?}");
        }
    }
}
