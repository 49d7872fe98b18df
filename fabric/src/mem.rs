//! Memory that ports may access, and how its owner gets it back.
//!
//! A [`Memory`] owns bytes that no other owner can reach. Shared as a [`Region`] it can be registered with any number
//! of ports. Each port holds a clone for as long as its provider might access the bytes. [`Region::reclaim`] turns a
//! region back into a `Memory` if no other clone of it exists. So memory that a provider might still access is never
//! freed or reused, because the port's clone keeps the region alive.
//!
//! A region can also be *shared* ([`Region::shared`]): memory that other processes of the host map and write
//! themselves. Such a region never becomes a `Memory` again.
//!
//! [`Partitioned`] memory is written by several threads and read by the engine, partition by partition.
//!
//! Borrowed user memory is never registered. Borrowed data is copied to packets, or through regions that a protocol
//! owns; or peers of the host read it directly, if it lies in the [`Heap`]. Other threads can use a borrowed buffer
//! that is in a table of [`Loans`], until a scope ends.

pub(crate) mod heap;
mod loans;
mod partitioned;
mod segment;
mod window;

use std::any::TypeId;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, getrlimit};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

pub use self::heap::Heap;
pub use self::loans::{Lender, Loans, OpenLoans};
pub use self::partitioned::{Marked, Partitioned, PartitionsMut};
pub(crate) use self::segment::{Mapped, Segment};
pub(crate) use self::window::RIGHTS;
pub use self::window::Window;
use crate::copy::copy_apart;
use crate::layout::{Elements, Form, Readable, Writable};
use crate::{Access, Change, PortError};

/// The kind of memory that holds some bytes. Each region tells its kind, so that no port has to assume that the CPU can
/// read the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ordinary memory of this host.
    #[default]
    Host,
}

/// Element types of messages: plain bytes without padding, for which any pattern is a value.
///
/// The element types are the numbers, arrays of element types, and structs of element types that derive zerocopy's
/// traits through `samite::zerocopy`:
/// ```ignore
/// use samite::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "samite::zerocopy")]
/// #[repr(C)]
/// struct Particle {
///     place: [f64; 3],
///     mass: f64,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "values of type `{Self}` cannot be sent or received as bytes",
    note = "a struct is an element if it has `#[repr(C)]`, has no padding and derives `Clone`, `Copy` and `FromBytes`, `IntoBytes`, `Immutable` of `samite::zerocopy`, with `#[zerocopy(crate = \"samite::zerocopy\")]`"
)]
pub trait Element: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Element for T {}

/// A block of bytes, made from a `Vec` or an `Arc` of any [`Element`] and turned back into it without a copy.
///
/// The bytes of a `Vec` are owned. The bytes of an `Arc` are shared with the `Arc`'s other holders, and never written.
/// [Scattered](Self::scattered) memory consists of the bytes that a [`Form`] selects from another block. They are not
/// contiguous, so scattered memory cannot be borrowed as one slice.
#[derive(Debug)]
pub struct Memory {
    origin: NonNull<u8>,
    /// The number of elements in use.
    elements: usize,
    /// The number of allocated elements of a `Vec`. For other origins it is equal to `elements`.
    capacity: usize,
    vtable: &'static Vtable,
}

impl Memory {
    /// Takes over a vector.
    #[must_use]
    pub fn new<T: Element>(vec: Vec<T>) -> Self {
        let mut vec = ManuallyDrop::new(vec);
        Self {
            // A vector's pointer is never null, even without an allocation.
            origin: NonNull::new(vec.as_mut_ptr().cast()).unwrap_or(NonNull::dangling()),
            elements: vec.len(),
            capacity: vec.capacity(),
            vtable: const { &Vtable::owned::<T>() },
        }
    }

    /// Takes over one reference to a shared slice. The bytes can only be read.
    #[must_use]
    pub fn shared<T: Element>(slice: Arc<[T]>) -> Self {
        let elements = slice.len();
        Self {
            // The pointer of an `Arc` is never null.
            origin: NonNull::new(Arc::into_raw(slice).cast_mut().cast()).unwrap_or(NonNull::dangling()),
            elements,
            capacity: elements,
            vtable: const { &Vtable::shared::<T>() },
        }
    }

