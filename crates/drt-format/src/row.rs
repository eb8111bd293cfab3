//! The JSON text of a record: the metadata of one row.
//!
//! Rows are flat objects of plain values, so this module has a small parser of its own. It
//! never recurses, reads floats exactly, and tells integers from floats by their text, which
//! a general JSON library does not promise.
//!
//! Source: docs/spec/v3.md, "Record".

use std::borrow::Cow;

use crate::constants::RECORD_PREFIX_LEN;
use crate::error::FormatError;
use crate::schema::{DecodedValue, MetadataKind, MetadataSchema, MetadataValue};

/// Writes the JSON text of rows of one schema.
///
/// The text is compact, its keys in ascending order of their UTF-8 bytes, and the same for
/// the same values on every machine.
///
/// ```
/// use drt_format::{MetadataField, MetadataKind, MetadataSchema, MetadataValue, RowEncoder};
///
/// let schema = MetadataSchema::new(vec![
///     MetadataField::new("label", MetadataKind::Int),
///     MetadataField::new("score", MetadataKind::Float),
/// ])?;
/// let row = [MetadataValue::Int(7), MetadataValue::Float(1.0)];
/// let mut json = Vec::new();
/// RowEncoder::new(&schema).encode(|column| row[column], &mut json);
/// assert_eq!(json, br#"{"label":7,"score":1.0}"#);
/// # Ok::<(), drt_format::FormatError>(())
/// ```
#[derive(Debug, Clone)]
pub struct RowEncoder {
    /// What comes before each value: `{"first":`, `,"second":` and so on, end to end.
    keys: Vec<u8>,
    /// Columns in JSON order, each with the end of its part of `keys`.
    columns: Vec<(usize, usize)>,
}

impl RowEncoder {
    /// An encoder with the keys of `schema` already escaped.
    pub fn new(schema: &MetadataSchema) -> Self {
        let mut keys = Vec::new();
        let mut columns = Vec::with_capacity(schema.len());
        for &column in schema.json_order() {
            keys.push(if columns.is_empty() { b'{' } else { b',' });
            push_string(&mut keys, &schema.fields()[column].name);
            keys.push(b':');
            columns.push((column, keys.len()));
        }
        Self { keys, columns }
    }

    /// Appends the JSON text of one row to `out`.
    ///
    /// `value` is asked once for each column, by its position in the schema, in JSON order.
    /// It must answer with a value of the column's kind: that is not checked here, and a
    /// reader refuses a row where it is not so. A non-finite float becomes `null`.
    #[inline]
    pub fn encode<'v>(&self, mut value: impl FnMut(usize) -> MetadataValue<'v>, out: &mut Vec<u8>) {
        if self.columns.is_empty() {
            out.extend_from_slice(b"{}");
            return;
        }
        let mut start = 0;
        for &(column, end) in &self.columns {
            out.extend_from_slice(&self.keys[start..end]);
            start = end;
            match value(column) {
                MetadataValue::Bool(true) => out.extend_from_slice(b"true"),
                MetadataValue::Bool(false) => out.extend_from_slice(b"false"),
                MetadataValue::Int(int) => out.extend_from_slice(itoa::Buffer::new().format(int).as_bytes()),
                MetadataValue::Float(float) => push_float(out, float),
                MetadataValue::String(text) => push_string(out, text),
            }
        }
        out.push(b'}');
    }

    /// Appends everything of a record that comes before the stored payload: the length of
    /// the JSON text as u64 little-endian, then the text.
    #[inline]
    pub fn encode_record_head<'v>(&self, value: impl FnMut(usize) -> MetadataValue<'v>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_PREFIX_LEN]);
        self.encode(value, out);
        let json_len = (out.len() - start - RECORD_PREFIX_LEN) as u64;
        out[start..start + RECORD_PREFIX_LEN].copy_from_slice(&json_len.to_le_bytes());
    }
}

