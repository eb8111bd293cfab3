//! The JSON of a manifest, as far as both versions share it: the only door to `serde_json`.
//!
//! Derived code does not fit here. The format refuses a repeated key at the top level but not
//! inside, ignores unknown keys below but keeps those at the top, and an error should name the
//! place (`shards[3].byte_len`). So the visitors are written out, and a [`Trail`] remembers
//! where they are.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, de};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Manifest, ShardEntry};
use crate::checksum::Sha256Digest;
use crate::compression::{CompressionAlgo, Ratio, ShardCompression};
use crate::error::{FormatError, quote};
use crate::ids::CacheId;
use crate::layout::is_plain_file_name;
use crate::schema::{MetadataField, MetadataKind, MetadataSchema};
use crate::version::FormatVersion;

/// Keys that the format defines at the top level, as written.
const KEYS: [&str; 8] = [
    "format_version",
    "cache_id",
    "source_name",
    "sample_count",
    "metadata_schema",
    "metadata_sha256",
    "index_sha256",
    "shards",
];

/// A manifest of either version, before the version has had its say about `cache_id`.
pub(super) struct Document {
    pub(super) version: FormatVersion,
    /// Whatever stands there: version 2 does not care.
    pub(super) cache_id: Option<Value>,
    source_name: String,
    sample_count: u64,
    schema: Vec<MetadataField>,
    metadata_sha256: Sha256Digest,
    index_sha256: Sha256Digest,
    shards: Vec<ShardEntry>,
    extra: Map<String, Value>,
}

impl Document {
    pub(super) fn into_manifest(self, cache_id: Option<CacheId>) -> Result<Manifest, FormatError> {
        Ok(Manifest {
            version: self.version,
            cache_id,
            source_name: self.source_name,
            sample_count: self.sample_count,
            schema: MetadataSchema::new(self.schema)?,
            metadata_sha256: self.metadata_sha256,
            index_sha256: self.index_sha256,
            shards: self.shards,
            extra: self.extra,
        })
    }
}

pub(super) fn decode(text: &str) -> Result<Document, FormatError> {
    let trail = Trail::default();
    decode_object::<TopLevel>(text, &trail).map_err(|error| {
        // A version we do not know may well have other keys: name the version, not the key.
        match decode_object::<VersionOnly>(text, &Trail::default()) {
            Ok(Some(number)) => FormatVersion::from_number(number).err().unwrap_or(error),
            _ => error,
        }
    })
}

fn decode_object<F: Fields>(text: &str, trail: &Trail) -> Result<F::Output, FormatError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Object::<F>::new(trail)
        .deserialize(&mut deserializer)
        .and_then(|output| deserializer.end().map(|()| output))
        .map_err(|error| trail.explain(error))
}

/// The text of a version 2 manifest that was decoded before, made version 3: each value but the version's is copied as it stands.
pub(super) fn upgrade(text: &[u8], cache_id: CacheId) -> Result<Vec<u8>, FormatError> {
    let trail = Trail::default();
    let entries: Entries<'_> = serde_json::from_slice(text).map_err(|error| trail.explain(error))?;
    let mut upgraded = format!("{{\n  \"format_version\": 3,\n  \"cache_id\": {}", cache_id.get());
    for (key, value) in entries.0 {
        // Version 2 defines no `cache_id`, and does not care what stands there.
        if key != "format_version" && key != "cache_id" {
            upgraded.push_str(",\n  ");
            upgraded.push_str(&Value::String(key).to_string());
            upgraded.push_str(": ");
            upgraded.push_str(value.get());
        }
    }
    upgraded.push_str("\n}");
    Ok(upgraded.into_bytes())
}

/// The keys of an object in their order, each with the text of its value.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Where in the document the visitors are, and what they have against it.
#[derive(Default)]
struct Trail {
    steps: RefCell<Vec<Step>>,
    fault: RefCell<Option<FormatError>>,
}

enum Step {
    Key(Cow<'static, str>),
    At(usize),
}

impl Trail {
    /// Reads one value at a step below. After an error the trail stays where it was.
    fn at<T, E>(&self, step: Step, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.steps.borrow_mut().push(step);
        let value = read()?;
        self.steps.borrow_mut().pop();
        Ok(value)
    }

    /// The place in words, with one more key below it: `shards[3].byte_len`.
    fn place(&self, key: Option<&str>) -> String {
        let mut place = String::new();
        let add_key = |key: &str, place: &mut String| {
            if !place.is_empty() {
                place.push('.');
            }
            place.push_str(key);
        };
        for step in self.steps.borrow().iter() {
            match step {
                Step::Key(key) => add_key(key, &mut place),
                Step::At(position) => place.push_str(&format!("[{position}]")),
            }
        }
        if let Some(key) = key {
            add_key(key, &mut place);
        }
        place
    }