    /// Returns a block of the bytes that a form selects from `memory`. A message to or from this block consists of
    /// whole units of `unit` bytes, and of `elements`. `B` is the type of the buffer from which the caller made
    /// `memory`. [`is_scattered_of`](Self::is_scattered_of) compares this type later.
    ///
    /// # Errors
    /// Returns the memory if the form does not lie within it, or if the memory is scattered itself.
    pub fn scattered<B: 'static>(
        memory: Self,
        form: Form,
        unit: usize,
        elements: Elements,
    ) -> Result<Self, Self> {
        if memory.is_scattered() || form.read(memory.as_bytes()).is_none() {
            return Err(memory);
        }
        let size = form.size();
        let parts = Box::new(Scattered { memory, form, unit, elements });
        Ok(Self {
            origin: NonNull::from(Box::leak(parts)).cast(),
            elements: size,
            capacity: size,
            vtable: const { &Vtable::scattered::<B>() },
        })
    }

    /// Returns `len` bytes of zero.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::new(vec![0u8; len])
    }

    /// Returns `len` bytes of zero, or `None` if there is no memory for them.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Self> {
        u8::new_vec_zeroed(len).ok().map(Self::new)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements * self.vtable.size
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    /// Returns true if the bytes are those of an `Arc`, which other holders read at any time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.vtable.kind == Kind::Shared
    }

    /// Returns true if the bytes are those that a form selects from other memory.
    #[inline(always)]
    #[must_use]
    pub fn is_scattered(&self) -> bool {
        self.vtable.kind == Kind::Scattered
    }

    /// Returns the bytes, which may be scattered.
    #[inline(always)]
    #[must_use]
    pub fn readable(&self) -> Readable<'_> {
        match self.parts() {
            None => self.as_bytes().into(),
            Some(parts) => parts.readable(),
        }
    }

    /// Returns the bytes for writing, which may be scattered.
    ///
    /// # Panics
    /// If the memory is [shared](Self::is_shared).
    #[inline(always)]
    #[must_use]
    pub fn writable(&mut self) -> Writable<'_> {
        if self.is_scattered() { self.writable_parts() } else { self.as_bytes_mut().into() }
    }

    #[cold]
    fn writable_parts(&mut self) -> Writable<'_> {
        assert!(self.is_scattered());
        // SAFETY: as in `parts`; `&mut self` makes this the only reference.
        unsafe { self.origin.cast::<Scattered>().as_mut() }.writable()
    }

    /// Returns the memory of scattered bytes, and the form that selects them.
    #[inline(always)]
    fn parts(&self) -> Option<&Scattered> {
        // SAFETY: the kind proves that `origin` is the box that `scattered` has leaked, which this value owns until it
        // is dropped or taken apart. `&self` excludes writers.
        self.is_scattered().then(|| unsafe { self.origin.cast::<Scattered>().as_ref() })
    }

    /// Returns the bytes.
    ///
    /// # Panics
    /// If the memory is [scattered](Self::is_scattered).
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        assert!(!self.is_scattered(), "scattered memory has no slice");
        // SAFETY: `origin` and `elements` describe the initialized elements of a vector that this value owns, or of a
        // slice of which it holds a reference. `IntoBytes` means that no element has padding, so every byte is
        // initialized. `&self` excludes writers of the vector. The slice has no writers: its elements are `Immutable`,
        // and an `Arc` gives out a `&mut` only while there is no other reference.
        unsafe { std::slice::from_raw_parts(self.origin.as_ptr(), self.len()) }
    }

    /// Returns the bytes for writing.
    ///
    /// # Panics
    /// If the memory is [shared](Self::is_shared) or [scattered](Self::is_scattered).
    #[must_use]
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        assert!(
            self.vtable.kind == Kind::Owned,
            "shared memory is not written, and scattered memory has no slice"
        );
        // SAFETY: as in `as_bytes`, of a vector; `&mut self` makes this the only reference, and `FromBytes` means that
        // no written value can make an element invalid.
        unsafe { std::slice::from_raw_parts_mut(self.origin.as_ptr(), self.len()) }
    }

    /// Returns the size in bytes of one element, or of one unit of scattered memory.
    #[must_use]
    pub fn element_bytes(&self) -> usize {
        self.parts().map_or(self.vtable.size, |parts| parts.unit)
    }

    /// Returns the types of the elements of scattered memory; `None` if it is not scattered.
    #[must_use]
    pub fn elements(&self) -> Option<&Elements> {
        self.parts().map(|parts| &parts.elements)
    }

    /// Returns the vector from which this memory was made.
    ///
    /// # Errors
    /// Returns the memory if it was made from anything else.
    pub fn into_vec<T: Element>(self) -> Result<Vec<T>, Self> {
        if self.vtable.kind != Kind::Owned || self.vtable.element != TypeId::of::<T>() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the parts come from a `Vec<T>` (the type id and the kind prove it) whose destructor `new` disabled,
        // and this value's destructor is disabled here: the vector has one owner again.
        Ok(unsafe { Vec::from_raw_parts(this.origin.as_ptr().cast(), this.elements, this.capacity) })
    }

    /// Returns the slice from which this memory was made.
    ///
    /// # Errors
    /// Returns the memory if it was made from anything else.
    pub fn into_shared<T: Element>(self) -> Result<Arc<[T]>, Self> {
        if !self.is_shared() || self.vtable.element != TypeId::of::<T>() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the parts come from an `Arc<[T]>` (the type id and the kind prove it) whose reference `shared` kept,
        // and this value's destructor, which would release that reference, is disabled here.
        Ok(unsafe { slice_of(this.origin, this.elements) })
    }

    /// Returns true if the memory is scattered, and was made for buffers of type `B`.
    #[must_use]
    pub fn is_scattered_of<B: 'static>(&self) -> bool {
        self.is_scattered() && self.vtable.element == TypeId::of::<B>()
    }

    /// Returns the whole block from which a form selects the bytes of this scattered memory.
    ///
    /// # Errors
    /// Returns the memory if it is not scattered.
    pub fn into_whole(self) -> Result<Self, Self> {
        if !self.is_scattered() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the kind proves that this is the box that `scattered` has leaked. This value's destructor, which
        // would free it, is disabled here.
        let parts = unsafe { Box::from_raw(this.origin.cast::<Scattered>().as_ptr()) };
        Ok(parts.memory)
    }

    /// Returns the whole block from which a form selects the bytes of this scattered memory, or `None` if it is not
    /// scattered.
    #[must_use]
    pub fn whole(&self) -> Option<&Self> {
        Some(&self.parts()?.memory)
    }

    /// Returns the bytes of the whole block from which a form selects the bytes of this scattered memory, for writing.
    #[must_use]
    pub fn whole_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_scattered() {
            return None;
        }
        // SAFETY: as in `writable_parts`. Only the bytes are given out, so the memory keeps its length, against which
        // the form was checked.
        Some(unsafe { self.origin.cast::<Scattered>().as_mut() }.memory.as_bytes_mut())
    }
}

