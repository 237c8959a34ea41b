//! A hash of a pod template, which distinguishes the pods of different revisions.

use serde_json::Value;

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The same ten characters for the same template, whatever the order of its fields.
pub(crate) fn template_hash(template: &Value) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    feed(&mut hash, template);
    let mut name = String::with_capacity(10);
    for _ in 0..10 {
        let digit = usize::try_from(hash % 27).unwrap_or_default();
        name.push(char::from(ALPHABET[digit]));
        hash /= 27;
    }
    name
}

/// FNV-1a over the value, with fields in the order of their names.
fn feed(hash: &mut u64, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            bytes(hash, b"{");
            for name in names {
                bytes(hash, name.as_bytes());
                bytes(hash, b":");
                feed(hash, &fields[name]);
            }
            bytes(hash, b"}");
        }
        Value::Array(items) => {
            bytes(hash, b"[");
            for item in items {
                feed(hash, item);
            }
            bytes(hash, b"]");
        }
        scalar => bytes(hash, scalar.to_string().as_bytes()),
    }
}

fn bytes(hash: &mut u64, bytes: &[u8]) {
    for byte in bytes {
        *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_of_the_same_meaning_share_a_hash_and_others_do_not() {
        let hash = template_hash(&json!({"a": [1, 2], "b": "c"}));
        assert_eq!(hash, template_hash(&json!({"b": "c", "a": [1, 2]})));
        assert_ne!(hash, template_hash(&json!({"b": "c", "a": [2, 1]})));
        assert_eq!(hash.len(), 10);
    }
}
