//! Events for the crate `tracing`, if the feature `tracing` is on. Without the feature, the events and their fields
//! compile to nothing.

/// Emits an event of the target `samite`, of this level, if the calling crate has the feature `tracing`.
#[doc(hidden)]
#[macro_export]
macro_rules! event {
    ($level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "samite", tracing::Level::$level, $($event)*);
    };
}