/// Memory, and the form that selects bytes of it. The form lies within the memory.
#[derive(Debug)]
struct Scattered {
    memory: Memory,
    form: Form,
    /// Bytes of a unit. A message consists of whole units.
    unit: usize,
    /// The types of a message's elements.
    elements: Elements,
}

impl Scattered {
    fn readable(&self) -> Readable<'_> {
        self.form.read(self.memory.as_bytes()).expect("a form within its memory")
    }

    fn writable(&mut self) -> Writable<'_> {
        self.form.write(self.memory.as_bytes_mut()).expect("a form within its memory")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the parts come from the `Vec`, `Arc` or `Box` for whose type `vtable` was made; they are used once,
        // here.
        unsafe { (self.vtable.free)(self.origin, self.elements, self.capacity) }
    }
}

// SAFETY: a `Memory` is by its parts an owned vector of `Element`s, which are `Send`, or an `Arc` of them, which is
// `Send` since they are `Sync` too, or an owned box of another `Memory` and a form, which is `Send`.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` gives `&[u8]` and a form, which is `Sync`, only.
unsafe impl Sync for Memory {}

/// Describes the type from which a [`Memory`] was made.
#[derive(Debug)]
struct Vtable {
    /// The element type of a `Vec` or an `Arc`; for scattered memory the type of the buffer.
    element: TypeId,
    /// Bytes of an element.
    size: usize,
    kind: Kind,
    free: unsafe fn(NonNull<u8>, usize, usize),
}

impl Vtable {
    const fn owned<T: Element>() -> Self {
        /// # Safety
        /// The parts are those of a `Vec<T>` that is not used again.
        unsafe fn free<T>(origin: NonNull<u8>, elements: usize, capacity: usize) {
            // SAFETY: the caller guarantees it.
            drop(unsafe { Vec::<T>::from_raw_parts(origin.as_ptr().cast(), elements, capacity) });
        }
        Self { element: TypeId::of::<T>(), size: size_of::<T>(), kind: Kind::Owned, free: free::<T> }
    }

