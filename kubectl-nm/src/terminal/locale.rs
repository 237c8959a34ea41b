//! Whether the user's locale has more characters than ASCII.

/// Whether a terminal can be sent any character, by the variables of the environment: the first that is set of `LC_ALL`,
/// `LC_CTYPE` and `LANG` decides. Where none is, as on Windows, nobody has asked for less.
pub(crate) fn has_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let Some(locale) = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set) else { return true };
    let name = locale.split('@').next().unwrap_or_default();
    match name.split_once('.') {
        Some((_, charset)) => ["utf-8", "utf8"].contains(&charset.to_lowercase().as_str()),
        None => !["C", "POSIX"].contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_which_characters_there_are() {
        for (variables, unicode) in [
            (&[][..], true),
            (&[("LC_ALL", "C")], false),
            (&[("LC_ALL", "POSIX"), ("LANG", "en_US.UTF-8")], false),
            (&[("LC_ALL", ""), ("LANG", "en_US.UTF-8")], true),
            (&[("LC_CTYPE", "C.utf8"), ("LANG", "C")], true),
            (&[("LANG", "de_DE.ISO-8859-1@euro")], false),
            (&[("LANG", "de_DE.UTF-8@euro")], true),
            (&[("LANG", "de_DE")], true),
        ] {
            let value = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(has_unicode(value), unicode, "{variables:?}");
        }
    }
}