/// Appends the shortest decimal that reads back as `float`, recognisable as a float.
///
/// With decimal exponents of the leading digit from -5 to 15 that is plain notation with at
/// least one digit after the point, otherwise scientific notation. `zmij` writes exactly so;
/// a test holds it to that.
#[inline]
fn push_float(out: &mut Vec<u8>, float: f64) {
    if float.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(float).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

/// Whether a byte of a string cannot stand for itself.
#[inline]
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Position of the first special byte, or the length.
#[inline]
fn plain_len(bytes: &[u8]) -> usize {
    const STEP: usize = 16;
    let (chunks, rest) = bytes.as_chunks::<STEP>();
    let mut len = 0;
    for chunk in chunks {
        // Without an early exit inside, this becomes a few vector instructions.
        if chunk.iter().fold(false, |special, &byte| special | is_special(byte)) {
            return len + chunk.iter().position(|&byte| is_special(byte)).unwrap_or(STEP);
        }
        len += STEP;
    }
    len + rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())
}

/// Appends `text` as a JSON string.
#[inline]
fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, tail) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let Some((&special, tail)) = tail.split_first() else { break };
        push_escape(out, special);
        rest = tail;
    }
    out.push(b'"');
}

#[cold]
fn push_escape(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x09 => b't',
        0x0a => b'n',
        0x0c => b'f',
        0x0d => b'r',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Reads the JSON text of one row; the values are in column order.
///
/// The text must be one object with exactly the columns of `schema`, in any order, and of a
/// column that occurs twice the last value counts. An `int` is a number without fraction and
/// exponent that fits i64; a `float` is a number with either, or an integer beyond i64. `null`
/// stands for a non-finite float and for nothing else. White space and escapes are free.
///
/// # Errors
/// [`FormatError::RowUtf8`], [`FormatError::RowJson`], [`FormatError::RowColumnMissing`],
/// [`FormatError::RowColumnUnknown`], [`FormatError::RowKind`] (also for arrays and objects)
/// and [`FormatError::RowFloatRange`] for a number that f64 rounds to infinity.
///
/// ```
/// use drt_format::{DecodedValue, MetadataField, MetadataKind, MetadataSchema, decode_row};
///
/// let schema = MetadataSchema::new(vec![MetadataField::new("score", MetadataKind::Float)])?;
/// assert_eq!(decode_row(&schema, br#"{"score":0.5}"#)?, [DecodedValue::Float(0.5)]);
/// assert!(decode_row(&schema, br#"{"score":5}"#).is_err());
/// # Ok::<(), drt_format::FormatError>(())
/// ```
pub fn decode_row<'a>(schema: &MetadataSchema, json: &'a [u8]) -> Result<Vec<DecodedValue<'a>>, FormatError> {
    let text = std::str::from_utf8(json).map_err(|error| FormatError::RowUtf8 { offset: error.valid_up_to() })?;
    let mut parser = Parser { text, offset: 0 };
    let mut row: Vec<Option<Scalar<'a>>> = vec![None; schema.len()];

    parser.skip_space();
    parser.demand(b'{', "`{`")?;
    parser.skip_space();
    if !parser.take(b'}') {
        // Rows as written have their keys in JSON order; others cost a search for each key.
        for turn in 0.. {
            parser.demand(b'"', "a key")?;
            let key = parser.string()?;
            let Some(column) = expected_column(schema, turn, &key) else {
                return Err(FormatError::RowColumnUnknown { column: key.into_owned() });
            };
            parser.skip_space();
            parser.demand(b':', "`:`")?;
            parser.skip_space();
            row[column] = Some(parser.scalar()?);
            parser.skip_space();
            if parser.take(b'}') {
                break;
            }
            parser.demand(b',', "`,` or `}`")?;
            parser.skip_space();
        }
    }
    parser.skip_space();
    if parser.peek().is_some() {
        return Err(parser.expected("the end of the text"));
    }

    schema
        .fields()
        .iter()
        .zip(row)
        .map(|(field, scalar)| match scalar {
            Some(scalar) => scalar.into_value(&field.name, field.kind),
            None => Err(FormatError::RowColumnMissing { column: field.name.clone() }),
        })
        .collect()
}

