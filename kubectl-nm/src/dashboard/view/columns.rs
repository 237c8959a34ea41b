//! Columns that fit a width: the least important go first, the rest share what is left.

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column<T> {
    /// What is in it.
    pub(crate) what: T,
    /// Its name.
    pub(crate) head: &'static str,
    /// The least columns of the terminal that it takes.
    pub(crate) width: u16,
    /// Its share of what is left; none for columns that need no more.
    pub(crate) grows: u16,
    /// The smaller, the sooner it is dropped.
    pub(crate) worth: u8,
}

impl<T> Column<T> {
    /// A column, with its fields in their order.
    pub(crate) const fn new(what: T, head: &'static str, width: u16, grows: u16, worth: u8) -> Self
    where
        T: Copy,
    {
        Self { what, head, width, grows, worth }
    }
}

/// Between two columns.
pub(crate) const GAP: u16 = 1;

/// The columns that fit, with the widths that they get.
pub(crate) fn fit<T: Copy>(columns: &[Column<T>], width: u16) -> Vec<Column<T>> {
    let mut kept: Vec<Column<T>> = columns.to_vec();
    let needed = |kept: &[Column<T>]| kept.iter().map(|column| column.width + GAP).sum::<u16>();
    while needed(&kept) > width + GAP && kept.len() > 1 {
        let least = kept.iter().map(|column| column.worth).min();
        kept.retain(|column| Some(column.worth) != least);
    }
    let left = (width + GAP).saturating_sub(needed(&kept));
    let shares: u16 = kept.iter().map(|column| column.grows).sum();
    let mut given = 0;
    for column in kept.iter_mut().filter(|column| column.grows > 0) {
        let more = u32::from(left) * u32::from(column.grows) / u32::from(shares);
        let more = u16::try_from(more).unwrap_or(left);
        column.width += more;
        given += more;
    }
    // What division leaves over goes to the last that grows.
    if let Some(last) = kept.iter_mut().rfind(|column| column.grows > 0) {
        last.width += left - given;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(what: char, width: u16, grows: u16, worth: u8) -> Column<char> {
        Column { what, head: "", width, grows, worth }
    }

    #[test]
    fn the_least_worth_goes_first_and_the_rest_is_shared() {
        let columns = [column('a', 10, 1, 9), column('b', 5, 0, 5), column('c', 10, 2, 1)];
        for (width, expected) in
            [(27, "a10 b5 c10"), (30, "a11 b5 c12"), (26, "a20 b5"), (16, "a10 b5"), (15, "a15"), (4, "a10")]
        {
            let fitted: Vec<String> = fit(&columns, width)
                .iter()
                .map(|column| format!("{}{}", column.what, column.width))
                .collect();
            assert_eq!(fitted.join(" "), expected, "{width}");
        }
    }
}
