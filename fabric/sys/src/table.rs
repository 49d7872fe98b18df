//! Calling through libfabric's tables of operations.

/// Reads the function `$op` from the table that `$table` points to. The entry is not checked, as in the C headers.
///
/// For each capability that a provider grants, it fills all entries that existed in version 1.17. The entry of a
/// function that it does not implement is a function that returns `-FI_ENOSYS`. See the crate's safety contract.
macro_rules! op {
    ($table:expr, $op:ident) => {
        (*$table).$op.unwrap_unchecked()
    };
}

/// Reads the function `$op` from a table, or gives `None` if the table does not have it: entries that were added after
/// version 1.0 may be beyond the table's end.
///
/// This is `FI_CHECK_OP` of `rdma/fabric.h`.
macro_rules! newer_op {
    ($table:expr, $ops:ty, $op:ident) => {
        if !$table.is_null() && (*$table).size > core::mem::offset_of!($ops, $op) {
            (*$table).$op
        } else {
            None
        }
    };
}

/// Declares functions that pass their arguments, unchanged, to an operation of a table:
/// `fi_name = table expression => operation(arguments) -> result;`.
macro_rules! through_table {
    ($(
        $(#[$doc:meta])*
        $name:ident = $table:expr => $op:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// See [the crate's contract](crate#safety).
        #[inline]
        pub unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller meets the crate's contract. The object is live, so its table is live too. The object
            // offers the operation, so the entry is a function.
            unsafe { $crate::table::op!($table, $op)($($arg),*) }
        }
    )*};
}

pub(crate) use {newer_op, op, through_table};