fn expected_column(schema: &MetadataSchema, turn: usize, key: &str) -> Option<usize> {
    match schema.json_order().get(turn) {
        Some(&column) if schema.fields()[column].name == key => Some(column),
        _ => schema.position(key),
    }
}

/// A value before its column has been asked for its kind.
#[derive(Debug, Clone)]
enum Scalar<'a> {
    Null,
    Bool(bool),
    /// Text of a JSON number without fraction and exponent.
    Integer(&'a str),
    /// Text of a JSON number with a fraction or an exponent.
    Decimal(&'a str),
    String(Cow<'a, str>),
    Nested(&'static str),
}

impl<'a> Scalar<'a> {
    fn into_value(self, column: &str, kind: MetadataKind) -> Result<DecodedValue<'a>, FormatError> {
        let found = match (kind, self) {
            (MetadataKind::Bool, Self::Bool(value)) => return Ok(DecodedValue::Bool(value)),
            (MetadataKind::String, Self::String(value)) => return Ok(DecodedValue::String(value)),
            (MetadataKind::Float, Self::Null) => return Ok(DecodedValue::NonFiniteFloat),
            (MetadataKind::Float, Self::Decimal(text)) => return float_value(column, text),
            (MetadataKind::Int, Self::Integer(text)) => match text.parse() {
                Ok(value) => return Ok(DecodedValue::Int(value)),
                Err(_) => "an integer beyond 64 bits",
            },
            (MetadataKind::Float, Self::Integer(text)) => match text.parse::<i64>() {
                Ok(_) => "an integer",
                Err(_) => return float_value(column, text),
            },
            (_, Self::Null) => "null",
            (_, Self::Bool(_)) => "a bool",
            (_, Self::Integer(_)) => "an integer",
            (_, Self::Decimal(_)) => "a number with a fraction or an exponent",
            (_, Self::String(_)) => "a string",
            (_, Self::Nested(found)) => found,
        };
        Err(FormatError::RowKind { column: column.to_owned(), expected: kind, found })
    }
}

/// The standard library's conversion is correctly rounded for text of any length.
fn float_value<'a>(column: &str, text: &str) -> Result<DecodedValue<'a>, FormatError> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(DecodedValue::Float(value)),
        _ => Err(FormatError::RowFloatRange { column: column.to_owned() }),
    }
}

