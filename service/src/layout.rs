//! Layouts: messages whose bytes do not lie next to each other in memory.

use std::marker::PhantomData;

use samite_fabric::layout::{Elements, Form, FormError, Readable, Room, Signature, Writable};
use samite_fabric::{Body, Memory};
use zerocopy::{FromBytes, IntoBytes};

use crate::buffer::{Buffer, BufferMut, Held};
use crate::signature::{signature_at_run_time, signature_of};
use crate::{Element, Error, Failed};

/// The positions of a message's elements in a slice of `T`, in the order of the message (MPI's derived datatype; MPI
/// 4.1, section 5.1).
///
/// A layout is a value: it is made once, simplified when it is made, and may be cloned, shared by threads and used for
/// any number of messages. [`of`](Self::of) and [`of_mut`](Self::of_mut) bind it to a slice, and check that every
/// element of the layout lies in the slice. The calls that send and receive take the resulting [`View`] or [`ViewMut`].
/// The two sides of a message may use different layouts; only the sequence of bytes must agree.
///
/// The displacements, strides and extents that constructors take count elements of `T`. [`size`](Self::size),
/// [`lower_bound`](Self::lower_bound) and [`extent`](Self::extent) return bytes, since a layout may select parts of
/// elements: see [`fields`](Self::fields). A regular layout takes the same memory for any count; an irregular layout
/// takes 24 bytes per block, which its clones share.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// use samite::{Layout, Rank};
///
/// // A column of a matrix of 3 rows and 4 columns.
/// let column = Layout::vector(3, 1, 4)?;
/// let mut matrix = [0.0; 12];
/// match comm.rank() {
///     Rank(0) => {
///         matrix = std::array::from_fn(|i| i as f64);
///         comm.send_view(column.of(&matrix[1..])?, Rank(1), 7)?;
///     }
///     _ => {
///         comm.recv_view(&mut column.of_mut(&mut matrix[3..])?, Rank(0), 7)?;
///         assert_eq!(matrix, [0., 0., 0., 1., 0., 0., 0., 5., 0., 0., 0., 9.]);
///     }
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// The compiler refuses to bind a layout to a slice of another type, and to change the slice while a view of it exists:
///
/// ```compile_fail,E0308
/// let column = samite::Layout::<f64>::vector(3, 1, 4).unwrap();
/// column.of(&[0u32; 12]);
/// ```
/// ```compile_fail,E0506
/// let column = samite::Layout::vector(3, 1, 4).unwrap();
/// let mut matrix = [0.0; 12];
/// let view = column.of(&matrix).unwrap();
/// matrix[0] = 1.0;
/// view.pack();
/// ```
#[derive(Debug)]
pub struct Layout<T> {
    form: Form,
    /// The length of a received message must be a multiple of this number of bytes.
    unit: usize,
    /// The types of the selected elements.
    elements: Elements,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Layout<T> {
    fn clone(&self) -> Self {
        Self { form: self.form.clone(), elements: self.elements.clone(), ..*self }
    }
}

/// The order of the elements of an array of several dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageOrder {
    /// The last index changes fastest, as in C.
    RowMajor,
    /// The first index changes fastest, as in Fortran.
    ColumnMajor,
}

/// A part of an element: see [`Layout::fields`].
#[derive(Clone, Debug)]
pub struct Field {
    offset: usize,
    form: Form,
    elements: Elements,
}

impl Field {
    /// Returns the field that begins `offset` bytes after the start of an element, and whose selected bytes are those
    /// of `layout`. Use [`offset_of!`](std::mem::offset_of) for the offset.
    #[must_use]
    pub fn new<U>(offset: usize, layout: &Layout<U>) -> Self {
        Self { offset, form: layout.form.clone(), elements: layout.elements.clone() }
    }
}

impl<T: Element> Layout<T> {
    /// Returns the layout of `count` elements without gaps (MPI_Type_contiguous).
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn contiguous(count: usize) -> Result<Self, LayoutError> {
        let call = "Layout::contiguous";
        let len = count.checked_mul(size_of::<T>()).ok_or(LayoutError::Overflow { call })?;
        Self::new(call, Form::block(len))
    }