    const fn shared<T: Element>() -> Self {
        /// # Safety
        /// The parts are those of an `Arc<[T]>` of which this reference is not used again.
        unsafe fn free<T>(origin: NonNull<u8>, elements: usize, _: usize) {
            // SAFETY: the caller guarantees it.
            drop(unsafe { slice_of::<T>(origin, elements) });
        }
        Self { element: TypeId::of::<T>(), size: size_of::<T>(), kind: Kind::Shared, free: free::<T> }
    }

    const fn scattered<B: 'static>() -> Self {
        /// # Safety
        /// `origin` is a leaked box that is not used again.
        unsafe fn free(origin: NonNull<u8>, _: usize, _: usize) {
            // SAFETY: the caller guarantees it.
            drop(unsafe { Box::from_raw(origin.cast::<Scattered>().as_ptr()) });
        }
        Self { element: TypeId::of::<B>(), size: 1, kind: Kind::Scattered, free }
    }
}

/// The owner of the bytes of a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A `Vec`.
    Owned,
    /// An `Arc`.
    Shared,
    /// A [`Scattered`].
    Scattered,
}

/// Makes an `Arc` again of the address and the length of a slice.
///
/// # Safety
/// `Arc::into_raw` returned this address and length, and they are made into an `Arc` only this once.
unsafe fn slice_of<T>(origin: NonNull<u8>, elements: usize) -> Arc<[T]> {
    // SAFETY: the caller guarantees that `into_raw` returned this address and length.
    unsafe { Arc::from_raw(std::ptr::slice_from_raw_parts(origin.as_ptr().cast::<T>(), elements)) }
}

/// Memory shared with ports. A peer may change the bytes at any time, so no reference to them is given out: they are
/// only copied in and out.
#[derive(Clone, Debug)]
pub struct Region(Arc<Shared>);

#[derive(Debug)]
enum Shared {
    Private {
        memory: Memory,
        /// Orders the copies made in this process: those by the methods of [`Region`], and those by ports that move
        /// bytes themselves. (Accesses by a provider or a device are outside of the language, as with any memory shared
        /// with hardware.)
        copying: Mutex<()>,
    },
    Segment(Segment),
}

/// The number of descriptors that shared regions leave to others, or a quarter of a small limit.
const DESCRIPTORS_LEFT: u64 = 64;

