//! The decoder of values, which limits what hostile bytes can cost.
//!
//! postcard reads lengths and variants from the bytes, and has no limits of its own. Two kinds of bytes would be
//! dangerous: a long list whose elements take no bytes ends after up to 2^64 elements only, and a value that contains
//! itself, such as a linked list, is decoded by recursion, which overflows the stack. So each part of a value is
//! decoded through [`Bounded`], which counts elements and depth.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

/// The maximum depth of nested parts of a value. A larger depth could overflow the stack, because each level is a
/// recursive call.
const NESTED_MAX: usize = 128;

/// The reason why the bytes of a message are not a value of the receiving type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not follow the format, or end too early, or the type refuses its parts. The text is the decoder's
    /// report.
    #[error("the decoder reports: {0}")]
    Malformed(String),
    /// Bytes follow the value.
    #[error("{bytes} bytes follow the value")]
    Trailing {
        /// The number of these bytes.
        bytes: usize,
    },
    /// The parts of the value are nested too deep.
    #[error("its parts are nested more than {max} deep")]
    TooDeep {
        /// The permitted depth.
        max: usize,
    },
    /// The lists and maps of the value have more elements than the receive permits.
    #[error("its lists and maps have more than {max} elements, each of which counts as a byte of the limit")]
    TooManyElements {
        /// The limit of the receive.
        max: usize,
    },
}

/// Decodes a value. Fails if `bytes` is malformed or longer than the value's encoding, if the value is nested too deep,
/// or if its lists and maps have more than `max_bytes` elements.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], max_bytes: usize) -> Result<T, DecodeError> {
    let limits =
        Limits { bytes: bytes.len(), max: max_bytes, left: Cell::new(max_bytes), exceeded: Cell::new(None) };
    let mut inner = postcard::Deserializer::from_bytes(bytes);
    let value = T::deserialize(Bounded { inner: &mut inner, limits: &limits, depth: NESTED_MAX });
    // The type may have continued after an error of its parts, so an exceeded limit is reported even if the value was
    // decoded.
    if let Some(error) = limits.exceeded.take() {
        return Err(error);
    }
    let malformed = |error: postcard::Error| DecodeError::Malformed(error.to_string());
    let value = value.map_err(malformed)?;
    match inner.finalize().map_err(malformed)? {
        [] => Ok(value),
        rest => Err(DecodeError::Trailing { bytes: rest.len() }),
    }
}

/// The limits of one value.
struct Limits {
    /// Bytes of the message.
    bytes: usize,
    /// The limit of the receive.
    max: usize,
    /// The number of elements that may still be decoded.
    left: Cell<usize>,
    exceeded: Cell<Option<DecodeError>>,
}

impl Limits {
    fn exceed<E: Error>(&self, error: DecodeError) -> E {
        let text = E::custom(&error);
        self.exceeded.set(Some(error));
        text
    }

    /// Counts an element.
    fn count<E: Error>(&self) -> Result<(), E> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(self.exceed(DecodeError::TooManyElements { max: self.max })),
        }
    }

    /// Limits an announced number of elements, for which a type may allocate memory before they are decoded.
    fn hint(&self, elements: Option<usize>) -> Option<usize> {
        elements.map(|elements| elements.min(self.bytes).min(self.left.get()))
    }
}

/// A deserializer that limits the elements and the depth of a value.
struct Bounded<'a, D> {
    inner: D,
    limits: &'a Limits,
    /// The number of further levels that may be nested.
    depth: usize,
}

impl<'a, D> Bounded<'a, D> {
    /// Returns the inner deserializer, and a visitor of the parts that it finds, one level deeper. `counted` is true if
    /// the number of the parts is in the bytes.
    fn nested<'de, V>(self, visitor: V, counted: bool) -> Result<(D, Parts<'a, V>), D::Error>
    where
        D: Deserializer<'de>,
    {
        let Self { inner, limits, depth } = self;
        match depth.checked_sub(1) {
            Some(depth) => Ok((inner, Parts { inner: visitor, limits, depth, counted })),
            None => Err(limits.exceed(DecodeError::TooDeep { max: NESTED_MAX })),
        }
    }
}

/// Forwards the methods for types without parts.
macro_rules! forward {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, false)?;
        inner.deserialize_option(parts)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, false)?;
        inner.deserialize_newtype_struct(name, parts)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, true)?;
        inner.deserialize_seq(parts)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, false)?;
        inner.deserialize_tuple(len, parts)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, false)?;
        inner.deserialize_tuple_struct(name, len, parts)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, true)?;
        inner.deserialize_map(parts)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, false)?;
        inner.deserialize_struct(name, fields, parts)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, parts) = self.nested(visitor, false)?;
        inner.deserialize_enum(name, variants, parts)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The visitor of a value with parts, the access to its parts, or the seed of one of them.
struct Parts<'a, I> {
    inner: I,
    limits: &'a Limits,
    depth: usize,
    /// True if the number of the parts is in the bytes.
    counted: bool,
}

impl<'a, I> Parts<'a, I> {
    fn with<J>(&self, inner: J, counted: bool) -> Parts<'a, J> {
        Parts { inner, limits: self.limits, depth: self.depth, counted }
    }

    fn bounded<D>(&self, inner: D) -> Bounded<'a, D> {
        Bounded { inner, limits: self.limits, depth: self.depth }
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Parts<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, part: D) -> Result<V::Value, D::Error> {
        let part = self.bounded(part);
        self.inner.visit_some(part)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, part: D) -> Result<V::Value, D::Error> {
        let part = self.bounded(part);
        self.inner.visit_newtype_struct(part)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        let parts = self.with(parts, self.counted);
        self.inner.visit_seq(parts)
    }

    fn visit_map<A: MapAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        let parts = self.with(parts, self.counted);
        self.inner.visit_map(parts)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        let parts = self.with(parts, false);
        self.inner.visit_enum(parts)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Parts<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, part: D) -> Result<S::Value, D::Error> {
        if self.counted {
            self.limits.count()?;
        }
        let part = self.bounded(part);
        self.inner.deserialize(part)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Parts<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.with(seed, self.counted);
        self.inner.next_element_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        if self.counted { self.limits.hint(self.inner.size_hint()) } else { self.inner.size_hint() }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Parts<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.with(seed, self.counted);
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed, false);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.limits.hint(self.inner.size_hint())
    }
}

impl<'de, 'a, A: EnumAccess<'de>> EnumAccess<'de> for Parts<'a, A> {
    type Error = A::Error;
    type Variant = Parts<'a, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let Self { inner, limits, depth, counted } = self;
        let (variant, inner) = inner.variant_seed(seed)?;
        Ok((variant, Parts { inner, limits, depth, counted }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Parts<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed, false);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor, false);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor, false);
        self.inner.struct_variant(fields, visitor)
    }
}
