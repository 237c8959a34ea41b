//! Table columns that fit a width: the least important are dropped, the others share the space that is left.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column<T> {
    pub(crate) what: T,
    pub(crate) head: &'static str,
    /// Its minimum width.
    pub(crate) width: u16,
    /// Its share of the space that is left; 0 keeps the minimum.
    pub(crate) growth: u16,
    /// Columns with the lowest priority are dropped first.
    pub(crate) priority: u8,
}

impl<T> Column<T> {
    pub(crate) const fn new(what: T, head: &'static str, width: u16, growth: u16, priority: u8) -> Self
    where
        T: Copy,
    {
        Self { what, head, width, growth, priority }
    }
}

/// The gap between two columns.
pub(crate) const GAP: u16 = 1;

/// The columns that fit, with their widths.
pub(crate) fn fit<T: Copy>(columns: &[Column<T>], width: u16) -> Vec<Column<T>> {
    let mut kept: Vec<Column<T>> = columns.to_vec();
    let needed = |kept: &[Column<T>]| kept.iter().map(|column| column.width + GAP).sum::<u16>();
    while needed(&kept) > width + GAP && kept.len() > 1 {
        let least = kept.iter().map(|column| column.priority).min();
        kept.retain(|column| Some(column.priority) != least);
    }
    let left = (width + GAP).saturating_sub(needed(&kept));
    let shares: u16 = kept.iter().map(|column| column.growth).sum();
    let mut given = 0;
    for column in kept.iter_mut().filter(|column| column.growth > 0) {
        let more = u32::from(left) * u32::from(column.growth) / u32::from(shares);
        let more = u16::try_from(more).unwrap_or(left);
        column.width += more;
        given += more;
    }
    // The last growing column gets the remainder of the division.
    if let Some(last) = kept.iter_mut().rfind(|column| column.growth > 0) {
        last.width += left - given;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(what: char, width: u16, growth: u16, priority: u8) -> Column<char> {
        Column { what, head: "", width, growth, priority }
    }

    #[test]
    fn the_lowest_priority_is_dropped_first_and_the_rest_share_the_space() {
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