impl Region {
    /// Shares memory.
    ///
    /// # Panics
    /// If the memory is [scattered](Memory::is_scattered).
    #[inline]
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        assert!(!memory.is_scattered(), "a region is contiguous");
        Self(Arc::new(Shared::Private { memory, copying: Mutex::new(()) }))
    }

    /// Returns `len` bytes of zero in memory that other processes of this host can map, if a port lets them
    /// ([`Caps::put`](crate::Caps::put)). All pages are allocated in this call, and the region uses a file descriptor.
    /// The last descriptors of the process are left to ports, which need them for new peers.
    ///
    /// # Errors
    /// [`PortError::Exhausted`] if memory or descriptors are exhausted, [`PortError::Provider`] if the system refuses a
    /// file in memory.
    pub fn shared(len: usize) -> Result<Self, PortError> {
        let segment = Segment::create(len)?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // A new descriptor has the lowest free number, so all lower ones are in use.
        if u64::from(segment.fd()) >= limit - DESCRIPTORS_LEFT.min(limit / 4) {
            let hint = "share fewer regions, or raise the limit (ulimit -n)".into();
            return Err(PortError::Exhausted { what: "descriptors of open files", hint });
        }
        Ok(Self(Arc::new(Shared::Segment(segment))))
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &*self.0 {
            Shared::Private { memory, .. } => memory.len(),
            Shared::Segment(segment) => segment.mapped().len(),
        }
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    /// Copies `into.len()` bytes out, from `offset` on.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`].
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), PortError> {
        let from = self.span(offset, into.len())?;
        match &*self.0 {
            Shared::Private { copying, .. } => {
                let _ordered = copying.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: `span` checked that the bytes lie in the memory, which `self` keeps alive. `into` is
                // an exclusive reference, so it is not part of memory that this region owns. The lock orders
                // this copy after all writes made in this process.
                unsafe { copy_apart(from.as_ptr(), into.as_mut_ptr(), into.len()) }
            }
            Shared::Segment(segment) => segment.mapped().read(offset, into),
        }
        Ok(())
    }

    /// Copies `from` into the region, from `offset` on.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`]; [`PortError::Unsupported`] if the memory is that of an `Arc`
    /// ([`Memory::is_shared`]), which other holders may read.
    pub fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), PortError> {
        let into = self.span_to_write(offset, from.len())?;
        match &*self.0 {
            Shared::Private { copying, .. } => {
                let _ordered = copying.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: as in `copy_out`; and no reference to the bytes exists, so `from` does not overlap them: the
                // memory is not that of an `Arc`, as `span_to_write` checked.
                unsafe { copy_apart(from.as_ptr(), into.as_ptr(), from.len()) }
            }
            Shared::Segment(segment) => segment.mapped().write(offset, from),
        }
        Ok(())
    }

    /// Returns the address of the memory, and how often its block was freed before, if it is a block of the [`Heap`].
    /// As long as both numbers are the same, so is the memory.
    #[inline]
    pub(crate) fn heap_block(&self) -> Option<(usize, u64)> {
        let Shared::Private { memory, .. } = &*self.0 else { return None };
        // A region is contiguous, so its memory is that of a vector, which begins where its allocation begins, or of an
        // `Arc`, which begins behind a header of at most a page.
        let start = memory.origin.as_ptr();
        Some((start.addr(), heap::frees_of(start)?))
    }

    /// Returns true if the region has another holder: a port, or the owner of a clone.
    #[must_use]
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Changes the word of 8 bytes at `offset` atomically, and returns its former value. On memory made by
    /// [`Region::shared`] the change is also atomic for peers that change the word over shared memory.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`], also if `offset` is no multiple of 8; [`PortError::Unsupported`] as for
    /// [`copy_in`](Self::copy_in).
    pub fn change(&self, offset: usize, how: Change) -> Result<u64, PortError> {
        let at = self.span_to_write(offset, Change::BYTES)?.cast::<u64>();
        if !offset.is_multiple_of(Change::BYTES) {
            return Err(PortError::OutOfBounds { offset, len: Change::BYTES });
        }
        match &*self.0 {
            Shared::Private { copying, .. } => {
                let _ordered = copying.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: the span was checked, so 8 bytes can be read and written there, with any alignment. No
                // reference to these bytes exists, and the lock orders this change with the copies of this process.
                unsafe {
                    let before = at.read_unaligned();
                    at.write_unaligned(how.apply(before));
                    Ok(before)
                }
            }
            Shared::Segment(segment) => Ok(segment.mapped().change(offset, how)),
        }
    }

    /// Returns the bytes of `span` for loads and stores, if the region is shared and the span lies in it.
    #[must_use]
    pub fn window(&self, span: Range<usize>) -> Option<Window> {
        self.check_span(&span).ok()?;
        let segment = self.segment()?;
        Some(Window::new(Arc::clone(segment.mapped()), None, span))
    }

    /// Copies the `len` bytes at `offset` to a mapped segment, for ports.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`] if the bytes are not all in the region.
    ///
    /// # Panics
    /// If the bytes do not fit in the segment.
    pub(crate) fn copy_to_mapped(
        &self,
        offset: usize,
        len: usize,
        segment: &Mapped,
        at: usize,
    ) -> Result<(), PortError> {
        let from = self.span(offset, len)?;
        match &*self.0 {
            Shared::Private { copying, .. } => {
                let _ordered = copying.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: as in `copy_out`: the span was checked, and the lock orders this copy after all writes made
                // in this process.
                unsafe { segment.write_from(at, from.as_ptr(), len) }
                Ok(())
            }
            Shared::Segment(_) => in_pieces(len, false, |done, piece| {
                self.copy_out(offset + done, piece)?;
                segment.write(at + done, piece);
                Ok(())
            }),
        }
    }

    /// Copies `len` bytes of a mapped segment, from `at` on, into the region, from `offset` on. For ports.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`] if the bytes do not all fit in the region; [`PortError::Unsupported`] as in
    /// [`copy_in`](Self::copy_in).
    ///
    /// # Panics
    /// If the bytes do not lie in the segment.
    pub(crate) fn copy_from_mapped(
        &self,
        offset: usize,
        len: usize,
        segment: &Mapped,
        at: usize,
    ) -> Result<(), PortError> {
        let into = self.span_to_write(offset, len)?;
        match &*self.0 {
            Shared::Private { copying, .. } => {
                let _ordered = copying.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: as in `copy_in`: the span was checked, no reference to the bytes exists, and the lock orders
                // this copy with the others of this process.
                unsafe { segment.read_into(at, into.as_ptr(), len) }
                Ok(())
            }
            Shared::Segment(_) => in_pieces(len, false, |done, piece| {
                segment.read(at + done, piece);
                self.copy_in(offset + done, piece)
            }),
        }
    }

    /// Returns the memory if this is the last holder of the region.
    ///
    /// # Errors
    /// Returns the region while a port, or a clone, holds it. A shared region is never reclaimed.
    pub fn reclaim(self) -> Result<Memory, Self> {
        match Arc::try_unwrap(self.0) {
            Ok(Shared::Private { memory, .. }) => Ok(memory),
            Ok(shared) => Err(Self(Arc::new(shared))),
            Err(held) => Err(Self(held)),
        }
    }

    /// Returns the segment that other processes map, if the region is shared.
    pub(crate) fn segment(&self) -> Option<&Segment> {
        match &*self.0 {
            Shared::Private { .. } => None,
            Shared::Segment(segment) => Some(segment),
        }
    }

    /// Returns the address of `len` bytes from `offset` on, if they lie in the region. For ports.
    pub(crate) fn span(&self, offset: usize, len: usize) -> Result<NonNull<u8>, PortError> {
        let origin = match &*self.0 {
            Shared::Private { memory, .. } => memory.origin,
            Shared::Segment(segment) => NonNull::from(segment.mapped().words()).cast(),
        };
        match offset.checked_add(len) {
            // SAFETY: `offset` is at most the length of the allocation or mapping.
            Some(end) if end <= self.len() => Ok(unsafe { origin.add(offset) }),
            _ => Err(PortError::OutOfBounds { offset, len }),
        }
    }

    /// Returns the address as [`span`](Self::span) does, or an error if the memory is shared with readers.
    fn span_to_write(&self, offset: usize, len: usize) -> Result<NonNull<u8>, PortError> {
        match &*self.0 {
            Shared::Private { memory, .. } if memory.is_shared() => Err(READ_ALONE),
            _ => self.span(offset, len),
        }
    }

    /// Checks that a span lies in the region.
    fn check_span(&self, span: &Range<usize>) -> Result<(), PortError> {
        let len = span.end.checked_sub(span.start);
        let outside = PortError::OutOfBounds { offset: span.start, len: len.unwrap_or(0) };
        self.span(span.start, len.ok_or(outside)?).map(|_| ())
    }

    /// Checks that a span may be registered for an access. Ports call this before they register a span, so that they
    /// never write to memory that must not be written.
    pub(crate) fn check_access(&self, span: &Range<usize>, access: Access) -> Result<(), PortError> {
        if access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE) {
            self.span_to_write(0, 0)?;
        }
        self.check_span(span)
    }

    /// Copies from one region to another, or within one region, for ports that move bytes themselves.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`] if the bytes do not lie in both regions.
    pub(crate) fn copy_between(
        from: &Self,
        from_offset: usize,
        into: &Self,
        into_offset: usize,
        len: usize,
    ) -> Result<(), PortError> {
        let source = from.span(from_offset, len)?;
        let target = into.span_to_write(into_offset, len)?;
        // Locks in the order of addresses, so that two copies in opposite directions cannot
        // wait for each other.
        let (a, b) = (Arc::as_ptr(&from.0), Arc::as_ptr(&into.0));
        let (Shared::Private { copying: from_lock, .. }, Shared::Private { copying: into_lock, .. }) =
            (&*from.0, &*into.0)
        else {
            let backwards = a == b && from_offset < into_offset;
            return in_pieces(len, backwards, |at, piece| {
                from.copy_out(from_offset + at, piece)?;
                into.copy_in(into_offset + at, piece)
            });
        };
        let (first, second) = if a <= b { (from_lock, into_lock) } else { (into_lock, from_lock) };
        let _first = first.lock().unwrap_or_else(PoisonError::into_inner);
        let _second = (a != b).then(|| second.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: both spans were checked, the references keep both regions alive, both locks are held. `copy` allows
        // overlap. The memory of two regions does not overlap: only that of an `Arc` may, and `span_to_write` refuses it.
        unsafe {
            match a == b {
                true => std::ptr::copy(source.as_ptr(), target.as_ptr(), len),
                false => copy_apart(source.as_ptr(), target.as_ptr(), len),
            }
        }
        Ok(())
    }
}

