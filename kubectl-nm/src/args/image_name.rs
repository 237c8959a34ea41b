//! Names of container images on the command line.
//!
//! The API server takes nearly any text for an image, and only a node notices that it cannot pull it. So the name is held to
//! the grammar that all runtimes share, that of `github.com/distribution/reference`.

/// Reads an image's name: a registry and a path, with a tag or a digest or both behind it.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last slash is that of a port.
    let tag_at = name.rfind(':').filter(|colon| name.rfind('/').is_none_or(|slash| slash < *colon));
    let (name, tag) = tag_at.map_or((name, None), |colon| (&name[..colon], Some(&name[colon + 1..])));
    if !is_name(name) {
        return Err(String::from(
            "it is no image's name, such as registry.example.com/you/nm-reconciler:0.1.0",
        ));
    }
    if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
        return Err(format!("its tag {tag:?} is none: at most 128 letters, digits, '_', '.' and '-'"));
    }
    if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
        return Err(format!("its digest {digest:?} is none, such as sha256: and 64 hexadecimal digits"));
    }
    Ok(text.to_owned())
}

/// A path, with a registry before its first slash where that part looks like one.
fn is_name(name: &str) -> bool {
    let looks_like_one =
        |first: &str| first == "localhost" || first.contains(['.', ':']) || first != first.to_lowercase();
    let path = match name.split_once('/').filter(|(first, _)| looks_like_one(first)) {
        Some((registry, _)) if !is_registry(registry) => return false,
        Some((_, path)) => path,
        None => name,
    };
    name.len() <= 255 && path.split('/').all(is_component)
}

/// A host, by its name or its address, with or without a port.
fn is_registry(registry: &str) -> bool {
    let of = |characters: &str, allowed: fn(char) -> bool| {
        !characters.is_empty() && characters.chars().all(allowed)
    };
    let label = |label: &str| {
        of(label, |c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let (host, port) = match registry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let is_address = of(address, |c| c.is_ascii_hexdigit() || c == ':');
            return is_address && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_number));
        }
        None => registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port))),
    };
    host.split('.').all(label) && port.is_none_or(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

/// Lower case letters and digits, with one dot, one or two underscores or any dashes between them.
fn is_component(component: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |part: &str| matches!(part, "." | "_" | "__") || part.chars().all(|c| c == '-');
    let mut separators = component.split(is_inner).filter(|part| !part.is_empty());
    component.starts_with(is_inner) && component.ends_with(is_inner) && separators.all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(is_word) && tag.chars().all(|c| is_word(c) || ".-".contains(c))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
            && algorithm.chars().all(|c| c.is_ascii_alphanumeric() || "+._-".contains(c))
            && hex.len() >= 32
            && hex.chars().all(|c| c.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_taken_as_runtimes_take_them() {
        let digest = format!("registry.example.com/nm@sha256:{}", "0a".repeat(32));
        for image in [
            "nm",
            "nm:1",
            "you/nm",
            "localhost/nm-reconciler:0.1.0",
            "localhost:5000/nm",
            "registry.example.com/you/nm-reconciler:v0.1.0-rc.1_x",
            "Registry.example.com:5000/a__b/c---d/e.f",
            "10.0.0.1:5000/nm",
            "[fd00::1]:5000/nm:1",
            &digest,
            &digest.replace('@', ":1@"),
        ] {
            assert_eq!(parse(image).as_deref(), Ok(image));
        }
    }

    #[test]
    fn what_no_node_could_pull_is_refused() {
        for image in [
            "",
            "a b",
            " nm",
            "nm\n",
            "nm:",
            "nm:-1",
            "nm:a b",
            "Nm",
            "you/Nm",
            "https://registry.example.com/nm",
            "registry.example.com//nm",
            "registry.example.com/",
            "registry.example.com:x/nm",
            "-a.example.com/nm",
            "a..b",
            "a___b",
            "a-",
            "nm@sha256",
            "nm@sha256:0123",
            "nm@sha256:zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
            &format!("nm:{}", "a".repeat(129)),
            &"a".repeat(256),
        ] {
            assert!(parse(image).is_err(), "{image:?}");
        }
    }
}
