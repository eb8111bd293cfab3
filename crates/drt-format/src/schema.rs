//! [`MetadataSchema`]: the columns of a cache, and single values in them.
//!
//! Source: docs/spec/v3.md, "Manifest" and "Schema".

use std::borrow::Cow;
use std::fmt;

use crate::constants::RESERVED_COLUMNS;
use crate::error::FormatError;

/// Kind of the values in one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetadataKind {
    /// `true` or `false`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// A 64-bit IEEE float.
    Float,
    /// UTF-8 text.
    String,
}

impl MetadataKind {
    /// Every kind of the format.
    pub const ALL: [Self; 4] = [Self::Bool, Self::Int, Self::Float, Self::String];

    /// The name in the manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::String => "string",
        }
    }

    /// The kind with this name, if the format has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for MetadataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One column: its name and the kind of its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetadataField {
    /// Name of the column.
    pub name: String,
    /// Kind of its values.
    pub kind: MetadataKind,
}

impl MetadataField {
    /// A column.
    pub fn new(name: impl Into<String>, kind: MetadataKind) -> Self {
        Self { name: name.into(), kind }
    }
}

/// The columns of a cache in column order. No two have the same name.
///
/// ```
/// use drt_format::{MetadataField, MetadataKind, MetadataSchema};
///
/// let fields = vec![
///     MetadataField::new("label", MetadataKind::Int),
///     MetadataField::new("author", MetadataKind::String),
/// ];
/// let (schema, order) = MetadataSchema::from_unsorted(fields)?;
/// assert_eq!(schema.fields()[0].name, "author");
/// assert_eq!(order, [1, 0]);
/// schema.validate_for_write()?;
/// # Ok::<(), drt_format::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetadataSchema {
    fields: Vec<MetadataField>,
    json_order: Vec<usize>,
}

impl MetadataSchema {
    /// A schema with the columns in this order.
    ///
    /// # Errors
    /// [`FormatError::ColumnRepeated`] when two columns have the same name.
    pub fn new(fields: Vec<MetadataField>) -> Result<Self, FormatError> {
        let mut json_order: Vec<usize> = (0..fields.len()).collect();
        json_order.sort_by(|&a, &b| fields[a].name.as_bytes().cmp(fields[b].name.as_bytes()));
        for pair in json_order.windows(2) {
            if fields[pair[0]].name == fields[pair[1]].name {
                return Err(FormatError::ColumnRepeated { name: fields[pair[0]].name.clone() });
            }
        }
        Ok(Self { fields, json_order })
    }

    /// A schema with the columns in the order that the writer uses: ascending by the UTF-8
    /// bytes of their names.
    ///
    /// The second value tells where each column came from: column `c` of the schema was
    /// `fields[order[c]]`.
    ///
    /// # Errors
    /// [`FormatError::ColumnRepeated`] when two columns have the same name.
    pub fn from_unsorted(fields: Vec<MetadataField>) -> Result<(Self, Vec<usize>), FormatError> {
        let Self { fields, json_order: order } = Self::new(fields)?;
        let mut fields: Vec<Option<MetadataField>> = fields.into_iter().map(Some).collect();
        let sorted = order.iter().filter_map(|&from| fields[from].take()).collect();
        let json_order = (0..order.len()).collect();
        Ok((Self { fields: sorted, json_order }, order))
    }

    /// The columns in column order.
    #[inline]
    pub fn fields(&self) -> &[MetadataField] {
        &self.fields
    }

    /// Number of columns.
    #[inline]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no columns; such a cache is allowed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Positions of the columns in the order that a row's JSON text has them: ascending by
    /// the UTF-8 bytes of their names.
    #[inline]
    pub fn json_order(&self) -> &[usize] {
        &self.json_order
    }

    /// Position of the column called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        let found =
            self.json_order.binary_search_by(|&column| self.fields[column].name.as_bytes().cmp(name.as_bytes()));
        found.ok().map(|at| self.json_order[at])
    }

    /// Checks the stricter rules for caches to be written, so that every reader can use them.
    ///
    /// # Errors
    /// [`FormatError::ColumnNameEmpty`], [`FormatError::ColumnNameNul`],
    /// [`FormatError::ColumnNameReserved`] for `cache_id`, `sample_id` and `weight`, and
    /// [`FormatError::ColumnsUnsorted`] when the columns are not in ascending order.
    pub fn validate_for_write(&self) -> Result<(), FormatError> {
        for (column, field) in self.fields.iter().enumerate() {
            let name = || field.name.clone();
            if field.name.is_empty() {
                return Err(FormatError::ColumnNameEmpty { column });
            }
            if field.name.contains('\0') {
                return Err(FormatError::ColumnNameNul { name: name() });
            }
            if RESERVED_COLUMNS.contains(&field.name.as_str()) {
                return Err(FormatError::ColumnNameReserved { name: name() });
            }
        }
        for pair in self.fields.windows(2) {
            let [previous, field] = pair else { continue };
            if field.name.as_bytes() < previous.name.as_bytes() {
                return Err(FormatError::ColumnsUnsorted { name: field.name.clone(), previous: previous.name.clone() });
            }
        }
        Ok(())
    }
}