/// Divides `len` bytes into pieces, and calls `copy` for each piece with the offset of the piece and a buffer of the
/// piece's length. Goes from the last piece to the first if `backwards`, so that a copy to a higher offset of the same
/// region does not overwrite bytes that are still to be copied.
pub(crate) fn in_pieces<E>(
    len: usize,
    backwards: bool,
    mut copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = [0; PIECE];
    let count = len.div_ceil(PIECE);
    (0..count).try_for_each(|index| {
        let at = PIECE * if backwards { count - 1 - index } else { index };
        copy(at, &mut buffer[..PIECE.min(len - at)])
    })
}

/// The error of an attempt to write to the memory of an `Arc`.
const READ_ALONE: PortError = PortError::Unsupported { what: "write to memory that is shared with readers" };

/// The largest number of bytes in a piece of a copy. A piece fits in the first-level cache.
const PIECE: usize = 4096;

#[cfg(test)]
mod tests {
    use rustix::process::{Rlimit, setrlimit};

    use super::*;
    use crate::layout::Room;
    use crate::port::gather;

    #[test]
    fn a_vector_comes_back_as_itself() {
        let vec = vec![1.5f64, -2.0];
        let origin = vec.as_ptr();
        let memory = Memory::new(vec);
        assert_eq!(memory.len(), 16);
        let memory = memory.into_vec::<u64>().expect_err("another type of the same size");
        let vec = memory.into_vec::<f64>().expect("its own type");
        assert_eq!((vec.as_ptr(), vec.as_slice()), (origin, &[1.5, -2.0][..]));
    }

