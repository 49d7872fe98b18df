//! A map that usually has few entries.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// The largest number of entries that are searched and moved as a list.
const FEW: usize = 8;

/// A map in the order of its keys. It needs no memory beyond itself for one entry, and keeps none when it is empty. Most
/// epochs have one party, and most windows have no active epoch; the first node of a tree has room for eleven entries,
/// and an empty tree keeps it.
#[derive(Debug)]
pub(crate) enum SmallMap<K, V> {
    /// At most [`FEW`] entries.
    Few(SmallVec<[(K, V); 1]>),
    /// There have been more since the map was empty.
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl<K: Copy + Ord, V> SmallMap<K, V> {
    pub(crate) fn get(&self, key: K) -> Option<&V> {
        match self {
            Self::Few(list) => list.iter().find(|(known, _)| *known == key).map(|(_, value)| value),
            Self::Many(tree) => tree.get(&key),
        }
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        match self {
            Self::Few(list) => list.iter_mut().find(|(known, _)| *known == key).map(|(_, value)| value),
            Self::Many(tree) => tree.get_mut(&key),
        }
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// Adds a value for a key that has none.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let mut is_new = false;
        self.get_or_insert_with(key, || {
            is_new = true;
            value
        });
        assert!(is_new, "the key has no value");
    }

    /// Returns the value of a key, and adds it if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        if let Self::Few(list) = self
            && list.len() == FEW
            && !list.iter().any(|(known, _)| *known == key)
        {
            *self = Self::Many(list.drain(..).collect());
        }
        match self {
            Self::Few(list) => {
                let place = list.iter().position(|(known, _)| *known >= key).unwrap_or(list.len());
                if list.get(place).is_none_or(|(known, _)| *known != key) {
                    list.insert(place, (key, value()));
                }
                &mut list[place].1
            }
            Self::Many(tree) => tree.entry(key).or_insert_with(value),
        }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (removed, is_empty) = match self {
            Self::Few(list) => {
                let place = list.iter().position(|(known, _)| *known == key)?;
                (list.remove(place).1, list.is_empty() && list.spilled())
            }
            Self::Many(tree) => (tree.remove(&key)?, tree.is_empty()),
        };
        if is_empty {
            *self = Self::default();
        }
        Some(removed)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(tree) => tree.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let (few, many) = match self {
            Self::Few(list) => (Some(list), None),
            Self::Many(tree) => (None, Some(tree)),
        };
        let few = few.into_iter().flatten().map(|(key, value)| (*key, value));
        few.chain(many.into_iter().flat_map(|tree| tree.iter()).map(|(key, value)| (*key, value)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        let (few, many) = match self {
            Self::Few(list) => (Some(list), None),
            Self::Many(tree) => (None, Some(tree)),
        };
        let few = few.into_iter().flatten().map(|(key, value)| (*key, value));
        few.chain(many.into_iter().flat_map(|tree| tree.iter_mut()).map(|(key, value)| (*key, value)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_in_the_order_of_their_keys() {
        for count in 0..=40_u64 {
            let (mut map, mut expected) = (SmallMap::default(), BTreeMap::new());
            // 7 generates all remainders modulo 41 but 0, in an order that neither rises nor falls.
            let keys: Vec<_> =
                std::iter::successors(Some(7), |key| Some(key * 7 % 41)).take(count as usize).collect();
            for &key in &keys {
                assert!(!map.contains(key) && map.remove(key).is_none());
                map.insert(key, key);
                *map.get_or_insert_with(key, || unreachable!("it is there")) += 1;
                expected.insert(key, key + 1);
            }
            assert_eq!(matches!(map, SmallMap::Many(_)), keys.len() > FEW);
            assert_eq!((map.len(), map.get(7)), (keys.len(), expected.get(&7)));
            map.values_mut().chain(expected.values_mut()).for_each(|value| *value += 1);
            map.get_mut(7).into_iter().chain(expected.get_mut(&7)).for_each(|value| *value += 1);
            for &key in keys.iter().rev() {
                assert!(map.iter().eq(expected.iter().map(|(key, value)| (*key, value))));
                assert!(map.keys().eq(expected.keys().copied()) && map.values().eq(expected.values()));
                assert_eq!(map.remove(key), expected.remove(&key));
            }
            assert!(
                map.is_empty() && matches!(map, SmallMap::Few(list) if !list.spilled()),
                "no memory is kept"
            );
        }
    }
}