    /// Returns the layout of `count` blocks of `block` elements each. The first elements of successive blocks are
    /// `stride` elements apart (MPI_Type_vector).
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// let layout = samite::Layout::vector(2, 2, 3)?;
    /// assert_eq!(layout.of(&[1u8, 2, 3, 4, 5])?.pack(), [1, 2, 4, 5]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn vector(count: usize, block: usize, stride: isize) -> Result<Self, LayoutError> {
        let call = "Layout::vector";
        let form = Self::contiguous(block).and_then(|block| {
            let stride = bytes::<T>(call, stride)?;
            block.form.strided(count, stride).map_err(|error| LayoutError::of(call, error))
        });
        Ok(Self::from_form(form.map_err(|error| error.in_call(call))?))
    }

    /// Returns the layout of blocks, each given by its displacement from the start of the slice and its length, in
    /// elements (MPI_Type_indexed). The message has the blocks in the given order.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// let layout = samite::Layout::indexed([(4, 1), (0, 2)])?;
    /// assert_eq!(layout.of(&[1u8, 2, 3, 4, 5])?.pack(), [5, 1, 2]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn indexed(blocks: impl IntoIterator<Item = (isize, usize)>) -> Result<Self, LayoutError> {
        Self::listed("Layout::indexed", blocks.into_iter())
    }

    /// Returns the layout of blocks of `block` elements each, given by their displacements
    /// (MPI_Type_create_indexed_block).
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// let layout = samite::Layout::indexed_block(2, [3, 0])?;
    /// assert_eq!(layout.of(&[1u8, 2, 3, 4, 5])?.pack(), [4, 5, 1, 2]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn indexed_block(
        block: usize,
        displacements: impl IntoIterator<Item = isize>,
    ) -> Result<Self, LayoutError> {
        Self::listed("Layout::indexed_block", displacements.into_iter().map(|at| (at, block)))
    }

    fn listed(call: &'static str, blocks: impl Iterator<Item = (isize, usize)>) -> Result<Self, LayoutError> {
        let blocks = blocks.map(|(at, len)| {
            let block = Self::contiguous(len).map_err(|error| error.in_call(call))?;
            Ok((bytes::<T>(call, at)?, block.form))
        });
        let blocks: Vec<_> = blocks.collect::<Result<_, LayoutError>>()?;
        Self::new(call, Form::list(blocks.iter().map(|(at, block)| (*at, block))))
    }

    /// Returns the layout of a part of an array of several dimensions (MPI_Type_create_subarray). The array has
    /// `sizes[i]` elements in dimension `i`; the part begins at index `starts[i]` and has `parts[i]` elements. The
    /// extent is that of the whole array.
    ///
    /// # Errors
    /// [`LayoutError::Subarray`], [`LayoutError::Overflow`].
    ///
    /// ```
    /// use samite::{Layout, StorageOrder};
    ///
    /// let layout = Layout::subarray(&[3, 4], &[2, 2], &[1, 0], StorageOrder::RowMajor)?;
    /// let array = [0u8, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23];
    /// assert_eq!(layout.of(&array)?.pack(), [10, 11, 20, 21]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn subarray(
        sizes: &[usize],
        parts: &[usize],
        starts: &[usize],
        order: StorageOrder,
    ) -> Result<Self, LayoutError> {
        let call = "Layout::subarray";
        let fits = |size: usize, part: usize, start: usize| start <= size && part <= size - start;
        let is_sound = sizes.len() == parts.len()
            && sizes.len() == starts.len()
            && (0..sizes.len()).all(|i| fits(sizes[i], parts[i], starts[i]));
        if !is_sound {
            let [sizes, parts, starts] = [sizes, parts, starts].map(<[_]>::to_vec);
            return Err(LayoutError::Subarray { sizes, parts, starts });
        }
        let build = || {
            let mut form = Form::block(size_of::<T>())?;
            // The bytes of the whole array over the dimensions so far. They are the stride of the next dimension, and
            // after the last dimension the extent.
            let mut extent = size_of::<T>();
            let mut dimensions: Vec<_> = (0..sizes.len()).collect();
            if order == StorageOrder::RowMajor {
                dimensions.reverse();
            }
            for i in dimensions {
                let stride = isize::try_from(extent).map_err(|_| FormError::Overflow)?;
                form = form.strided(parts[i], stride)?;
                let start = isize::try_from(starts[i]).ok().and_then(|start| start.checked_mul(stride));
                form = Form::list([(start.ok_or(FormError::Overflow)?, &form)])?;
                extent = extent.checked_mul(sizes[i]).ok_or(FormError::Overflow)?;
            }
            Ok(form.resized(0, isize::try_from(extent).map_err(|_| FormError::Overflow)?))
        };
        Self::new(call, build())
    }

    /// Returns the layout of some fields of one element (MPI_Type_create_struct). The extent of the layout is the size
    /// of `T`, so it can be [`repeated`](Self::repeated) for the elements of a slice. A received message may end within
    /// a field.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`], [`LayoutError::TooDeep`].
    ///
    /// ```
    /// # use std::mem::offset_of;
    /// use samite::zerocopy::{FromBytes, Immutable, IntoBytes};
    /// use samite::{Field, Layout};
    ///
    /// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    /// #[zerocopy(crate = "samite::zerocopy")]
    /// #[repr(C)]
    /// struct Particle {
    ///     place: [f32; 3],
    ///     mass: f32,
    ///     charge: u16,
    ///     kind: u16,
    /// }
    ///
    /// let place = Layout::<f32>::contiguous(3)?;
    /// let kind = Layout::<u16>::contiguous(1)?;
    /// let fields = [
    ///     Field::new(offset_of!(Particle, place), &place),
    ///     Field::new(offset_of!(Particle, kind), &kind),
    /// ];
    /// let two = Layout::<Particle>::fields(fields)?.repeated(2)?;
    /// assert_eq!(two.size(), 2 * (12 + 2));
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn fields(fields: impl IntoIterator<Item = Field>) -> Result<Self, LayoutError> {
        let call = "Layout::fields";
        let fields: Vec<_> = fields.into_iter().collect();
        let items: Option<Vec<_>> =
            fields.iter().map(|field| Some((isize::try_from(field.offset).ok()?, &field.form))).collect();
        let form = Form::list(items.ok_or(LayoutError::Overflow { call })?);
        let form = form.map_err(|error| LayoutError::of(call, error))?;
        let parts = fields.into_iter().map(|field| (field.elements, field.form.size()));
        let elements = Elements::Sequence(parts.collect());
        Ok(Self { unit: 1, elements, ..Self::from_form(form.resized(0, size_of::<T>().cast_signed())) })
    }

    /// Returns the layout in which each element of this layout is replaced by all elements that `inner` selects.
    /// Displacements and strides of this layout become multiples of the extent of `inner`.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`], [`LayoutError::TooDeep`], [`LayoutError::PartialElements`] if this layout was made by
    /// [`fields`](Self::fields).
    ///
    /// ```
    /// use samite::Layout;
    ///
    /// // Every second row of a matrix of 5 columns, without the last column.
    /// let row = Layout::<u8>::contiguous(4)?.resized(0, 5)?;
    /// let rows = Layout::<u8>::vector(2, 1, 2)?.nested(&row)?;
    /// let matrix = [1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 6, 7, 8, 9, 10];
    /// assert_eq!(rows.of(&matrix)?.pack(), [1, 2, 3, 4, 6, 7, 8, 9]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn nested<U: Element>(&self, inner: &Layout<U>) -> Result<Layout<U>, LayoutError> {
        let call = "Layout::nested";
        if self.unit != size_of::<T>() {
            return Err(LayoutError::PartialElements { call });
        }
        let form = self.form.nested(size_of::<T>().max(1), &inner.form);
        Ok(Layout {
            unit: inner.unit,
            elements: inner.elements.clone(),
            ..Layout::from_form(form.map_err(|error| LayoutError::of(call, error))?)
        })
    }

    /// Returns the layout of `count` copies of this layout. Each copy begins one extent after the copy before it. (This
    /// is the count argument of MPI's send and receive calls.)
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// use samite::Layout;
    ///
    /// // All columns of a matrix of 2 rows and 3 columns, one after the other: its transpose.
    /// let column = Layout::vector(2, 1, 3)?.resized(0, 1)?;
    /// assert_eq!(column.repeated(3)?.of(&[1u8, 2, 3, 4, 5, 6])?.pack(), [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn repeated(&self, count: usize) -> Result<Self, LayoutError> {
        let form = self.form.strided(count, self.form.extent());
        let form = form.map_err(|error| LayoutError::of("Layout::repeated", error))?;
        Ok(Self { form, elements: self.elements.clone(), ..*self })
    }

    /// Returns the layout with another lower bound and extent, in elements (MPI_Type_create_resized). The bound and the
    /// extent determine the distance of the copies in [`repeated`](Self::repeated) and [`nested`](Self::nested). They
    /// do not change which elements are selected.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn resized(&self, lower_bound: isize, extent: isize) -> Result<Self, LayoutError> {
        let call = "Layout::resized";
        let (lower, extent) = (bytes::<T>(call, lower_bound)?, bytes::<T>(call, extent)?);
        let upper = lower.checked_add(extent).ok_or(LayoutError::Overflow { call })?;
        let form = self.form.resized(lower, upper);
        Ok(Self { form, elements: self.elements.clone(), ..*self })
    }

    /// Returns the length of a message in bytes (MPI_Type_size).
    #[must_use]
    pub fn size(&self) -> usize {
        self.form.size()
    }

    /// Returns the lower bound in bytes (MPI_Type_get_extent).
    #[must_use]
    pub fn lower_bound(&self) -> isize {
        self.form.bounds()[0]
    }

    /// Returns the extent in bytes: the distance between the lower and the upper bound (MPI_Type_get_extent).
    #[must_use]
    pub fn extent(&self) -> isize {
        self.form.extent()
    }

    /// Returns the offset of the first selected byte from the start of the slice (MPI_Type_get_true_extent).
    #[must_use]
    pub fn true_lower_bound(&self) -> isize {
        self.form.true_bounds()[0]
    }

    /// Returns the number of bytes from the first to the last selected byte, both included (MPI_Type_get_true_extent).
    #[must_use]
    pub fn true_extent(&self) -> usize {
        let [first, end] = self.form.true_bounds();
        end.abs_diff(first)
    }

    /// Returns the places of the selected bytes.
    pub(crate) fn form(&self) -> &Form {
        &self.form
    }

    /// Binds the layout to data to send. The view borrows the layout too, so a layout for a [`Scope`](crate::Scope) is
    /// made before the scope.
    ///
    /// # Errors
    /// [`LayoutError::BeyondSlice`].
    pub fn of<'a>(&'a self, data: &'a [T]) -> Result<View<'a>, LayoutError> {
        let bytes = data.as_bytes();
        match self.form.read(bytes) {
            Some(bytes) => Ok(View { bytes, elements: &self.elements }),
            None => Err(self.beyond("Layout::of", bytes.len())),
        }
    }

    /// Binds the layout to a buffer to receive into. The elements of the layout must not overlap. The view borrows the
    /// layout too: see [`of`](Self::of).
    ///
    /// # Errors
    /// [`LayoutError::BeyondSlice`], [`LayoutError::Overlap`].
    pub fn of_mut<'a>(&'a self, buffer: &'a mut [T]) -> Result<ViewMut<'a>, LayoutError> {
        let (bytes, call) = (buffer.as_mut_bytes(), "Layout::of_mut");
        let len = bytes.len();
        // First check that the layout lies within the slice. Then the search for overlaps takes time in proportion to
        // the slice at most.
        let bytes = self.form.write(bytes).ok_or_else(|| self.beyond(call, len))?;
        if !self.form.is_disjoint() {
            return Err(LayoutError::Overlap { call });
        }
        Ok(ViewMut { bytes, unit: self.unit, elements: &self.elements })
    }

    /// Binds the layout to a buffer that operations take over: a `Vec<T>`, a `Box<[T]>`, or an `Arc<[T]>`, which can
    /// only be sent. The elements of the layout may overlap only in an `Arc`.
    ///
    /// # Errors
    /// [`LayoutError::BeyondSlice`], [`LayoutError::Overlap`]; returns the buffer.
    pub fn of_owned<B: Buffer + AsRef<[T]>>(&self, buffer: B) -> Result<OwnedView<B>, Failed<B>> {
        let call = "Layout::of_owned";
        let (len, memory) = (size_of_val(buffer.as_ref()), buffer.into_memory());
        let failed = |error: LayoutError, memory| Failed::new(Error::from(error), Some(memory));
        // Shared memory is never received into, so elements may overlap in it.
        let is_received = !memory.is_shared();
        match Memory::scattered::<B>(memory, self.form.clone(), self.unit, self.elements.clone()) {
            Err(memory) => Err(failed(self.beyond(call, len), memory)),
            Ok(memory) if is_received && !self.form.is_disjoint() => {
                let whole = memory.into_whole().unwrap_or_else(|memory| memory);
                Err(failed(LayoutError::Overlap { call }, whole))
            }
            Ok(memory) => Ok(OwnedView { memory, buffer: PhantomData }),
        }
    }

    /// Returns the places of the selected bytes, after a check that they lie within `bytes` bytes.
    ///
    /// # Errors
    /// [`LayoutError::BeyondSlice`].
    pub(crate) fn form_within(&self, call: &'static str, bytes: usize) -> Result<&Form, LayoutError> {
        let [first, end] = self.form.true_bounds();
        let is_within = first >= 0 && usize::try_from(end).is_ok_and(|end| end <= bytes);
        if is_within { Ok(&self.form) } else { Err(self.beyond(call, bytes)) }
    }

    #[cold]
    fn beyond(&self, call: &'static str, len: usize) -> LayoutError {
        let [first, end] = self.form.true_bounds();
        LayoutError::BeyondSlice { call, first, end, len }
    }

    fn new(call: &'static str, form: Result<Form, FormError>) -> Result<Self, LayoutError> {
        Ok(Self::from_form(form.map_err(|error| LayoutError::of(call, error))?))
    }

    fn from_form(form: Form) -> Self {
        let elements = Elements::Type(signature_of::<T>);
        Self { form, unit: size_of::<T>(), elements, element: PhantomData }
    }
}

