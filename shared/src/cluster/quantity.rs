//! Quantities of resources as Kubernetes writes them: `250m`, `1.5`, `2Gi`, `1e3`.
//!
//! Source: the package `k8s.io/apimachinery/pkg/api/resource`. Like there, values are rounded up, so that no request is
//! underestimated.

/// The maximum number of digits. No quantity has more, and the result cannot overflow.
const MOST_DIGITS: usize = 24;

/// The quantity in thousandths; none if the text is not a quantity.
pub fn thousandths(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MOST_DIGITS || fraction.contains('.') {
        return None;
    }
    let (times, over) = factor(suffix)?;
    let over = over.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let thousandths = digits.parse::<i128>().ok()?.checked_mul(times)?.checked_mul(1000)?;
    let rounded = thousandths / over + i128::from(thousandths % over > 0);
    Some(if negative { -rounded } else { rounded })
}

/// The multiplier and the divisor of a suffix.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    let ten = |power: u32| 10_i128.checked_pow(power);
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, ten(9)?),
        "u" => (1, ten(6)?),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (ten(6)?, 1),
        "G" => (ten(9)?, 1),
        "T" => (ten(12)?, 1),
        "P" => (ten(15)?, 1),
        "E" => (ten(18)?, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let magnitude = ten(power.unsigned_abs())?;
            if power < 0 { (1, magnitude) } else { (magnitude, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_all_their_notations() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1_000),
            ("250m", 250),
            ("1.5", 1_500),
            (".5", 500),
            ("2.", 2_000),
            ("+3", 3_000),
            ("-1", -1_000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("5e-1", 500),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2E", 2_000_000_000_000_000_000_000),
            ("1n", 1),
            ("1500u", 2),
        ] {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_quantities() {
        let long = "9".repeat(40);
        for text in ["", ".", "m", "1.2.3", "1KiB", "1e", "1e99", "--1", "1 Gi", "é", &long] {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }
}