    #[test]
    fn a_shared_slice_comes_back_as_itself() {
        let slice: Arc<[f64]> = Arc::from([1.5, -2.0]);
        let memory = Memory::shared(slice.clone());
        assert_eq!((memory.len(), memory.as_bytes()), (16, slice.as_bytes()));
        let memory = memory.into_vec::<f64>().expect_err("not a vector");
        let memory = memory.into_shared::<u64>().expect_err("another type of the same size");
        let same = memory.into_shared::<f64>().expect("its own type");
        assert!(Arc::ptr_eq(&slice, &same));
        drop((Memory::shared(same.clone()), Memory::shared::<u8>(Arc::from([]))));
        assert_eq!(Arc::strong_count(&slice), 2);
        Memory::new(vec![0u8]).into_shared::<u8>().expect_err("a vector");
    }

    #[test]
    fn shared_memory_is_read_alone() {
        let slice: Arc<[u64]> = Arc::from([1, 2]);
        let region = Region::new(Memory::shared(slice.clone()));
        let other = Region::new(Memory::zeroed(16));
        Region::copy_between(&region, 0, &other, 8, 8).unwrap();
        let segment = Segment::create(16).unwrap();
        region.copy_to_mapped(0, 16, segment.mapped(), 0).unwrap();
        for refused in [
            region.copy_in(0, &[]),
            region.change(0, Change::Add(1)).map(drop),
            region.copy_from_mapped(0, 16, segment.mapped(), 0),
            Region::copy_between(&other, 0, &region, 0, 8),
            region.check_access(&(0..16), Access::LOCAL_WRITE),
            region.check_access(&(0..16), Access::REMOTE_READ | Access::REMOTE_WRITE),
        ] {
            assert_eq!(refused, Err(READ_ALONE));
        }
        region.check_access(&(0..16), Access::LOCAL_READ | Access::REMOTE_READ).unwrap();
        assert_eq!(&slice[..], [1, 2]);
    }

    #[test]
    #[should_panic(expected = "shared memory is not written")]
    fn shared_memory_gives_no_exclusive_slice() {
        Memory::shared::<u8>(Arc::from([1])).as_bytes_mut().fill(0);
    }

