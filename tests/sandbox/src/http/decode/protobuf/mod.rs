//! Protobuf bodies, which some kubectl commands (`create namespace`, `auth can-i`) always send.
//!
//! They are converted to JSON. Only the kinds that kubectl creates itself are supported (`messages`), with the fields
//! that it sets; all others are rejected as an unsupported format.

mod messages;
mod wire;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::http::decode::protobuf::messages::{FieldKind, Message, message};
use crate::http::decode::protobuf::wire::{WireField, parts};

/// The magic bytes of every body.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// The object in a body; none if it is malformed or of an unsupported kind.
pub(crate) fn read(body: &[u8]) -> Option<Value> {
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), Vec::new());
    for (number, part) in parts(body.strip_prefix(MAGIC)?)? {
        match (number, part) {
            (1, WireField::Bytes(names)) => {
                for (number, part) in parts(names)? {
                    match (number, part) {
                        (1, WireField::Bytes(text)) => api_version = String::from_utf8(text.to_vec()).ok()?,
                        (2, WireField::Bytes(text)) => kind = String::from_utf8(text.to_vec()).ok()?,
                        _ => {}
                    }
                }
            }
            (2, WireField::Bytes(bytes)) => raw = bytes.to_vec(),
            _ => {}
        }
    }
    let mut object = object(message(&kind)?, &raw)?;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    Some(object)
}

fn object(message: Message, bytes: &[u8]) -> Option<Value> {
    let mut fields = Map::new();
    for (number, part) in parts(bytes)? {
        let Some(field) = messages::field(message, number) else {
            continue;
        };
        let value = value(field.kind, part)?;
        // Go writes an unset field as zero, unless it is a pointer.
        let is_zero = match &value {
            Value::String(text) => text.is_empty(),
            Value::Bool(set) => !set,
            Value::Object(fields) => fields.is_empty(),
            number => number == &json!(0),
        };
        if field.repeated {
            let list = fields.entry(field.name).or_insert_with(|| json!([]));
            list.as_array_mut()?.push(value);
        } else if let (FieldKind::Map | FieldKind::ByteMap, Value::Object(entry)) = (field.kind, &value) {
            let map = fields.entry(field.name).or_insert_with(|| json!({}));
            map.as_object_mut()?.extend(entry.clone());
        } else if field.pointer || !is_zero {
            fields.insert(field.name.to_owned(), value);
        }
    }
    Some(Value::Object(fields))
}

fn value(kind: FieldKind, part: WireField<'_>) -> Option<Value> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(|text| json!(text));
    match (kind, part) {
        (FieldKind::Text, WireField::Bytes(bytes)) => text(bytes),
        // Negative numbers are encoded as large unsigned ones.
        (FieldKind::Number, WireField::Number(number)) => Some(json!(number.cast_signed())),
        (FieldKind::Flag, WireField::Number(number)) => Some(json!(number != 0)),
        (FieldKind::Map | FieldKind::ByteMap, WireField::Bytes(bytes)) => {
            let (mut key, mut held) = (String::new(), json!(""));
            for (number, part) in parts(bytes)? {
                match (number, part, kind) {
                    (1, WireField::Bytes(bytes), _) => key = String::from_utf8(bytes.to_vec()).ok()?,
                    (2, WireField::Bytes(bytes), FieldKind::ByteMap) => held = json!(STANDARD.encode(bytes)),
                    (2, WireField::Bytes(bytes), _) => held = text(bytes)?,
                    _ => {}
                }
            }
            Some(json!({key: held}))
        }
        (FieldKind::NumberOrText, WireField::Bytes(bytes)) => {
            let (mut is_text, mut found) = (false, json!(0));
            for (number, part) in parts(bytes)? {
                match (number, part) {
                    (1, WireField::Number(kind)) => is_text = kind == 1,
                    (2, WireField::Number(number)) if !is_text => found = json!(number.cast_signed()),
                    (3, WireField::Bytes(bytes)) if is_text => found = text(bytes)?,
                    _ => {}
                }
            }
            Some(found)
        }
        (FieldKind::Message(name), WireField::Bytes(bytes)) => object(message(name)?, bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_read_without_the_zeros_that_go_writes() {
        // metadata {name "ab", generateName "", creationTimestamp {}, labels {k: v}}, spec {}, status {phase ""}
        let metadata = [b"\x0a\x02ab\x12\x00\x42\x00".as_slice(), b"\x5a\x06\x0a\x01k\x12\x01v"].concat();
        let mut raw = vec![0x0a, u8::try_from(metadata.len()).unwrap()];
        raw.extend(&metadata);
        raw.extend(b"\x12\x00\x1a\x02\x0a\x00");
        let mut body = MAGIC.to_vec();
        body.extend(b"\x0a\x0f\x0a\x02v1\x12\x09Namespace");
        body.extend([0x12, u8::try_from(raw.len()).unwrap()]);
        body.extend(&raw);
        body.extend(b"\x1a\x00\x22\x00");
        assert_eq!(
            read(&body),
            Some(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "ab", "labels": {"k": "v"}}}))
        );
    }

    #[test]
    fn what_is_not_known_or_breaks_off_is_not_read() {
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(b"k8s\0\x0a\xff"), None);
        assert_eq!(read(b"k8s\0\x0a\x0b\x0a\x02v1\x12\x05Thing\x12\x00"), None);
    }
}