    /// Leaves `fault` behind; the error returned is only there to stop the parser.
    fn stop<E: de::Error>(&self, fault: FormatError) -> E {
        *self.fault.borrow_mut() = Some(fault);
        E::custom("refused")
    }

    fn invalid<E: de::Error>(&self, problem: String) -> E {
        self.stop(FormatError::ManifestKeyInvalid { key: self.place(None), problem })
    }

    fn require<T, E: de::Error>(&self, value: Option<T>, key: &str) -> Result<T, E> {
        value.ok_or_else(|| self.stop(FormatError::ManifestKeyMissing { key: self.place(Some(key)) }))
    }

    fn explain(&self, error: serde_json::Error) -> FormatError {
        if let Some(fault) = self.fault.take() {
            return fault;
        }
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        let message = message.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&message);
        let mut problem: String = message.chars().take(200).collect();
        if problem.len() < message.len() {
            problem.push('…');
        }
        let key = self.place(None);
        if error.is_data() && !key.is_empty() {
            FormatError::ManifestKeyInvalid { key, problem }
        } else {
            FormatError::ManifestJson { line, column, problem }
        }
    }
}

/// Text that is borrowed from the document when it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The keys of one kind of object, collected one by one.
trait Fields: Default {
    type Output;

    /// Reads the value of `key`; of a key that comes twice the last value counts.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: Cow<'de, str>, map: &mut A, trail: &Trail) -> Result<(), A::Error>;

    /// The object from its keys.
    fn finish<E: de::Error>(self, trail: &Trail) -> Result<Self::Output, E>;
}

struct Object<'t, F> {
    trail: &'t Trail,
    fields: PhantomData<F>,
}

impl<'t, F> Object<'t, F> {
    fn new(trail: &'t Trail) -> Self {
        Self { trail, fields: PhantomData }
    }
}

impl<'de, F: Fields> DeserializeSeed<'de> for Object<'_, F> {
    type Value = F::Output;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<F::Output, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for Object<'_, F> {
    type Value = F::Output;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<F::Output, A::Error> {
        let mut fields = F::default();
        while let Some(Text(key)) = map.next_key()? {
            fields.read(key, &mut map, self.trail)?;
        }
        fields.finish(self.trail)
    }
}

struct Array<'t, F> {
    trail: &'t Trail,
    fields: PhantomData<F>,
}

impl<'de, F: Fields> DeserializeSeed<'de> for Array<'_, F> {
    type Value = Vec<F::Output>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for Array<'_, F> {
    type Value = Vec<F::Output>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        let read = |seq: &mut A, position| {
            self.trail.at(Step::At(position), || seq.next_element_seed(Object::<F>::new(self.trail)))
        };
        while let Some(item) = read(&mut seq, items.len())? {
            items.push(item);
        }
        Ok(items)
    }
}

/// Reads the value of a key that is part of the format.
struct Slot<'m, 't, A> {
    key: &'static str,
    map: &'m mut A,
    trail: &'t Trail,
}

impl<'de, A: MapAccess<'de>> Slot<'_, '_, A> {
    fn step(&self) -> Step {
        Step::Key(Cow::Borrowed(self.key))
    }

    fn value<T: Deserialize<'de>>(self) -> Result<Option<T>, A::Error> {
        self.trail.at(self.step(), || self.map.next_value().map(Some))
    }

    /// A text that stands for something else.
    fn parsed<T>(self, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, A::Error> {
        self.trail.at(self.step(), || {
            let Text(text) = self.map.next_value()?;
            parse(&text).map(Some).map_err(|problem| self.trail.invalid(problem))
        })
    }

    fn digest(self) -> Result<Option<Sha256Digest>, A::Error> {
        self.parsed(|text| text.parse().map_err(|error: FormatError| error.to_string()))
    }

    fn object<F: Fields>(self) -> Result<Option<F::Output>, A::Error> {
        self.trail.at(self.step(), || self.map.next_value_seed(Object::<F>::new(self.trail)).map(Some))
    }

    fn array<F: Fields>(self) -> Result<Option<Vec<F::Output>>, A::Error> {
        let seed = Array::<F> { trail: self.trail, fields: PhantomData };
        self.trail.at(self.step(), || self.map.next_value_seed(seed).map(Some))
    }
}

fn ignore<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// The number of the version, and nothing else.
#[derive(Default)]
struct VersionOnly(Option<u64>);