    #[test]
    fn scattered_memory_comes_back_whole() {
        let form = Form::block(1).unwrap().strided(3, 2).unwrap();
        let memory =
            Memory::scattered::<Vec<u16>>(Memory::new(vec![1u16, 2, 3]), form.clone(), 2, Elements::BYTES)
                .unwrap();
        assert_eq!((memory.len(), memory.element_bytes(), memory.is_shared()), (3, 2, false));
        let memory = memory.into_vec::<u16>().unwrap_err().into_shared::<u16>().unwrap_err();
        let mut memory = Memory::scattered::<Vec<u16>>(memory, form.clone(), 2, Elements::BYTES)
            .expect_err("scattered itself");
        memory.writable().put(1, [7, 8].as_slice());
        memory.whole_mut().unwrap()[3] = 9;
        assert_eq!(gather(&[], &memory.readable()), [1, 7, 8]);
        assert_eq!(memory.whole().unwrap().as_bytes(), [1, 0, 7, 9, 8, 0]);
        assert!(memory.is_scattered_of::<Vec<u16>>() && !memory.is_scattered_of::<Vec<i16>>());
        assert_eq!(memory.into_whole().unwrap().into_vec::<u16>().unwrap(), [1, 0x0907, 8]);
        assert!(
            Memory::scattered::<Vec<u8>>(Memory::zeroed(4), form.clone(), 1, Elements::BYTES).is_err(),
            "it has 5 bytes"
        );
        Memory::zeroed(4).into_whole().unwrap_err();
        let shared: Arc<[u8]> = Arc::from([0; 5]);
        drop(
            Memory::scattered::<Arc<[u8]>>(Memory::shared(shared.clone()), form, 1, Elements::BYTES).unwrap(),
        );
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    #[should_panic(expected = "scattered memory has no slice")]
    fn scattered_memory_gives_no_slice() {
        let scattered =
            Memory::scattered::<Vec<u8>>(Memory::zeroed(1), Form::block(1).unwrap(), 1, Elements::BYTES);
        let _ = scattered.unwrap().as_bytes();
    }

    #[test]
    fn nothing_is_memory_too() {
        assert!(Memory::new(Vec::<u32>::new()).as_bytes_mut().is_empty());
        assert_eq!(Memory::new(Vec::<u32>::new()).into_vec::<u32>().unwrap(), Vec::<u32>::new());
    }

    #[test]
    fn memory_is_reclaimed_by_the_last_holder_only() {
        let region = Region::new(Memory::new(vec![7u8; 4]));
        let held = region.clone();
        assert!(region.is_held());
        let region = region.reclaim().expect_err("a clone is held");
        drop(held);
        assert!(!region.is_held());
        assert_eq!(region.reclaim().unwrap().as_bytes(), [7; 4]);
    }

    #[test]
    fn copies_stay_inside() {
        let region = Region::new(Memory::zeroed(8));
        region.copy_in(6, &[1, 2]).unwrap();
        let mut out = [0; 3];
        region.copy_out(5, &mut out).unwrap();
        assert_eq!(out, [0, 1, 2]);
        for (offset, len) in [(7, 2), (9, 0), (usize::MAX, 2)] {
            assert_eq!(region.copy_in(offset, &vec![0; len]), Err(PortError::OutOfBounds { offset, len }));
        }
        Region::copy_between(&region, 6, &region, 5, 2).unwrap();
        region.copy_out(5, &mut out).unwrap();
        assert_eq!(out, [1, 2, 2]);
    }

    /// Runs in a child process, which has its own limit of open files.
    #[test]
    fn shared_memory_leaves_descriptors_to_others() {
        let are_left = samite_os::fork::in_a_child(|| {
            let limit = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(1000), ..limit }).unwrap();
            let regions: Vec<_> = (0..1000).map_while(|_| Region::shared(8).ok()).collect();
            let files: Vec<_> = (0..1000).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
            !regions.is_empty() && files.len() as u64 == DESCRIPTORS_LEFT
        });
        assert!(are_left.unwrap());
    }

    #[test]
    fn shared_memory_is_copied_as_any_other_and_stays_shared() {
        let len = 3 * PIECE + 5;
        let (shared, private) = (Region::shared(len).unwrap(), Region::new(Memory::zeroed(len)));
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
        private.copy_in(0, &bytes).unwrap();
        Region::copy_between(&private, 0, &shared, 0, len).unwrap();
        let mut out = vec![0; len];
        // Makes overlapping copies, to places after and before their source.
        for (from, into, len) in [(0, 3, len - 3), (9, 1, len - 9), (5, 5, 10)] {
            Region::copy_between(&shared, from, &shared, into, len).unwrap();
            Region::copy_between(&private, from, &private, into, len).unwrap();
            Region::copy_between(&shared, 0, &private, 0, 0).unwrap();
            shared.copy_out(0, &mut out).unwrap();
            assert_eq!(out, crate::testing::bytes_of(&private));
        }
        assert_eq!(shared.copy_in(len - 1, &[0; 2]), Err(PortError::OutOfBounds { offset: len - 1, len: 2 }));
        assert!(shared.reclaim().is_err());
    }
}