/// Borrowed data to send, with the [`Layout`] of the sent elements: see [`Layout::of`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) bytes: Readable<'a>,
    pub(crate) elements: &'a Elements,
}

impl View<'_> {
    /// Returns the bytes if they lie next to each other.
    pub(crate) fn as_slice(&self) -> Option<&[u8]> {
        self.bytes.as_slice()
    }

    /// Returns the bytes of the message.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of the message, without gaps (MPI_Pack).
    ///
    /// ```
    /// let layout = samite::Layout::vector(2, 1, 2)?;
    /// assert_eq!(layout.of(&[1u8, 2, 3])?.pack(), [1, 3]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut into = vec![0; self.size()];
        self.bytes.copy_to(&mut into);
        into
    }

    /// Writes the bytes of the message to the start of `into`, without gaps, and returns their number.
    ///
    /// # Errors
    /// [`LayoutError::PackedLength`] if `into` is too short.
    pub fn pack_into(&self, into: &mut [u8]) -> Result<usize, LayoutError> {
        let (expected, len) = (self.size(), into.len());
        let into = into.get_mut(..expected);
        let error = LayoutError::PackedLength { call: "View::pack_into", expected, len };
        self.bytes.copy_to(into.ok_or(error)?);
        Ok(expected)
    }
}

