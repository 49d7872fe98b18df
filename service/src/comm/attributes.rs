//! The name of a communicator, and values that programs attach to it.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Comm;
use crate::error::Error;
use crate::runtime::Bounds;

/// A value that a program attaches to a communicator, under its type ([`Comm::set_attribute`]; MPI 4.1, section 7.7). A
/// library can keep its own state for each communicator in such a value.
///
/// A communicator keeps the value until it is replaced or removed, or until the last handle of the communicator is
/// dropped. (The communicator of all ranks may keep it longer, while other communicators of the `World` exist.) The
/// value itself is dropped when no duplicate that shares it, and no `Arc` returned by [`Comm::attribute`] or
/// [`Comm::remove_attribute`], is left.
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
    /// Returns the attribute of a duplicate of the communicator. By default a duplicate has no attribute of this type.
    /// [`Comm::dup`] calls this at each rank, when the duplicate exists. New communicators that are not duplicates have
    /// no attributes.
    fn duplicate(&self) -> Inherited<Self> {
        Inherited::Nothing
    }
}

/// The value of an [`Attribute`] in a duplicate of its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited<T> {
    /// No attribute of this type.
    Nothing,
    /// The same value, which both communicators share.
    Shared,
    /// A separate value for the duplicate.
    Own(T),
}

/// The name and the attributes of one communicator.
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
        // No code of the program runs while this lock is held, so the program cannot cause a deadlock or a panic here.
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
    /// Gives the communicator a name, which its `Debug` text shows (`MPI_Comm_set_name`). The name is local to this
    /// rank. A communicator that is created from this communicator has no name.
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

    /// Returns the name that was given by [`set_name`](Self::set_name) (`MPI_Comm_get_name`).
    #[must_use]
    pub fn name(&self) -> Option<Arc<str>> {
        self.with_attached(|attached| attached.parts().name.clone())?
    }

    /// Attaches a value, and drops the attached value of the same type, if any (`MPI_Comm_set_attr`). All handles of
    /// the communicator in this process share it. See [`Attribute`].
    pub fn set_attribute<T: Attribute>(&self, value: T) {
        let value = Value { value: Arc::new(value), duplicate: duplicate::<T> };
        // The replaced value is dropped without the lock, because its drop is the program's code.
        drop(self.with_attached(|attached| attached.put(TypeId::of::<T>(), Some(value))));
    }

    /// Returns the attached value of a type (`MPI_Comm_get_attr`).
    #[must_use]
    pub fn attribute<T: Attribute>(&self) -> Option<Arc<T>> {
        let value =
            self.with_attached(|attached| attached.parts().attributes.get(&TypeId::of::<T>()).cloned());
        value??.value.downcast().ok()
    }

    /// Removes the attached value of a type, and returns it (`MPI_Comm_delete_attr`).
    pub fn remove_attribute<T: Attribute>(&self) -> Option<Arc<T>> {
        self.with_attached(|attached| attached.put(TypeId::of::<T>(), None))??.value.downcast().ok()
    }

    /// Attaches to a duplicate of this communicator the attributes that the duplicate inherits.
    pub(super) fn pass_attributes(&self, duplicate: &Self) {
        let all = self.with_attached(|attached| attached.parts().attributes.clone());
        for (key, Value { value, duplicate: of }) in all.into_iter().flatten() {
            if let Some(value) = of(&value) {
                duplicate.with_attached(|attached| attached.put(key, Some(Value { value, duplicate: of })));
            }
        }
    }

    /// Calls `act` with the name and attributes of this communicator. Returns `None` in a child of fork(2), where
    /// another thread of the parent may hold their lock forever.
    fn with_attached<R>(&self, act: impl FnOnce(&Attached) -> R) -> Option<R> {
        if self.runtime.enter(&Bounds::default()).is_none() && matches!(self.runtime.refused(), Error::Forked)
        {
            return None;
        }
        Some(match &self.derived {
            Some(derived) => act(derived.attached()),
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
