//! What is written is read back, whatever it is.

use drt_format::{
    CompressionAlgo, DecodedValue, IndexEntry, IndexView, Manifest, RecordHasher, RowEncoder, decode_payload,
    decode_row, encode_payload, payload_len, record_checksum, split_record, testing,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn is_same(a: &DecodedValue<'_>, b: &DecodedValue<'_>) -> bool {
    match (a, b) {
        (DecodedValue::Float(a), DecodedValue::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

proptest! {
    #[test]
    fn manifests_come_back_and_their_bytes_are_final(manifest in testing::manifest()) {
        let bytes = manifest.encode();
        let decoded = Manifest::decode(&bytes).unwrap();
        prop_assert_eq!(&decoded, &manifest);
        prop_assert_eq!(decoded.encode(), bytes);
    }

    #[test]
    fn rows_come_back_to_the_bit((schema, rows) in testing::schema_with_rows(4)) {
        schema.validate_for_write().unwrap();
        let encoder = RowEncoder::new(&schema);
        for row in rows {
            let mut json = Vec::new();
            encoder.encode(|column| row[column].as_value(), &mut json);
            let decoded = decode_row(&schema, &json).unwrap();
            prop_assert!(row.len() == decoded.len() && row.iter().zip(&decoded).all(|(a, b)| is_same(a, b)));

            // An unrelated parser sees the same object, and would write the same text.
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            prop_assert_eq!(value.as_object().unwrap().len(), schema.len());
            prop_assert_eq!(serde_json::to_vec(&value).unwrap(), json);
        }
    }

    #[test]
    fn rows_are_read_in_any_spelling((schema, rows) in testing::schema_with_rows(2), turn in 0usize..6) {
        let encoder = RowEncoder::new(&schema);
        for row in rows {
            let mut json = Vec::new();
            encoder.encode(|column| row[column].as_value(), &mut json);
            // Other key order, white space, and every character outside ASCII as an escape.
            let value: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&json).unwrap();
            let mut keys: Vec<_> = value.into_iter().collect();
            if !keys.is_empty() {
                let turn = turn % keys.len();
                keys.rotate_left(turn);
            }
            let pretty = serde_json::to_string_pretty(&keys.into_iter().collect::<serde_json::Map<_, _>>()).unwrap();
            let mut spelling = String::from("\r\n\t ");
            for character in pretty.chars() {
                if character.is_ascii() {
                    spelling.push(character);
                } else {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        spelling.push_str(&format!("\\u{unit:04X}"));
                    }
                }
            }
            spelling.push('\n');
            let decoded = decode_row(&schema, spelling.as_bytes()).unwrap();
            prop_assert!(row.iter().zip(&decoded).all(|(a, b)| is_same(a, b)));
        }
    }

    #[test]
    fn records_come_back(
        (schema, rows) in testing::schema_with_rows(1),
        payload in prop_oneof![vec(any::<u8>(), 0..400), vec(0u8..3, 0..4000)],
        lz4: bool,
    ) {
        let algo = if lz4 { CompressionAlgo::Lz4 } else { CompressionAlgo::None };
        for row in rows {
            let mut record = Vec::new();
            RowEncoder::new(&schema).encode_record_head(|column| row[column].as_value(), &mut record);
            let head_len = record.len();
            encode_payload(algo, &payload, &mut record).unwrap();

            let (json, stored) = split_record(&record).unwrap();
            prop_assert_eq!(8 + json.len(), head_len);
            prop_assert_eq!(decode_row(&schema, json).unwrap().len(), schema.len());
            let mut decoded = vec![0xAA; payload_len(algo, stored).unwrap()];
            decode_payload(algo, stored, &mut decoded).unwrap();
            prop_assert_eq!(&decoded, &payload);

            let mut hasher = RecordHasher::new();
            hasher.update(&record[..head_len]);
            hasher.update(stored);
            prop_assert_eq!(hasher.finish_reset(), record_checksum(&record));
        }
    }

    #[test]
    fn index_rows_come_back(entries in vec(any::<(u64, u64, u64)>(), 0..20)) {
        let entries: Vec<_> = entries.into_iter().map(|(shard, offset, len)| IndexEntry { shard, offset, len }).collect();
        let bytes: Vec<u8> = entries.iter().flat_map(IndexEntry::encode).collect();
        let view = IndexView::new(&bytes).unwrap();
        prop_assert_eq!(view.iter().collect::<Vec<_>>(), entries);
    }
}