/// A borrowed buffer to receive into, with the [`Layout`] of the received elements: see [`Layout::of_mut`].
#[derive(Debug)]
pub struct ViewMut<'a> {
    pub(crate) bytes: Writable<'a>,
    pub(crate) unit: usize,
    pub(crate) elements: &'a Elements,
}

impl ViewMut<'_> {
    /// Returns the length in bytes of the longest message that fits into the view.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the same view with a shorter lifetime, for a call that takes a view by value.
    #[must_use]
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { bytes: self.bytes.reborrow(), ..*self }
    }

    /// Returns a view of the same elements, from which they can be sent.
    #[must_use]
    pub fn as_view(&self) -> View<'_> {
        View { bytes: self.bytes.as_readable(), elements: self.elements }
    }

    /// Writes packed bytes to the elements that the layout selects (MPI_Unpack).
    ///
    /// # Errors
    /// [`LayoutError::PackedLength`] unless `from` has as many bytes as the layout selects.
    ///
    /// ```
    /// let layout = samite::Layout::vector(2, 1, 2)?;
    /// let mut numbers = [0u8; 3];
    /// layout.of_mut(&mut numbers)?.unpack_from(&[1, 2])?;
    /// assert_eq!(numbers, [1, 0, 2]);
    /// # Ok::<(), samite::LayoutError>(())
    /// ```
    pub fn unpack_from(&mut self, from: &[u8]) -> Result<(), LayoutError> {
        let (expected, len) = (self.size(), from.len());
        if len != expected {
            return Err(LayoutError::PackedLength { call: "ViewMut::unpack_from", expected, len });
        }
        self.bytes.put(0, from);
        Ok(())
    }
}

