//! The dynamic dependencies of a program, read from its ELF headers.
//!
//! Only 64-bit little-endian files are supported; the offsets are those of elf(5).

/// What the system must provide to start a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DynamicDependencies {
    /// Whether the program names a dynamic loader (`PT_INTERP`).
    pub loader: bool,
    /// How many shared libraries the program names (`DT_NEEDED`).
    pub libraries: usize,
}

/// The dependencies of a program; `None` if it is not a 64-bit little-endian ELF file.
pub fn dynamic_dependencies(program: &[u8]) -> Option<DynamicDependencies> {
    // Magic, 64 bits, little-endian.
    program.strip_prefix(b"\x7fELF\x02\x01")?;
    let (table, entry_size) = (number(program, 0x20, 8)?, number(program, 0x36, 2)?);
    let mut found = DynamicDependencies::default();
    for index in 0..number(program, 0x38, 2)? {
        let header = table + index * entry_size;
        match number(program, header, 4)? {
            2 => {
                found.libraries +=
                    libraries(program, number(program, header + 8, 8)?, number(program, header + 32, 8)?)?;
            }
            3 => found.loader = true,
            _ => {}
        }
    }
    Some(found)
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
    fn a_file_that_is_no_elf_program_has_no_dependencies() {
        for bytes in
            [&b""[..], b"#!/bin/sh", b"\x7fELF\x02\x01\x01", &[&b"\x7fELF\x02\x01"[..], &[255; 90]].concat()]
        {
            assert_eq!(dynamic_dependencies(bytes), None);
        }
    }

    /// This test itself is dynamically linked, with a loader and at least the C library.
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_dynamically_linked_program_needs_a_loader_and_libraries() {
        let found = dynamic_dependencies(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(found.loader && found.libraries > 0, "{found:?}");
    }
}