impl Fields for VersionOnly {
    type Output = Option<u64>;

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Cow<'de, str>, map: &mut A, trail: &Trail) -> Result<(), A::Error> {
        match &*key {
            "format_version" => self.0 = Slot { key: "format_version", map, trail }.value()?,
            _ => ignore(map)?,
        }
        Ok(())
    }

    fn finish<E: de::Error>(self, _: &Trail) -> Result<Option<u64>, E> {
        Ok(self.0)
    }
}

#[derive(Default)]
struct TopLevel {
    format_version: Option<u64>,
    cache_id: Option<Value>,
    source_name: Option<String>,
    sample_count: Option<u64>,
    metadata_schema: Option<Vec<MetadataField>>,
    metadata_sha256: Option<Sha256Digest>,
    index_sha256: Option<Sha256Digest>,
    shards: Option<Vec<ShardEntry>>,
    extra: Map<String, Value>,
}

impl TopLevel {
    fn has(&self, key: &str) -> bool {
        match key {
            "format_version" => self.format_version.is_some(),
            "cache_id" => self.cache_id.is_some(),
            "source_name" => self.source_name.is_some(),
            "sample_count" => self.sample_count.is_some(),
            "metadata_schema" => self.metadata_schema.is_some(),
            "metadata_sha256" => self.metadata_sha256.is_some(),
            "index_sha256" => self.index_sha256.is_some(),
            "shards" => self.shards.is_some(),
            _ => self.extra.contains_key(key),
        }
    }
}

impl Fields for TopLevel {
    type Output = Document;

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Cow<'de, str>, map: &mut A, trail: &Trail) -> Result<(), A::Error> {
        if self.has(&key) {
            return Err(trail.stop(FormatError::ManifestKeyRepeated { key: key.into_owned() }));
        }
        let Some(&known) = KEYS.iter().find(|&&known| known == key) else {
            let key = key.into_owned();
            let value = trail.at(Step::Key(key.clone().into()), || map.next_value())?;
            self.extra.insert(key, value);
            return Ok(());
        };
        let slot = Slot { key: known, map, trail };
        match known {
            "format_version" => self.format_version = slot.value()?,
            "cache_id" => self.cache_id = slot.value()?,
            "source_name" => self.source_name = slot.value()?,
            "sample_count" => self.sample_count = slot.value()?,
            "metadata_schema" => self.metadata_schema = slot.array::<Column>()?,
            "metadata_sha256" => self.metadata_sha256 = slot.digest()?,
            "index_sha256" => self.index_sha256 = slot.digest()?,
            _ => self.shards = slot.array::<Shard>()?,
        }
        Ok(())
    }

    fn finish<E: de::Error>(self, trail: &Trail) -> Result<Document, E> {
        let number = trail.require(self.format_version, "format_version")?;
        let shards = trail.require(self.shards, "shards")?;
        if let Some(shard) = shards.iter().position(|shard| !is_plain_file_name(&shard.name)) {
            return Err(trail.stop(FormatError::ShardName { shard, name: shards[shard].name.clone() }));
        }
        Ok(Document {
            version: FormatVersion::from_number(number).map_err(|error| trail.stop(error))?,
            cache_id: self.cache_id,
            source_name: trail.require(self.source_name, "source_name")?,
            sample_count: trail.require(self.sample_count, "sample_count")?,
            schema: trail.require(self.metadata_schema, "metadata_schema")?,
            metadata_sha256: trail.require(self.metadata_sha256, "metadata_sha256")?,
            index_sha256: trail.require(self.index_sha256, "index_sha256")?,
            shards,
            extra: self.extra,
        })
    }
}

/// An element of `metadata_schema`.
#[derive(Default)]
struct Column {
    name: Option<String>,
    kind: Option<MetadataKind>,
}

impl Fields for Column {
    type Output = MetadataField;

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Cow<'de, str>, map: &mut A, trail: &Trail) -> Result<(), A::Error> {
        match &*key {
            "name" => self.name = Slot { key: "name", map, trail }.value()?,
            "kind" => {
                self.kind = Slot { key: "kind", map, trail }.parsed(|text| {
                    MetadataKind::from_name(text).ok_or_else(|| format!("unknown kind {}", quote(text)))
                })?;
            }
            _ => ignore(map)?,
        }
        Ok(())
    }

    fn finish<E: de::Error>(self, trail: &Trail) -> Result<MetadataField, E> {
        Ok(MetadataField { name: trail.require(self.name, "name")?, kind: trail.require(self.kind, "kind")? })
    }
}

/// An element of `shards`.
#[derive(Default)]
struct Shard {
    name: Option<String>,
    uncompressed_byte_len: Option<u64>,
    byte_len: Option<u64>,
    compression: Option<ShardCompression>,
    sha256: Option<Sha256Digest>,
}