/// The data of an operation with a layout at its target: a slice or an array of elements of type `T`, or a [`View`] of
/// elements of any type, such as parts of elements.
///
/// The trait is sealed: other types cannot implement it.
pub trait IntoView<'v, T: Element>: Bound<View<'v>> {}

/// The buffer for the result of an operation with a layout at its target: a slice or an array of elements of type `T`,
/// or a [`ViewMut`] of elements of any type, such as parts of elements.
///
/// The trait is sealed: other types cannot implement it.
pub trait IntoViewMut<'v, T: Element>: Bound<ViewMut<'v>> {}

/// The implementation of [`IntoView`] and [`IntoViewMut`], hidden from other crates.
pub trait Bound<V> {
    #[doc(hidden)]
    fn bound(self) -> V;
}

impl<'v> Bound<View<'v>> for View<'v> {
    fn bound(self) -> Self {
        self
    }
}

impl<'v, T: Element> Bound<View<'v>> for &'v [T] {
    fn bound(self) -> View<'v> {
        View { bytes: self.as_bytes().into(), elements: const { &Elements::Type(signature_of::<T>) } }
    }
}

impl<'v, T: Element, const N: usize> Bound<View<'v>> for &'v [T; N] {
    fn bound(self) -> View<'v> {
        self.as_slice().bound()
    }
}

