//! Hints to the processor.

/// Starts to fetch a cache line for writing. A later store then need not wait until the line has left the cache of the
/// processor that used it last.
#[inline(always)]
pub(crate) fn for_writing<T>(line: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction has no effect that a program could observe, and no address makes it fault. A processor
    // without it executes it as a NOP (AMD64 manual, volume 3, PREFETCHW). It uses no flags and no stack.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) std::ptr::from_ref(line),
            options(readonly, nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Starts to load a cache line. If several lines are prefetched before the first is used, they are transferred at the
/// same time from the caches of the processors that wrote them.
#[inline(always)]
pub(crate) fn for_reading<T>(line: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above; every processor of this architecture has the instruction (PREFETCHT0, same manual).
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