impl Fields for Shard {
    type Output = ShardEntry;

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Cow<'de, str>, map: &mut A, trail: &Trail) -> Result<(), A::Error> {
        match &*key {
            "name" => self.name = Slot { key: "name", map, trail }.value()?,
            "uncompressed_byte_len" => {
                self.uncompressed_byte_len = Slot { key: "uncompressed_byte_len", map, trail }.value()?;
            }
            "byte_len" => self.byte_len = Slot { key: "byte_len", map, trail }.value()?,
            "compression" => self.compression = Slot { key: "compression", map, trail }.object::<Compression>()?,
            "sha256" => self.sha256 = Slot { key: "sha256", map, trail }.digest()?,
            _ => ignore(map)?,
        }
        Ok(())
    }

    fn finish<E: de::Error>(self, trail: &Trail) -> Result<ShardEntry, E> {
        Ok(ShardEntry {
            name: trail.require(self.name, "name")?,
            uncompressed_byte_len: trail.require(self.uncompressed_byte_len, "uncompressed_byte_len")?,
            byte_len: trail.require(self.byte_len, "byte_len")?,
            compression: trail.require(self.compression, "compression")?,
            sha256: trail.require(self.sha256, "sha256")?,
        })
    }
}

/// The object under `compression`.
#[derive(Default)]
struct Compression {
    algo: Option<CompressionAlgo>,
    ratio: Option<Ratio>,
}

impl Fields for Compression {
    type Output = ShardCompression;

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Cow<'de, str>, map: &mut A, trail: &Trail) -> Result<(), A::Error> {
        match &*key {
            "algo" => {
                self.algo = Slot { key: "algo", map, trail }.parsed(|text| {
                    CompressionAlgo::from_name(text).ok_or_else(|| format!("unknown algorithm {}", quote(text)))
                })?;
            }
            "ratio" => {
                self.ratio = trail.at(Step::Key("ratio".into()), || {
                    let number: &RawValue = map.next_value()?;
                    Ratio::from_json(number.get()).map(Some).ok_or_else(|| {
                        trail.invalid(format!("expected a finite number, found {}", quote(number.get())))
                    })
                })?;
            }
            _ => ignore(map)?,
        }
        Ok(())
    }

    fn finish<E: de::Error>(self, trail: &Trail) -> Result<ShardCompression, E> {
        Ok(ShardCompression { algo: trail.require(self.algo, "algo")?, ratio: trail.require(self.ratio, "ratio")? })
    }
}

/// The bytes of a manifest; `cache_id` only where the version has one.
pub(super) fn encode(manifest: &Manifest, cache_id: Option<CacheId>) -> Vec<u8> {
    let mut extra = manifest.extra.clone();
    extra.retain(|key, _| !KEYS.contains(&key.as_str()));
    let out = ManifestOut {
        format_version: manifest.version.number(),
        cache_id: cache_id.map(CacheId::get),
        source_name: &manifest.source_name,
        sample_count: manifest.sample_count,
        metadata_schema: manifest.schema.fields().iter().map(ColumnOut::new).collect(),
        metadata_sha256: manifest.metadata_sha256.to_string(),
        index_sha256: manifest.index_sha256.to_string(),
        shards: manifest.shards.iter().map(ShardOut::new).collect(),
        extra,
    };
    serde_json::to_vec_pretty(&out).expect("text, numbers and JSON values always have a JSON form")
}

#[derive(Serialize)]
struct ManifestOut<'a> {
    format_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_id: Option<u64>,
    source_name: &'a str,
    sample_count: u64,
    metadata_schema: Vec<ColumnOut<'a>>,
    metadata_sha256: String,
    index_sha256: String,
    shards: Vec<ShardOut<'a>>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize)]
struct ColumnOut<'a> {
    name: &'a str,
    kind: &'static str,
}

impl<'a> ColumnOut<'a> {
    fn new(field: &'a MetadataField) -> Self {
        Self { name: &field.name, kind: field.kind.name() }
    }
}

#[derive(Serialize)]
struct ShardOut<'a> {
    name: &'a str,
    uncompressed_byte_len: u64,
    byte_len: u64,
    compression: CompressionOut,
    sha256: String,
}

impl<'a> ShardOut<'a> {
    fn new(shard: &'a ShardEntry) -> Self {
        let ratio = shard.compression.ratio.as_str().to_owned();
        Self {
            name: &shard.name,
            uncompressed_byte_len: shard.uncompressed_byte_len,
            byte_len: shard.byte_len,
            compression: CompressionOut {
                algo: shard.compression.algo.name(),
                ratio: RawValue::from_string(ratio).expect("a ratio keeps the text of a JSON number"),
            },
            sha256: shard.sha256.to_string(),
        }
    }
}

#[derive(Serialize)]
struct CompressionOut {
    algo: &'static str,
    ratio: Box<RawValue>,
}