impl<'v> Bound<ViewMut<'v>> for ViewMut<'v> {
    fn bound(self) -> Self {
        self
    }
}

impl<'v, T: Element> Bound<ViewMut<'v>> for &'v mut [T] {
    fn bound(self) -> ViewMut<'v> {
        let elements = const { &Elements::Type(signature_of::<T>) };
        ViewMut { bytes: self.as_mut_bytes().into(), unit: size_of::<T>(), elements }
    }
}

impl<'v, T: Element, const N: usize> Bound<ViewMut<'v>> for &'v mut [T; N] {
    fn bound(self) -> ViewMut<'v> {
        self.as_mut_slice().bound()
    }
}

impl<'v, T: Element> IntoView<'v, T> for View<'v> {}
impl<'v, T: Element> IntoView<'v, T> for &'v [T] {}
impl<'v, T: Element, const N: usize> IntoView<'v, T> for &'v [T; N] {}
impl<'v, T: Element> IntoViewMut<'v, T> for ViewMut<'v> {}
impl<'v, T: Element> IntoViewMut<'v, T> for &'v mut [T] {}
impl<'v, T: Element, const N: usize> IntoViewMut<'v, T> for &'v mut [T; N] {}

/// A buffer in a [`Layout`], for operations that own their buffers: see [`Layout::of_owned`].
///
/// It is a [`Buffer`], so all operations that own buffers take it: nonblocking and persistent operations, futures,
/// sets.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// use samite::{Layout, Rank};
///
/// let column = Layout::vector(3, 1, 4)?;
/// let matrix = column.of_owned(vec![comm.rank().0; 12])?;
/// if comm.rank() == 0 {
///     comm.isend(matrix, Rank(1), 7)?.wait()?;
/// } else {
///     let received = comm.irecv(matrix, Rank(0), 7)?.wait()?;
///     assert_eq!(received.buffer.into_buffer(), [0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]);
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// Receives do not accept a view of an `Arc`:
///
/// ```compile_fail,E0277
/// # samite::local(1, |world| {
/// let shared: std::sync::Arc<[u8]> = [0; 8].into();
/// let view = samite::Layout::vector(4, 1, 2).unwrap().of_owned(shared).unwrap();
/// let _ = world.comm().irecv(view, samite::Rank(0), 7);
/// # });
/// ```
#[derive(Debug)]
pub struct OwnedView<B> {
    memory: Memory,
    buffer: PhantomData<fn() -> B>,
}

impl<B: Buffer> OwnedView<B> {
    /// Returns the length in bytes of the message to send, or of the longest message that fits.
    #[must_use]
    pub fn size(&self) -> usize {
        self.memory.len()
    }

    /// Returns a view of the elements that the layout selects.
    #[must_use]
    pub fn as_view(&self) -> View<'_> {
        let elements = self.memory.elements().unwrap_or(&Elements::BYTES);
        View { bytes: self.memory.readable(), elements }
    }

    /// Returns the buffer.
    #[must_use]
    pub fn into_buffer(self) -> B {
        let whole = self.memory.into_whole().and_then(B::of_memory);
        whole.unwrap_or_else(|_| unreachable!("the memory was made of such a buffer"))
    }

    /// Returns all elements of the buffer.
    #[must_use]
    pub fn as_slice<T: Element>(&self) -> &[T]
    where
        B: AsRef<[T]>,
    {
        let whole = self.memory.whole().and_then(|whole| <[T]>::ref_from_bytes(whole.as_bytes()).ok());
        whole.unwrap_or_else(|| unreachable!("the memory was made of such a buffer"))
    }

    /// Returns all elements of the buffer, for changes.
    #[must_use]
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T]
    where
        B: BufferMut + AsRef<[T]>,
    {
        let whole = self.memory.whole_mut().and_then(|whole| <[T]>::mut_from_bytes(whole).ok());
        whole.unwrap_or_else(|| unreachable!("the memory was made of such a buffer"))
    }
}

