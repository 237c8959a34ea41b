//! What a program needs of the system to start, read from its ELF headers.
//!
//! Of the format only what 64-bit little-endian machines have; the offsets are those of elf(5).

/// What a program asks for before its first instruction.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether it names a dynamic loader (`PT_INTERP`).
    pub loader: bool,
    /// How many shared libraries it names (`DT_NEEDED`).
    pub libraries: usize,
}

/// Reads a program; none if it is not one of the kind.
pub fn needs(program: &[u8]) -> Option<Needs> {
    // Magic, 64 bits, little-endian.
    program.strip_prefix(b"\x7fELF\x02\x01")?;
    let (table, entry_size) = (number(program, 0x20, 8)?, number(program, 0x36, 2)?);
    let mut needs = Needs::default();
    for index in 0..number(program, 0x38, 2)? {
        let header = table + index * entry_size;
        match number(program, header, 4)? {
            2 => {
                needs.libraries +=
                    libraries(program, number(program, header + 8, 8)?, number(program, header + 32, 8)?)?;
            }
            3 => needs.loader = true,
            _ => {}
        }
    }
    Some(needs)
}

/// Counts the entries of the dynamic section that name a library.
fn libraries(program: &[u8], start: usize, size: usize) -> Option<usize> {
    let mut count = 0;
    for entry in (start..start + size).step_by(16) {
        match number(program, entry, 8)? {
            0 => break,
            1 => count += 1,
            _ => {}
        }
    }
    Some(count)
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    bytes
        .iter()
        .rev()
        .try_fold(0_usize, |number, byte| number.checked_mul(256)?.checked_add(usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_none() {
        for bytes in
            [&b""[..], b"#!/bin/sh", b"\x7fELF\x02\x01\x01", &[&b"\x7fELF\x02\x01"[..], &[255; 90]].concat()]
        {
            assert_eq!(needs(bytes), None);
        }
    }

    /// This test is linked as usual, with a loader and at least the C library.
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_program_that_is_linked_as_usual_needs_a_loader_and_libraries() {
        let found = needs(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(found.loader && found.libraries > 0, "{found:?}");
    }
}
