//! A filter of rows: words such as `shop blocked`, all of which have to occur in a row. Case does not matter.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    text: String,
}

impl Filter {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    pub(crate) fn matches(&self, texts: &[&str]) -> bool {
        self.text.split_whitespace().all(|word| texts.iter().any(|text| contains(text, word)))
    }
}

fn contains(text: &str, word: &str) -> bool {
    let word = word.as_bytes();
    text.as_bytes().windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_filter_must_match() {
        let texts = ["shop", "cart-0", "sts/cart", "Blocked", "The disruption budget cart"];
        for (filter, matches) in [
            ("", true),
            ("  ", true),
            ("cart", true),
            ("CART budget", true),
            ("nothing", false),
            ("shop blocked cart", true),
            ("shop blocked nothing", false),
        ] {
            assert_eq!(Filter::new(filter).matches(&texts), matches, "{filter}");
        }
    }

    #[test]
    fn a_filter_is_shown_as_typed() {
        assert_eq!(Filter::new("a  b ").text(), "a  b ");
        assert!(Filter::new("  ").is_empty());
    }
}