impl<B: Buffer> Held for OwnedView<B> {
    #[inline(always)]
    fn element_bytes() -> Option<usize> {
        None
    }
    fn into_memory(self) -> Memory {
        self.memory
    }
    fn of_memory(memory: Memory) -> Result<Self, Memory> {
        match memory.is_scattered_of::<B>() {
            true => Ok(Self { memory, buffer: PhantomData }),
            false => Err(memory),
        }
    }
    fn signature(memory: &Memory) -> Signature {
        signature_at_run_time(memory)
    }
}

impl<B: Buffer> Buffer for OwnedView<B> {}
impl<B: BufferMut> BufferMut for OwnedView<B> {}

/// Misuse of a layout. Each error names the call and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A length, displacement, stride or bound exceeds `isize::MAX` bytes.
    #[error("{call}: a length or a place exceeds {} bytes: use smaller counts and displacements", isize::MAX)]
    Overflow {
        /// The call.
        call: &'static str,
    },
    /// There are too many levels of nested layouts.
    #[error("{call}: over 32 levels of nested layouts: list the blocks with Layout::indexed")]
    TooDeep {
        /// The call.
        call: &'static str,
    },
    /// The part of an array is not inside of it, or the three lists have different lengths.
    #[error(
        "Layout::subarray: the part of {parts:?} elements from {starts:?} on is not inside of an array of {sizes:?}: \
         in each dimension, start + part must be at most the size"
    )]
    Subarray {
        /// The sizes of the array.
        sizes: Vec<usize>,
        /// The sizes of the part.
        parts: Vec<usize>,
        /// The indices at which the part begins.
        starts: Vec<usize>,
    },
    /// The call requires a layout of whole elements, and the given layout selects parts of elements.
    #[error(
        "{call}: the outer layout selects parts of elements: only the inner one may be made by Layout::fields"
    )]
    PartialElements {
        /// The call.
        call: &'static str,
    },
    /// The layout selects bytes outside of the slice.
    #[error(
        "{call}: the layout reaches from byte {first} to byte {end}, and the slice has {len} bytes: bind it to a slice that begins earlier or is longer"
    )]
    BeyondSlice {
        /// The call.
        call: &'static str,
        /// The offset of the first selected byte from the start of the slice.
        first: isize,
        /// The end of the last selected byte.
        end: isize,
        /// Bytes of the slice.
        len: usize,
    },
    /// Two elements of a layout to receive into have a byte in common.
    #[error(
        "{call}: the layout selects a byte twice, so its value after a receive would be undefined: use a layout without overlaps"
    )]
    Overlap {
        /// The call.
        call: &'static str,
    },
    /// A slice of packed bytes does not have the length of the message. A slice for [`View::pack_into`] may be longer.
    #[error(
        "{call}: the layout selects {expected} bytes, and the slice has {len}: use View::size for its length"
    )]
    PackedLength {
        /// The call.
        call: &'static str,
        /// Bytes of the layout.
        expected: usize,
        /// Bytes of the slice.
        len: usize,
    },
}

impl LayoutError {
    pub(crate) fn of(call: &'static str, error: FormError) -> Self {
        match error {
            FormError::Overflow => Self::Overflow { call },
            FormError::TooDeep => Self::TooDeep { call },
        }
    }

    /// Returns an overflow with `call`, the call that the user made, as its origin. Returns any other error unchanged.
    fn in_call(self, call: &'static str) -> Self {
        match self {
            Self::Overflow { .. } => Self::Overflow { call },
            other => other,
        }
    }
}

/// Returns the length of `elements` elements in bytes.
fn bytes<T>(call: &'static str, elements: isize) -> Result<isize, LayoutError> {
    elements.checked_mul(size_of::<T>().cast_signed()).ok_or(LayoutError::Overflow { call })
}
