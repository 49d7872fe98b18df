//! The name of a communicator, and values that programs attach to it.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Comm;
use crate::error::Error;
use crate::runtime::Bounds;

/// A value that a program attaches to a communicator, under its type ([`Comm::set_attribute`]; MPI 4.1, section 7.7). A
/// library keeps there what it needs for each communicator. It is dropped with the last handle of the communicator.
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// use samite::{Attribute, Inherited};
///
/// /// The number of a communicator's next message.
/// struct Next(u64);
///
/// impl Attribute for Next {
///     fn duplicate(&self) -> Inherited<Self> {
///         Inherited::Own(Next(0))
///     }
/// }
///
/// comm.set_attribute(Next(7));
/// let apart = comm.dup()?;
/// assert_eq!(comm.attribute::<Next>().map(|next| next.0), Some(7));
/// assert_eq!(apart.attribute::<Next>().map(|next| next.0), Some(0));
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
pub trait Attribute: Any + Send + Sync + Sized {
    /// Returns what a duplicate gets ([`Comm::dup`]): nothing, unless it is implemented. Called by each rank, when it
    /// has the duplicate. Other new communicators get nothing.
    fn duplicate(&self) -> Inherited<Self> {
        Inherited::Nothing
    }
}

/// What a duplicate of a communicator gets of an [`Attribute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited<T> {
    /// No attribute of this type.
    Nothing,
    /// The same value, which both share.
    Shared,
    /// A value of its own.
    Own(T),
}

/// What programs attach to one communicator.
#[derive(Default)]
pub(crate) struct Attached(Mutex<Parts>);

#[derive(Default)]
struct Parts {
    name: Option<Arc<str>>,
    attributes: BTreeMap<TypeId, Value>,
}

type AnyValue = Arc<dyn Any + Send + Sync>;

/// An attribute.
#[derive(Clone)]
struct Value {
    value: AnyValue,
    duplicate: fn(&AnyValue) -> Option<AnyValue>,
}

impl Attached {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        // No call of the program's runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, key: TypeId, value: Option<Value>) -> Option<Value> {
        let mut parts = self.parts();
        match value {
            Some(value) => parts.attributes.insert(key, value),
            None => parts.attributes.remove(&key),
        }
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        f.debug_struct("Attached")
            .field("name", &parts.name)
            .field("attributes", &parts.attributes.len())
            .finish()
    }
}

impl Comm {
    /// Gives the communicator a name, which its `Debug` text has (`MPI_Comm_set_name`). Each rank names its own; a
    /// communicator that is made of this one has none.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let rows = comm.dup()?;
    /// rows.set_name("rows");
    /// assert_eq!(rows.name().as_deref(), Some("rows"));
    /// assert!(format!("{rows:?}").contains("rows"));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn set_name(&self, name: &str) {
        self.with_attached(|attached| attached.parts().name = Some(name.into()));
    }

    /// Returns the name that [`set_name`](Self::set_name) has given (`MPI_Comm_get_name`).
    #[must_use]
    pub fn name(&self) -> Option<Arc<str>> {
        self.with_attached(|attached| attached.parts().name.clone())?
    }

    /// Attaches a value, in place of the one of its type (`MPI_Comm_set_attr`). All handles of the communicator in this
    /// process have it. See [`Attribute`].
    pub fn set_attribute<T: Attribute>(&self, value: T) {
        let value = Value { value: Arc::new(value), duplicate: duplicate::<T> };
        // The value that it replaces is dropped without the lock.
        drop(self.with_attached(|attached| attached.put(TypeId::of::<T>(), Some(value))));
    }

    /// Returns the attached value of a type (`MPI_Comm_get_attr`).
    #[must_use]
    pub fn attribute<T: Attribute>(&self) -> Option<Arc<T>> {
        let value =
            self.with_attached(|attached| attached.parts().attributes.get(&TypeId::of::<T>()).cloned());
        value??.value.downcast().ok()
    }

    /// Takes the attached value of a type away, and returns it (`MPI_Comm_delete_attr`).
    pub fn remove_attribute<T: Attribute>(&self) -> Option<Arc<T>> {
        self.with_attached(|attached| attached.put(TypeId::of::<T>(), None))??.value.downcast().ok()
    }

    /// Gives a duplicate of this communicator its attributes.
    pub(super) fn pass_attributes(&self, duplicate: &Self) {
        let all = self.with_attached(|attached| attached.parts().attributes.clone());
        for (key, Value { value, duplicate: of }) in all.into_iter().flatten() {
            if let Some(value) = of(&value) {
                duplicate.with_attached(|attached| attached.put(key, Some(Value { value, duplicate: of })));
            }
        }
    }

    /// Returns `None` in a child of fork(2), where another thread of the parent may hold the lock forever.
    fn with_attached<R>(&self, act: impl FnOnce(&Attached) -> R) -> Option<R> {
        if let Err(Error::Forked) = self.runtime.enter(&Bounds::default()).map(drop) {
            return None;
        }
        Some(match &self.derived {
            Some(derived) => act(derived.attached.get_or_init(Box::default)),
            None => act(&self.first_lane().attached),
        })
    }
}

fn duplicate<T: Attribute>(value: &AnyValue) -> Option<AnyValue> {
    match value.downcast_ref::<T>()?.duplicate() {
        Inherited::Nothing => None,
        Inherited::Shared => Some(Arc::clone(value)),
        Inherited::Own(own) => Some(Arc::new(own)),
    }
}
