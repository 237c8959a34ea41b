//! Percent-decoding of paths, queries and some headers.

/// The decoded text. In queries a plus is a space.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let source = text.as_bytes();
    let mut bytes = Vec::with_capacity(source.len());
    let mut at = 0;
    while let Some(&byte) = source.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| byte == b'%');
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, code) {
            (_, Some(code)) => bytes.push(code),
            (b'+', None) if plus_is_space => bytes.push(b' '),
            (other, None) => bytes.push(other),
        }
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
