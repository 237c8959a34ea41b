//! The wire format: numbered fields, each a number or bytes.

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireField<'a> {
    /// A varint or a number of fixed size.
    Number(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers; none if it is truncated.
pub(crate) fn parts(mut rest: &[u8]) -> Option<Vec<(u64, WireField<'_>)>> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let part = match tag & 7 {
            0 => WireField::Number(varint(&mut rest)?),
            1 => WireField::Number(fixed(take(&mut rest, 8)?)),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                WireField::Bytes(take(&mut rest, length)?)
            }
            5 => WireField::Number(fixed(take(&mut rest, 4)?)),
            _ => return None,
        };
        found.push((tag >> 3, part));
    }
    Some(found)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn fixed(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
