//! Which name somebody may have meant who typed one that does not exist.

use strsim::damerau_levenshtein;

/// How many names are worth a guess; among more, none is better than another.
const MOST: usize = 3;

/// The names that are closest to a wrong one, if any is close.
pub(crate) fn closest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A letter that looks like the right digit is the likelier slip.
    let distance =
        |name: &str| (damerau_levenshtein(&folded(wrong), &folded(name)), damerau_levenshtein(wrong, name));
    let near = (wrong.chars().count() / 3).clamp(1, 3);
    let mut best: Option<((usize, usize), Vec<&str>)> = None;
    for name in known {
        let distance = distance(name);
        match &mut best {
            _ if distance.0 > near => {}
            Some((least, names)) if *least == distance => names.push(name),
            Some((least, _)) if *least < distance => {}
            _ => best = Some((distance, vec![name])),
        }
    }
    best.map(|(_, names)| names).filter(|names| names.len() <= MOST).unwrap_or_default()
}

/// The name with letters as the digits that they look like.
fn folded(name: &str) -> String {
    let fold = |c| match c {
        'o' => '0',
        'l' | 'i' => '1',
        c => c,
    };
    name.chars().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_meant_unless_many_are_as_close() {
        let pool: Vec<String> = (0..20).map(|n| format!("worker-{n:02}")).collect();
        let known = || pool.iter().map(String::as_str).chain(["control-plane", "a", "b"]);
        for (wrong, meant) in [
            ("worker-o7", vec!["worker-07"]),
            ("workre-07", vec!["worker-07"]),
            ("worker07", vec!["worker-07"]),
            ("control-plan", vec!["control-plane"]),
            ("worker-20", vec!["worker-00", "worker-02", "worker-10"]),
            ("worker-99", vec!["worker-09", "worker-19"]),
            ("worker-x", vec![]),
            ("gpu-node", vec![]),
            ("", vec!["a", "b"]),
        ] {
            assert_eq!(closest(wrong, known()), meant, "{wrong}");
        }
        assert!(closest("n1", []).is_empty());
    }
}