/// One value of one row, to be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetadataValue<'a> {
    /// A value of a `bool` column.
    Bool(bool),
    /// A value of an `int` column.
    Int(i64),
    /// A value of a `float` column.
    Float(f64),
    /// A value of a `string` column.
    String(&'a str),
}

impl MetadataValue<'_> {
    /// The kind of column that the value belongs to.
    #[inline]
    pub const fn kind(&self) -> MetadataKind {
        match self {
            Self::Bool(_) => MetadataKind::Bool,
            Self::Int(_) => MetadataKind::Int,
            Self::Float(_) => MetadataKind::Float,
            Self::String(_) => MetadataKind::String,
        }
    }
}

/// One value of one row, read from the JSON text of a record.
#[derive(Debug, Clone, PartialEq)]
pub enum DecodedValue<'a> {
    /// A value of a `bool` column.
    Bool(bool),
    /// A value of an `int` column.
    Int(i64),
    /// A finite value of a `float` column, exact to the bit.
    Float(f64),
    /// `null` in a `float` column: NaN or an infinity. Only `metadata.arrow` knows which.
    NonFiniteFloat,
    /// A value of a `string` column, borrowed from the record unless it has escapes.
    String(Cow<'a, str>),
}

impl DecodedValue<'_> {
    /// The kind of column that the value belongs to.
    pub const fn kind(&self) -> MetadataKind {
        match self {
            Self::Bool(_) => MetadataKind::Bool,
            Self::Int(_) => MetadataKind::Int,
            Self::Float(_) | Self::NonFiniteFloat => MetadataKind::Float,
            Self::String(_) => MetadataKind::String,
        }
    }

    /// The same value to be written again; a non-finite float becomes NaN.
    pub fn as_value(&self) -> MetadataValue<'_> {
        match self {
            Self::Bool(value) => MetadataValue::Bool(*value),
            Self::Int(value) => MetadataValue::Int(*value),
            Self::Float(value) => MetadataValue::Float(*value),
            Self::NonFiniteFloat => MetadataValue::Float(f64::NAN),
            Self::String(value) => MetadataValue::String(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> Vec<MetadataField> {
        names.iter().map(|&name| MetadataField::new(name, MetadataKind::Int)).collect()
    }

    #[test]
    fn kinds_have_their_names_in_the_manifest() {
        let names: Vec<_> = MetadataKind::ALL.into_iter().map(MetadataKind::name).collect();
        assert_eq!(names, ["bool", "int", "float", "string"]);
        assert_eq!(MetadataKind::from_name("Int"), None);
        assert_eq!(MetadataKind::from_name("float"), Some(MetadataKind::Float));
    }

    #[test]
    fn json_order_is_by_utf8_bytes() {
        // In UTF-16 the emoji would come first.
        let schema = MetadataSchema::new(fields(&["😀", "\u{ffff}", "z", "é", "a", "A"])).unwrap();
        assert_eq!(schema.json_order(), [5, 4, 2, 3, 1, 0]);
        assert_eq!(schema.position("é"), Some(3));
        assert_eq!(schema.position("e"), None);
    }

    #[test]
    fn sorting_tells_where_each_column_came_from() {
        let given = fields(&["c", "a", "d", "b"]);
        let (schema, order) = MetadataSchema::from_unsorted(given.clone()).unwrap();
        assert_eq!(order, [1, 3, 0, 2]);
        for (column, &from) in order.iter().enumerate() {
            assert_eq!(schema.fields()[column], given[from]);
        }
        assert_eq!(schema.json_order(), [0, 1, 2, 3]);
        assert_eq!(schema, MetadataSchema::new(fields(&["a", "b", "c", "d"])).unwrap());
    }

    #[test]
    fn repeated_columns_are_refused() {
        let error = MetadataSchema::new(fields(&["b", "a", "b"])).unwrap_err();
        assert_eq!(error, FormatError::ColumnRepeated { name: "b".into() });
    }

    #[test]
    fn names_that_some_reader_cannot_use_are_not_written() {
        let validate = |names: &[&str]| MetadataSchema::new(fields(names)).unwrap().validate_for_write();
        assert_eq!(validate(&[]), Ok(()));
        assert_eq!(validate(&["Weight", "a b", "weights", "é"]), Ok(()));
        assert_eq!(validate(&["", "a"]), Err(FormatError::ColumnNameEmpty { column: 0 }));
        assert_eq!(validate(&["a\0b"]), Err(FormatError::ColumnNameNul { name: "a\0b".into() }));
        for name in RESERVED_COLUMNS {
            assert_eq!(validate(&["a", name]), Err(FormatError::ColumnNameReserved { name: name.into() }));
        }
        assert_eq!(validate(&["b", "a"]), Err(FormatError::ColumnsUnsorted { name: "a".into(), previous: "b".into() }));
    }
}
