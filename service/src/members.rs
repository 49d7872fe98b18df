//! The members of a set of operations.

use slab::Slab;

/// Operations by key: those under way, and those that had ended before they were added.
#[derive(Debug)]
pub(crate) struct Members<U, E> {
    all: Slab<Member<U, E>>,
    /// Keys of the operations that had ended before they were added.
    ended: Vec<usize>,
    /// The key at which the search for an operation under way continues.
    cursor: usize,
    /// The key of an operation that [`Members::have_all_ended`] found under way.
    late: usize,
}

#[derive(Debug)]
pub(crate) enum Member<U, E> {
    UnderWay(U),
    Ended(E),
}

impl<U, E> Default for Members<U, E> {
    fn default() -> Self {
        Self { all: Slab::new(), ended: Vec::new(), cursor: 0, late: 0 }
    }
}

impl<U, E> Members<U, E> {
    /// Adds an operation, and returns its key. The key is below 2^32, because there are fewer requests than 2^32.
    pub(crate) fn insert(&mut self, member: Member<U, E>) -> usize {
        let has_ended = matches!(member, Member::Ended(_));
        let key = self.all.insert(member);
        if has_ended {
            self.ended.push(key);
        }
        key
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the key of an operation that had ended before it was added. Returns each such key once.
    pub(crate) fn pop_ended(&mut self) -> Option<usize> {
        self.ended.pop()
    }

    /// Returns an operation that has not ended as far as the set knows.
    pub(crate) fn some_under_way(&mut self) -> Option<(usize, &U)> {
        // If all operations in the set had ended before they were added, none is under way.
        if self.all.len() <= self.ended.len() {
            return None;
        }
        // The cursor stays at an operation until it is taken out, so repeated calls take constant time. Otherwise it
        // passes free keys, and operations that had ended before they were added: at most one round through the
        // capacity.
        loop {
            match self.all.get(self.cursor) {
                Some(Member::UnderWay(_)) => break,
                _ if self.cursor >= self.all.capacity() => self.cursor = 0,
                _ => self.cursor += 1,
            }
        }
        self.under_way(self.cursor).map(|operation| (self.cursor, operation))
    }

    /// Returns an operation.
    pub(crate) fn get(&self, key: usize) -> Option<&Member<U, E>> {
        self.all.get(key)
    }

    /// Returns an operation under way.
    pub(crate) fn under_way(&self, key: usize) -> Option<&U> {
        match self.all.get(key) {
            Some(Member::UnderWay(operation)) => Some(operation),
            _ => None,
        }
    }

    /// Returns true if `has_ended` is true for each operation that is under way as far as the set knows. Asks first
    /// about the operation that the previous call found under way.
    pub(crate) fn have_all_ended(&mut self, has_ended: impl Fn(&U) -> bool) -> bool {
        if self.under_way(self.late).is_some_and(|operation| !has_ended(operation)) {
            return false;
        }
        let late = |(_, member): &(usize, &Member<U, E>)| match member {
            Member::UnderWay(operation) => !has_ended(operation),
            Member::Ended(_) => false,
        };
        let late = self.all.iter().find(late).map(|(key, _)| key);
        self.late = late.unwrap_or(0);
        late.is_none()
    }

    /// Iterates over the operations under way.
    pub(crate) fn all_under_way(&self) -> impl Iterator<Item = &U> {
        self.all.iter().filter_map(|(key, _)| self.under_way(key))
    }

    /// Takes out an operation. [`Members::pop_ended`] does not return its key any more.
    pub(crate) fn remove(&mut self, key: usize) -> Option<Member<U, E>> {
        let member = self.all.try_remove(key)?;
        if matches!(member, Member::Ended(_)) {
            self.ended.retain(|ended| *ended != key);
        }
        Some(member)
    }
}