/// A place in the JSON text. `offset` is always between two characters.
struct Parser<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Parser<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    /// Steps over one ASCII character if it is the next.
    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.offset += usize::from(found);
        found
    }

    #[inline]
    fn demand(&mut self, byte: u8, what: &'static str) -> Result<(), FormatError> {
        if self.take(byte) { Ok(()) } else { Err(self.expected(what)) }
    }

    #[cold]
    fn expected(&self, expected: &'static str) -> FormatError {
        FormatError::RowJson { offset: self.offset, expected }
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.offset += 1;
        }
    }

    #[inline]
    fn scalar(&mut self) -> Result<Scalar<'a>, FormatError> {
        match self.peek() {
            Some(b'"') => {
                self.offset += 1;
                self.string().map(Scalar::String)
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Scalar::Bool(true)),
            Some(b'f') => self.word("false", Scalar::Bool(false)),
            Some(b'n') => self.word("null", Scalar::Null),
            Some(b'[') => self.nested("an array"),
            Some(b'{') => self.nested("an object"),
            _ => Err(self.expected("a value")),
        }
    }

    fn word(&mut self, word: &'static str, scalar: Scalar<'a>) -> Result<Scalar<'a>, FormatError> {
        if self.text[self.offset..].starts_with(word) {
            self.offset += word.len();
            Ok(scalar)
        } else {
            Err(self.expected("a value"))
        }
    }

    fn number(&mut self) -> Result<Scalar<'a>, FormatError> {
        let start = self.offset;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = &self.text[start..self.offset];
        Ok(if integer { Scalar::Integer(text) } else { Scalar::Decimal(text) })
    }

    fn digits(&mut self) -> Result<(), FormatError> {
        let start = self.offset;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.offset += 1;
        }
        if self.offset > start { Ok(()) } else { Err(self.expected("a digit")) }
    }

    /// The rest of a string whose opening quotation mark has been taken.
    fn string(&mut self) -> Result<Cow<'a, str>, FormatError> {
        let mut owned: Option<String> = None;
        loop {
            let start = self.offset;
            self.offset += plain_len(&self.text.as_bytes()[start..]);
            let plain = &self.text[start..self.offset];
            match self.peek() {
                Some(b'"') => {
                    self.offset += 1;
                    return Ok(match owned {
                        Some(mut text) => {
                            text.push_str(plain);
                            Cow::Owned(text)
                        }
                        None => Cow::Borrowed(plain),
                    });
                }
                Some(b'\\') => {
                    self.offset += 1;
                    let text = owned.get_or_insert_default();
                    text.push_str(plain);
                    text.push(self.escape()?);
                }
                _ => return Err(self.expected("a character or the end of the string")),
            }
        }
    }

    /// The character of an escape whose backslash has been taken.
    fn escape(&mut self) -> Result<char, FormatError> {
        let character = match self.peek() {
            Some(character @ (b'"' | b'\\' | b'/')) => char::from(character),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.offset += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.expected("an escape")),
        };
        self.offset += 1;
        Ok(character)
    }

    /// The character after `\u`, which may need a second escape.
    fn unicode_escape(&mut self) -> Result<char, FormatError> {
        let first = self.four_hex_digits()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !(self.take(b'\\') && self.take(b'u')) {
                    return Err(self.expected("the second half of a surrogate pair"));
                }
                match self.four_hex_digits()? {
                    second @ 0xdc00..=0xdfff => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err(self.expected("the second half of a surrogate pair")),
                }
            }
            _ => first,
        };
        char::from_u32(code).ok_or_else(|| self.expected("the first half of a surrogate pair"))
    }

    fn four_hex_digits(&mut self) -> Result<u32, FormatError> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.expected("a hexadecimal digit"));
            };
            code = code << 4 | digit;
            self.offset += 1;
        }
        Ok(code)
    }

    /// Steps over an array or object, which no column can hold, so that a later value of the
    /// same column can still count. The open brackets are remembered on the heap.
    fn nested(&mut self, found: &'static str) -> Result<Scalar<'a>, FormatError> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            // Here a value begins.
            match self.peek() {
                Some(bracket @ (b'[' | b'{')) => {
                    self.offset += 1;
                    self.skip_space();
                    let close = bracket + 2; // `]` and `}` in ASCII
                    if !self.take(close) {
                        open.push(close);
                        if close == b'}' {
                            self.nested_key()?;
                        }
                        continue;
                    }
                }
                _ => {
                    self.scalar()?;
                }
            }
            // Here a value has ended.
            loop {
                let Some(&close) = open.last() else { return Ok(Scalar::Nested(found)) };
                self.skip_space();
                if self.take(close) {
                    open.pop();
                    continue;
                }
                self.demand(b',', "`,` or a closing bracket")?;
                self.skip_space();
                if close == b'}' {
                    self.nested_key()?;
                }
                break;
            }
        }
    }

    fn nested_key(&mut self) -> Result<(), FormatError> {
        self.demand(b'"', "a key")?;
        self.string()?;
        self.skip_space();
        self.demand(b':', "`:`")?;
        self.skip_space();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::MetadataField;

    fn schema(columns: &[(&str, MetadataKind)]) -> MetadataSchema {
        let fields = columns.iter().map(|&(name, kind)| MetadataField::new(name, kind));
        MetadataSchema::new(fields.collect()).unwrap()
    }

    fn encode(schema: &MetadataSchema, row: &[MetadataValue<'_>]) -> String {
        let mut json = b"kept".to_vec();
        RowEncoder::new(schema).encode(|column| row[column], &mut json);
        String::from_utf8(json.split_off(4)).unwrap()
    }

    /// The row's only value.
    fn read(kind: MetadataKind, value: &str) -> Result<DecodedValue<'static>, FormatError> {
        let json = format!(r#"{{"v":{value}}}"#);
        let row = decode_row(&schema(&[("v", kind)]), json.as_bytes())?;
        Ok(match &row[..] {
            [DecodedValue::Bool(value)] => DecodedValue::Bool(*value),
            [DecodedValue::Int(value)] => DecodedValue::Int(*value),
            [DecodedValue::Float(value)] => DecodedValue::Float(*value),
            [DecodedValue::NonFiniteFloat] => DecodedValue::NonFiniteFloat,
            [DecodedValue::String(value)] => DecodedValue::String(value.to_string().into()),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn keys_are_sorted_and_escaped_and_asked_for_by_column() {
        let schema = schema(&[
            ("z", MetadataKind::Bool),
            ("q\"uo\\te", MetadataKind::Int),
            ("", MetadataKind::String),
            ("日", MetadataKind::Bool),
        ]);
        let row = [
            MetadataValue::Bool(true),
            MetadataValue::Int(i64::MIN),
            MetadataValue::String(""),
            MetadataValue::Bool(false),
        ];
        assert_eq!(encode(&schema, &row), r#"{"":"","q\"uo\\te":-9223372036854775808,"z":true,"日":false}"#);
    }

    #[test]
    fn no_columns_make_an_empty_object() {
        let empty = MetadataSchema::default();
        assert_eq!(encode(&empty, &[]), "{}");
        for json in ["{}", " { } "] {
            assert_eq!(decode_row(&empty, json.as_bytes()), Ok(vec![]));
        }
        let mut head = vec![9];
        RowEncoder::new(&empty).encode_record_head(|_| MetadataValue::Bool(true), &mut head);
        assert_eq!(head, b"\x09\x02\0\0\0\0\0\0\0{}");
    }

    #[test]
    fn strings_escape_what_they_must_and_nothing_else() {
        let schema = schema(&[("s", MetadataKind::String)]);
        for (text, json) in [
            ("plain", "plain"),
            ("\"\\/", r#"\"\\/"#),
            ("\u{8}\t\n\u{c}\r", r"\b\t\n\f\r"),
            ("\0\u{b}\u{1f}\u{7f}", "\\u0000\\u000b\\u001f\u{7f}"),
            ("é\u{2028}\u{2029}😀", "é\u{2028}\u{2029}😀"),
            ("sixteen bytes...\n and sixteen more\"", r#"sixteen bytes...\n and sixteen more\""#),
        ] {
            assert_eq!(encode(&schema, &[MetadataValue::String(text)]), format!(r#"{{"s":"{json}"}}"#));
        }
    }

    /// The rule of the format, said once more: shortest digits, the nearest of them, the even
    /// one of two; plain for decimal exponents from -5 to 15.
    fn float_by_rule(value: f64) -> String {
        let shortest = format!("{:e}", value.abs());
        let mut scientific = format!("{:.*e}", shortest.find('e').unwrap().saturating_sub(2), value.abs());
        if scientific.parse() != Ok(value.abs()) {
            scientific = shortest;
        }
        let (mantissa, exponent) = scientific.split_once('e').unwrap();
        let exponent: i32 = exponent.parse().unwrap();
        let digits = mantissa.replace('.', "");
        let text = match exponent {
            -5..=-1 => format!("0.{}{digits}", "0".repeat((-1 - exponent) as usize)),
            0..=15 => {
                let padded = format!("{digits:0<width$}", width = exponent as usize + 2);
                let (whole, fraction) = padded.split_at(exponent as usize + 1);
                format!("{whole}.{fraction}")
            }
            _ => format!("{mantissa}e{exponent:+}"),
        };
        if value.is_sign_negative() { format!("-{text}") } else { text }
    }

    #[test]
    fn floats_follow_the_notation_of_the_format() {
        let schema = schema(&[("f", MetadataKind::Float)]);
        let written = |value| {
            let json = encode(&schema, &[MetadataValue::Float(value)]);
            json[5..json.len() - 1].to_owned()
        };
        for (value, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.00001, "0.00001"),
            (0.000001, "1e-6"),
            (9.5e-6, "9.5e-6"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "null"),
            (f64::INFINITY, "null"),
            (f64::NEG_INFINITY, "null"),
        ] {
            assert_eq!(written(value), text);
        }

        // A fixed walk over bit patterns, and over decimals near the limits of the notation.
        let mut state = 0u64;
        for turn in 0..100_000 {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let value = match turn % 2 {
                0 => f64::from_bits(mixed),
                _ => (mixed % 100_000) as f64 * 10f64.powi((mixed >> 32) as i32 % 24 - 8),
            };
            if value.is_finite() {
                let text = written(value);
                assert_eq!(text, float_by_rule(value));
                let read = read(MetadataKind::Float, &text);
                assert!(matches!(read, Ok(DecodedValue::Float(back)) if back.to_bits() == value.to_bits()), "{text}");
            }
        }
    }

    #[test]
    fn floats_are_read_exactly() {
        // Halfway cases and long digit strings, where quick conversions are one unit off.
        for (text, bits) in [
            ("9007199254740993.0", 0x4340_0000_0000_0000),
            ("9007199254740993.00000000000000000000000000000001", 0x4340_0000_0000_0001),
            ("2.2250738585072011e-308", 0x000f_ffff_ffff_ffff),
            ("1.00000000000000011102230246251565404236316680908203125", 0x3ff0_0000_0000_0000),
            ("1.00000000000000011102230246251565404236316680908203126", 0x3ff0_0000_0000_0001),
            ("2.4703282292062328e-324", 1),
            ("1e-999", 0),
            ("-0.0", 1 << 63),
            ("0e5", 0),
        ] {
            let read = read(MetadataKind::Float, text);
            assert!(matches!(read, Ok(DecodedValue::Float(value)) if value.to_bits() == bits), "{text} {read:?}");
        }
    }

    #[test]
    fn each_kind_takes_only_its_own_values() {
        use MetadataKind::{Bool, Float, Int, String};
        let good = [
            (Bool, "true", DecodedValue::Bool(true)),
            (Bool, "false", DecodedValue::Bool(false)),
            (Int, "0", DecodedValue::Int(0)),
            (Int, "-0", DecodedValue::Int(0)),
            (Int, "9223372036854775807", DecodedValue::Int(i64::MAX)),
            (Int, "-9223372036854775808", DecodedValue::Int(i64::MIN)),
            (Float, "1e0", DecodedValue::Float(1.0)),
            (Float, "1E+2", DecodedValue::Float(100.0)),
            (Float, "1.50", DecodedValue::Float(1.5)),
            (Float, "9223372036854775808", DecodedValue::Float(9_223_372_036_854_775_808.0)),
            (Float, "null", DecodedValue::NonFiniteFloat),
            (String, r#""null""#, DecodedValue::String("null".into())),
        ];
        for (kind, text, value) in good {
            assert_eq!(read(kind, text), Ok(value), "{kind} {text}");
        }
        let bad = [
            (Bool, vec!["0", "null", "\"true\"", "[]", "1.0"]),
            (Int, vec!["1.0", "1e0", "9223372036854775808", "-9223372036854775809", "null", "true", "\"1\"", "{}"]),
            (Float, vec!["5", "-1", "9223372036854775807", "true", "\"1.0\"", "[1.0]", "{\"a\":1}"]),
            (String, vec!["null", "1", "false", "[\"a\"]"]),
        ];
        for (kind, texts) in bad {
            for text in texts {
                let error = read(kind, text).unwrap_err();
                assert!(
                    matches!(&error, FormatError::RowKind { column, expected, .. } if column == "v" && *expected == kind),
                    "{kind} {text} {error}"
                );
            }
        }
        for text in ["1e999", "-1.0e400"] {
            assert_eq!(read(Float, text), Err(FormatError::RowFloatRange { column: "v".into() }));
        }
    }

    #[test]
    fn malformed_text_is_refused_where_it_is_malformed() {
        let schema = schema(&[("a", MetadataKind::Int)]);
        for (json, offset) in [
            ("", 0),
            ("[]", 0),
            ("{", 1),
            ("{\"a\"}", 4),
            ("{\"a\":}", 5),
            ("{\"a\":1", 6),
            ("{\"a\":1,}", 7),
            ("{\"a\":1 \"a\":1}", 7),
            ("{\"a\":01}", 6),
            ("{\"a\":1.}", 7),
            ("{\"a\":-}", 6),
            ("{\"a\":1e}", 7),
            ("{\"a\":+1}", 5),
            ("{\"a\":NaN}", 5),
            ("{\"a\":Infinity}", 5),
            ("{\"a\":tru}", 5),
            ("{\"a\":1}x", 7),
            ("{\"a\":1}{}", 7),
            ("{\"a\":\"\n\"}", 6),
            ("{\"a\":\"\\x\"}", 7),
            ("{\"a\":\"\\u12g4\"}", 10),
            ("{\"a\":\"\\ud800\"}", 12),
            ("{\"a\":\"\\ud800\\u0041\"}", 18),
            ("{\"a\":\"\\udc00\"}", 12),
            ("{\"a\":[1,]}", 8),
            ("{\"a\":[1}", 7),
            ("{\"a\":{1:1}}", 6),
            ("\u{feff}{\"a\":1}", 0),
        ] {
            let error = decode_row(&schema, json.as_bytes()).unwrap_err();
            assert!(matches!(error, FormatError::RowJson { offset: found, .. } if found == offset), "{json} {error}");
        }
        assert_eq!(decode_row(&schema, b"{\"a\":\"\xff\"}"), Err(FormatError::RowUtf8 { offset: 6 }));
    }

    #[test]
    fn the_columns_must_be_exactly_those_of_the_schema() {
        let schema = schema(&[("a", MetadataKind::Int), ("b", MetadataKind::Int)]);
        let ab = vec![DecodedValue::Int(1), DecodedValue::Int(2)];
        for json in [
            r#"{"a":1,"b":2}"#,
            r#"{"b":2,"a":1}"#,
            " { \"\\u0061\" : 1 ,\r\n\t\"b\" : 2 } ",
            r#"{"a":7,"b":2,"a":1}"#,
            r#"{"a":"x","a":[{"k":[[],{}]},"]"],"b":null,"b":2,"a":1}"#,
        ] {
            assert_eq!(decode_row(&schema, json.as_bytes()), Ok(ab.clone()), "{json}");
        }
        assert_eq!(decode_row(&schema, br#"{"a":1}"#), Err(FormatError::RowColumnMissing { column: "b".into() }));
        assert_eq!(
            decode_row(&schema, br#"{"a":1,"b":2,"c":3}"#),
            Err(FormatError::RowColumnUnknown { column: "c".into() })
        );
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        let schema = schema(&[("a", MetadataKind::String), ("b", MetadataKind::String)]);
        let row = decode_row(&schema, br#"{"a":"plain","b":"\ud83d\ude00\/\"\n"}"#).unwrap();
        assert!(matches!(&row[0], DecodedValue::String(Cow::Borrowed("plain"))));
        assert!(matches!(&row[1], DecodedValue::String(Cow::Owned(text)) if text == "😀/\"\n"));
    }
}
